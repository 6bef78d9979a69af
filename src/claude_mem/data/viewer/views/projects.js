// @ts-check
// The list of projects.

import { get } from "../api.js";
import { h } from "../dom.js";
import { formatCount } from "../format.js";
import { emptyState, table, timeAgo } from "../parts.js";

/** @returns {Promise<View>} */
export async function show() {
  /** @type {{ items: ProjectRow[] }} */
  const { items } = await get("/api/projects");
  return { title: "Projects", body: items.length ? projectTable(items) : noProjects() };
}

/** @param {ProjectRow[]} projects */
function projectTable(projects) {
  const row = (/** @type {ProjectRow} */ project) => [
    h("a", { href: `/project/${project.id}` }, project.name),
    project.observations,
    project.sessions,
    timeAgo(project.last_event_at),
    h("span", { class: "mono muted" }, project.root || "identified by name only"),
  ];
  const caption = `${formatCount(projects.length, "project")}, the most recently active first`;
  const heads = ["Project", "Observations", "Sessions", "Last event", "Directory"];
  return h("section", { class: "panel" }, table(caption, heads, projects.map(row)));
}

const noProjects = () =>
  emptyState(
    "No project yet",
    "A project is a repository or directory in which an agent has worked. Connect an agent, then use it.",
    "claude-mem install",
  );
