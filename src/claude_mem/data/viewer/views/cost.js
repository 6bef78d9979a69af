// What models were asked, and what it cost, against what it may.

import { go } from "../app.js";
import { get } from "../api.js";
import { clear, h } from "../dom.js";
import { command, empty, field, fields, money, number, panel, plural, projectMark, table, when } from "../parts.js";
import { bars } from "../plot.js";

const SPANS = [[7, "7 days"], [30, "30 days"], [90, "90 days"], [366, "a year"]];
const BY = [["model", "model"], ["project", "project"]];
const tokens = (row) => row.input_tokens + row.output_tokens;

export async function show(route) {
  const place = h("div", {});
  const form = h("form", { class: "filters", "aria-label": "What is shown", on: { change, submit: (event) => event.preventDefault() } },
    choice("days", "Over", SPANS, route.query.get("days") ?? "30"), choice("by", "Split by", BY, route.query.get("by") ?? "model"));

  function change() {
    go(`/cost?${new URLSearchParams([...form.elements].map((control) => [control.name, control.value]))}`, { replace: true });
  }

  async function load(to) {
    const by = to.query.get("by") === "project" ? "project" : "model";
    const found = await get("/api/cost/days", { by, days: to.query.get("days") ?? 30 });
    clear(place, found.items.length ? [standing(found), pictures(found, by), tables(found, by)] : [standing(found), nothing(found)]);
  }

  await load(route);
  return { title: "Cost", heading: "What refining costs", body: h("div", {}, form, place), update: load };
}

const choice = (name, label, options, chosen) =>
  h("label", {}, label, h("select", { name }, options.map(([value, text]) => h("option", { value, selected: String(value) === chosen }, text))));

// --- where it stands -------------------------------------------------------------------------------------------------

function standing(found) {
  const paused = found.paused.filter((row) => row.until > Date.now());
  return h("div", { class: "grid" },
    panel("Today", share(found.today_tokens, found.daily_tokens, number, "tokens", "daily_tokens")),
    panel("This month", share(found.month_cost, found.monthly_cost, money, "", "monthly_cost")),
    panel("Who refines", fields(
      field("asked", found.providers.length ? found.providers.join(", then ") : "nobody; memories are made without a model"),
      found.waiting ? field("waiting", plural(found.waiting, "turn")) : null,
      paused.map((row) => field("rests", `${row.provider}: ${row.verdict}: ${row.message} – until `, when(row.until))))));
}

function share(spent, most, format, unit, setting) {
  const label = `${format(spent)} of ${format(most)}${unit && ` ${unit}`}`;
  return [
    h("p", { class: "spent" }, h("strong", {}, format(spent)), ` of ${format(most)}${unit && ` ${unit}`}`),
    h("progress", { max: Math.max(1, most), value: Math.min(spent, most), "aria-label": label }),
    h("p", { class: "muted" }, most ? "" : "Nothing may be spent. ", "The most is ", h("a", { href: `/settings#${setting}` }, h("code", {}, setting)), "."),
  ];
}

function nothing(found) {
  if (found.providers.length) return empty("No model was asked in this time", "A turn is refined a little after it ends; then its cost stands here.");
  return h("section", { class: "panel" }, h("h2", {}, "No model is set up, and none is needed"),
    h("p", {}, "Memories are made from evidence: commits, edits, commands, what the agent said. A model can put them into better words, by one bounded request a turn and within both caps; the evidence always wins over what it claims."),
    h("p", {}, "Choose one: your Claude plan, a model on this machine, or a service with a key of yours."),
    h("ul", {}, ["claude-mem config set provider claude", "claude-mem config set provider ollama:qwen3", "claude-mem config set provider anthropic"].map((text) => h("li", {}, command(text)))),
    h("p", { class: "muted" }, h("code", {}, "claude-mem compress --dry-run"), " shows exactly what would be sent. ", h("a", { href: "/settings#provider" }, "Or set it here"), "."));
}

// --- pictures and tables ---------------------------------------------------------------------------------------------

function pictures(found, by) {
  const names = [...new Map(found.items.map((row) => [key(row), row.name])).entries()];
  const short = (date) => new Date(`${date}T12:00`).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const picture = (title, value, format, more) => {
    const days = found.days.map((date) => {
      const rows = found.items.filter((row) => row.day === date);
      const parts = names.map(([id]) => rows.filter((row) => key(row) === id).reduce((sum, row) => sum + value(row), 0));
      const total = parts.reduce((sum, part) => sum + part, 0);
      return { label: short(date), value: total, parts, title: `${date}: ${format(total)}${rows.map((row) => `\n${row.name}: ${format(value(row))}`).join("")}` };
    });
    const all = days.reduce((sum, item) => sum + item.value, 0), most = days.reduce((a, b) => (b.value > a.value ? b : a));
    const label = `${title} over ${plural(days.length, "day")}: ${format(all)} in all, at most ${format(most.value)} on ${most.label}.`;
    return panel(title, bars(label, days, { format, ...more }), h("p", { class: "muted" }, label, more.limit ? ` The most in a day is ${format(more.limit)}.` : ""));
  };
  return [
    names.length > 1 ? h("ul", { class: "legend", "aria-label": `Colours by ${by}` }, names.map(([, name], at) => h("li", {}, h("span", { class: `swatch part-${at % 6}`, "aria-hidden": "true" }), name))) : null,
    picture("Tokens a day", tokens, number, { limit: found.daily_tokens, limitLabel: "daily_tokens" }),
    picture("Money a day", (row) => row.cost, money, {}),
  ];
}

const figured = (...given) => h("div", { class: "figured" }, table(...given));
const key = (row) => `${row.id} ${row.name}`;

function tables(found, by) {
  const heads = ["requests", "failed", "tokens in", "from cache", "tokens out", "cost"];
  const cells = (rows) => {
    const sum = (name) => rows.reduce((total, row) => total + row[name], 0);
    return [..."requests failed input_tokens cached_tokens output_tokens".split(" ").map(sum), money(sum("cost"))];
  };
  const grouped = (of) => [...Map.groupBy(found.items, of).values()];
  const whole = ["all", ...cells(found.items)];
  const named = grouped(key).sort((a, b) => cells(b)[0] - cells(a)[0]);
  return [
    panel(`By ${by}`, figured(`What each ${by} cost`, [by, ...heads], [...named.map((rows) => [by === "project" ? projectMark(rows[0].name, rows[0].id) : rows[0].name, ...cells(rows)]), whole])),
    panel("By day", figured("What each day cost, the latest first", ["day", ...heads], [...grouped((row) => row.day).reverse().map((rows) => [rows[0].day, ...cells(rows)]), whole])),
  ];
}
