// @ts-check
// Forms and dialogs before an observation is changed: edit it, choose what to merge into it, confirm its deletion.

import { ApiError, get } from "./api.js";
import { debounce, h, setContent } from "./dom.js";
import { formatCount } from "./format.js";
import { button, confirmDialog, richText, table, timeAgo, withErrorToast } from "./parts.js";

// --- editing ---------------------------------------------------------------------------------------------------------

/** How the text of a field becomes a list. */
const SEPARATORS = { facts: "\n", concepts: "," };

/**
 * The fields whose value differs from the observation's.
 * @param {FormData} data
 * @param {Record<string, string>} before
 * @returns {Record<string, any>}
 */
function changedFields(data, before) {
  /** @type {Record<string, any>} */
  const changes = {};
  for (const [name, entry] of data) {
    const value = String(entry).trim();
    if (value === (before[name] ?? "").trim()) continue;
    const separator = SEPARATORS[name];
    changes[name] = separator
      ? value
          .split(separator)
          .map((part) => part.trim())
          .filter(Boolean)
      : value;
  }
  return changes;
}

/**
 * The form to edit an observation.
 * @param {ObservationPage} page
 * @param {(changes: Record<string, any>) => Promise<unknown>} save
 * @param {() => void} cancel
 */
export function editForm({ observation: item, types }, save, cancel) {
  const before = /** @type {any} */ ({ ...item, facts: item.facts.join("\n"), concepts: item.concepts.join(", ") });
  const error = h("p", { class: "bad", role: "alert" });
  const submit = withErrorToast(async (event) => {
    event.preventDefault();
    const changes = changedFields(new FormData(form), before);
    if (changes.title === "") {
      setContent(error, "The title is empty. Sessions are given the title, so it is required.");
      /** @type {HTMLInputElement} */ (form.elements.namedItem("title")).focus();
      return;
    }
    try {
      await save(changes);
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setContent(error, `${failure.message}. ${failure.hint}`);
    }
  });
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      cancel();
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  const attributes = { class: "panel", "aria-label": "Edit", novalidate: true, on: { submit, keydown: onKeyDown } };
  const form = h(
    "form",
    attributes,
    editControls(item, before, types),
    error,
    h(
      "p",
      { class: "toolbar" },
      h("button", { type: "submit", class: "primary" }, "Save"),
      button("Cancel", cancel, { kind: "quiet" }),
      h("span", { class: "why" }, "Esc cancels, Ctrl+Enter saves"),
    ),
  );
  return form;
}

/**
 * @param {ObservationPage["observation"]} item
 * @param {{ facts: string, concepts: string }} before
 * @param {string[]} types
 */
function editControls(item, before, types) {
  const names = (name) => ({ id: `edit-${name}`, name });
  const text = (name, value, more = {}) =>
    h("input", { ...names(name), value: value ?? "", autocomplete: "off", ...more });
  const area = (name, rows, value, more = {}) => h("textarea", { ...names(name), rows, value: value ?? "", ...more });
  const option = (type) => h("option", { selected: type === item.type }, type);
  const described = (name) => ({ "aria-describedby": `hint-${name}` });
  const factsHint = "One per line. A fact that is not changed keeps its evidence.";
  return [
    control("type", "Type", h("select", names("type"), [...new Set([item.type, ...types])].map(option))),
    control("title", "Title", text("title", item.title, { maxlength: 300, required: true })),
    control("subtitle", "Subtitle", text("subtitle", item.subtitle)),
    control("narrative", "Narrative", area("narrative", 8, item.narrative)),
    control("facts", "Facts", area("facts", 6, before.facts, described("facts")), factsHint),
    control("concepts", "Concepts", text("concepts", before.concepts, described("concepts")), "Separated by commas."),
  ];
}

/** @type {(name: string, label: string, input: HTMLElement, hint?: string) => HTMLElement} */
const control = (name, label, input, hint) =>
  h(
    "p",
    { class: "edit" },
    h("label", { for: `edit-${name}` }, label),
    input,
    hint && h("span", { class: "why", id: `hint-${name}` }, hint),
  );

// --- merging ---------------------------------------------------------------------------------------------------------

/**
 * Let the user choose observations to merge into this one. Resolves to their ids.
 * @param {ObservationPage} page
 * @returns {Promise<number[]>}
 */
export async function chooseMerged({ observation: item }) {
  /** @type {Map<number, Item>} */
  const chosen = new Map();
  const list = h("ul", { class: "plain", "aria-live": "polite" });
  const toggle = (other) => (event) => {
    if (event.target.checked) chosen.set(other.id, other);
    else chosen.delete(other.id);
  };
  const choice = (/** @type {Item} */ other) => {
    const checkbox = h("input", { type: "checkbox", checked: chosen.has(other.id), on: { change: toggle(other) } });
    const title = h("span", { class: "grow" }, `${other.id} `, richText(other.title || "Untitled"));
    return h("li", {}, h("label", { class: "row" }, checkbox, title, timeAgo(other.created_at)));
  };
  const showChoices = (/** @type {Item[]} */ items) => {
    const others = items.filter((other) => other.id !== item.id && !chosen.has(other.id));
    const choices = [...chosen.values(), ...others].map(choice);
    const none = h("li", { class: "muted" }, "Nothing in this project matches these words.");
    setContent(list, choices.length ? choices : none);
  };
  const search = withErrorToast(async () => {
    const params = { query: box.value, project_id: item.project_id, kind: "observation", limit: 12 };
    showChoices((await get("/api/search", params)).items);
  });
  const box = h("input", {
    type: "search",
    id: "merge-with",
    autocomplete: "off",
    on: { input: debounce(search, 120) },
  });
  showChoices((await get(`/api/observation/${item.id}/related`)).items);
  const body = h(
    "div",
    { class: "picker" },
    h("p", {}, "Their facts, files and text become part of this one, and they are forgotten. Undo restores them."),
    h("p", { class: "edit" }, h("label", { for: "merge-with" }, `Search ${item.project}`), box),
    list,
  );
  return (await confirmDialog({ title: "Merge with which?", body, action: "Merge" })) ? [...chosen.keys()] : [];
}

// --- deletion --------------------------------------------------------------------------------------------------------

/**
 * Title and text of the dialog that confirms a deletion: what is deleted, and what remains.
 * @param {Api.DeletionOfOne} preview the answer of GET /api/observation/{id}/forget
 */
export function deletionQuestion(preview) {
  const remaining = preview.stays.length
    ? table("Rows of its turn with similar text", ["Row", "Shared words"], preview.stays.map(remainingRow))
    : h("p", {}, "Nothing in its turn says the same.");
  return {
    title: preview.forgotten ? "Erase it now?" : "Forget this observation?",
    body: h(
      "div",
      {},
      h("p", {}, h("strong", {}, preview.title)),
      h("h3", {}, "Deleted"),
      h(
        "ul",
        {},
        deletedParts(preview).map((text) => h("li", {}, text)),
      ),
      h("h3", {}, "Not deleted"),
      remaining,
      preview.into ? h("p", {}, `Observation ${preview.into}, into which it was merged.`) : null,
      preview.backups ? backupNote(preview.backups) : null,
    ),
  };
}

/**
 * @param {Api.DeletionOfOne} preview
 * @returns {string[]}
 */
function deletedParts({ forgotten, goes }) {
  const entries = /** @type {number[]} */ (Object.values(goes.index)).reduce((sum, count) => sum + count, 0);
  const parts = [
    forgotten ? "The copy from which it could be restored" : "The observation: title, text, facts, files and sources",
    entries && `${formatCount(entries, "entry", "entries")} of the search index`,
    ...goes.starts.map((folder) => `Its line in the context of sessions in ${folder}`),
    ...goes.merged.map((other) => `Observation ${other}, which was merged into it (only when erased now)`),
    goes.history && "Its earlier versions (only when erased now)",
  ].filter(Boolean);
  return /** @type {string[]} */ (parts);
}

/** @type {(copy: { kind: string, id: number, shared: number, words: number }) => Child[]} */
function remainingRow({ kind, id, shared, words }) {
  const name = `${kind} ${id}`;
  return [kind === "observation" ? h("a", { href: `/observation/${id}` }, name) : name, `${shared} of ${words}`];
}

/** @param {number} count */
const backupNote = (count) =>
  h(
    "p",
    {},
    `${formatCount(count, "backup")} may still contain it: `,
    h("code", {}, "claude-mem backup --list"),
    " lists them.",
  );
