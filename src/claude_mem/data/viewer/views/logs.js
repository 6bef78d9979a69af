// @ts-check
// The worker's log, newest first. The worker filters it; following polls for new entries.

import { get } from "../api.js";
import { go } from "../app.js";
import { debounce, h, setContent } from "../dom.js";
import { formatDay } from "../format.js";
import { badge, emptyState, pager, startingWith } from "../parts.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];
/** @type {Record<string, "warn" | "bad">} */
const LEVEL_CLASSES = Object.assign(Object.create(null), { WARNING: "warn", ERROR: "bad", CRITICAL: "bad" });
const PAGE_SIZE = 200;
const POLL_LINES = 50;
const POLL_MS = 2_000;
/** @type {Intl.DateTimeFormatOptions} */
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const CLOCK = new Intl.DateTimeFormat("en-GB", TIME);
const DATE_AND_CLOCK = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", ...TIME });

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const list = h("ol", { class: "log" });
  const status = h("p", { class: "unseen", role: "status" });
  let params = logParams(route);
  /** @type {Set<string>} */
  let shownKeys = new Set();
  /** @type {ReturnType<typeof pager> | undefined} */
  let paging;
  /** @type {number | undefined} */
  let timer;

  /** @param {{ items: LogEntry[], hasMore: boolean }} firstPage */
  function start(firstPage) {
    shownKeys = new Set();
    setContent(list, firstPage.items.length ? [] : h("li", {}, noEntries()));
    const load = startingWith(firstPage, (before) => get("/api/logs", { ...params, lines: PAGE_SIZE, before }));
    const pages = pager(list, async (cursor) => {
      const page = await load(cursor);
      return { nodes: page.items.map(render), next: page.hasMore ? page.items[page.items.length - 1].at : "" };
    });
    pages.next();
    return pages;
  }

  /** @param {LogEntry} entry */
  function render(entry) {
    shownKeys.add(keyOf(entry));
    return logLine(entry);
  }

  /** @param {Route} to */
  async function load(to) {
    params = logParams(to);
    const firstPage = await get("/api/logs", { ...params, lines: PAGE_SIZE });
    paging?.leave();
    const oldButton = paging?.more;
    paging = start(firstPage);
    oldButton?.replaceWith(paging.more);
    return paging;
  }

  // New entries are added on top; the ones that are being read stay.
  async function poll() {
    const requested = params;
    /** @type {{ items: LogEntry[] }} */
    const { items } = await get("/api/logs", { ...params, lines: POLL_LINES });
    const added = requested === params ? items.filter((entry) => !shownKeys.has(keyOf(entry))) : [];
    if (!added.length) return;
    list.querySelector(".empty")?.closest("li")?.remove();
    list.prepend(...added.map(render));
    status.textContent = `${added.length} new`;
  }

  /** @param {boolean} isFollowing */
  function setFollowing(isFollowing) {
    followButton.setAttribute("aria-pressed", String(isFollowing));
    clearInterval(timer);
    if (isFollowing) timer = setInterval(() => document.hidden || poll().catch(() => {}), POLL_MS);
  }
  const toggle = () => setFollowing(followButton.getAttribute("aria-pressed") !== "true");
  const followButton = h("button", { type: "button", "aria-pressed": "true", on: { click: toggle } }, "Follow");

  const { more } = await load(route);
  setFollowing(true);
  return {
    title: "Logs",
    heading: "Worker log",
    body: h("div", {}, logFilters(params, followButton), status, list, more),
    update: load,
    leave: () => {
      clearInterval(timer);
      paging?.leave();
    },
  };
}

/** @param {Route} route */
function logParams({ query }) {
  const level = query.get("level") ?? "";
  return { level: LEVELS.includes(level) ? level : "", text: query.get("text") ?? "" };
}

/** @param {LogEntry} entry */
const keyOf = (entry) => `${entry.at} ${entry.logger} ${entry.message}`;

const noEntries = () =>
  emptyState("No log entry matches", "Remove a filter. The setting `log_level` decides what is logged.");

/**
 * @param {{ level: string, text: string }} params
 * @param {HTMLElement} followButton
 */
function logFilters(params, followButton) {
  const option = (name) =>
    h("option", { value: name, selected: params.level === name }, `${name.toLowerCase()} or worse`);
  const level = h("select", { name: "level" }, h("option", { value: "" }, "everything"), LEVELS.slice(1).map(option));
  const attributes = { type: "search", name: "text", placeholder: "for example compress", spellcheck: "false" };
  const text = h("input", { ...attributes, value: params.text });
  const form = h(
    "form",
    { class: "filters", "aria-label": "Filters" },
    h("label", {}, "Level", level),
    h("label", {}, "Containing", text),
    followButton,
  );
  const applyFilters = debounce(() => {
    const query = new URLSearchParams();
    if (level.value) query.set("level", level.value);
    if (text.value.trim()) query.set("text", text.value.trim());
    go(query.size ? `/logs?${query}` : "/logs", { replace: true });
  }, 200);
  form.addEventListener("input", applyFilters);
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}

/** @param {LogEntry} entry */
function logLine({ at, level, logger, message }) {
  const [first, ...others] = message.split("\n");
  const levelClass = LEVEL_CLASSES[level] ?? "";
  const time = (formatDay(at) === "Today" ? CLOCK : DATE_AND_CLOCK).format(at);
  const content = others.length
    ? h("details", {}, h("summary", {}, first), h("pre", {}, others.join("\n")))
    : h("span", {}, first);
  return h(
    "li",
    { class: levelClass },
    h("time", { datetime: new Date(at).toISOString(), title: formatDay(at) }, time),
    badge(level.toLowerCase(), levelClass),
    h("div", {}, content, h("span", { class: "muted mono" }, logger.replace(/^claude_mem\./, ""))),
  );
}
