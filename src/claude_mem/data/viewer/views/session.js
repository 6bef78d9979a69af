// @ts-check
// One session, turn by turn: prompts, what was done, failures and what fixed them, and what was injected.

import { get } from "../api.js";
import { debounce, h, isEqual, setContent } from "../dom.js";
import { formatDuration, formatMoney, formatNumber } from "../format.js";
import { agentTag, button, figure, pager, projectTag, richText, showError, startingWith, timeAgo } from "../parts.js";
import { statusBadge } from "./sessions.js";
import { injectionDetails, turnContent } from "./turn.js";

const PAGE_SIZE = 10;
const TAIL = 3; // turns at the end that may still change
const REFRESH_MS = 200;

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const story = new Story(route.id);
  await story.open();
  const jump = () => story.jumpToAddress().catch(showError);
  setTimeout(jump); // once it is in the page
  addEventListener("hashchange", jump);
  return {
    title: story.title(),
    body: story.element(),
    onEvent: (event) => story.handleEvent(event),
    update: async (to) => {
      if (to.id !== story.id) {
        story.id = to.id;
        await story.open();
        setContent(/** @type {HTMLElement} */ (document.getElementById("heading")), story.title());
      }
      await story.jumpToAddress();
    },
    leave: () => {
      removeEventListener("hashchange", jump);
      story.paging?.leave();
    },
  };
}

/** A contiguous part of the turns of a session: those from `first` up to, but not including, `next`. */
class Story {
  /** @param {number} id */
  constructor(id) {
    this.id = id;
    /** @type {StoryPage | undefined} the latest answer: header, injections at the start, outline */
    this.page = undefined;
    this.first = 0;
    this.next = 0;
    /** @type {Map<number, { node: HTMLElement, turn: Turn }>} the turns in the list, by number */
    this.shown = new Map();
    /** @type {ReturnType<typeof pager> | undefined} */
    this.paging = undefined;
    this.header = h("div", { class: "panel" });
    this.startInjections = h("div");
    this.list = h("ol", { class: "turns" });
    this.outline = h("nav", { class: "outline", "aria-label": "Turns" });
    this.earlier = button("Show earlier turns", () => this.showEarlier(), { kind: "more" });
    this.status = h("p", { class: "unseen", role: "status" });
    /** @type {HTMLElement} */
    this.more = h("span");
    this.refreshSoon = debounce(() => this.refresh().catch(() => {}), REFRESH_MS);
  }

  element() {
    const column = [this.header, this.status, this.startInjections, this.earlier, this.list, this.more];
    return h("div", { class: "story" }, h("div", {}, column), this.outline);
  }

  title() {
    return this.page?.session.title || `Session ${this.id}`;
  }

  /**
   * @param {number} from index of the first turn
   * @param {number} [limit]
   * @returns {Promise<StoryPage>}
   */
  load(from, limit = PAGE_SIZE) {
    const story = get(`/api/session/${this.id}/story`, { from, limit });
    return /** @type {Promise<StoryPage>} */ (story);
  }

  /** Load the session and show it from its first turn. */
  async open() {
    const page = await this.load(0);
    this.showFrame(page);
    await this.showFrom(page);
  }

  /**
   * Show the turns from this page on.
   * @param {StoryPage} firstPage
   */
  showFrom(firstPage) {
    const shown = new Map();
    this.shown = shown;
    this.paging?.leave();
    setContent(this.list);
    this.first = this.next = firstPage.from;
    this.earlier.hidden = !this.first;
    const load = startingWith(firstPage, (cursor) => this.load(cursor));
    this.paging = pager(this.list, async (cursor) => {
      const page = await load(cursor);
      if (shown !== this.shown) return { nodes: [] }; // the user has jumped to another turn meanwhile
      this.next = page.from + page.turns.length;
      return { nodes: page.turns.map((turn) => this.renderTurn(turn)), next: page.hasMore ? this.next : 0 };
    });
    this.more.replaceWith(this.paging.more);
    this.more = this.paging.more;
    return this.paging.next();
  }

  /** @param {Turn} turn */
  renderTurn(turn) {
    const attributes = { id: `turn-${turn.number}`, class: "turn", tabindex: -1 };
    const node = h("li", attributes, turnContent(turn, this.id));
    this.shown.set(turn.number, { node, turn });
    return node;
  }

  /**
   * Show header, start injections and outline. Parts that did not change are left alone: opened details stay open.
   * @param {StoryPage} page
   */
  showFrame(page) {
    const before = this.page;
    if (!isEqual(before?.session, page.session)) setContent(this.header, sessionHeader(page.session));
    if (!isEqual(before?.told_at_start, page.told_at_start)) {
      setContent(this.startInjections, startInjections(page.told_at_start));
    }
    if (!isEqual(before?.outline, page.outline)) setContent(this.outline, outlineLinks(page.outline));
    this.page = page;
  }

  async showEarlier() {
    const from = Math.max(0, this.first - PAGE_SIZE);
    const page = await this.load(from, this.first - from);
    const height = document.documentElement.scrollHeight;
    this.list.prepend(...page.turns.map((turn) => this.renderTurn(turn)));
    scrollBy(0, document.documentElement.scrollHeight - height); // the turn that is being read stays in place
    this.first = from;
    this.earlier.hidden = !from;
  }

  /** Go to the turn that the address names, and load it if necessary. */
  async jumpToAddress() {
    const number = Number(/^#turn-(\d+)$/.exec(location.hash)?.[1]);
    const index = this.page?.outline?.findIndex((turn) => turn.number === number) ?? -1;
    if (index < 0) return;
    if (!this.shown.has(number)) await this.showFrom(await this.load(index));
    this.shown.get(number)?.node.scrollIntoView();
    this.shown.get(number)?.node.focus({ preventScroll: true });
  }

  /** Update the last turns and append new ones. Turns that did not change are left alone. */
  async refresh() {
    const shown = this.shown;
    const showsEnd = this.next >= (this.page?.outline?.length ?? 0);
    this.showFrame(await this.load(0, 1));
    let from = Math.max(this.first, this.next - TAIL);
    for (let hasMore = true; hasMore; ) {
      const page = await this.load(from); // up to the end: many turns may have been added
      if (shown !== this.shown) return;
      for (const turn of page.turns) this.updateTurn(turn, { append: showsEnd });
      from += page.turns.length;
      hasMore = showsEnd && page.hasMore;
    }
    if (showsEnd) this.next = from;
    this.status.textContent = "The session has been updated.";
  }

  /**
   * @param {Turn} turn
   * @param {{ append: boolean }} options
   */
  updateTurn(turn, { append }) {
    const entry = this.shown.get(turn.number);
    if (entry && !isEqual(entry.turn, turn)) entry.node.replaceWith(this.renderTurn(turn));
    else if (!entry && append) this.list.append(this.renderTurn(turn));
  }

  /** @param {LiveEvent} event */
  handleEvent(event) {
    const isHidden = [...this.shown.values()].some(({ turn }) => turn.id === event.turn_id);
    // The turn turned out to be private: nothing of it may remain visible.
    if (isHidden) this.open().catch(showError);
    else if (event.session_id === this.id || event.type === "reconnected") this.refreshSoon();
  }
}

// --- header and outline ----------------------------------------------------------------------------------------------

/** @param {SessionHeader} session */
function sessionHeader(session) {
  const { counts } = session;
  const modelFigures = [
    figure("model tokens", formatNumber(session.model_tokens)),
    figure("cost", formatMoney(session.cost)),
  ];
  return [
    session.subtitle && h("p", {}, richText(session.subtitle)),
    h(
      "p",
      { class: "meta" },
      projectTag(session.project, session.project_id),
      agentTag(session.host),
      statusBadge(session),
      h("span", {}, "started ", timeAgo(session.started_at)),
      h("span", {}, "last event ", timeAgo(session.last_event_at)),
    ),
    h(
      "dl",
      { class: "figures" },
      figure("turns", counts.turns),
      figure("observations", counts.observations),
      figure("events", counts.events),
      figure("duration", formatDuration(session.last_event_at - session.started_at)),
      session.requests ? modelFigures : null,
    ),
  ];
}

/** @param {Injection[]} injections */
function startInjections(injections) {
  if (injections.length) return injections.map(injectionDetails);
  return h("p", { class: "muted" }, "No injection at session start is recorded.");
}

/** @param {StoryPage["outline"]} turns */
function outlineLinks(turns = []) {
  const label = (turn) => (turn.private ? "private" : turn.text || "no prompt");
  const line = (turn) => h("li", { value: turn.number }, h("a", { href: `#turn-${turn.number}` }, label(turn)));
  return [h("h2", {}, "Turns"), h("ol", {}, turns.map(line))];
}
