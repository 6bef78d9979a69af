// @ts-check
// The tab of a project that changes it: on or off, its name, its identifiers, merging.

import { facets, send, waitForRestart } from "../api.js";
import { go } from "../app.js";
import { h, setContent } from "../dom.js";
import { formatCount } from "../format.js";
import { button, confirmDialog, field, fields, panel, richText, toast, withErrorToast } from "../parts.js";

/** @param {{ project: Api.ProjectPage }} state */
export async function manage(state) {
  const { projects } = await facets(true);
  const others = projects.filter(({ id }) => id !== state.project.id);
  const { project } = state;
  return h("div", { class: "grid" }, [
    switchPanel(project),
    namePanel(project),
    identifierPanel(project),
    mergePanel(project, others),
  ]);
}

// --- on or off -------------------------------------------------------------------------------------------------------

const OFF_REASONS = {
  setting: "the setting excluded_projects",
  file: "a file",
  problem: "a file that cannot be parsed",
};
const SWITCH_HELP =
  "Switching off adds its directories to `excluded_projects` in config.toml. Existing memory stays and can be " +
  "searched; a copy of the repository in another directory is not covered.";

/** @param {Api.ProjectPage} project */
function switchPanel(project) {
  const section = h("section", { class: "panel" });
  const turn = (/** @type {"on" | "off"} */ target) => async () => {
    const answer = await send("POST", `/api/project/${project.id}/${target}`);
    project.switch = answer.switch;
    draw();
    await waitForRestart(answer);
    if (target === "on" && answer.switch.off.length) {
      toast("It is still off in some directories; the reasons are listed below.");
    } else {
      const text = target === "off" ? "Switched off: nothing is stored or injected here." : "Switched on.";
      toast(text, { undo: turn(target === "off" ? "on" : "off") });
    }
  };
  const reason = (row) =>
    h(
      "li",
      {},
      h("span", { class: "mono" }, row.folder),
      ` is off because of ${OFF_REASONS[row.by]}: `,
      h("code", {}, row.what),
    );
  function draw() {
    const { on, off, folders } = project.switch;
    const toggle = on
      ? button("Switch off", turn("off"), { kind: "danger" })
      : button("Switch on", turn("on"), { kind: "primary" });
    setContent(
      section,
      h("h2", {}, "On or off"),
      h("p", { role: "status" }, switchState(project.switch)),
      off.length ? h("ul", {}, off.map(reason)) : null,
      h("p", { class: "muted" }, richText(SWITCH_HELP)),
      folders ? h("p", { class: "toolbar" }, toggle) : null,
    );
  }
  draw();
  return section;
}

/** @param {Api.Switch} state */
function switchState({ on, off, folders }) {
  if (!folders) return "It is identified by its name only; there is no directory to switch off.";
  if (!on) return "Off: nothing is stored, and nothing is injected.";
  return off.length ? "On, except for some of its directories." : "On: the work of agents here is remembered.";
}

// --- name and identifiers --------------------------------------------------------------------------------------------

/** @param {Api.ProjectPage} project */
function namePanel(project) {
  const path = `/api/project/${project.id}`;
  const page = `/project/${project.id}?tab=manage`;
  const attributes = { id: "name", name: "name", maxlength: 100, required: true, autocomplete: "off" };
  const input = h("input", { ...attributes, value: project.name });
  const restoreName = async () => {
    await send("PATCH", path, { name: project.name });
    await go(page);
  };
  const rename = withErrorToast(async (event) => {
    event.preventDefault();
    const { name } = await send("PATCH", path, { name: input.value });
    toast(`Renamed to ${name}.`, { undo: name === project.name ? undefined : restoreName });
    await go(page);
  });
  const label = h("label", { for: "name", class: "unseen" }, "Name of the project");
  const submit = h("button", { type: "submit" }, "Rename");
  return panel(
    "Name",
    h("form", { class: "toolbar", on: { submit: rename } }, label, input, submit),
    h("p", { class: "muted" }, "Only the displayed name: the project is recognised by its identifiers."),
  );
}

/** @param {Api.ProjectPage} project */
function identifierPanel({ aliases, folders }) {
  const folderList = h(
    "ul",
    {},
    folders.map((path) => h("li", { class: "mono" }, path)),
  );
  return panel(
    "Identifiers",
    fields(...aliases.map(({ kind, what }) => field(kind, h("span", { class: "mono" }, what)))),
    h("h3", {}, "Directories in which sessions started"),
    folders.length ? folderList : h("p", { class: "muted" }, "None yet."),
  );
}

// --- merging ---------------------------------------------------------------------------------------------------------

/** @type {[string, string, string?][]} */
const MOVED_ROWS = [
  ["sessions", "session"],
  ["observations", "observation"],
  ["summaries", "summary", "summaries"],
  ["requests", "model request"],
  ["aliases", "alias", "aliases"],
  ["folders", "directory", "directories"],
];

/**
 * @param {Api.ProjectPage} project
 * @param {ProjectRow[]} others
 */
function mergePanel(project, others) {
  if (!others.length) return panel("Merge", h("p", { class: "muted" }, "There is no other project to merge with."));
  const option = ({ id, name, root }) => h("option", { value: id }, root ? `${name} (${root})` : name);
  const target = h("select", { id: "into" }, others.map(option));
  const merge = () => confirmMerge(project.id, Number(target.value));
  const sameProject = (row) =>
    h(
      "p",
      {},
      `${row.name} (${row.root}) has the same ${row.same}. If both are one project, merge them here or with `,
      h("code", {}, row.command),
      ".",
    );
  return panel(
    "Merge",
    h("p", { class: "muted" }, "If one repository became two projects, combine them."),
    (project.related || []).map(sameProject),
    h(
      "p",
      { class: "toolbar" },
      h("label", { for: "into" }, "Into"),
      target,
      button("Merge…", merge, { kind: "danger" }),
    ),
  );
}

/**
 * @param {number} id
 * @param {number} into
 */
async function confirmMerge(id, into) {
  const plan = await send("POST", `/api/project/${id}/merge?dry_run=1`, { into });
  const { from, into: target, moves } = plan;
  const moved = MOVED_ROWS.map(([name, ...words]) => h("li", {}, formatCount(moves[name], ...words)));
  const effect =
    `Everything in ${from.name} becomes part of ${target.name}, which is then recognised by the identifiers of both. ` +
    `The project ${from.name} is removed; only a backup can restore it.`;
  const title = `Merge ${from.name} into ${target.name}?`;
  const body = [h("p", {}, effect), h("ul", {}, moved)];
  if (!(await confirmDialog({ title, body, action: "Merge", danger: true }))) return;
  await send("POST", `/api/project/${id}/merge`, { into });
  await facets(true);
  toast(`${from.name} is part of ${target.name} now.`);
  await go(`/project/${into}`);
}
