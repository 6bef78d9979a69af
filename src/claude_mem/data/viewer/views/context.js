// @ts-check
// The context of a project's next session, exactly as it is injected; and what it would be with other settings.

import { facets, get, send, waitForRestart } from "../api.js";
import { debounce, h, setContent } from "../dom.js";
import { formatNumber } from "../format.js";
import { button, emptyState, panel, showError, toast } from "../parts.js";

const TITLE = "Context of the next session";
const CONTROLS = {
  context_tokens: { label: "Limit in tokens", min: 300, max: 2000, step: 50 },
  context_observations: { label: "Maximum number of observations", min: 1, max: 500, step: 1 },
};
const NAMES = /** @type {(keyof typeof CONTROLS)[]} */ (Object.keys(CONTROLS));

/** @typedef {Record<keyof typeof CONTROLS, number>} Settings */
/** @typedef {Api.NextContext} Preview */

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const { projects } = await facets(true);
  if (!projects.length) return { title: TITLE, body: noProjects() };
  const preview = new PreviewPage(route, projects);
  await preview.load();
  const reload = debounce(() => preview.load(), 400);
  return {
    title: TITLE,
    body: preview.element(),
    onEvent: ({ type }) => {
      if (/observation|summary|reconnected/.test(type)) reload();
    },
  };
}

const noProjects = () =>
  emptyState(
    "No context yet",
    "Once an agent has worked in a project, its next session starts with the memory of it. Connect an agent:",
    "claude-mem install",
  );

/** The preview, and the settings that are tried but not saved. */
class PreviewPage {
  /**
   * @param {Route} route
   * @param {ProjectRow[]} projects
   */
  constructor(route, projects) {
    const requested = Number(route.query.get("project"));
    this.projectId = projects.some(({ id }) => id === requested) ? requested : projects[0].id;
    /** @type {Record<string, number | null>} null: as stored */
    this.tried = Object.fromEntries(NAMES.map((name) => [name, Number(route.query.get(name)) || null]));
    /** @type {Settings | undefined} */
    this.stored = undefined;
    this.requests = 0;
    this.loadSoon = debounce(() => this.load(), 120);

    const option = ({ id, name }) => h("option", { value: id, selected: id === this.projectId }, name);
    this.projectChoice = h("select", { id: "project" }, projects.map(option));
    this.projectChoice.addEventListener("change", () => {
      this.projectId = Number(this.projectChoice.value);
      this.load();
    });
    this.controls = NAMES.map((name) => numberControl(name, (value) => this.tryValue(name, value)));
    this.saveButton = button("Save", () => this.save(), { kind: "primary", disabled: true });
    this.resetButton = button("Discard", () => this.reset(), { kind: "quiet", disabled: true });
    this.offNote = h("div", {});
    this.gauge = h("div", { "aria-live": "polite" });
    const attributes = { class: "context", tabindex: 0, role: "region", "aria-label": "The injected text" };
    this.text = h("pre", attributes);
  }

  element() {
    return h(
      "div",
      { class: "preview" },
      panel(
        "Try other settings",
        h("label", { class: "knob" }, "Project", this.projectChoice),
        this.controls.map((control) => control.node),
        h("p", { class: "toolbar" }, this.saveButton, this.resetButton),
        h("p", { class: "muted" }, "Nothing changes until you save. The settings apply to every project."),
      ),
      h("section", { class: "panel" }, h("h2", {}, "Text"), this.offNote, this.gauge, this.text),
    );
  }

  async load() {
    const request = ++this.requests;
    /** @type {Preview} */
    let preview;
    try {
      preview = await get(`/api/project/${this.projectId}/context`, this.tried);
    } catch (error) {
      showError(error);
      return;
    }
    if (request !== this.requests) return;
    this.stored = preview.stored;
    this.render(preview);
    this.updateAddress(preview);
  }

  /** @param {Preview} preview */
  render(preview) {
    const { settings, stored } = preview;
    for (const control of this.controls) control.set(settings[control.name]);
    const isStored = NAMES.every((name) => settings[name] === stored[name]);
    this.saveButton.disabled = this.resetButton.disabled = isStored;
    setContent(this.offNote, preview.switch.on ? [] : switchedOffNote(this.projectId));
    setContent(this.gauge, tokenGauge(preview));
    setContent(this.text, linkedLines(preview));
  }

  /** @param {Preview} preview */
  updateAddress({ settings, stored }) {
    if (location.pathname !== "/context") return; // the user has gone to another page
    const query = new URLSearchParams({ project: String(this.projectId) });
    for (const name of NAMES) if (settings[name] !== stored[name]) query.set(name, String(settings[name]));
    history.replaceState(null, "", `/context?${query}`);
  }

  /**
   * @param {string} name
   * @param {number} value
   */
  tryValue(name, value) {
    this.tried[name] = value;
    this.loadSoon();
  }

  reset() {
    for (const name of NAMES) this.tried[name] = null;
    return this.load();
  }

  async save() {
    const before = { ...this.stored };
    await this.store(Object.fromEntries(this.controls.map(({ name, get: value }) => [name, value()])));
    toast("Saved: it applies to all sessions that start from now on.", { undo: () => this.store(before) });
  }

  /** @param {Record<string, number>} values */
  async store(values) {
    await waitForRestart(await send("PATCH", "/api/settings", values));
    await this.reset();
  }
}

/** @param {number} projectId */
const switchedOffNote = (projectId) =>
  h(
    "p",
    { class: "warn" },
    "This project is switched off: nothing is injected. If it were on, this would be the text. ",
    h("a", { href: `/project/${projectId}?tab=manage` }, "Switch it on"),
  );

/** @param {Preview} preview */
function tokenGauge({ tokens, settings, told }) {
  const limit = settings.context_tokens;
  const observations = told.filter(({ kind }) => kind === "observation").length;
  const text = ` of ${formatNumber(limit)} tokens, ${observations} observations`;
  return h(
    "label",
    { class: "gauge" },
    h("span", {}, h("strong", {}, formatNumber(tokens)), text),
    h("meter", { min: 0, max: limit, value: tokens }, `${tokens}`),
  );
}

/**
 * A slider and an input for the same number.
 * @param {keyof typeof CONTROLS} name
 * @param {(value: number) => void} onChange
 */
function numberControl(name, onChange) {
  const { label, ...bounds } = CONTROLS[name];
  const copy = (from, to) => {
    to.value = from.value;
    onChange(Number(from.value));
  };
  const onInput = () => {
    if (input.checkValidity() && input.value) copy(input, slider);
  };
  const input = h("input", { type: "number", id: name, ...bounds, on: { input: onInput } });
  const sliderAttributes = { type: "range", "aria-label": `${label}, as a slider`, ...bounds };
  const slider = h("input", { ...sliderAttributes, on: { input: () => copy(slider, input) } });
  return {
    name,
    node: h("div", { class: "knob" }, h("label", { for: name }, label), h("div", {}, slider, input)),
    get: () => Number(input.value),
    set: (/** @type {number} */ value) => {
      const isTyping = document.activeElement === input && Number(input.value) === value;
      if (!isTyping) input.value = String(value);
      slider.value = String(value);
    },
  };
}

/**
 * The text, with links to the observations and the session it mentions.
 * @param {Preview} preview
 */
function linkedLines({ text, told }) {
  const observations = told.filter(({ kind }) => kind === "observation");
  const ids = new Set(observations.map(({ id }) => String(id)));
  const summary = told.find(({ kind }) => kind === "summary");
  return text.split("\n").flatMap((line) => {
    const [, id, content] = /^(\d+)( .*)$/.exec(line) ?? [];
    if (ids.has(id)) return [h("a", { href: `/observation/${id}` }, id), `${content}\n`];
    if (summary && line.startsWith("### Last session")) {
      return [h("a", { href: `/session/${summary.session_id}` }, line), "\n"];
    }
    return [`${line}\n`];
  });
}
