// What is asked before an observation is changed: the form to edit it, what to merge with it, what forgetting takes.

import { Failure, get } from "./api.js";
import { clear, debounce, h } from "./dom.js";
import { ask, button, guarded, marked, plural, table, when } from "./parts.js";

// --- editing ---------------------------------------------------------------------------------------------------------

export function form({ observation: item, types }, save, cancel) {
  const control = (name, label, input, hint) => h("p", { class: "edit" }, h("label", { for: `edit-${name}` }, label), input, hint && h("span", { class: "why", id: `hint-${name}` }, hint));
  const given = (name) => ({ id: `edit-${name}`, name });
  const wrong = h("p", { class: "bad", role: "alert" });
  const before = { ...item, facts: item.facts.join("\n"), concepts: item.concepts.join(", ") };
  const split = { facts: (text) => text.split("\n"), concepts: (text) => text.split(",") };
  const submit = guarded(async (event) => {
    event?.preventDefault();
    const changes = {};
    for (const [name, value] of new FormData(node)) {
      if (value.trim() === (before[name] ?? "").trim()) continue;
      changes[name] = split[name] ? split[name](value).map((part) => part.trim()).filter(Boolean) : value.trim();
    }
    if (changes.title === "") return clear(wrong, "The title is empty. It is what sessions are told, so it has to say something."), node.elements.title.focus();
    try {
      await save(changes);
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      clear(wrong, `${failure.message}. ${failure.hint}`);
    }
  });
  const node = h("form", { class: "panel", "aria-label": "Edit", novalidate: true, on: {
    submit,
    keydown: (event) => {
      if (event.key === "Escape") event.preventDefault(), cancel();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    } } },
    control("type", "Type", h("select", given("type"), [...new Set([item.type, ...types])].map((type) => h("option", { selected: type === item.type }, type)))),
    control("title", "Title", h("input", { ...given("title"), value: item.title ?? "", maxlength: 300, required: true, autocomplete: "off" })),
    control("subtitle", "Subtitle", h("input", { ...given("subtitle"), value: item.subtitle ?? "", autocomplete: "off" })),
    control("narrative", "Narrative", h("textarea", { ...given("narrative"), rows: 8, value: item.narrative ?? "" })),
    control("facts", "Facts", h("textarea", { ...given("facts"), rows: 6, value: before.facts, "aria-describedby": "hint-facts" }), "One a line. One that stays as it is keeps its evidence."),
    control("concepts", "Concepts", h("input", { ...given("concepts"), value: before.concepts, autocomplete: "off", "aria-describedby": "hint-concepts" }), "With commas between them."),
    wrong,
    h("p", { class: "toolbar" }, h("button", { type: "submit", class: "primary" }, "Save"), button("Cancel", cancel, { kind: "quiet" }), h("span", { class: "why" }, "Esc cancels, Ctrl+Enter saves")));
  return node;
}

// --- merging and forgetting ------------------------------------------------------------------------------------------

export async function pick({ observation: item }) {
  const chosen = new Map();
  const list = h("ul", { class: "plain", "aria-live": "polite" });
  const show = (items) => {
    const rest = items.filter((other) => other.id !== item.id && !chosen.has(other.id));
    const all = [...chosen.values(), ...rest];
    clear(list, all.length ? all.map(choice) : h("li", { class: "muted" }, "Nothing in this project fits these words."));
  };
  const choice = (other) => h("li", {}, h("label", { class: "row" }, h("input", { type: "checkbox", checked: chosen.has(other.id), on: { change: (event) => (event.target.checked ? chosen.set(other.id, other) : chosen.delete(other.id)) } }), h("span", { class: "grow" }, `${other.id} `, marked(other.title || "Untitled")), when(other.created_at)));
  const search = debounce(guarded(async () => show((await get("/api/search", { query: box.value, project_id: item.project_id, kind: "observation", limit: 12 })).items)), 120);
  const box = h("input", { type: "search", id: "merge-with", autocomplete: "off", on: { input: search } });
  show((await get(`/api/observation/${item.id}/related`)).items);
  const body = h("div", { class: "picker" }, h("p", {}, "Their facts, files and words go into this one, and they are forgotten. Undoing brings them back."), h("p", { class: "edit" }, h("label", { for: "merge-with" }, `Search ${item.project}`), box), list);
  return (await ask({ title: "Merge with which?", body, action: "Merge" })) ? [...chosen.keys()] : [];
}

export function forgetting(told) {
  const { goes, stays } = told;
  const entries = Object.values(goes.index).reduce((a, b) => a + b, 0);
  const gone = [
    told.forgotten ? "What is kept of it, so that it could be brought back" : "The observation: its title, words, facts, files and sources",
    entries && `${plural(entries, "entry", "entries")} of the search index`,
    ...goes.starts.map((folder) => `Its line in what sessions in ${folder} are told at their start`),
    ...goes.merged.map((other) => `Observation ${other}, which was merged into it (only when erased at once)`),
    goes.history && "What it was before it was changed (only when erased at once)",
  ].filter(Boolean);
  const links = { observation: (copy) => `/observation/${copy.id}` };
  const name = (copy) => (links[copy.kind] ? h("a", { href: links[copy.kind](copy) }, `${copy.kind} ${copy.id}`) : `${copy.kind} ${copy.id}`);
  return {
    title: told.forgotten ? "Erase it at once?" : "Forget this observation?",
    body: h("div", {}, h("p", {}, h("strong", {}, told.title)), h("h3", {}, "This goes"), h("ul", {}, gone.map((text) => h("li", {}, text))),
      h("h3", {}, "This stays"), stays.length ? table("Rows of its turn that say about the same", ["Row", "Its words"], stays.map((copy) => [name(copy), `${copy.shared} of ${copy.words}`])) : h("p", {}, "Nothing in its turn says the same."),
      told.into ? h("p", {}, `Observation ${told.into}, into which it was merged.`) : null,
      told.backups ? h("p", {}, `${plural(told.backups, "backup")} may still have it: `, h("code", {}, "claude-mem backup --list"), " shows them.") : null),
  };
}
