// @ts-check
// One project: overview, files, timeline, management.

import { get } from "../api.js";
import { go } from "../app.js";
import { h, setContent } from "../dom.js";
import { formatCount, formatNumber, isoDate } from "../format.js";
import {
  agentTag,
  badge,
  button,
  card,
  emptyState,
  figure,
  panel,
  richText,
  table,
  tabs,
  timeAgo,
  typeIcon,
  withErrorToast,
} from "../parts.js";
import { calendar, lanes } from "../plot.js";
import { manage } from "./manage.js";

const DAY_MS = 86_400_000;
const isNarrow = () => matchMedia("(max-width: 40rem)").matches;

/** @typedef {{ project: Api.ProjectPage, day: string | null }} State `day`: the day at which the timeline opens */

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const project = await get(`/api/project/${route.id}`);
  /** @type {State} */
  const state = { project, day: null };
  const putInAddress = (name) => {
    const query = name === "overview" ? "" : `?tab=${name}`;
    if (location.pathname === route.path) history.replaceState(null, "", `/project/${route.id}${query}`);
  };
  const openDay = (day) => {
    state.day = day;
    document.getElementById("tab-timeline")?.click();
  };
  const [tabList, content] = tabs(
    "About this project",
    [
      ["overview", "Overview", () => overview(project, openDay)],
      ["files", "Files", () => fileTree(project.id)],
      ["timeline", "Timeline", () => timeline(state)],
      ["manage", "Manage", () => manage(state)],
    ],
    route.query.get("tab") ?? "overview",
    putInAddress,
  );
  return { title: project.name, body: h("div", {}, projectHeader(project), tabList, content) };
}

/** @param {Api.ProjectPage} project */
const projectHeader = (project) =>
  h(
    "p",
    { class: "meta" },
    project.switch.on ? null : badge("switched off", "warn"),
    h("span", { class: "mono" }, project.root || "identified by name only"),
    project.agents.map(({ host }) => agentTag(host)),
    h("span", {}, "last event ", timeAgo(project.last_at)),
    h("a", { href: `/context?project=${project.id}` }, "context of the next session"),
    h("a", { href: `/changes?project=${project.id}` }, "what changed under its memories"),
  );

// --- overview --------------------------------------------------------------------------------------------------------

const FIGURES = ["observations", "pinned", "sessions", "turns", "summaries", "files"];

/**
 * @param {Api.ProjectPage} project
 * @param {(day: string) => void} openDay
 */
function overview(project, openDay) {
  const figures = FIGURES.map((name) => figure(name, Number(project.counts[name])));
  const steps = project.open.length
    ? h(
        "ul",
        { class: "steps" },
        project.open.map((step) => h("li", {}, richText(step))),
      )
    : h("p", { class: "muted" }, "No open steps.");
  return [
    h("div", { class: "grid" }, panel("Memory", h("dl", { class: "figures" }, figures)), panel("Open steps", steps)),
    project.last_summary ? panel("Last turn", card({ kind: "summary", ...project.last_summary })) : null,
    project.first_at ? activityPanel(project, openDay) : panel("By day", emptyState("", "No events yet.")),
  ];
}

/**
 * Twelve months as a calendar; a click on a day shows its sessions.
 * @param {Api.ProjectPage} project
 * @param {(day: string) => void} openDay
 */
function activityPanel(project, openDay) {
  const content = h("div", {});
  const title = h("span", { class: "muted", "aria-live": "polite" });
  let end = new Date();
  const move = (years) => () => {
    end = new Date(end.getFullYear() + years, end.getMonth(), end.getDate());
    return draw();
  };
  const earlier = button("‹ Earlier", move(-1));
  const later = button("Later ›", move(1));
  async function draw() {
    const begin = new Date(end.getFullYear() - 1, end.getMonth(), end.getDate() + 1);
    const days = await loadDays(project.id, begin, end);
    const total = days.reduce((sum, day) => sum + day.observations, 0);
    const activeDays = days.filter((day) => day.observations).length;
    const counts = `${formatCount(total, "observation")} on ${formatCount(activeDays, "day")}`;
    const label = `${counts} from ${isoDate(begin)} to ${isoDate(end)}`;
    earlier.disabled = (project.first_at ?? 0) >= begin.getTime();
    later.disabled = end.getTime() > Date.now() - DAY_MS;
    setContent(title, label);
    setContent(content, dayCalendar(label, days, end, openDay), days.length ? dayTable(label, days) : null);
  }
  draw().catch(() => setContent(content, emptyState("", "The days cannot be shown now.")));
  return panel("By day", h("p", { class: "toolbar" }, earlier, later, title), content);
}

/** @typedef {{ day: string, observations: number, turns: number, sessions: number }} Day */

/** @type {(id: number, begin: Date, end: Date) => Promise<Day[]>} */
async function loadDays(id, begin, end) {
  const years = [...new Set([begin.getFullYear(), end.getFullYear()])];
  const pages = await Promise.all(years.map((year) => get(`/api/project/${id}/days`, { year })));
  return pages.flatMap(({ items }) => items).filter(({ day }) => day >= isoDate(begin) && day <= isoDate(end));
}

/** @type {(label: string, days: Day[], end: Date, onPick: (day: string) => void) => SVGElement} */
function dayCalendar(label, days, end, onPick) {
  const counts = Object.fromEntries(days.map(({ day, observations, turns }) => [day, observations || turns / 2]));
  const title = ({ day, observations, turns }) =>
    `${day}: ${formatCount(observations, "observation")}, ${formatCount(turns, "turn")}`;
  const titles = Object.fromEntries(days.map((day) => [day.day, title(day)]));
  return calendar(label, counts, { end: end.getTime(), weeks: isNarrow() ? 27 : 53, onPick, titles });
}

/** @type {(label: string, days: Day[]) => HTMLElement} */
function dayTable(label, days) {
  const rows = days.toReversed().map((day) => [day.day, day.observations, day.turns, day.sessions]);
  const heads = ["Day", "Observations", "Turns", "Sessions"];
  return h("details", {}, h("summary", {}, "Show as a table"), table(label, heads, rows));
}

// --- files -----------------------------------------------------------------------------------------------------------

/** @param {number} id */
async function fileTree(id) {
  const tree = await fileLevel(id, "");
  if (!tree) {
    const hint =
      "As soon as an agent has read or changed files, they are listed here with the observations about them.";
    return emptyState("No files yet", hint);
  }
  const help = "How many observations changed or only read each file. Open a file to see them.";
  return panel("Files with observations", h("p", { class: "muted" }, help), tree);
}

/**
 * @param {number} id
 * @param {string} under
 */
async function fileLevel(id, under) {
  const { items } = await get(`/api/project/${id}/files`, { under });
  const entry = (item) => h("li", {}, item.kind === "folder" ? folderEntry(id, item) : fileEntry(id, item));
  return items.length ? h("ul", { class: "tree" }, items.map(entry)) : null;
}

const folderEntry = (id, item) =>
  lazyDetails([h("span", { class: "mono" }, item.name), fileCounts(item, `${formatCount(item.files, "file")}, `)], () =>
    fileLevel(id, item.path),
  );

const fileEntry = (id, item) =>
  lazyDetails([h("span", { class: "mono" }, item.name), fileCounts(item)], () => fileObservations(id, item.path));

function fileCounts(item, prefix = "") {
  const counts = [
    item.edited && `${formatNumber(item.edited)} changed`,
    item.read && `${formatNumber(item.read)} read`,
  ].filter(Boolean);
  return h("span", { class: "muted" }, prefix, counts.join(", "), " · ", timeAgo(item.newest_at));
}

/**
 * @param {number} id
 * @param {string} path
 */
async function fileObservations(id, path) {
  /** @type {{ items: Item[] }} */
  const { items } = await get("/api/observations/by-file", { path, project_id: id, limit: 50 });
  if (!items.length) {
    return h("p", { class: "muted" }, "The observations about it await approval or are marked wrong.");
  }
  const line = (/** @type {Item} */ item) =>
    h(
      "li",
      { class: "row" },
      typeIcon(item.type),
      h("a", { href: `/observation/${item.id}` }, richText(item.title || "Untitled")),
      timeAgo(item.created_at),
    );
  return h("ul", { class: "tree" }, items.map(line));
}

/**
 * Details whose content is loaded when they are opened.
 * @param {Child} summary
 * @param {() => Promise<HTMLElement | null>} load
 */
function lazyDetails(summary, load) {
  const content = h("div", {});
  const details = h("details", {}, h("summary", {}, summary), content);
  const onToggle = async () => {
    if (details.open && !content.hasChildNodes()) content.append((await load()) ?? "");
  };
  details.addEventListener("toggle", withErrorToast(onToggle));
  return details;
}

// --- timeline --------------------------------------------------------------------------------------------------------

/** @type {[number, string][]} */
const SPANS = [
  [1, "1 day"],
  [7, "1 week"],
  [30, "30 days"],
  [365, "1 year"],
];
const HOUR_MS = 3_600_000;
const MAX_SESSIONS = 500;

/** @param {State} state */
function timeline(state) {
  const { id, last_at: lastAt } = state.project;
  const content = h("div", { "aria-live": "polite" });
  let days = state.day ? 1 : 30;
  let to = state.day
    ? new Date(`${state.day}T00:00`).getTime() + DAY_MS
    : Math.min(Date.now(), (lastAt ?? Date.now()) + HOUR_MS);
  state.day = null;
  const move = (direction) => () => {
    to += direction * days * DAY_MS;
    return draw();
  };
  const onSpanChange = withErrorToast(() => {
    days = Number(spanChoice.value);
    return draw();
  });
  const option = ([value, text]) => h("option", { value, selected: value === days }, text);
  const spanChoice = h("select", { on: { change: onSpanChange } }, SPANS.map(option));
  const later = button("Later ›", move(1));
  async function draw(limit = 100) {
    const from = to - days * DAY_MS;
    const range = { from: Math.round(from), to: Math.round(to) };
    const { items, hasMore } = await get(`/api/project/${id}/lanes`, { ...range, limit });
    later.disabled = to >= Date.now();
    const dates = `from ${isoDate(new Date(from))} to ${isoDate(new Date(to))}`;
    const label = `${formatCount(items.length, "session")} ${dates}`;
    const more = () => draw(Math.min(MAX_SESSIONS, limit + 200));
    setContent(
      content,
      items.length
        ? [sessionLanes(label, items, from, to), sessionTable(label, items)]
        : emptyState("", `${label}. Choose an earlier or a longer period.`),
      hasMore ? button("Show more", more, { kind: "more", disabled: limit >= MAX_SESSIONS }) : null,
    );
  }
  draw().catch(() => setContent(content, emptyState("", "The sessions cannot be shown now.")));
  const period = h("label", {}, "Period: ", spanChoice);
  const controls = h("p", { class: "toolbar" }, button("‹ Earlier", move(-1)), later, period);
  return panel("Sessions over time", controls, content);
}

/** @type {(label: string, sessions: Api.SessionLane[], from: number, to: number) => SVGElement} */
function sessionLanes(label, sessions, from, to) {
  const spans = sessions.map((item) => ({
    ...item,
    from: Math.max(from, item.start_at),
    to: Math.min(to, item.end_at),
    label:
      `${item.title || "Untitled"}: ${formatCount(item.turns, "turn")}, ` +
      formatCount(item.observations, "observation"),
  }));
  return lanes(label, spans, { from, to, width: isNarrow() ? 400 : 1000, onPick: (item) => go(`/session/${item.id}`) });
}

/** @type {(label: string, sessions: Api.SessionLane[]) => HTMLElement} */
function sessionTable(label, sessions) {
  const rows = sessions.map((item) => [
    h("a", { href: `/session/${item.id}` }, item.title || "Untitled"),
    agentTag(item.host),
    item.turns,
    item.observations,
    timeAgo(item.start_at),
  ]);
  return table(label, ["Session", "Agent", "Turns", "Observations", "Started"], rows);
}
