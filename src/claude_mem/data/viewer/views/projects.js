// Which projects there are.

import { get } from "../api.js";
import { h } from "../dom.js";
import { empty, plural, table, when } from "../parts.js";

export async function show() {
  const { items } = await get("/api/projects");
  if (!items.length) return { title: "Projects", body: empty("No project yet", "A project is a repository in which an agent has worked. Connect an agent, then let it do something.", "claude-mem install") };
  const rows = items.map((item) => [
    h("a", { href: `/project/${item.id}` }, item.name), item.observations, item.sessions, when(item.last_event_at),
    h("span", { class: "mono muted" }, item.root || "known by its name only"),
  ]);
  return { title: "Projects", body: h("section", { class: "panel" }, table(`${plural(items.length, "project")}, the one with the latest work first`, ["Project", "Observations", "Sessions", "Last work", "Where"], rows)) };
}
