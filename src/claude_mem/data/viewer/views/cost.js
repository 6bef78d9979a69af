// @ts-check
// The cost of refining: tokens and money per day, against the budget.

import { get } from "../api.js";
import { go } from "../app.js";
import { h, setContent } from "../dom.js";
import { formatCount, formatMoney, formatNumber } from "../format.js";
import { command, emptyState, field, fields, numericTable, panel, projectTag, timeAgo } from "../parts.js";
import { bars } from "../plot.js";

/** @type {[number, string][]} */
const SPANS = [
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
  [366, "a year"],
];
/** @type {[string, string][]} */
const GROUPINGS = [
  ["model", "model"],
  ["project", "project"],
];
const PROVIDER_COMMANDS = [
  "claude-mem config set provider claude",
  "claude-mem config set provider ollama:qwen3",
  "claude-mem config set provider anthropic",
];

/** One model or project on one day. @typedef {{ day: string, id: number | null, name: string, requests: number,
 * failed: number, input_tokens: number, cached_tokens: number, output_tokens: number, cost: number }} CostRow */

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const content = h("div", {});
  const onChange = () => {
    const inputs = /** @type {HTMLSelectElement[]} */ ([...form.elements]);
    const query = new URLSearchParams(inputs.map(({ name, value }) => [name, value]));
    go(`/cost?${query}`, { replace: true });
  };
  const form = h(
    "form",
    { class: "filters", "aria-label": "Filters", on: { change: onChange, submit: (event) => event.preventDefault() } },
    choice("days", "Over", SPANS, route.query.get("days") ?? "30"),
    choice("by", "Split by", GROUPINGS, route.query.get("by") ?? "model"),
  );

  /** @param {Route} to */
  async function load(to) {
    const by = to.query.get("by") === "project" ? "project" : "model";
    const cost = await get("/api/cost/days", { by, days: to.query.get("days") ?? 30 });
    const details = cost.items.length ? [charts(cost, by), tables(cost.items, by)] : noRequests(cost.providers);
    setContent(content, budgetPanels(cost), details);
  }

  await load(route);
  return { title: "Cost", heading: "Cost of refining", body: h("div", {}, form, content), update: load };
}

/** @type {(name: string, label: string, options: [any, string][], selected: string) => HTMLElement} */
const choice = (name, label, options, selected) => {
  const option = ([value, text]) => h("option", { value, selected: String(value) === selected }, text);
  return h("label", {}, label, h("select", { name }, options.map(option)));
};

// --- budget ----------------------------------------------------------------------------------------------------------

/** @param {Api.DailyCost} cost */
function budgetPanels(cost) {
  const pauses = cost.paused.filter((row) => row.until > Date.now());
  const pause = (row) =>
    field("paused", `${row.provider}: ${row.verdict}: ${row.message} – until `, timeAgo(row.until));
  const providers = cost.providers.length ? cost.providers.join(", then ") : "none; memory is written without a model";
  return h(
    "div",
    { class: "grid" },
    panel("Today", budgetShare(cost.today_tokens, cost.daily_tokens, formatNumber, " tokens", "daily_tokens")),
    panel("This month", budgetShare(cost.month_cost, cost.monthly_cost, formatMoney, "", "monthly_cost")),
    panel(
      "Providers",
      fields(
        field("in use", providers),
        cost.waiting ? field("waiting", formatCount(cost.waiting, "turn")) : null,
        pauses.map(pause),
      ),
    ),
  );
}

/** @type {(spent: number, limit: number, format: (value: number) => string, unit: string, setting: string) => Child} */
function budgetShare(spent, limit, format, unit, setting) {
  const ofLimit = ` of ${format(limit)}${unit}`;
  const bounds = { max: Math.max(1, limit), value: Math.min(spent, limit) };
  return [
    h("p", { class: "spent" }, h("strong", {}, format(spent)), ofLimit),
    h("progress", { ...bounds, "aria-label": format(spent) + ofLimit }),
    h(
      "p",
      { class: "muted" },
      limit ? "" : "Nothing may be spent. ",
      "The limit is ",
      h("a", { href: `/settings#${setting}` }, h("code", {}, setting)),
      ".",
    ),
  ];
}

/** @param {string[]} providers */
function noRequests(providers) {
  if (providers.length) {
    return emptyState(
      "No requests in this period",
      "A turn is refined shortly after it ends; then its cost is shown here.",
    );
  }
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "No model is set up, and none is required"),
    h(
      "p",
      {},
      "Memory is written from evidence: commits, edits, commands, the agent's messages. A model can improve the " +
        "wording, with one bounded request per turn and within both limits; where the two disagree, the evidence wins.",
    ),
    h("p", {}, "Choose one: your Claude plan, a model on this machine, or a service with your own key."),
    h(
      "ul",
      {},
      PROVIDER_COMMANDS.map((text) => h("li", {}, command(text))),
    ),
    h(
      "p",
      { class: "muted" },
      h("code", {}, "claude-mem compress --dry-run"),
      " shows exactly what would be sent. ",
      h("a", { href: "/settings#provider" }, "See the setting"),
      ".",
    ),
  );
}

// --- charts and tables -----------------------------------------------------------------------------------------------

/** @param {CostRow} row */
const groupKey = (row) => `${row.id} ${row.name}`;

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * @param {Api.DailyCost} cost
 * @param {string} by
 */
function charts({ items, days, daily_tokens: limit }, by) {
  const groups = new Map(items.map((row) => [groupKey(row), row.name]));
  const tokens = (row) => row.input_tokens + row.output_tokens;
  const swatch = (index) => h("span", { class: `swatch part-${index % 6}`, "aria-hidden": "true" });
  const legend = [...groups.values()].map((name, index) => h("li", {}, swatch(index), name));
  const chart = (title, value, format, options) => {
    const dayBars = days.map((day) => dayBar(day, items, [...groups.keys()], value, format));
    return chartPanel(title, dayBars, format, options);
  };
  return [
    groups.size > 1 ? h("ul", { class: "legend", "aria-label": `Colours by ${by}` }, legend) : null,
    chart("Tokens per day", tokens, formatNumber, { limit, limitLabel: "daily_tokens" }),
    chart("Cost per day", (row) => row.cost, formatMoney, {}),
  ];
}

/** @type {(day: string, items: CostRow[], keys: string[], value: any, format: any) => import("../plot.js").Bar} */
function dayBar(day, items, keys, value, format) {
  const rows = items.filter((row) => row.day === day);
  const parts = keys.map((key) => sum(rows.filter((row) => groupKey(row) === key).map(value)));
  const label = new Date(`${day}T12:00`).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const lines = rows.map((row) => `\n${row.name}: ${format(value(row))}`);
  return { label, value: sum(parts), parts, title: `${day}: ${format(sum(parts))}${lines.join("")}` };
}

/** @type {(title: string, days: import("../plot.js").Bar[], format: any, options: any) => HTMLElement} */
function chartPanel(title, days, format, options) {
  const total = format(sum(days.map((day) => day.value)));
  const highest = days.reduce((first, second) => (second.value > first.value ? second : first));
  const maximum = `at most ${format(highest.value)} on ${highest.label}`;
  const label = `${title} over ${formatCount(days.length, "day")}: ${total} in all, ${maximum}.`;
  const limit = options.limit ? ` The daily limit is ${format(options.limit)}.` : "";
  return panel(title, bars(label, days, { format, ...options }), h("p", { class: "muted" }, label, limit));
}

const COLUMNS = /** @type {const} */ (["requests", "failed", "input_tokens", "cached_tokens", "output_tokens"]);
const HEADS = ["requests", "failed", "tokens in", "from cache", "tokens out", "cost"];

/**
 * @param {CostRow[]} rows
 * @returns {Child[]}
 */
const totals = (rows) => [
  ...COLUMNS.map((name) => sum(rows.map((row) => row[name]))),
  formatMoney(sum(rows.map((row) => row.cost))),
];

/**
 * @param {CostRow[]} items
 * @param {string} by
 */
function tables(items, by) {
  const grouped = (key) => [...Map.groupBy(items, key).values()];
  const requests = (rows) => sum(rows.map((row) => row.requests));
  const name = (row) => (by === "project" ? projectTag(row.name, row.id) : row.name);
  const all = ["all", ...totals(items)];
  const groups = grouped(groupKey).sort((first, second) => requests(second) - requests(first));
  const groupRows = groups.map((rows) => [name(rows[0]), ...totals(rows)]);
  const dayRows = grouped((row) => row.day)
    .reverse()
    .map((rows) => [rows[0].day, ...totals(rows)]);
  return [
    panel(`By ${by}`, numericTable(`Cost by ${by}`, [by, ...HEADS], [...groupRows, all])),
    panel("By day", numericTable("Cost by day, the latest first", ["day", ...HEADS], [...dayRows, all])),
  ];
}
