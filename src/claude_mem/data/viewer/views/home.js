// @ts-check
// Recent memory, newest first, and what the worker is doing now.

import { facets, get, send } from "../api.js";
import { debounce, h, isEqual, setContent } from "../dom.js";
import { filterForm, filterValues } from "../filters.js";
import { formatDay } from "../format.js";
import { card, emptyState, groupedByDay, pager, startingWith, withErrorToast } from "../parts.js";
import { nowPanels } from "./now.js";

const FILTERS = ["project", "kind", "type", "concept", "validity", "host", "since", "until"];
const NEW_MEMORY = ["new_observation", "new_summary", "new_prompt", "backfilled"];
const BATCH_SIZE = 200; // observations per request
const POLL_MS = 5_000;
const DEBOUNCE_MS = 150;

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const params = filterValues(route, FILTERS);
  const [choices, now, firstPage] = await Promise.all([facets(true), get("/api/now"), get("/api/feed", params)]);
  const feed = new Feed(params, firstPage, { hasProjects: choices.projects.length > 0 });
  const activity = new Activity(now);
  const column = h("div", {}, filterForm(route, choices, FILTERS), feed.notice, feed.list, feed.more);
  const body = h("div", { class: "home" }, column, activity.element);

  // If the worker does not answer, the frame says so, and the view is refreshed after the reconnection.
  const refresh = () => Promise.all([activity.refresh(), feed.checkForNew()]).catch(() => {});
  const offerNew = debounce(refresh, DEBOUNCE_MS);
  const applyCorrections = debounce(() => feed.updateShown().then(refresh, () => {}), DEBOUNCE_MS);
  const timer = setInterval(() => {
    if (!document.hidden && body.isConnected) activity.refresh().catch(() => {});
  }, POLL_MS);
  return {
    title: "Home",
    heading: "Recent memory",
    body,
    restorable: true,
    onEvent: (event) => {
      // The turn turned out to be private: nothing of it may remain visible.
      if (event.turn_id)
        feed
          .reload()
          .then(() => activity.refresh())
          .catch(() => {});
      else if (event.type === "corrected" || event.type === "reconnected") applyCorrections();
      else if (NEW_MEMORY.includes(event.type)) offerNew();
      else activity.refresh().catch(() => {});
    },
    update: (to) => feed.reload(filterValues(to, FILTERS)),
    leave: () => {
      clearInterval(timer);
      feed.leave();
    },
  };
}

/** @param {Item} item */
const keyOf = (item) => `${item.kind}-${item.id}`;

/** The list of recent memory. Nothing in it moves by itself: new items wait for a click. */
class Feed {
  /**
   * @param {Record<string, string>} params
   * @param {{ items: Item[], next: string }} firstPage
   * @param {{ hasProjects: boolean }} options
   */
  constructor(params, firstPage, { hasProjects }) {
    this.params = params;
    this.hasProjects = hasProjects;
    this.list = h("div", { class: "feed" });
    this.notice = h("div", { class: "fresh", role: "status" });
    /** @type {Map<string, { item: Item, node: HTMLElement }>} the items in the list, by their key */
    this.shown = new Map();
    this.version = 0; // of the list: an answer for an earlier version is ignored
    this.paging = this.start(firstPage);
    this.more = this.paging.more;
  }

  /** @param {{ items: Item[], next: string }} firstPage */
  start(firstPage) {
    this.shown = new Map();
    const render = groupedByDay(
      (item) => formatDay(item.created_at),
      (item) => this.render(item),
    );
    const load = startingWith(firstPage, (cursor) => get("/api/feed", { ...this.params, before: cursor }));
    setContent(this.list, firstPage.items.length ? [] : emptyFeed(this.hasProjects));
    const paging = pager(this.list, async (cursor) => {
      const page = await load(cursor);
      return { nodes: render(page.items), next: page.next };
    });
    paging.next();
    return paging;
  }

  /** @param {Item} item */
  render(item) {
    const node = card(item);
    this.shown.set(keyOf(item), { item, node });
    return node;
  }

  /** Load the list again, with other filters if they are given. */
  async reload(params = this.params) {
    this.params = params;
    const version = ++this.version;
    const page = await get("/api/feed", params);
    if (version !== this.version) return;
    this.paging.leave();
    this.paging = this.start(page);
    this.more.replaceWith(this.paging.more);
    this.more = this.paging.more;
    setContent(this.notice);
  }

  /** Show corrected observations as they are now, and remove forgotten ones; everything else stays in place. */
  async updateShown() {
    const version = this.version;
    const observations = [...this.shown.values()].filter(({ item }) => item.kind === "observation");
    const ids = observations.map(({ item }) => item.id);
    for (let start = 0; start < ids.length; start += BATCH_SIZE) {
      const batch = ids.slice(start, start + BATCH_SIZE);
      const { items } = await send("POST", "/api/observations/batch", { ids: batch });
      if (version !== this.version) return;
      const byId = new Map(items.map((item) => [item.id, item]));
      for (const id of batch) this.replace(`observation-${id}`, byId.get(id));
    }
  }

  /**
   * Show the item in place of the one with the same key, or remove that if there is no item.
   * @param {string} key
   * @param {Item | null | undefined} item
   */
  replace(key, item) {
    const entry = this.shown.get(key);
    if (!item) {
      this.shown.delete(key);
      entry?.node.remove();
    } else if (entry && !isEqual(entry.item, item)) {
      entry.node.replaceWith(this.render(item));
    }
  }

  /** Offer new items, and remove those of the first page that are gone. */
  async checkForNew() {
    const version = this.version;
    /** @type {{ items: Item[] }} */
    const { items } = await get("/api/feed", this.params);
    if (version !== this.version) return;
    if (!this.shown.size) return items.length ? this.reload() : undefined;
    const oldest = [...this.shown.values()].at(-1)?.item.created_at ?? 0;
    this.removeMissing(items);
    // Older work may be digested later, so new items need not be on top.
    const count = items.filter((item) => item.created_at >= oldest && !this.shown.has(keyOf(item))).length;
    setContent(this.notice, count ? this.newButton(count === items.length ? `${count}+` : `${count}`) : []);
  }

  /** @param {Item[]} items the first page as it is now */
  removeMissing(items) {
    const keys = new Set(items.map(keyOf));
    const oldest = items.at(-1)?.created_at ?? Infinity;
    for (const { item } of [...this.shown.values()]) {
      if (item.created_at > oldest && !keys.has(keyOf(item))) this.replace(keyOf(item), null);
    }
  }

  /** @param {string} count */
  newButton(count) {
    const onClick = withErrorToast(() => this.reload().then(() => scrollTo(0, 0)));
    return h("button", { type: "button", on: { click: onClick } }, `${count} new · show`);
  }

  leave() {
    this.paging.leave();
  }
}

/** The panels beside the feed. They are drawn again only when something changed, so that the focus stays in place. */
class Activity {
  /** @param {NowPage} now */
  constructor(now) {
    this.shown = comparable(now);
    this.element = h("aside", { class: "now", "aria-label": "Now" }, nowPanels(now));
  }

  async refresh() {
    const now = await get("/api/now");
    const next = comparable(now);
    if (!isEqual(next, this.shown)) setContent(this.element, nowPanels(now));
    this.shown = next;
  }
}

/** @param {NowPage} now */
const comparable = (now) => ({ ...now, at: 0 }); // the time of the answer always differs

/** @param {boolean} hasProjects */
function emptyFeed(hasProjects) {
  if (hasProjects) return emptyState("Nothing matches these filters", "Remove one, or search with `/`.");
  return emptyState(
    "Nothing is remembered yet",
    "Connect your agents, then work as usual: each turn appears here when it ends. Or import earlier sessions.",
    "claude-mem install && claude-mem backfill",
  );
}
