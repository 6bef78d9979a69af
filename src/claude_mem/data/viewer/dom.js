// @ts-check
// Builds elements from data. Text only ever becomes a text node, so nothing that was stored can become markup.

const SVG = "http://www.w3.org/2000/svg";
const OWN_ADDRESS = /^(\/(?!\/)|#)/; // our own pages, and places in them

/**
 * Create an HTML element. `on` holds event listeners; a null, undefined or false attribute or child is left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/**
 * Create an SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[K]}
 */
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any> | undefined} attributes
 * @param {Child[]} children
 * @returns {E}
 */
function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...toNodes(children));
  return element;
}

const isAbsent = (value) => value === null || value === undefined || value === false;
const toNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/**
 * @param {Child[]} children
 * @returns {Node[]}
 */
function toNodes(children) {
  const flat = /** @type {any[]} */ (children).flat(Infinity);
  return flat.filter((child) => !isAbsent(child)).map(toNode);
}

/**
 * @param {any} element
 * @param {string} name
 * @param {any} value
 */
function setAttribute(element, name, value) {
  if (isAbsent(value)) return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "value") {
    element.value = value;
  } else if (isForbidden(name, value)) {
    throw new Error(`${name} may not be set to ${value}`); // a mistake of ours: data never chooses where a link leads
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

/**
 * @param {string} name
 * @param {any} value
 */
function isForbidden(name, value) {
  if (/^(on|style$|src$|srcdoc$|action$|formaction$)/i.test(name)) return true;
  return /href$/i.test(name) && !OWN_ADDRESS.test(value);
}

/**
 * Replace everything in the element by these children.
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function setContent(element, ...children) {
  const flat = /** @type {any[]} */ (children).flat(Infinity);
  element.replaceChildren(...flat.filter(Boolean));
  return element;
}

/**
 * Whether two JSON values are equal, whatever the order of their keys.
 * @param {any} first
 * @param {any} second
 * @returns {boolean}
 */
export function isEqual(first, second) {
  if (first === second) return true;
  if (typeof first !== "object" || typeof second !== "object" || !first || !second) return false;
  if (Array.isArray(first) !== Array.isArray(second)) return false;
  const keys = Object.keys(first);
  if (keys.length !== Object.keys(second).length) return false;
  return keys.every((key) => Object.hasOwn(second, key) && isEqual(first[key], second[key]));
}

/**
 * Call `fn` once there was no further call for this many milliseconds.
 * @param {(...args: any[]) => unknown} fn
 * @param {number} ms
 */
export function debounce(fn, ms) {
  /** @type {number | undefined} */
  let timer;
  return (/** @type {any[]} */ ...args) => {
    clearTimeout(timer);
    timer = setTimeout(fn, ms, ...args);
  };
}

/**
 * Call `fn` at once. Calls that arrive while it runs cause one more run afterwards, so that none pile up.
 * @param {() => unknown} fn
 */
export function latest(fn) {
  let busy = false;
  let pending = false;
  return async () => {
    pending = true;
    if (busy) return;
    busy = true;
    try {
      while (pending) {
        pending = false;
        await fn();
      }
    } finally {
      busy = false;
    }
  };
}
