// @ts-check
// The parts that views are composed of: times, icons, tags, cards, tables, dialogs, toasts, paged lists, tabs.

import { ApiError, facets } from "./api.js";
import { h, setContent } from "./dom.js";
import { formatNumber, relativeTime, splitMatches } from "./format.js";

// --- times -----------------------------------------------------------------------------------------------------------

const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** @param {number | null | undefined} ms */
export function timeAgo(ms) {
  if (!ms) return h("span", { class: "muted" }, "–");
  const attributes = { datetime: new Date(ms).toISOString(), title: FULL.format(ms), "data-at": ms };
  return h("time", attributes, relativeTime(ms));
}

/** @param {number} ms */
export const clockTime = (ms) =>
  h("time", { datetime: new Date(ms).toISOString(), title: FULL.format(ms) }, CLOCK.format(ms));

// Relative times change while they are on the screen.
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const text = relativeTime(Number(/** @type {HTMLElement} */ (time).dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}, 30_000);

// --- icons, tags and badges ------------------------------------------------------------------------------------------

// Tables that data is looked up in have no prototype: otherwise `constructor` would be in each of them.
/** @type {Record<string, string>} */
const typeIcons = Object.create(null);
/** @type {Record<string, string>} */
const agentLabels = Object.create(null);

/** Load icons and labels from the worker. Without them, types have a dot and agents their short name. */
export async function loadLabels() {
  const { types, hosts } = await facets();
  for (const { name, icon } of types) typeIcons[name] = icon;
  for (const { name, title } of hosts) agentLabels[name] = title;
}

/** @type {Record<string, [string, string]>} */
const KIND_ICONS = Object.assign(Object.create(null), {
  summary: ["∑", "summary"],
  prompt: ["❯", "prompt"],
  turn: ["≡", "turn"],
});

/**
 * The icon of a type of observation, or of a kind of item; screen readers read its name.
 * @param {string} type
 * @param {string} [kind]
 */
export function typeIcon(type, kind = "observation") {
  const [icon, name] = KIND_ICONS[kind] ?? [typeIcons[type] ?? "·", type || "observation"];
  const dataType = kind === "observation" ? type : kind;
  return h("span", { class: "mark", "data-type": dataType, role: "img", "aria-label": name, title: name }, icon);
}

/**
 * @param {string} name
 * @param {number | null | undefined} id
 */
export const projectTag = (name, id) =>
  id ? h("a", { class: "tag", href: `/project/${id}` }, name) : h("span", { class: "tag" }, name);

/** @param {string} agent */
export const agentTag = (agent) =>
  agent ? h("span", { class: "tag agent", "data-agent": agent }, agentLabels[agent] ?? agent) : null;

/**
 * @param {Child} text
 * @param {"" | "good" | "warn" | "bad"} [level]
 */
export const badge = (text, level = "") => h("span", { class: `badge ${level}` }, text);

/** @type {Record<string, "" | "good" | "warn" | "bad">} */
const OUTCOME_LEVELS = Object.assign(Object.create(null), {
  done: "good",
  partly: "warn",
  failed: "bad",
  abandoned: "warn",
});

/** @param {string | undefined} outcome */
export const outcomeBadge = (outcome) => (outcome ? badge(outcome, OUTCOME_LEVELS[outcome] ?? "") : null);

// What the badge of a validity says, its level, and the sentence behind it.
/** @type {Record<string, ["" | "good" | "warn" | "bad", string]>} */
const VALIDITIES = Object.assign(Object.create(null), {
  current: ["good", "The code it speaks of is as it was"],
  partly: ["warn", "The code it speaks of has changed in part"],
  reworked: ["warn", "The code it speaks of was reworked: most of what it says is still there"],
  moved: ["good", "The code it speaks of is in another file now"],
  outdated: ["bad", "Most of the code it speaks of was replaced: sessions are not shown it"],
  gone: ["bad", "The files it speaks of are gone: sessions are not shown it"],
  elsewhere: ["warn", "The work is on another branch, not in this work tree: sessions here are not shown it"],
  superseded: ["warn", "A later one replaced it: sessions are shown that one"],
  dropped: ["bad", "The work was discarded without a commit: sessions are shown it as a warning only"],
  reverted: ["bad", "The work was taken back after it was committed: sessions are shown it as a warning only"],
  failed: ["bad", "The last check failed, and the work is in no commit since"],
  kept: ["good", "You said that it holds all the same: sessions are shown it until its code changes again"],
});
const SHOWN_OUTCOMES = ["tried", "committed", "landed"]; // the others are validities, too

/**
 * Whether an observation still holds, and what became of its work. If another one replaced it, the badge leads there.
 * @param {{ validity?: string, work_outcome?: string, superseded_by?: number | null }} item
 */
export function validityBadge({ validity = "", work_outcome: outcome = "", superseded_by: successor }) {
  const [level, title] = VALIDITIES[validity] ?? ["", ""];
  if (successor) {
    const text = `superseded by ${successor}`;
    return h("a", { href: `/observation/${successor}` }, h("span", { class: "badge warn", title }, text));
  }
  const words = [validity, SHOWN_OUTCOMES.includes(outcome) ? outcome : ""].filter(Boolean);
  return words.length ? h("span", { class: `badge ${level}`, title: title || null }, words.join(" · ")) : null;
}

/** @param {string} validity */
export const describeValidity = (validity) => VALIDITIES[validity]?.[1] ?? "Nothing is known of its code";

// --- text ------------------------------------------------------------------------------------------------------------

/**
 * A text with backticks as code, and with the words that begin like one of these highlighted.
 * @param {string} text
 * @param {string[]} [words]
 * @returns {Child[]}
 */
export const richText = (text, words = []) =>
  text
    .split(/`([^`\n]+)`/)
    .map((part, index) => (index % 2 ? h("code", {}, highlight(part, words)) : highlight(part, words)));

const highlight = (text, words) =>
  splitMatches(text, words).map((part) => (part.match ? h("mark", {}, part.text) : part.text));

// --- cards -----------------------------------------------------------------------------------------------------------

/**
 * An observation, a summary or a prompt, as listings show it. `words` are highlighted.
 * @param {Item} item
 * @param {string[]} [words]
 */
export function card(item, words = []) {
  const contents = {
    observation: observationContent,
    summary: summaryContent,
    prompt: promptContent,
    turn: promptContent,
  };
  const content = contents[item.kind] ?? observationContent;
  const wrong = item.verdict === "wrong" ? " wrong" : "";
  const attributes = { class: `card ${item.kind}${wrong}`, "data-id": `${item.kind}-${item.id}` };
  return h("article", attributes, content(item, words), cardFooter(item));
}

/** @type {(item: Item, words: string[]) => Child} */
function observationContent(item, words) {
  const text = item.snippet || item.subtitle || item.narrative || item.facts?.[0] || "";
  const link = h("a", { href: `/observation/${item.id}` }, richText(item.title || "Untitled", words));
  return [h("h3", {}, typeIcon(item.type), link), text && h("p", { class: "clip" }, richText(text, words))];
}

/** @type {(item: Item, words: string[]) => Child} */
function summaryContent(item, words) {
  const title = item.completed || item.request || item.title || "Summary of a turn";
  /** @type {[string, string | undefined][]} */
  const texts = [
    ["Requested", item.completed && item.request],
    ["Learned", item.learned],
    ["Next", item.next_steps],
  ];
  const lines = texts.filter(([, text]) => text);
  const line = ([label, text]) => [
    h("dt", {}, label),
    h("dd", {}, h("span", { class: "clip" }, richText(text, words))),
  ];
  return [
    h("h3", {}, typeIcon("", "summary"), h("a", { class: "clip", href: turnPath(item) }, richText(title, words))),
    item.snippet && h("p", { class: "clip" }, richText(item.snippet, words)),
    lines.length ? h("dl", { class: "brief" }, lines.map(line)) : null,
  ];
}

/** @type {(item: Item, words: string[]) => Child} */
function promptContent(item, words) {
  const text = item.snippet || item.text || item.title || "";
  const link = h("a", { class: "quoted clip", href: turnPath(item) }, richText(text, words));
  return h("h3", {}, typeIcon("", item.kind), link);
}

/** @param {Item} item */
const turnPath = (item) => `/session/${item.session_id}#turn-${item.prompt_number ?? 1}`;

/** @param {Item} item */
function cardFooter(item) {
  const files = item.files_modified?.length ? item.files_modified : (item.files_edited ?? item.files ?? []);
  return h(
    "p",
    { class: "meta" },
    projectTag(item.project, item.project_id),
    agentTag(item.host),
    item.pinned ? badge("pinned", "good") : null,
    item.verdict === "wrong" ? badge("marked wrong", "bad") : null,
    validityBadge(item),
    outcomeBadge(item.outcome),
    files.length ? fileNames(files) : null,
    item.kind === "observation" && item.session_id ? h("a", { href: turnPath(item) }, "session") : null,
    timeAgo(item.created_at),
  );
}

/** @param {string[]} files */
function fileNames(files) {
  const others = files.length > 1 ? ` +${files.length - 1}` : "";
  return h("span", { class: "mono", title: files.join("\n") }, files[0].split("/").pop(), others);
}

// --- layout ----------------------------------------------------------------------------------------------------------

/** @type {(label: Child, ...content: Child[]) => HTMLElement} */
export const field = (label, ...content) => h("div", { class: "field" }, h("dt", {}, label), h("dd", {}, content));

/** @type {(...pairs: Child[]) => HTMLElement} */
export const fields = (...pairs) => h("dl", { class: "fields" }, pairs.filter(Boolean));

/** @type {(title: Child, ...content: Child[]) => HTMLElement} */
export const panel = (title, ...content) => h("section", { class: "panel" }, h("h2", {}, title), content);

/** @param {string} text */
export const command = (text) => h("code", { class: "command" }, text);

/**
 * One figure with its label. `level` colours a value that is not zero.
 * @param {string} label
 * @param {Child} value
 * @param {string} [level]
 */
export const figure = (label, value, level = "") =>
  h(
    "div",
    {},
    h("dt", {}, label),
    h("dd", { class: value ? level : "" }, typeof value === "number" ? formatNumber(value) : value),
  );

/**
 * A table. The first cell of a row is its heading; numbers are aligned to the right.
 * @param {string} caption
 * @param {string[]} heads
 * @param {Child[][]} rows
 */
export function table(caption, heads, rows) {
  const cell = (content, column) => {
    const isNumber = typeof content === "number";
    const attributes = { scope: column === 0 ? "row" : null, class: isNumber ? "num" : null };
    return h(column === 0 ? "th" : "td", attributes, isNumber ? formatNumber(content) : content);
  };
  const head = h(
    "tr",
    {},
    heads.map((text) => h("th", { scope: "col" }, text)),
  );
  const body = rows.map((row) => h("tr", {}, row.map(cell)));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)),
  );
}

/** @type {typeof table} */
export const numericTable = (caption, heads, rows) => h("div", { class: "figured" }, table(caption, heads, rows));

/**
 * A placeholder for an empty listing: what would be here, and the command that leads to it.
 * @param {string} title
 * @param {string} text
 * @param {string} [commandText]
 */
export const emptyState = (title, text, commandText = "") =>
  h(
    "div",
    { class: "empty" },
    title && h("h2", {}, title),
    text && h("p", {}, richText(text)),
    commandText && command(commandText),
  );

/**
 * @param {Child} label
 * @param {(event: Event) => unknown} onClick
 * @param {Record<string, any>} [options] `kind` is the class; everything else is an attribute
 */
export const button = (label, onClick, { kind = "", ...attributes } = {}) =>
  h("button", { type: "button", class: kind, on: { click: withErrorToast(onClick) }, ...attributes }, label);

// --- errors and toasts -----------------------------------------------------------------------------------------------

/**
 * A listener whose errors are shown as a toast. The element is busy while it runs.
 * @param {(event: any) => unknown} listener
 */
export const withErrorToast = (listener) => async (/** @type {any} */ event) => {
  const element = event.currentTarget;
  element?.setAttribute?.("aria-busy", "true");
  try {
    await listener(event);
  } catch (error) {
    showError(error);
  } finally {
    element?.removeAttribute?.("aria-busy");
  }
};

/** @param {unknown} error */
export function showError(error) {
  if (error instanceof ApiError) {
    toast(`${error.message} ${error.hint}`.trim(), { level: "bad" });
  } else {
    console.error(error);
    toast("Something went wrong on this page. Reload it.", { level: "bad" });
  }
}

const TOAST_MS = 6_000;
const UNDO_TOAST_MS = 15_000;

/**
 * Show a message for some seconds, with a button if `undo` is given.
 * @param {string} text
 * @param {{ undo?: () => unknown, level?: string }} [options]
 */
export function toast(text, { undo, level = "" } = {}) {
  const undoButton =
    undo &&
    button("Undo", () => {
      element.remove();
      return undo();
    });
  const closeButton = button("×", () => element.remove(), { kind: "quiet", "aria-label": "Close this message" });
  const element = h("div", { class: `toast ${level}` }, h("span", {}, text), undoButton, closeButton);
  document.getElementById("toasts")?.append(element);
  setTimeout(() => element.remove(), undo ? UNDO_TOAST_MS : TOAST_MS);
}

/**
 * A modal question. Resolves to the label of the chosen action, or "" if it was cancelled.
 * @param {{ title: string, body: Child, action?: string, danger?: boolean, secondAction?: string }} question
 * @returns {Promise<string>}
 */
export function confirmDialog({ title, body, action = "Yes", danger = false, secondAction = "" }) {
  return new Promise((resolve) => {
    const choice = (label, kind, value) =>
      h("button", { type: "button", class: kind, on: { click: () => dialog.close(value) } }, label);
    const dialog = h(
      "dialog",
      { "aria-labelledby": "question" },
      h("h2", { id: "question" }, title),
      body,
      h(
        "p",
        { class: "toolbar" },
        choice(action, danger ? "danger" : "primary", action),
        secondAction && choice(secondAction, "danger", secondAction),
        choice("Cancel", "quiet", ""),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// --- paged lists and tabs --------------------------------------------------------------------------------------------

/**
 * A list that is loaded page by page, when its end comes into view or on a click.
 * @param {HTMLElement} list
 * @param {(cursor: any) => Promise<{ nodes: Child[], next?: any }>} load without `next`, the page is the last one
 */
export function pager(list, load) {
  /** @type {any} */
  let cursor;
  let busy = false;
  let done = false;
  let abandoned = false;
  const more = h("button", { type: "button", class: "more", on: { click: () => next() } }, "Show more");
  const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && next(), {
    rootMargin: "600px",
  });
  async function next() {
    if (busy || done) return;
    busy = true;
    try {
      const page = await load(cursor);
      if (abandoned) return; // the list shows something else by now
      list.append(.../** @type {any[]} */ (page.nodes).flat(Infinity).filter(Boolean));
      cursor = page.next;
      done = !cursor;
      more.hidden = done;
    } catch (error) {
      showError(error);
    } finally {
      busy = false;
    }
  }
  observer.observe(more);
  const leave = () => {
    abandoned = true;
    observer.disconnect();
  };
  return { more, next, leave };
}

/**
 * A loader for `pager` whose first page was loaded before.
 * @template P
 * @param {P} firstPage
 * @param {(cursor: any) => Promise<P>} load
 * @returns {(cursor: any) => Promise<P>}
 */
export function startingWith(firstPage, load) {
  let isFirst = true;
  return async (cursor) => {
    if (!isFirst) return load(cursor);
    isFirst = false;
    return firstPage;
  };
}

/**
 * A function that renders items with a heading before the first of each day.
 * @template I
 * @param {(item: I) => string} dayOf
 * @param {(item: I) => HTMLElement} render
 * @returns {(items: I[]) => HTMLElement[]}
 */
export function groupedByDay(dayOf, render) {
  let lastDay = "";
  return (items) =>
    items.flatMap((item) => {
      const day = dayOf(item);
      const heading = day === lastDay ? [] : [h("h2", {}, day)];
      lastDay = day;
      return [...heading, render(item)];
    });
}

/**
 * Tabs: a tab list and the panel of the selected tab.
 * @param {string} label
 * @param {[name: string, label: string, render: () => Child | Promise<Child>][]} choices
 * @param {string} selected
 * @param {(name: string) => void} onChange
 * @returns {[HTMLElement, HTMLElement]}
 */
export function tabs(label, choices, selected, onChange) {
  const content = h("div", { class: "tabbed", role: "tabpanel", id: "tabbed" });
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  const names = choices.map(([name]) => name);
  let current = "";
  /** @type {(name: string, options?: { focus?: boolean }) => Promise<void>} */
  const select = async (name, { focus = false } = {}) => {
    current = name;
    for (const tab of /** @type {Iterable<HTMLElement>} */ (/** @type {unknown} */ (list.children))) {
      const isSelected = tab.dataset.name === name;
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
      if (isSelected && focus) tab.focus();
    }
    content.setAttribute("aria-labelledby", `tab-${name}`);
    onChange(name);
    try {
      const [, , render] = choices[names.indexOf(name)];
      const rendered = await render();
      if (current === name) setContent(content, rendered);
    } catch (error) {
      showError(error);
    }
  };
  const tab = (name, text) => {
    const attributes = { type: "button", role: "tab", id: `tab-${name}`, "data-name": name, "aria-controls": "tabbed" };
    return h("button", { ...attributes, on: { click: () => select(name) } }, text);
  };
  list.append(...choices.map(([name, text]) => tab(name, text)));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = names.indexOf(/** @type {HTMLElement} */ (event.target).dataset.name ?? "");
    select(names[(index + step + names.length) % names.length], { focus: true });
  });
  select(names.includes(selected) ? selected : names[0]);
  return [list, content];
}
