// @ts-check
// All sessions, the most recently active first.

import { facets, get } from "../api.js";
import { debounce, h, isEqual, setContent } from "../dom.js";
import { filterForm, filterValues } from "../filters.js";
import { formatCount, formatDay, formatDuration, formatMoney } from "../format.js";
import {
  agentTag,
  badge,
  button,
  emptyState,
  groupedByDay,
  pager,
  projectTag,
  richText,
  startingWith,
  timeAgo,
} from "../parts.js";

const FILTERS = ["project", "host"];
const PAGE_SIZE = 30;
const ACTIVE_MS = 10 * 60_000; // a session without an event for longer is not active
const RELEVANT = ["new_prompt", "session_completed", "new_summary", "backfilled", "reconnected"];

/** @typedef {{ items: SessionRow[], offset: number, hasMore: boolean }} Page */

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  let params = listParams(route);
  const [choices, firstPage] = await Promise.all([facets(true), get("/api/sessions", params)]);
  const list = h("div", { class: "feed" });
  const notice = h("div", { class: "fresh", role: "status" });
  let paging = start(firstPage);
  let more = paging.more;
  let newest = versions(firstPage);

  /** @param {Page} page */
  function start(page) {
    const render = groupedByDay((/** @type {SessionRow} */ item) => formatDay(item.last_event_at), sessionCard);
    const load = startingWith(page, (offset) => get("/api/sessions", { ...params, offset }));
    setContent(list, page.items.length ? [] : emptyList(params));
    const pages = pager(list, async (cursor) => {
      const next = await load(cursor);
      return { nodes: render(next.items), next: next.hasMore ? next.offset + next.items.length : 0 };
    });
    pages.next();
    return pages;
  }

  async function reload() {
    const page = await get("/api/sessions", params);
    paging.leave();
    paging = start(page);
    more.replaceWith(paging.more);
    more = paging.more;
    newest = versions(page);
    setContent(notice);
  }

  // The list must not move while it is being read: the user decides when to update it.
  async function checkForNew() {
    const requested = params;
    const page = await get("/api/sessions", params);
    if (requested !== params || isEqual(versions(page), newest)) return;
    setContent(
      notice,
      button("Sessions have changed · show", () => reload().then(() => scrollTo(0, 0))),
    );
  }
  const checkSoon = debounce(() => checkForNew().catch(() => {}), 150);

  return {
    title: "Sessions",
    restorable: true,
    body: h("div", {}, filterForm(route, choices, FILTERS), notice, list, more),
    onEvent: (event) => RELEVANT.includes(event.type) && checkSoon(),
    update: (to) => {
      params = listParams(to);
      return reload();
    },
    leave: () => paging.leave(),
  };
}

/**
 * What differs if a session of the page has changed.
 * @param {Page} page
 */
const versions = ({ items }) => items.map((item) => [item.id, item.last_event_at, item.observations]);

/** @param {Route} route */
function listParams(route) {
  const { project, host } = filterValues(route, FILTERS);
  return { project_id: project, host, limit: PAGE_SIZE };
}

/** @param {ReturnType<typeof listParams>} params */
function emptyList({ project_id: project, host }) {
  if (project || host) return emptyState("No session matches these filters", "Remove one to see more.");
  return emptyState(
    "No session yet",
    "Connect your agents, then work as usual; or import earlier sessions.",
    "claude-mem install && claude-mem backfill",
  );
}

/** @param {SessionRow} item */
function sessionCard(item) {
  return h(
    "article",
    { class: "card session" },
    h("h3", {}, h("a", { href: `/session/${item.id}` }, item.title || "Session without a prompt")),
    item.subtitle && h("p", { class: "clip" }, richText(item.subtitle)),
    h(
      "p",
      { class: "meta" },
      projectTag(item.project, item.project_id),
      agentTag(item.host),
      statusBadge(item),
      formatCount(item.prompt_counter, "turn"),
      h("span", {}, formatDuration(item.last_event_at - item.started_at)),
      h("span", {}, formatCount(item.observations, "observation")),
      item.cost || item.model_tokens ? h("span", {}, formatMoney(item.cost)) : null,
      timeAgo(item.last_event_at),
    ),
  );
}

/**
 * A badge for every status but the usual one, completed.
 * @param {{ status: string, last_event_at: number }} session
 */
export function statusBadge({ status, last_event_at: lastEventAt }) {
  if (status === "active" || status === "initialized") {
    return Date.now() - lastEventAt < ACTIVE_MS ? badge("active", "good") : badge("not ended");
  }
  if (status === "failed") return badge("failed", "bad");
  return status === "interrupted" ? badge("interrupted", "warn") : null;
}
