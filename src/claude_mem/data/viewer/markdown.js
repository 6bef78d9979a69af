// Markdown as elements: headings, lists, tables, quotes, code, bold and italics. Everything else is shown as it stands.
// Text only ever becomes a text node, and a link is its words and its address: data never chooses where a link leads.

import { h } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^[ \t]{0,8}\|?[ \t]{0,8}:?-+:?[ \t]{0,8}(?:\|[ \t]{0,8}:?-+:?[ \t]{0,8})*\|?\s*$/;
// Each alternative is bounded: a message may be long, and its reader must not wait.
const INLINE = /(`{1,4})([^\n]{1,300}?)\1(?!`)|\*\*((?:[^*\n]|\*(?!\*)){1,1000}?)\*\*|(?<![\w*])\*([^*\s][^*\n]{0,1000}?)\*(?![\w*])|!?\[([^[\]\n]{1,500})\]\(([^()\s]{1,1000})\)/g;
const MOST_NESTED = 8;

/** The elements that show a Markdown text. */
export function markdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const made = [];
  let at = 0, last = 2; // the heading before it: none may skip a level
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) at += 1;
    else if ((found = FENCE.exec(line))) [at, made[made.length]] = fenced(lines, at, found[1]);
    else if ((found = HEADING.exec(line))) {
      last = Math.min(found[1].length + 2, last + 1, 6);
      made.push(h(`h${last}`, {}, inline(found[2].trim())));
      at += 1;
    } else if (RULE.test(line)) made.push(h("hr")), (at += 1);
    else if (isTable(lines, at)) [at, made[made.length]] = table(lines, at);
    else if (ITEM.test(line)) [at, made[made.length]] = list(lines, at, 0);
    else if (QUOTE.test(line)) [at, made[made.length]] = quote(lines, at);
    else [at, made[made.length]] = paragraph(lines, at);
  }
  return made;
}

function fenced(lines, at, fence) {
  const end = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}\\s*$`);
  const body = [];
  for (at += 1; at < lines.length && !end.test(lines[at]); at += 1) body.push(lines[at]);
  return [at + 1, h("pre", { tabindex: 0 }, h("code", {}, body.join("\n")))];
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
const isTable = (lines, at) => lines[at].includes("|") && DIVIDER.test(lines[at + 1] ?? "") && cells(lines[at]).length === cells(lines[at + 1]).length;

function table(lines, at) {
  const heads = cells(lines[at]), rows = [];
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(cells(lines[at]));
  return [at, h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, inline(head))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.slice(0, heads.length).map((cell) => h("td", {}, inline(cell))))))))];
}

function list(lines, at, depth) {
  const [, indent, number] = ITEM.exec(lines[at]);
  const items = [];
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length < indent.length) {
      const next = lines[at].trim() ? null : ITEM.exec(lines[at + 1] ?? ""); // a blank line between two items
      if (!next || next[1].length < indent.length) break;
      at += 1;
    } else if (found[1].length > indent.length + 1 && items.length && depth < MOST_NESTED) {
      let inner;
      [at, inner] = list(lines, at, depth + 1);
      items[items.length - 1].push(inner);
    } else if (items.length && !found[2] !== !number && found[1].length === indent.length) break; // a list of another kind
    else {
      let text = found[3];
      for (at += 1; at < lines.length && /^\s+\S/.test(lines[at]) && !ITEM.test(lines[at]) && !FENCE.test(lines[at].trim()); at += 1) text += `\n${lines[at].trim()}`;
      items.push([inline(text)]);
      if (at < lines.length && /^\s/.test(lines[at]) && FENCE.test(lines[at].trim())) {
        let code;
        [at, code] = fenced(lines.map((line) => line.replace(/^\s{1,8}/, "")), at, FENCE.exec(lines[at].trim())[1]);
        items[items.length - 1].push(code);
      }
    }
  }
  return [at, number ? h("ol", { start: number }, items.map((item) => h("li", {}, item))) : h("ul", {}, items.map((item) => h("li", {}, item)))];
}

function quote(lines, at) {
  const said = [];
  for (let found; at < lines.length && (found = QUOTE.exec(lines[at])); at += 1) said.push(found[1]);
  return [at, h("blockquote", {}, inline(said.join("\n")))];
}

function paragraph(lines, at) {
  const said = [lines[at]];
  for (at += 1; at < lines.length && lines[at].trim() && ![FENCE, HEADING, ITEM, QUOTE].some((kind) => kind.test(lines[at])) && !isTable(lines, at); at += 1) said.push(lines[at]);
  return [at, h("p", {}, inline(said.join("\n")))];
}

/** Text with code, bold, italics and links in it. */
function inline(text, depth = 0) {
  if (depth > 3) return text;
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , code, bold, italic, label, address] = match;
    parts.push(text.slice(at, match.index));
    at = match.index + whole.length;
    if (code !== undefined) parts.push(h("code", {}, code));
    else if (bold !== undefined) parts.push(h("strong", {}, inline(bold, depth + 1)));
    else if (italic !== undefined) parts.push(h("em", {}, inline(italic, depth + 1)));
    else parts.push(inline(label, depth + 1), label === address ? "" : [" ", h("span", { class: "address" }, `(${address})`)]);
  }
  return [...parts, text.slice(at)];
}
