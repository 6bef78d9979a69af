// @ts-check
// The filters of a listing. They are part of the address, so that a view can be bookmarked and shared.

import { go } from "./app.js";
import { debounce, h } from "./dom.js";

const KINDS = [
  ["observation", "observations"],
  ["summary", "summaries"],
  ["prompt", "prompts"],
];

const VALIDITIES = [
  "changed",
  "current",
  "partly",
  "reworked",
  "moved",
  "outdated",
  "gone",
  "elsewhere",
  "superseded",
  "dropped",
  "reverted",
];

/** @type {(name: string, text: string, options: [any, string][], query: URLSearchParams) => HTMLElement} */
const choice = (name, text, options, query) => {
  const option = ([value, label]) => h("option", { value, selected: query.get(name) === String(value) }, label);
  return h("label", {}, text, h("select", { name, value: "" }, h("option", { value: "" }, "all"), options.map(option)));
};

/** @type {(name: string, text: string, query: URLSearchParams) => HTMLElement} */
const dateInput = (name, text, query) =>
  h("label", {}, text, h("input", { type: "date", name, value: query.get(name) ?? "" }));

/** @type {Record<string, (facets: Facets, query: URLSearchParams) => HTMLElement>} */
const CONTROLS = {
  project: ({ projects }, query) =>
    choice(
      "project",
      "Project",
      projects.map(({ id, name }) => [id, name]),
      query,
    ),
  kind: (_, query) => choice("kind", "Kind", /** @type {[string, string][]} */ (KINDS), query),
  type: ({ types }, query) =>
    choice(
      "type",
      "Type",
      types.map(({ name, icon }) => [name, `${icon} ${name}`]),
      query,
    ),
  concept: ({ concepts }, query) =>
    choice(
      "concept",
      "Concept",
      concepts.map((name) => [name, name]),
      query,
    ),
  validity: (_, query) =>
    choice(
      "validity",
      "Validity",
      [...VALIDITIES, "failed", "kept"].map((name) => [name, name === "changed" ? "changed in any way" : name]),
      query,
    ),
  group: (_, query) =>
    choice(
      "group",
      "Group by",
      [
        ["file", "file"],
        ["session", "session"],
      ],
      query,
    ),
  host: ({ hosts }, query) =>
    choice(
      "host",
      "Agent",
      hosts.map(({ name, title }) => [name, title]),
      query,
    ),
  since: (_, query) => dateInput("since", "From", query),
  until: (_, query) => dateInput("until", "Until", query),
};

/**
 * A form with these filters; a change changes the address.
 * @param {Route} route
 * @param {Facets} facets
 * @param {string[]} names
 */
export function filterForm(route, facets, names) {
  const isFiltered = (query) => names.some((name) => query.get(name));
  const controls = names.map((name) => CONTROLS[name](facets, route.query));
  const reset = h("button", { type: "reset", class: "quiet", hidden: !isFiltered(route.query) }, "Clear filters");
  const form = h("form", { class: "filters", "aria-label": "Filters" }, controls, reset);
  const inputs = () => /** @type {HTMLInputElement[]} */ ([...form.elements]).filter((input) => input.name);
  const applyFilters = debounce(() => {
    const query = new URLSearchParams(location.search);
    for (const { name, value } of inputs()) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    reset.hidden = !isFiltered(query);
    go(query.size ? `${location.pathname}?${query}` : location.pathname, { replace: true });
  }, 30);
  form.addEventListener("change", applyFilters);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const input of inputs()) input.value = "";
    applyFilters();
  });
  const open = matchMedia("(min-width: 54rem)").matches || isFiltered(route.query);
  return h("details", { class: "filtering", open }, h("summary", {}, "Filters"), form);
}

/**
 * The values of these filters in the address.
 * @param {Route} route
 * @param {string[]} names
 * @returns {Record<string, string>}
 */
export const filterValues = (route, names) =>
  Object.fromEntries(names.map((name) => [name, route.query.get(name) ?? ""]));
