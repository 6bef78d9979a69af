// @ts-check
// What memory is worth on this machine: what sessions were shown and used, the lift over other sessions, and the effect
// of silent moments.

import { get } from "../api.js";
import { go } from "../app.js";
import { h, setContent } from "../dom.js";
import { formatNumber } from "../format.js";
import { command, emptyState, figure, numericTable, panel } from "../parts.js";

const DAY_MS = 86_400_000;
/** @type {[string, string][]} */
const SPANS = [
  ["0", "all time"],
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
];
/** @type {Record<string, string>} */
const TRIGGER_LABELS = {
  start: "at session start",
  prompt: "at a prompt",
  file: "before a file",
  command: "before a command",
  failure: "after an error",
};
/** @type {Record<string, string>} */
const USE_LABELS = {
  opened: "a file of it was opened",
  edited: "a file of it was edited",
  ran: "its command was run",
  fetched: "its full text was asked for",
  quoted: "its words were written",
  avoided: "the call it warns of was left out",
  repeated: "ignored: the call it warns of was made again",
  contradicted: "contradicted: the call it warns of worked",
};

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const content = h("div", {});
  const { projects } = await get("/api/facets", {});
  const onChange = () => {
    const inputs = /** @type {HTMLSelectElement[]} */ ([...form.elements]);
    go(`/worth?${new URLSearchParams(inputs.map(({ name, value }) => [name, value]))}`, { replace: true });
  };
  const projectChoices = projects.map(({ id, name }) => /** @type {[string, string]} */ ([String(id), name]));
  const form = h(
    "form",
    { class: "filters", "aria-label": "Filters", on: { change: onChange, submit: (event) => event.preventDefault() } },
    choice("days", "Over", SPANS, route.query.get("days") ?? "0"),
    choice("project_id", "Project", [["0", "all projects"], ...projectChoices], route.query.get("project_id") ?? "0"),
  );

  /** @param {Route} to */
  async function load({ query }) {
    const days = Number(query.get("days") ?? 0);
    const since = days ? { since: Date.now() - days * DAY_MS } : {};
    const worth = await get("/api/worth", { project_id: query.get("project_id") ?? 0, ...since });
    setContent(content, worth.injections || worth.holdout.silent ? figures(worth) : nothing());
  }

  await load(route);
  return { title: "Worth", heading: "What memory is worth here", body: h("div", {}, form, content), update: load };
}

/** @type {(name: string, label: string, options: [string, string][], selected: string) => HTMLElement} */
const choice = (name, label, options, selected) => {
  const option = ([value, text]) => h("option", { value, selected: value === selected }, text);
  return h("label", {}, label, h("select", { name }, options.map(option)));
};

const nothing = () =>
  emptyState("Nothing to judge yet", "Once sessions have been shown memories, this page says what they used.");

/** @param {Api.Worth} worth */
function figures(worth) {
  return [
    h("div", { class: "grid" }, sessionsPanel(worth), itemsPanel(worth), costPanel(worth)),
    h("div", { class: "grid" }, liftPanel(worth.lift), effectPanel(worth.holdout)),
    panel("By trigger", triggerTable(worth)),
    worth.uses.length
      ? panel("How items were used", useTable(worth), note("An item can be used in several ways."))
      : null,
  ];
}

/** @param {HTMLElement[]} items */
const figureList = (...items) => h("dl", { class: "figures" }, items);

/** @param {string} text */
const note = (text) => h("p", { class: "muted" }, text);

/** @param {Api.Worth} worth */
const sessionsPanel = ({ sessions, sessions_shown: shown, sessions_used: used }) =>
  panel(
    "Sessions",
    figureList(figure("in all", sessions), figure("shown something", shown), figure("used it", used)),
    note("A session used memory if it used at least one item after it was shown."),
  );

/** @param {Api.Worth} worth */
const itemsPanel = ({ shown, used, warnings, followed }) =>
  panel(
    "Items",
    figureList(
      figure("shown", shown),
      figure("used", used),
      figure("share used", shown ? percent(used / shown) : "–"),
      figure("repeats forestalled", `${formatNumber(followed)} of ${formatNumber(warnings)}`),
    ),
    note("Repeats forestalled: warnings after which the call was not made, but another one of the same program was."),
  );

/** @param {Api.Worth} worth */
const costPanel = ({ tokens, characters_read: read, characters_again: again }) =>
  panel(
    "Cost and reading",
    figureList(
      figure("tokens injected", tokens),
      figure("characters of files read", read),
      figure("of them read again", again),
    ),
    note("Read again: in files that an earlier session had read. The most that memory could save, not what it saved."),
  );

/** @param {Api.Lift} lift */
function liftPanel({ own, others, difference, p, sessions }) {
  const title = "Lift over other sessions";
  if (own === null || others === null || p === null) {
    return panel(title, h("p", {}, tooLittle(difference, "sessions whose events are kept")));
  }
  const figures = [
    figure("used by the session", percent(own)),
    figure("by other sessions", percent(others)),
    figure("difference", points(difference)),
  ];
  const range = `95 % interval ${interval(difference)}; p = ${p.toFixed(3)}; ${formatNumber(sessions)} sessions. `;
  const meaning =
    "The same items are judged against sessions that were not shown them. It shows that what is said fits, not that " +
    "saying it helped.";
  return panel(title, figureList(...figures), note(range + meaning));
}

/** @param {Api.HoldoutEffect} holdout */
function effectPanel({ setting, spoken, silent, used, characters }) {
  const title = "Effect of speaking";
  if (!setting && !silent) {
    return panel(
      title,
      h("p", {}, "Not measured. With the setting, one moment in ten stays silent, chosen by chance, and is compared."),
      command("claude-mem config set holdout 0.1"),
    );
  }
  return panel(
    title,
    figureList(figure("moments with memory", spoken), figure("kept silent", silent)),
    h("p", {}, "Items used: ", used.value === null ? tooLittle(used, MOMENTS) : pointsRange(used)),
    h(
      "p",
      {},
      "Characters read before the first edit: ",
      characters.value === null ? tooLittle(characters, MOMENTS) : numberRange(characters),
    ),
    note(`The share of silent moments is ${percent(setting)} now. Your rules and pinned memories are always shown.`),
  );
}

const MOMENTS = "moments of each kind";

/** @type {(estimate: Api.Estimate, what: string) => string} */
const tooLittle = ({ samples, needed }, what) =>
  `too little to say: ${formatNumber(samples)} of at least ${formatNumber(needed)} ${what}.`;

/** @param {number} share */
const percent = (share) => `${Math.round(share * 100)} %`;

/** @param {number} value */
const signed = (value) => (value < 0 ? `−${formatNumber(-value)}` : `+${formatNumber(value)}`);

/** @param {Api.Estimate} estimate */
const points = ({ value }) => `${signed(Math.round((value ?? 0) * 100))} points`;

/** @param {Api.Estimate} estimate */
const interval = ({ low, high }) =>
  `${signed(Math.round((low ?? 0) * 100))} to ${signed(Math.round((high ?? 0) * 100))} points`;

/** @param {Api.Estimate} estimate */
const pointsRange = (estimate) => `${points(estimate)}, 95 % interval ${interval(estimate)}.`;

/** @param {Api.Estimate} estimate */
const numberRange = ({ value, low, high }) => {
  const [middle, least, most] = [value, low, high].map((number) => signed(Math.round(number ?? 0)));
  return `${middle}, 95 % interval ${least} to ${most}.`;
};

/** @param {Api.Worth} worth */
const triggerTable = ({ triggers }) =>
  numericTable(
    "What was shown and used, by trigger",
    ["trigger", "times", "items", "used", "share", "tokens"],
    triggers.map((row) => [
      TRIGGER_LABELS[row.trigger] ?? row.trigger,
      row.injections,
      row.shown,
      row.used,
      row.shown ? percent(row.used / row.shown) : "–",
      row.tokens,
    ]),
  );

/** @param {Api.Worth} worth */
const useTable = ({ uses }) =>
  numericTable(
    "Ways in which items were used",
    ["use", "items"],
    uses.map(({ use, items }) => [USE_LABELS[use] ?? use, items]),
  );
