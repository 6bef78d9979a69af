// Elements from data. Text only ever becomes a text node, so nothing that was stored can become markup.

const SVG = "http://www.w3.org/2000/svg";
const OURS = /^(\/(?!\/)|#)/; // our own pages, and places in them

export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "value") {
    element.value = value;
  } else if (/^(on|style$|src$|srcdoc$|action$|formaction$)/i.test(name) || (/href$/i.test(name) && !OURS.test(value))) {
    throw new Error(`${name} may not be set to ${value}`); // a mistake of ours: data never chooses where a link leads
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

export const clear = (element, ...children) => (element.replaceChildren(...children.flat(Infinity).filter(Boolean)), element);

/** `fn`, once things have been quiet for so long. */
export function debounce(fn, ms) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(fn, ms, ...given);
  };
}

/** `fn` at once; asked for again before it is done, once more afterwards. Nobody waits who need not, and none pile up. */
export function latest(fn) {
  let busy = false, again = false;
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) {
        again = false;
        await fn();
      }
    } finally {
      busy = false;
    }
  };
}
