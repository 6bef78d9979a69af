// The filters of a listing. They live in the address, so that a view can be kept and shared.

import { go } from "./app.js";
import { debounce, h } from "./dom.js";

const label = (text, control) => h("label", {}, text, control);

const choice = (name, text, options, query) =>
  label(text, h("select", { name, value: "" }, h("option", { value: "" }, "all"), options.map(([value, shown]) => h("option", { value, selected: query.get(name) === String(value) }, shown))));

const date = (name, text, query) => label(text, h("input", { type: "date", name, value: query.get(name) ?? "" }));

/** A row of filters, of those that are named; a change changes the address. */
export function filters(route, found, wanted) {
  const make = {
    project: () => choice("project", "Project", found.projects.map(({ id, name }) => [id, name]), route.query),
    kind: () => choice("kind", "Kind", [["observation", "observations"], ["summary", "summaries"], ["prompt", "prompts"]], route.query),
    type: () => choice("type", "Type", found.types.map(({ name, icon }) => [name, `${icon} ${name}`]), route.query),
    concept: () => choice("concept", "Concept", found.concepts.map((name) => [name, name]), route.query),
    host: () => choice("host", "Agent", found.hosts.map(({ name, title }) => [name, title]), route.query),
    since: () => date("since", "From", route.query),
    until: () => date("until", "Until", route.query),
  };
  const form = h("form", { class: "filters", "aria-label": "Filters" }, wanted.map((name) => make[name]()));
  const changed = debounce(() => {
    const query = new URLSearchParams(location.search);
    for (const control of form.elements) if (control.name) control.value ? query.set(control.name, control.value) : query.delete(control.name);
    clear.hidden = !wanted.some((name) => query.get(name));
    go(query.size ? `${location.pathname}?${query}` : location.pathname, { replace: true });
  }, 30);
  const clear = h("button", { type: "reset", class: "quiet", hidden: !wanted.some((name) => route.query.get(name)) }, "Clear filters");
  form.append(clear);
  form.addEventListener("change", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const control of form.elements) if (control.name) control.value = "";
    changed();
  });
  const open = matchMedia("(min-width: 54rem)").matches || wanted.some((name) => route.query.get(name));
  return h("details", { class: "filtering", open }, h("summary", {}, "Filters"), form);
}

/** What the address says of these filters. */
export const chosen = (route, wanted) => Object.fromEntries(wanted.map((name) => [name, route.query.get(name) ?? ""]));
