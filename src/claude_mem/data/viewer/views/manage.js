// The part of a project's page that changes something: on or off, its name, what it is known by, merging.

import { go } from "../app.js";
import { facets, restarted, send } from "../api.js";
import { clear, h } from "../dom.js";
import { ask, button, field, fields, guarded, marked, panel, plural, toast } from "../parts.js";

export async function manage(state) {
  const { projects } = await facets(true);
  return h("div", { class: "grid" }, [switching(state), naming(state.found), known(state.found), merging(state.found, projects.filter(({ id }) => id !== state.found.id))]);
}

const REASONS = { setting: "the setting excluded_projects", file: "a file", problem: "a file that can't be understood" };

function switching(state) {
  const place = h("section", { class: "panel" });
  const turn = (to) => async () => {
    const answer = await send("POST", `/api/project/${state.found.id}/${to}`);
    state.found.switch = answer.switch;
    draw();
    await restarted(answer);
    if (to === "on" && answer.switch.off.length) toast("It is still off in some folders; see why below.");
    else toast(to === "off" ? "Switched off: nothing more is kept or told here." : "Switched on.", { undo: turn(to === "off" ? "on" : "off") });
  };
  function draw() {
    const { on, off, folders } = state.found.switch;
    clear(place, h("h2", {}, "On or off"),
      h("p", { role: "status" }, folders ? (on ? (off.length ? "On, but for some of its folders." : "On: what agents do here is remembered.") : "Off: nothing is kept, and sessions are told nothing.") : "It is known by its name only; there is no folder to switch off."),
      off.length ? h("ul", {}, off.map((row) => h("li", {}, h("span", { class: "mono" }, row.folder), ` is off by ${REASONS[row.by]}: `, h("code", {}, row.what)))) : null,
      h("p", { class: "muted" }, marked("Switching off adds its folders to `excluded_projects` in config.toml. What is remembered stays and can still be searched; a copy of the repository in another folder is not covered.")),
      folders ? h("p", { class: "toolbar" }, on ? button("Switch off", turn("off"), { kind: "danger" }) : button("Switch on", turn("on"), { kind: "primary" })) : null);
  }
  draw();
  return place;
}

function naming(found) {
  const input = h("input", { id: "name", name: "name", value: found.name, maxlength: 100, required: true, autocomplete: "off" });
  const rename = guarded(async (event) => {
    event.preventDefault();
    const { name } = await send("PATCH", `/api/project/${found.id}`, { name: input.value });
    toast(`It is called ${name} now.`, { undo: name === found.name ? undefined : async () => (await send("PATCH", `/api/project/${found.id}`, { name: found.name }), go(`/project/${found.id}?tab=manage`)) });
    await go(`/project/${found.id}?tab=manage`);
  });
  return panel("Name", h("form", { class: "toolbar", on: { submit: rename } }, h("label", { for: "name", class: "unseen" }, "Name of the project"), input, h("button", { type: "submit" }, "Rename")),
    h("p", { class: "muted" }, "Only what it is called: it is recognised by the things beside this."));
}

const known = (found) => panel("Known by",
  fields(...found.aliases.map(({ kind, what }) => field(kind, h("span", { class: "mono" }, what)))),
  h("h3", {}, "Folders where sessions began"),
  found.folders.length ? h("ul", {}, found.folders.map((path) => h("li", { class: "mono" }, path))) : h("p", { class: "muted" }, "None yet."));

const MOVED = [["sessions", "session"], ["observations", "observation"], ["summaries", "summary", "summaries"], ["requests", "model request"], ["aliases", "alias", "aliases"], ["folders", "folder"]];

function merging(found, others) {
  if (!others.length) return panel("Merge", h("p", { class: "muted" }, "There is no other project to merge with."));
  const choice = h("select", { id: "into" }, others.map(({ id, name, root }) => h("option", { value: id }, root ? `${name} (${root})` : name)));
  const merge = async () => {
    const into = Number(choice.value);
    const plan = await send("POST", `/api/project/${found.id}/merge?dry_run=1`, { into });
    const moves = MOVED.map(([name, ...word]) => h("li", {}, plural(plan.moves[name], ...word)));
    const body = [h("p", {}, `Everything of ${plan.from.name} becomes part of ${plan.into.name}, which is then recognised by what either was. ${plan.from.name} is gone; there is no way back but a backup.`), h("ul", {}, moves)];
    if (!(await ask({ title: `Merge ${plan.from.name} into ${plan.into.name}?`, body, action: "Merge", danger: true }))) return;
    await send("POST", `/api/project/${found.id}/merge`, { into });
    await facets(true);
    toast(`${plan.from.name} is part of ${plan.into.name} now.`);
    await go(`/project/${into}`);
  };
  const same = (found.related || []).map((row) => h("p", {}, `${row.name} (${row.root}) has the same ${row.same}. If they are one project, merge them here or with `, h("code", {}, row.command), "."));
  return panel("Merge", h("p", { class: "muted" }, "When one repository became two projects here, make them one."), ...same,
    h("p", { class: "toolbar" }, h("label", { for: "into" }, "Into"), choice, button("Merge…", merge, { kind: "danger" })));
}
