// Sessions, the one that was last at work first.

import { facets, get } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { agentMark, badge, button, day, empty, marked, money, pager, plural, projectMark, span, when } from "../parts.js";

const WANTED = ["project", "host"];
const SIZE = 30, RECENT = 10 * 60_000;

export async function show(route) {
  let given = asked(route);
  const [found, first] = await Promise.all([facets(true), get("/api/sessions", given)]);
  const list = h("div", { class: "feed" });
  const fresh = h("div", { class: "fresh", role: "status" });
  let paging = begin(first), more = paging.more, newest = mark(first);

  function begin(page) {
    let ready = page, last = "";
    const nodes = (items) => items.flatMap((item) => {
      const date = day(item.last_event_at);
      const head = date === last ? [] : [h("h2", {}, date)];
      last = date;
      return [...head, row(item)];
    });
    clear(list, page.items.length ? [] : nothing(given));
    const pages = pager(list, async (cursor) => {
      const next = ready ?? (await get("/api/sessions", { ...given, offset: cursor }));
      ready = null;
      return { nodes: nodes(next.items), next: next.hasMore ? next.offset + next.items.length : 0 };
    });
    pages.next();
    return pages;
  }

  async function again() {
    const page = await get("/api/sessions", given);
    paging.leave();
    paging = begin(page);
    more.replaceWith((more = paging.more));
    newest = mark(page);
    clear(fresh);
  }

  // What is being read must not move by itself.
  const look = debounce(() => looked().catch(() => {}), 150);
  async function looked() {
    const asked = given, page = await get("/api/sessions", given);
    if (asked === given && mark(page) !== newest) clear(fresh, button("Something has happened · show", () => again().then(() => scrollTo(0, 0))));
  }

  return {
    title: "Sessions",
    keep: true,
    body: h("div", {}, filters(route, found, WANTED), fresh, list, more),
    news: (item) => ["new_prompt", "session_completed", "new_summary", "backfilled", "reconnected"].includes(item.type) && look(),
    update: (to) => ((given = asked(to)), again()),
    leave: () => paging.leave(),
  };
}

const mark = ({ items }) => items.map((item) => `${item.id} ${item.last_event_at} ${item.observations}`).join();

function asked(route) {
  const { project, host } = chosen(route, WANTED);
  return { project_id: project, host, limit: SIZE };
}

const nothing = ({ project_id, host }) =>
  project_id || host
    ? empty("No session fits these filters", "Take one away to see more.")
    : empty("No session is known yet", "Connect your agents, then work as usual; or have the sessions from before read.", "claude-mem install && claude-mem backfill");

function row(item) {
  return h("article", { class: "card session" },
    h("h3", {}, h("a", { href: `/session/${item.id}` }, item.title || "A session without words")),
    item.subtitle && h("p", { class: "clip" }, marked(item.subtitle)),
    h("p", { class: "meta" },
      projectMark(item.project, item.project_id), agentMark(item.host), state(item),
      plural(item.prompt_counter, "turn"),
      h("span", {}, span(item.last_event_at - item.started_at)),
      h("span", {}, plural(item.observations, "observation")),
      item.cost || item.model_tokens ? h("span", {}, money(item.cost)) : null,
      when(item.last_event_at)));
}

/** Only what is worth a word: most sessions are over. */
export function state({ status, last_event_at: at }) {
  if (status === "active" || status === "initialized") return Date.now() - at < RECENT ? badge("at work", "good") : badge("not ended");
  return { failed: badge("failed", "bad"), interrupted: badge("broke off", "warn") }[status] ?? null;
}
