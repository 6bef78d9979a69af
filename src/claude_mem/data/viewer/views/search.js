// @ts-check
// Search as you type: hits with the matching words highlighted, and why each was found.

import { facets, get } from "../api.js";
import { debounce, h, setContent } from "../dom.js";
import { filterForm, filterValues } from "../filters.js";
import { formatCount } from "../format.js";
import { card, emptyState, pager, startingWith } from "../parts.js";

const FILTERS = ["project", "kind", "type", "concept", "validity", "host", "since", "until", "group"];
const PAGE_SIZE = 20;
const searchBox = () => /** @type {HTMLInputElement} */ (document.getElementById("find"));

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const list = h("div", { class: "feed" });
  const status = h("p", { class: "muted", role: "status" });
  const footer = h("div");
  /** @type {ReturnType<typeof pager> | undefined} */
  let paging;
  let requests = 0;
  let lastRoute = route;
  let shownQuery = "";

  /** @param {Route} to */
  async function search(to) {
    const query = (to.query.get("q") ?? "").trim();
    const request = ++requests;
    lastRoute = to;
    const typing = document.activeElement === searchBox() ? 1 : "";
    const params = { query, explain: 1, typing, limit: PAGE_SIZE, ...searchParams(filterValues(to, FILTERS)) };
    const firstPage = await get("/api/search", params);
    if (request !== requests) return; // the query has changed meanwhile
    paging?.leave();
    const load = startingWith(firstPage, (offset) => get("/api/search", { ...params, offset }));
    paging = pager(list, async (cursor) => {
      const page = await load(cursor);
      const node = filterValues(to, FILTERS).group ? groupSection : hitCard;
      return { nodes: page.items.map(node), next: page.hasMore ? page.offset + page.limit : 0 };
    });
    setContent(list);
    setContent(footer, paging.more);
    await paging.next();
    shownQuery = query;
    setContent(status, resultCount(query, firstPage));
    if (!firstPage.items.length) setContent(list, query ? noHits(query) : introduction());
  }

  // Arrow keys move between the search box and the hits. Enter opens the selected hit, in the box the first one.
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (!list.isConnected || event.isComposing) return;
    const links = /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll(".card h3 a"));
    const stops = [searchBox(), ...links];
    const index = stops.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const isCurrent = searchBox().value.trim() === shownQuery;
    if (event.key === "Enter" && index === 0 && stops.length > 1 && isCurrent) {
      event.preventDefault();
      stops[1].click();
    } else if (step && index >= 0) {
      event.preventDefault();
      stops[Math.max(0, Math.min(stops.length - 1, index + step))].focus();
    }
  };
  const filterRow = filterForm(route, await facets(), FILTERS);
  const body = h("div", {}, filterRow, status, h("h2", { class: "unseen" }, "Results"), list, footer);
  await search(route);
  document.addEventListener("keydown", onKeyDown);
  const searchAgain = debounce(() => search(lastRoute).catch(() => {}), 150);
  if (!route.query.get("q")) queueMicrotask(() => searchBox().focus());
  return {
    title: "Search",
    body,
    restorable: true,
    update: search,
    onEvent: (event) => {
      if (event.type === "corrected" || event.turn_id) searchAgain(); // nothing that was deleted may remain visible
    },
    leave: () => {
      document.removeEventListener("keydown", onKeyDown);
      paging?.leave();
    },
  };
}

/**
 * The parameters of the search route for these filters.
 * @param {Record<string, string>} filters
 */
const searchParams = ({ type, concept, since, until, project, ...others }) => ({
  ...others,
  project_id: project,
  obs_type: type,
  concepts: concept,
  dateStart: since,
  dateEnd: until,
});

/**
 * The best hits of one file or session, under its name.
 * @param {HitGroup} group
 */
function groupSection({ group, key, count, items }) {
  const session = items[0].session_id;
  const name = group === "session" && session ? h("a", { href: `/session/${session}` }, key) : key;
  const heading = h("h3", { class: "group" }, name, " ", h("small", {}, formatCount(count, "record")));
  return h("section", { class: "feed" }, heading, items.map(hitCard));
}

/** @param {Item & { explain: Explanation }} item */
function hitCard(item) {
  const node = card(item, item.explain.terms);
  node.append(h("p", { class: "why" }, hitReason(item.explain)));
  return node;
}

/**
 * Which rankings contributed to the hit, the strongest first.
 * @param {Explanation} explain
 */
function hitReason(explain) {
  /** @type {[number, string][]} */
  const contributions = [
    [explain.exact, explain.signals.length ? `the same ${explain.signals.join(" and ")}` : "an exact match"],
    [explain.words, explain.terms.length ? `the words ${explain.terms.join(", ")}` : "its words"],
    [explain.meaning, "its meaning"],
  ];
  const reasons = contributions
    .filter(([share]) => share > 0.01)
    .sort((a, b) => b[0] - a[0])
    .map(([share, text]) => `${text} (${Math.round(share * 100)})`);
  if (!reasons.length) return "newest first";
  return `Found by ${reasons.join(", ")}${explain.confirmed ? "; confirmed by a person" : ""}`;
}

/**
 * @param {string} query
 * @param {{ items: Item[], hasMore: boolean }} page
 */
function resultCount(query, { items, hasMore }) {
  if (!query || !items.length) return "";
  const which = hasMore ? "The best" : "All";
  return `${which} ${formatCount(items.length, "result")} for “${query}”. Arrow keys select, Enter opens.`;
}

/** @param {string} query */
const noHits = (query) =>
  emptyState(
    `Nothing is remembered about “${query}”`,
    "Try other or fewer words; file names, error messages and commit ids work too.",
  );

const introduction = () =>
  emptyState(
    "What are you looking for?",
    "Enter a question in your own words, a file name, an error message or a commit id.",
  );
