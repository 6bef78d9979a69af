// What the next session of a project is told at its start, to the byte; and what it would be with other settings.

import { facets, get, restarted, send } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { button, empty, number, panel, tell, toast } from "../parts.js";

const KNOBS = {
  context_tokens: { label: "Room, in tokens", min: 300, max: 2000, step: 50 },
  context_observations: { label: "At most so many observations", min: 1, max: 500, step: 1 },
};
const NAMES = Object.keys(KNOBS);

export async function show(route) {
  const { projects } = await facets(true);
  const title = "What the next session is told";
  if (!projects.length) return { title, body: empty("Nothing to tell yet", "Once an agent has worked in a project, its next session begins with what is remembered. Connect one:", "claude-mem install") };
  const wanted = Number(route.query.get("project"));
  let at = projects.some(({ id }) => id === wanted) ? wanted : projects[0].id;
  let stored, turn = 0;
  const tried = Object.fromEntries(NAMES.map((name) => [name, Number(route.query.get(name)) || null]));

  const choice = h("select", { id: "project", on: { change: () => ((at = Number(choice.value)), load()) } }, projects.map(({ id, name }) => h("option", { value: id, selected: id === at }, name)));
  const knobs = Object.fromEntries(NAMES.map((name) => [name, knob(name, (value) => ((tried[name] = value), soon()))]));
  const keep = button("Keep these", kept, { kind: "primary", disabled: true });
  const back = button("Back to what is kept", () => (NAMES.forEach((name) => (tried[name] = null)), load()), { kind: "quiet", disabled: true });
  const off = h("div", {}), gauge = h("div", { "aria-live": "polite" });
  const text = h("pre", { class: "told", tabindex: 0, role: "region", "aria-label": "The text a session is told" });

  async function load() {
    const own = ++turn;
    const found = await get(`/api/project/${at}/context`, tried).catch((failure) => (tell(failure), null));
    if (!found || own !== turn) return;
    stored = found.stored;
    for (const name of NAMES) knobs[name].set(found.settings[name]);
    keep.disabled = back.disabled = NAMES.every((name) => found.settings[name] === stored[name]);
    clear(off, found.switch.on ? [] : [h("p", { class: "warn" }, "This project is switched off: its next session is told nothing. Switched on, it would be told this. ", h("a", { href: `/project/${at}?tab=manage` }, "The switch"))]);
    const told = found.told.filter(({ kind }) => kind === "observation").length;
    clear(gauge,
      h("label", { class: "gauge" }, h("span", {}, h("strong", {}, number(found.tokens)), ` of ${number(found.settings.context_tokens)} tokens, ${told} observations`),
        h("meter", { min: 0, max: found.settings.context_tokens, value: found.tokens }, `${found.tokens}`)));
    clear(text, lines(found));
    const query = new URLSearchParams({ project: at, ...Object.fromEntries(NAMES.filter((name) => found.settings[name] !== stored[name]).map((name) => [name, found.settings[name]])) });
    if (location.pathname === "/context") history.replaceState(null, "", `/context?${query}`); // who has gone on stays there
  }
  const soon = debounce(load, 120);

  async function store(values) {
    await restarted(await send("PATCH", "/api/settings", values));
    NAMES.forEach((name) => (tried[name] = null));
    await load();
  }

  async function kept() {
    const before = { ...stored }, values = Object.fromEntries(NAMES.map((name) => [name, knobs[name].get()]));
    await store(values);
    toast("Kept: they count for every session that starts from now on.", { undo: () => store(before) });
  }

  await load();
  const news = debounce(load, 400);
  return {
    title,
    body: h("div", { class: "preview" },
      panel("Try other settings", h("label", { class: "knob" }, "Project", choice), NAMES.map((name) => knobs[name].node), h("p", { class: "toolbar" }, keep, back),
        h("p", { class: "muted" }, "Nothing is kept until you say so. Settings count for every project.")),
      h("section", { class: "panel" }, h("h2", {}, "The text"), off, gauge, text)),
    news: ({ type }) => /observation|summary|reconnected/.test(type) && news(),
  };
}

/** A slider and a field for the same number. */
function knob(name, changed) {
  const { label, ...bounds } = KNOBS[name];
  const typed = h("input", { type: "number", id: name, ...bounds, on: { input: () => typed.checkValidity() && typed.value && turned(typed, slider) } });
  const slider = h("input", { type: "range", "aria-label": `${label}, as a slider`, ...bounds, on: { input: () => turned(slider, typed) } });
  const turned = (from, to) => ((to.value = from.value), changed(Number(from.value)));
  return {
    node: h("div", { class: "knob" }, h("label", { for: name }, label), h("div", {}, slider, typed)),
    get: () => Number(typed.value),
    set: (value) => { if (document.activeElement !== typed || Number(typed.value) !== value) typed.value = value; slider.value = value; },
  };
}

/** The text line by line; what has a page of its own is a link to it. */
function lines({ text, told }) {
  const own = new Set(told.filter(({ kind }) => kind === "observation").map(({ id }) => String(id)));
  const summary = told.find(({ kind }) => kind === "summary");
  return text.split("\n").map((line) => {
    const [, id, rest] = /^(\d+)( .*)$/.exec(line) ?? [];
    if (own.has(id)) return [h("a", { href: `/observation/${id}` }, id), `${rest}\n`];
    if (summary && line.startsWith("### Last session")) return [h("a", { href: `/session/${summary.session_id}` }, line), "\n"];
    return `${line}\n`;
  }).flat();
}
