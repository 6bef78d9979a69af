// A document with just enough of the DOM for dom.js. Importing this module installs it.

class FakeNode {}

class FakeText extends FakeNode {
    constructor(text) {
        super();
        this.text = text;
    }

    get textContent() {
        return this.text;
    }
}

class FakeElement extends FakeNode {
    constructor(tag) {
        super();
        this.tag = tag;
        this.attributes = {};
        this.listeners = {};
        this.children = [];
    }

    append(...children) {
        this.children.push(...children.map((child) => (child instanceof FakeNode ? child : new FakeText(child))));
    }

    replaceChildren(...children) {
        this.children = [];
        this.append(...children);
    }

    setAttribute(name, value) {
        this.attributes[name] = String(value);
    }

    addEventListener(event, listener) {
        this.listeners[event] = listener;
    }

    get textContent() {
        return this.children.map((child) => child.textContent).join("");
    }

    /** All elements below this one with this tag. */
    all(tag) {
        const below = this.children.filter((child) => child instanceof FakeElement);
        return below.flatMap((child) => [...(child.tag === tag ? [child] : []), ...child.all(tag)]);
    }
}

globalThis.Node = FakeNode;
globalThis.document = {
    createElement: (tag) => new FakeElement(tag),
    createElementNS: (_, tag) => new FakeElement(tag),
    createTextNode: (text) => new FakeText(text),
};
globalThis.ResizeObserver = class {
    observe() {}
};

/** A short notation of elements and text: `p(a strong(b))`. */
export function outline(node) {
    if (node instanceof FakeText) return node.text;
    return `${node.tag}(${node.children.map(outline).join("")})`;
}
