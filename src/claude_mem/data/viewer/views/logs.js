// What the worker says of itself, newest first; filtered where it lies, followed by asking again.

import { go } from "../app.js";
import { get } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { badge, day, empty, pager } from "../parts.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];
const KIND = { __proto__: null, WARNING: "warn", ERROR: "bad", CRITICAL: "bad" };
const PAGE = 200, FOLLOW_MS = 2_000;
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const CLOCK = new Intl.DateTimeFormat("en-GB", TIME), DATED = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", ...TIME });

export async function show(route) {
  let given = chosen(route), shown = new Set(), paging, timer;
  const list = h("ol", { class: "log" }), note = h("p", { class: "unseen", role: "status" });
  const level = h("select", { name: "level" }, h("option", { value: "" }, "everything"), LEVELS.slice(1).map((name) => h("option", { value: name, selected: given.level === name }, `${name.toLowerCase()} or worse`)));
  const text = h("input", { type: "search", name: "text", value: given.text, placeholder: "such as compress", spellcheck: "false" });
  const follow = h("button", { type: "button", "aria-pressed": "true", on: { click: () => followed(follow.getAttribute("aria-pressed") !== "true") } }, "Follow");
  const form = h("form", { class: "filters", "aria-label": "Filters" }, h("label", {}, "Level", level), h("label", {}, "Containing", text), follow);
  const changed = debounce(() => {
    const query = new URLSearchParams([["level", level.value], ["text", text.value.trim()]].filter(([, value]) => value));
    go(query.size ? `/logs?${query}` : "/logs", { replace: true });
  }, 200);
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());

  function begin(first) {
    let ready = first;
    shown = new Set();
    clear(list, first.items.length ? [] : h("li", {}, empty("Nothing in the log fits", "Take a filter away. `log_level` says how much is written at all.")));
    const pages = pager(list, async (before) => {
      const page = ready ?? (await get("/api/logs", { ...given, lines: PAGE, before }));
      ready = null;
      return { nodes: page.items.map(entry), next: page.hasMore ? page.items.at(-1).at : "" };
    });
    pages.next();
    return pages;
  }

  function entry(item) {
    shown.add(mark(item));
    const [first, ...rest] = item.message.split("\n");
    const said = rest.length ? h("details", {}, h("summary", {}, first), h("pre", {}, rest.join("\n"))) : h("span", {}, first);
    return h("li", { class: KIND[item.level] ?? "" },
      h("time", { datetime: new Date(item.at).toISOString(), title: day(item.at) }, (day(item.at) === "Today" ? CLOCK : DATED).format(item.at)),
      badge(item.level.toLowerCase(), KIND[item.level] ?? ""), h("div", {}, said, h("span", { class: "muted mono" }, item.logger.replace(/^claude_mem\./, ""))));
  }

  async function load(to) {
    given = chosen(to);
    const first = await get("/api/logs", { ...given, lines: PAGE });
    paging?.leave();
    const old = paging?.more;
    paging = begin(first);
    old?.replaceWith(paging.more);
  }

  // Only what is new is put on top, so that nothing that is being read goes away.
  async function look() {
    const asked = given;
    const { items } = await get("/api/logs", { ...given, lines: 50 });
    const fresh = asked === given ? items.filter((item) => !shown.has(mark(item))) : [];
    if (!fresh.length) return;
    list.querySelector(".empty")?.closest("li").remove();
    list.prepend(...fresh.map(entry));
    note.textContent = `${fresh.length} new`;
  }

  function followed(on) {
    follow.setAttribute("aria-pressed", on);
    clearInterval(timer);
    if (on) timer = setInterval(() => document.hidden || look().catch(() => {}), FOLLOW_MS);
  }

  await load(route);
  followed(true);
  return {
    title: "Logs", heading: "What the worker says", body: h("div", {}, form, note, list, paging.more),
    update: load, leave: () => (clearInterval(timer), paging.leave()),
  };
}

const chosen = ({ query }) => ({ level: LEVELS.includes(query.get("level")) ? query.get("level") : "", text: query.get("text") ?? "" });
const mark = (item) => `${item.at} ${item.logger} ${item.message}`;
