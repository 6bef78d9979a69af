// A project: what it knows by file and by time, and what is open.

import { go } from "../app.js";
import { get } from "../api.js";
import { clear, h } from "../dom.js";
import { agentMark, badge, button, card, empty, guarded, marked, number, panel, plural, table, tabs, typeMark, when } from "../parts.js";
import { calendar, lanes } from "../plot.js";
import { manage } from "./manage.js";

const DAY = 86_400_000;
const narrow = () => matchMedia("(max-width: 40rem)").matches;

export async function show(route) {
  const found = await get(`/api/project/${route.id}`);
  const keep = (name) => location.pathname === route.path && history.replaceState(null, "", `/project/${route.id}${name === "overview" ? "" : `?tab=${name}`}`);
  const state = { found, at: null };
  const pick = (day) => ((state.at = day), document.getElementById("tab-timeline").click());
  const choices = [
    ["overview", "Overview", () => overview(state, pick)],
    ["files", "Files", () => files(found.id)],
    ["timeline", "Timeline", () => timeline(state)],
    ["manage", "Manage", () => manage(state)],
  ];
  const [list, place] = tabs("About this project", choices, route.query.get("tab") ?? "overview", keep);
  return { title: found.name, body: h("div", {}, head(found), list, place) };
}

const head = (found) => h("p", { class: "meta" },
  found.switch.on ? null : badge("switched off", "warn"),
  h("span", { class: "mono" }, found.root || "known by its name only"),
  found.agents.map(({ host }) => agentMark(host)),
  h("span", {}, "last work ", when(found.last_at)),
  h("a", { href: `/context?project=${found.id}` }, "what the next session is told"));

// --- overview --------------------------------------------------------------------------------------------------------

const FIGURES = ["observations", "pinned", "sessions", "turns", "summaries", "files"];

function overview({ found }, pick) {
  const figures = h("dl", { class: "figures" }, FIGURES.map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, number(found.counts[name])))));
  const steps = found.open.length
    ? h("ul", { class: "steps" }, found.open.map((step) => h("li", {}, marked(step))))
    : h("p", { class: "muted" }, "Nothing is open: whatever was planned has been spoken of since.");
  return [
    h("div", { class: "grid" }, panel("What it knows", figures), panel("Open next steps", steps)),
    found.last_summary ? panel("Last time", card({ kind: "summary", ...found.last_summary })) : null,
    found.first_at ? year(found, pick) : panel("By day", empty("", "Nothing has happened here yet.")),
  ];
}

/** Twelve months as a calendar; a click on a day leads to its sessions. */
function year(found, pick) {
  const place = h("div", {}), title = h("span", { class: "muted", "aria-live": "polite" });
  let end = new Date();
  const turn = (by) => guarded(async () => ((end = new Date(end.getFullYear() + by, end.getMonth(), end.getDate())), draw()));
  const earlier = button("‹ Earlier", turn(-1)), later = button("Later ›", turn(1));
  async function draw() {
    const begin = new Date(end.getFullYear() - 1, end.getMonth(), end.getDate() + 1);
    const years = [...new Set([begin.getFullYear(), end.getFullYear()])];
    const pages = await Promise.all(years.map((year) => get(`/api/project/${found.id}/days`, { year })));
    const days = pages.flatMap(({ items }) => items).filter(({ day }) => day >= iso(begin) && day <= iso(end));
    const total = days.reduce((sum, day) => sum + day.observations, 0);
    const label = `${plural(total, "observation")} on ${plural(days.filter((day) => day.observations).length, "day")} from ${iso(begin)} to ${iso(end)}`;
    earlier.disabled = found.first_at >= begin.getTime();
    later.disabled = end.getTime() > Date.now() - DAY;
    clear(title, label);
    clear(place, calendar(label, Object.fromEntries(days.map(({ day, observations, turns }) => [day, observations || turns / 2])), { end: end.getTime(), weeks: narrow() ? 27 : 53, onpick: pick, words: words(days) }),
      days.length ? h("details", {}, h("summary", {}, "The same as a table"), table(label, ["Day", "Observations", "Turns", "Sessions"], days.toReversed().map((day) => [day.day, day.observations, day.turns, day.sessions]))) : null);
  }
  draw().catch(() => clear(place, empty("", "The days can't be shown now.")));
  return panel("By day", h("p", { class: "toolbar" }, earlier, later, title), place);
}

const iso = (date) => `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
const words = (days) => Object.fromEntries(days.map((day) => [day.day, `${day.day}: ${plural(day.observations, "observation")}, ${plural(day.turns, "turn")}`]));

// --- files -----------------------------------------------------------------------------------------------------------

async function files(id) {
  const top = await level(id, "");
  if (!top) return empty("No file is known here yet", "As soon as an agent has read or changed files, they stand here with what is remembered about each.");
  return panel("Files with memories", h("p", { class: "muted" }, "How many memories changed or only read each. Open a file to see them."), top);
}

async function level(id, under) {
  const { items } = await get(`/api/project/${id}/files`, { under });
  return items.length ? h("ul", { class: "tree" }, items.map((item) => h("li", {}, item.kind === "folder" ? folder(id, item) : file(id, item)))) : null;
}

const folder = (id, item) => opened([h("span", { class: "mono" }, item.name), counts(item, `${plural(item.files, "file")}, `)], () => level(id, item.path));
const file = (id, item) => opened([h("span", { class: "mono" }, item.name), counts(item)], () => memories(id, item.path));
const counts = (item, more = "") => h("span", { class: "muted" }, more, [item.edited && `${number(item.edited)} changed`, item.read && `${number(item.read)} read`].filter(Boolean).join(", "), " · ", when(item.newest_at));

async function memories(id, path) {
  const { items } = await get("/api/observations/by-file", { path, project_id: id, limit: 50 });
  if (!items.length) return h("p", { class: "muted" }, "What is remembered about it is not shown unasked: it came from elsewhere, or was marked wrong.");
  return h("ul", { class: "tree" }, items.map((item) => h("li", { class: "row" }, typeMark(item.type), h("a", { href: `/observation/${item.id}` }, marked(item.title || "Untitled")), when(item.created_at))));
}

/** Opens, and only then asks what is in it. */
function opened(summary, load) {
  const place = h("div", {});
  const details = h("details", {}, h("summary", {}, summary), place);
  details.addEventListener("toggle", guarded(async () => details.open && !place.hasChildNodes() && place.append((await load()) ?? "")));
  return details;
}

// --- timeline --------------------------------------------------------------------------------------------------------

const SPANS = [[1, "1 day"], [7, "1 week"], [30, "30 days"], [365, "1 year"]];

function timeline(state) {
  const { id, last_at } = state.found, place = h("div", { "aria-live": "polite" });
  let days = state.at ? 1 : 30;
  let to = state.at ? new Date(`${state.at}T00:00`).getTime() + DAY : Math.min(Date.now(), (last_at ?? Date.now()) + DAY / 24);
  state.at = null;
  const turn = (by) => guarded(async () => ((to += by * days * DAY), draw()));
  const choice = h("select", { on: { change: guarded(async () => ((days = Number(choice.value)), draw())) } }, SPANS.map(([value, text]) => h("option", { value, selected: value === days }, text)));
  const later = button("Later ›", turn(1));
  async function draw(limit = 100) {
    const from = to - days * DAY;
    const { items, hasMore } = await get(`/api/project/${id}/lanes`, { from: Math.round(from), to: Math.round(to), limit });
    later.disabled = to >= Date.now();
    const label = `${plural(items.length, "session")} from ${iso(new Date(from))} to ${iso(new Date(to))}`;
    if (!items.length) return clear(place, empty("", `${label}. Look earlier, or over a longer time.`));
    const drawn = items.map((item) => ({ ...item, from: Math.max(from, item.start_at), to: Math.min(to, item.end_at), label: `${item.title || "Untitled"}: ${plural(item.turns, "turn")}, ${plural(item.observations, "observation")}` }));
    const rows = items.map((item) => [h("a", { href: `/session/${item.id}` }, item.title || "Untitled"), agentMark(item.host), item.turns, item.observations, when(item.start_at)]);
    clear(place, lanes(label, drawn, { from, to, width: narrow() ? 400 : 1000, onpick: (item) => go(`/session/${item.id}`) }), table(label, ["Session", "Agent", "Turns", "Observations", "Began"], rows),
      hasMore ? button("Show more", () => draw(Math.min(500, limit + 200)), { kind: "more", disabled: limit >= 500 }) : null);
  }
  draw().catch(() => clear(place, empty("", "The sessions can't be shown now.")));
  return panel("Sessions over time", h("p", { class: "toolbar" }, button("‹ Earlier", turn(-1)), later, h("label", {}, "Shown: ", choice)), place);
}
