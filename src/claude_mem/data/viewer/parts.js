// What views are put together from: times, marks, cards, tables, questions, notes.

import { Failure, facets } from "./api.js";
import { clear, h } from "./dom.js";

// --- small words -----------------------------------------------------------------------------------------------------

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const COUNT = new Intl.NumberFormat("en");
const STEPS = [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [604800, "day", 86400], [2629800, "week", 604800], [31557600, "month", 2629800], [Infinity, "year", 31557600]];

export function ago(ms, now = Date.now()) {
  const seconds = (ms - now) / 1000;
  const [, unit, size] = STEPS.find(([limit]) => Math.abs(seconds) < limit);
  return unit === "second" ? "just now" : RELATIVE.format(Math.round(seconds / size), unit);
}

export const when = (ms) => (ms ? h("time", { datetime: new Date(ms).toISOString(), title: FULL.format(ms), "data-at": ms }, ago(ms)) : h("span", { class: "muted" }, "–"));
export const clock = (ms) => h("time", { datetime: new Date(ms).toISOString(), title: FULL.format(ms) }, CLOCK.format(ms));
export const number = (n) => COUNT.format(n ?? 0);
export const money = (millionths) => (millionths ? `$${(millionths / 1e6).toFixed(millionths < 1e4 ? 4 : 2)}` : "$0");
export const plural = (n, word, many = `${word}s`) => `${number(n)} ${n === 1 ? word : many}`;

export function day(ms) {
  const date = DAY.format(ms);
  if (date === DAY.format(Date.now())) return "Today";
  return date === DAY.format(Date.now() - 86_400_000) ? "Yesterday" : date;
}

export function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, n)) / 10)));
  return `${(n / 2 ** (10 * step)).toFixed(step && n / 2 ** (10 * step) < 10 ? 1 : 0)} ${units[step]}`;
}

export function span(ms) {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 1) return `${Math.max(0, Math.round(ms / 1000))} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Times grow old while they are looked at.
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const text = ago(Number(time.dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}, 30_000);

// --- marks -----------------------------------------------------------------------------------------------------------

let icons = { __proto__: null }; // as in every table that data is looked up in: `constructor` is in no other
facets().then((found) => Object.assign(icons, Object.fromEntries(found.types.map(({ name, icon }) => [name, icon])))).catch(() => {});

const KINDS = { __proto__: null, summary: ["∑", "summary"], prompt: ["❯", "prompt"], turn: ["≡", "turn"] };

/** The sign of a type of observation, or of a kind; read out by its name. */
export function typeMark(type, kind = "observation") {
  const [icon, name] = KINDS[kind] ?? [icons[type] ?? "·", type || "observation"];
  return h("span", { class: "mark", "data-type": kind === "observation" ? type : kind, role: "img", "aria-label": name, title: name }, icon);
}

export const projectMark = (name, id) => (id ? h("a", { class: "tag", href: `/project/${id}` }, name) : h("span", { class: "tag" }, name));
export const agentMark = (host) => (host ? h("span", { class: "tag agent", "data-agent": host }, AGENTS[host] ?? host) : null);
const AGENTS = { __proto__: null, claude: "Claude Code", codex: "Codex", gemini: "Gemini CLI", opencode: "OpenCode", copilot: "Copilot", qwen: "Qwen Code", cursor: "Cursor", windsurf: "Windsurf" };
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
const OUTCOMES = { __proto__: null, done: "good", partly: "warn", failed: "bad", abandoned: "warn" };
export const outcomeMark = (outcome) => (outcome ? badge(outcome, OUTCOMES[outcome] ?? "") : null);

// --- cards -----------------------------------------------------------------------------------------------------------

/** An observation, a summary or a prompt, as the feed shows it. `words` are highlighted. */
export function card(item, words = []) {
  const make = { observation, summary, prompt, turn: prompt }[item.kind] ?? observation;
  return h("article", { class: `card ${item.kind}${item.verdict === "wrong" ? " wrong" : ""}`, "data-id": `${item.kind}-${item.id}` }, make(item, words), meta(item));
}

function observation(item, words) {
  const text = item.snippet || item.subtitle || item.narrative || item.facts?.[0] || "";
  return [
    h("h3", {}, typeMark(item.type), h("a", { href: `/observation/${item.id}` }, marked(item.title || "Untitled", words))),
    text && h("p", { class: "clip" }, marked(text, words)),
  ];
}

function summary(item, words) {
  const lines = [["Asked", item.completed && item.request], ["Learned", item.learned], ["Next", item.next_steps]].filter(([, text]) => text);
  return [
    h("h3", {}, typeMark("", "summary"), h("a", { class: "clip", href: turnPath(item) }, marked(item.completed || item.request || item.title || "What a turn did", words))),
    item.snippet && h("p", { class: "clip" }, marked(item.snippet, words)),
    lines.length ? h("dl", { class: "brief" }, lines.map(([label, text]) => [h("dt", {}, label), h("dd", {}, h("span", { class: "clip" }, marked(text, words)))])) : null,
  ];
}

function prompt(item, words) {
  return h("h3", {}, typeMark("", item.kind), h("a", { class: "said clip", href: turnPath(item) }, marked(item.snippet || item.text || item.title || "", words)));
}

const turnPath = (item) => `/session/${item.session_id}#turn-${item.prompt_number ?? 1}`;

function meta(item) {
  const files = item.files_modified?.length ? item.files_modified : item.files_edited ?? item.files ?? [];
  return h("p", { class: "meta" },
    projectMark(item.project, item.project_id), agentMark(item.host),
    item.pinned ? badge("pinned", "good") : null,
    item.verdict === "wrong" ? badge("marked wrong", "bad") : null,
    item.superseded_by ? badge(`superseded by ${item.superseded_by}`, "warn") : null,
    outcomeMark(item.outcome),
    files.length ? h("span", { class: "mono", title: files.join("\n") }, files[0].split("/").pop(), files.length > 1 ? ` +${files.length - 1}` : "") : null,
    item.kind === "observation" && item.session_id ? h("a", { href: turnPath(item) }, "session") : null,
    when(item.created_at));
}

const ENDINGS = /(?<=.{4})(?:ing|ed|es|s|ly|ions?)$/i; // as the index stems: what is marked is what was found
const begins = (word) => word.replace(ENDINGS, "").replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The text, what stands in backticks as code, and with the words that begin like one of these marked. */
export const marked = (text, words = []) => text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? h("code", {}, highlit(part, words)) : highlit(part, words)));

function highlit(text, words) {
  if (!words.length) return text;
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.map(begins).join("|")})[\\p{L}\\p{N}]*`, "giu");
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(at, match.index), h("mark", {}, match[0]));
    at = match.index + match[0].length;
  }
  return [...parts, text.slice(at)];
}

// --- arrangement -----------------------------------------------------------------------------------------------------

export const field = (label, ...content) => h("div", { class: "field" }, h("dt", {}, label), h("dd", {}, content));
export const fields = (...pairs) => h("dl", { class: "fields" }, pairs.filter(Boolean));
export const panel = (title, ...content) => h("section", { class: "panel" }, h("h2", {}, title), content);
export const command = (text) => h("code", { class: "command" }, text);

/** Rows are lists of cells; a cell is a node or a text. Numbers stand on the right. */
export function table(caption, heads, rows) {
  const cell = (content, column) => h(column === 0 ? "th" : "td", { scope: column === 0 ? "row" : null, class: typeof content === "number" ? "num" : null }, typeof content === "number" ? number(content) : content);
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

/** Nothing here yet: what would be, and what to do for it. */
export function empty(title, text, type = "") {
  return h("div", { class: "empty" }, title && h("h2", {}, title), text && h("p", {}, marked(text)), type && command(type));
}

export const button = (label, onclick, { kind = "", ...more } = {}) => h("button", { type: "button", class: kind, on: { click: guarded(onclick) }, ...more }, label);

/** A listener whose failures are told in words. */
export const guarded = (fn) => async (event) => {
  const busy = event.currentTarget;
  busy?.setAttribute?.("aria-busy", "true");
  try {
    await fn(event);
  } catch (failure) {
    tell(failure);
  } finally {
    busy?.removeAttribute?.("aria-busy");
  }
};

export function tell(failure) {
  if (!(failure instanceof Failure)) console.error(failure);
  toast(failure instanceof Failure ? `${failure.message} ${failure.hint}`.trim() : "Something went wrong here. Reload the page.", { kind: "bad" });
}

/** A note that goes by itself; with `undo`, a way back. */
export function toast(text, { undo, kind = "" } = {}) {
  const note = h("div", { class: `toast ${kind}` }, h("span", {}, text), undo && button("Undo", async () => (note.remove(), undo())), button("×", () => note.remove(), { kind: "quiet", "aria-label": "Close this note" }));
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), undo ? 15_000 : 6_000);
}

/** A question that stops everything else. Resolves to what was chosen: the action's name, or "" for no. */
export function ask({ title, body, action = "Yes", danger = false, also = "" }) {
  return new Promise((resolve) => {
    const say = (value) => () => dialog.close(value);
    const dialog = h("dialog", { "aria-labelledby": "question" },
      h("h2", { id: "question" }, title), body,
      h("p", { class: "toolbar" }, h("button", { type: "button", class: danger ? "danger" : "primary", on: { click: say(action) } }, action),
        also && h("button", { type: "button", class: "danger", on: { click: say(also) } }, also),
        h("button", { type: "button", class: "quiet", on: { click: say("") } }, "Cancel")));
    dialog.addEventListener("close", () => (dialog.remove(), resolve(dialog.returnValue)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A list that is loaded page by page. `load(cursor)` → {nodes, next}; no `next`: that was all. */
export function pager(list, load) {
  let cursor, busy = false, done = false, left = false;
  const more = h("button", { type: "button", class: "more", on: { click: () => next() } }, "Show more");
  const watch = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && next(), { rootMargin: "600px" });
  async function next() {
    if (busy || done) return;
    busy = true;
    try {
      const page = await load(cursor);
      if (left) return; // the list is another by now
      list.append(...page.nodes.flat(Infinity).filter(Boolean));
      cursor = page.next;
      done = !cursor;
      more.hidden = done;
    } catch (failure) {
      tell(failure);
    } finally {
      busy = false;
    }
  }
  watch.observe(more);
  return { more, next, leave: () => ((left = true), watch.disconnect()) };
}

/** Sections of which one is seen: [[name, label, make]]. The name is in the address. */
export function tabs(label, choices, chosen, onchange) {
  const place = h("div", { class: "tabbed", role: "tabpanel", id: "tabbed" });
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  let wanted;
  const pick = async (name, focus) => {
    wanted = name;
    for (const tab of list.children) {
      const on = tab.dataset.name === name;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      if (on && focus) tab.focus();
    }
    place.setAttribute("aria-labelledby", `tab-${name}`);
    onchange?.(name);
    try {
      const made = await choices.find(([known]) => known === name)[2]();
      if (wanted === name) clear(place, made);
    } catch (failure) {
      tell(failure);
    }
  };
  list.append(...choices.map(([name, text]) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "data-name": name, "aria-controls": "tabbed", on: { click: () => pick(name) } }, text)));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = choices.map(([name]) => name);
    const at = names.indexOf(event.target.dataset.name);
    pick(names[(at + step + names.length) % names.length], true);
  });
  pick(choices.some(([name]) => name === chosen) ? chosen : choices[0][0]);
  return [list, place];
}
