// @ts-check
// Markdown as elements: headings, lists, tables, quotes, code, bold and italics. Everything else is shown as it stands.
// Text only ever becomes a text node, and a link is its text and its address: data never chooses where a link leads.

import { h } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^[ \t]{0,8}\|?[ \t]{0,8}:?-+:?[ \t]{0,8}(?:\|[ \t]{0,8}:?-+:?[ \t]{0,8})*\|?\s*$/;
// Each alternative is bounded: a message may be long, and must not take long to show.
const CODE = /(`{1,4})([^\n]{1,300}?)\1(?!`)/;
const BOLD = /\*\*((?:[^*\n]|\*(?!\*)){1,1000}?)\*\*/;
const ITALIC = /(?<![\w*])\*([^*\s][^*\n]{0,1000}?)\*(?![\w*])/;
const LINK = /!?\[([^[\]\n]{1,500})\]\(([^()\s]{1,1000})\)/;
const INLINE = new RegExp([CODE, BOLD, ITALIC, LINK].map((pattern) => pattern.source).join("|"), "g");
const MAX_LIST_DEPTH = 8;
const MAX_INLINE_DEPTH = 3;

/**
 * A parser of one block: reads from line `at` on, and returns the line after the block and its element.
 * @typedef {[next: number, element: HTMLElement]} Block
 */

/**
 * The elements that show a Markdown text.
 * @param {string} text
 * @returns {HTMLElement[]}
 */
export function markdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const elements = [];
  let at = 0;
  let level = 2; // of the heading before: none may skip a level
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const heading = HEADING.exec(lines[at]);
    if (heading) level = Math.min(heading[1].length + 2, level + 1, 6);
    const [next, element] = heading
      ? [at + 1, h(/** @type {"h3"} */ (`h${level}`), {}, inline(heading[2].trim()))]
      : block(lines, at);
    elements.push(element);
    at = next;
  }
  return elements;
}

/** @type {(lines: string[], at: number) => Block} */
function block(lines, at) {
  const fence = FENCE.exec(lines[at]);
  if (fence) return codeBlock(lines, at, fence[1]);
  if (RULE.test(lines[at])) return [at + 1, h("hr")];
  if (isTable(lines, at)) return tableBlock(lines, at);
  if (ITEM.test(lines[at])) return list(lines, at, 0);
  if (QUOTE.test(lines[at])) return quote(lines, at);
  return paragraph(lines, at);
}

/** @type {(lines: string[], at: number, fence: string) => Block} */
function codeBlock(lines, at, fence) {
  const end = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}\\s*$`);
  const body = [];
  for (at += 1; at < lines.length && !end.test(lines[at]); at += 1) body.push(lines[at]);
  return [at + 1, h("pre", { tabindex: 0 }, h("code", {}, body.join("\n")))];
}

/** @param {string} line */
function tableCells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** @type {(lines: string[], at: number) => boolean} */
function isTable(lines, at) {
  if (!lines[at].includes("|") || !DIVIDER.test(lines[at + 1] ?? "")) return false;
  return tableCells(lines[at]).length === tableCells(lines[at + 1]).length;
}

/** @type {(lines: string[], at: number) => Block} */
function tableBlock(lines, at) {
  const heads = tableCells(lines[at]);
  const rows = [];
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(tableCells(lines[at]));
  const headRow = heads.map((head) => h("th", { scope: "col" }, inline(head)));
  const bodyRow = (row) => row.slice(0, heads.length).map((cell) => h("td", {}, inline(cell)));
  const body = rows.map((row) => h("tr", {}, bodyRow(row)));
  const element = h("table", {}, h("thead", {}, h("tr", {}, headRow)), h("tbody", {}, body));
  return [at, h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, element)];
}

/** @type {(lines: string[], at: number, depth: number) => Block} */
function list(lines, at, depth) {
  const [, indent, number] = /** @type {RegExpExecArray} */ (ITEM.exec(lines[at]));
  /** @type {Child[][]} */
  const items = [];
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length < indent.length) {
      if (!continuesAfterBlank(lines, at, indent)) break;
      at += 1;
    } else if (item[1].length > indent.length + 1 && items.length && depth < MAX_LIST_DEPTH) {
      const [next, nested] = list(lines, at, depth + 1);
      items[items.length - 1].push(nested);
      at = next;
    } else if (items.length && !item[2] !== !number && item[1].length === indent.length) {
      break; // a list of another kind
    } else {
      const [next, content] = listItem(lines, at, item[3]);
      items.push(content);
      at = next;
    }
  }
  const children = items.map((content) => h("li", {}, content));
  return [at, number ? h("ol", { start: number }, children) : h("ul", {}, children)];
}

/** @type {(lines: string[], at: number, indent: string) => boolean} */
function continuesAfterBlank(lines, at, indent) {
  const next = lines[at].trim() ? null : ITEM.exec(lines[at + 1] ?? "");
  return Boolean(next && next[1].length >= indent.length);
}

/** @type {(lines: string[], at: number, text: string) => [number, Child[]]} */
function listItem(lines, at, text) {
  const isContinuation = (line) => /^\s+\S/.test(line) && !ITEM.test(line) && !FENCE.test(line.trim());
  for (at += 1; at < lines.length && isContinuation(lines[at]); at += 1) text += `\n${lines[at].trim()}`;
  const fence = at < lines.length && /^\s/.test(lines[at]) ? FENCE.exec(lines[at].trim()) : null;
  if (!fence) return [at, [inline(text)]];
  const outdented = lines.map((line) => line.replace(/^\s{1,8}/, ""));
  const [next, code] = codeBlock(outdented, at, fence[1]);
  return [next, [inline(text), code]];
}

/** @type {(lines: string[], at: number) => Block} */
function quote(lines, at) {
  const body = [];
  for (let match = QUOTE.exec(lines[at]); match; match = QUOTE.exec(lines[at] ?? "")) {
    body.push(match[1]);
    at += 1;
  }
  return [at, h("blockquote", {}, inline(body.join("\n")))];
}

/** @type {(lines: string[], at: number) => Block} */
function paragraph(lines, at) {
  const body = [lines[at]];
  const isText = (line) => line.trim() && ![FENCE, HEADING, ITEM, QUOTE].some((pattern) => pattern.test(line));
  for (at += 1; at < lines.length && isText(lines[at]) && !isTable(lines, at); at += 1) body.push(lines[at]);
  return [at, h("p", {}, inline(body.join("\n")))];
}

/**
 * Text with code, bold, italics and links in it.
 * @param {string} text
 * @param {number} [depth]
 * @returns {Child}
 */
function inline(text, depth = 0) {
  if (depth > MAX_INLINE_DEPTH) return text;
  /** @type {Child[]} */
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , code, bold, italic, label, address] = match;
    parts.push(text.slice(end, match.index));
    end = match.index + whole.length;
    if (code !== undefined) parts.push(h("code", {}, code));
    else if (bold !== undefined) parts.push(h("strong", {}, inline(bold, depth + 1)));
    else if (italic !== undefined) parts.push(h("em", {}, inline(italic, depth + 1)));
    else parts.push(inline(label, depth + 1), label === address ? "" : linkAddress(address));
  }
  return [...parts, text.slice(end)];
}

/** @param {string} address */
const linkAddress = (address) => [" ", h("span", { class: "address" }, `(${address})`)];
