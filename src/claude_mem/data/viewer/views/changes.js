// @ts-check
// What changed under the memories: code that was replaced, moved, dropped or reverted, and memories that a later one
// superseded. Each can be kept, corrected or forgotten here.

import { facets, get, send } from "../api.js";
import { editForm } from "../correct.js";
import { debounce, h, setContent } from "../dom.js";
import { filterForm, filterValues } from "../filters.js";
import { formatCount } from "../format.js";
import {
  button,
  card,
  describeValidity,
  emptyState,
  pager,
  showError,
  startingWith,
  timeAgo,
  toast,
} from "../parts.js";

const FILTERS = ["project", "validity"];
const PAGE_SIZE = 20;
/** In the order in which the counts are given; what is missing here did not change. */
const CHANGES = ["superseded", "outdated", "gone", "partly", "reworked", "moved", "dropped", "reverted"];
const KEYS = { k: "keep", c: "correct", f: "forget" };

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show(route) {
  const page = new Changes();
  const filterRow = filterForm(route, await facets(), FILTERS);
  await page.load(filterValues(route, FILTERS));
  const refreshSoon = debounce(() => page.refresh().catch(showError), 200);
  return {
    title: "What changed under your memories",
    body: h("div", {}, filterRow, page.element),
    update: (to) => page.load(filterValues(to, FILTERS)),
    onEvent: (event) => {
      if (event.type === "corrected" || event.type === "forgotten" || event.type === "reconnected") refreshSoon();
    },
    leave: () => page.leave(),
  };
}

/** @typedef {{ id: string, index: number, control: string }} Place a card, and what of it has the focus */

/** The list of changes, the last first, and the decisions about them. */
class Changes {
  constructor() {
    this.introduction = h("div");
    this.list = h("div", { class: "feed", on: { keydown: (event) => this.handleKey(event) } });
    this.footer = h("div");
    const heading = h("h2", { class: "unseen" }, "Changes");
    this.instructions = h("div");
    this.element = h("div", {}, this.introduction, heading, this.list, this.footer, this.instructions);
    /** @type {ReturnType<typeof pager> | undefined} */
    this.paging = undefined;
    /** @type {Record<string, string>} */
    this.filters = {};
    this.requests = 0;
    /** @type {Place | null} where the focus is to be after the list was drawn again */
    this.place = null;
  }

  /**
   * Load the list. The focus stays on its card, or goes to the one that takes its place.
   * @param {Record<string, string>} filters
   * @param {{ isRefresh?: boolean }} options
   */
  async load(filters, { isRefresh = false } = {}) {
    this.filters = filters;
    const request = ++this.requests;
    const { project, validity } = filters;
    const params = { project_id: project, validity: validity || "changed", limit: PAGE_SIZE };
    const firstPage = await get("/api/review", params);
    if (request !== this.requests) return; // the filters have changed meanwhile, or the view was left
    if (isRefresh && this.isCorrecting()) return; // what was typed must stay
    this.place = this.focusedPlace() ?? this.place;
    this.paging?.leave();
    const load = startingWith(firstPage, (offset) => get("/api/review", { ...params, offset }));
    this.paging = pager(this.list, async (cursor) => {
      const page = await load(cursor);
      const nodes = page.items.map((/** @type {ChangedItem} */ item) => this.changedCard(item));
      return { nodes, next: page.hasMore ? page.offset + page.limit : 0 };
    });
    setContent(this.list);
    setContent(this.introduction, this.header(firstPage.counts));
    setContent(this.footer, this.paging.more);
    await this.paging.next();
    if (!firstPage.items.length) setContent(this.list, nothingChanged());
    this.restoreFocus();
    if (!isRefresh) this.loadInstructions(project, request).catch(showError);
  }

  /**
   * Check the instruction files of a project. This may take a while, so the list does not wait for it.
   * @param {string} project
   * @param {number} request
   */
  async loadInstructions(project, request) {
    const report = project ? await get("/api/review/instructions", { project_id: project }) : null;
    if (request === this.requests) setContent(this.instructions, report && outdatedInstructions(report));
  }

  /** Load the list again, unless something is being corrected in it. */
  refresh() {
    return this.load(this.filters, { isRefresh: true });
  }

  isCorrecting() {
    return this.list.querySelector("form") !== null;
  }

  /** @returns {Place | null} */
  focusedPlace() {
    const control = document.activeElement;
    const focusedCard = control?.closest(".card");
    if (!control || !focusedCard || !this.list.contains(focusedCard)) return null;
    const command = control.getAttribute("data-command");
    const name = command ? `[data-command="${command}"]` : `a[href="${control.getAttribute("href")}"]`;
    return { ...this.placeOf(focusedCard.getAttribute("data-id") ?? ""), control: name };
  }

  /**
   * @param {string} id
   * @returns {Place}
   */
  placeOf(id) {
    const index = [...this.list.children].findIndex((node) => node.getAttribute("data-id") === id);
    return { id, index, control: "button" };
  }

  /** Put the focus where it was, or on what took its place, unless it is elsewhere by now. */
  restoreFocus() {
    const { place } = this;
    this.place = null;
    if (!place || (document.activeElement && document.activeElement !== document.body)) return;
    const same = this.list.querySelector(`.card[data-id="${place.id}"]`);
    const cards = [...this.list.querySelectorAll(".card")];
    const next = same ?? cards[Math.max(0, place.index)] ?? cards.at(-1);
    const target =
      same?.querySelector(place.control) ?? next?.querySelector("button") ?? document.getElementById("main");
    /** @type {HTMLElement | null} */ (target)?.focus();
  }

  leave() {
    this.requests++;
    this.paging?.leave();
  }

  /** @param {Record<string, number>} counts */
  header(counts) {
    const parts = CHANGES.filter((name) => counts[name]).map((name) => `${formatCount(counts[name], name, name)}`);
    const text = parts.length ? `${parts.join(", ")}.` : "";
    const look = button("Look again", () => this.lookAgain(), { title: "Compare the memories with the code again" });
    return [h("p", { class: "toolbar" }, h("span", { role: "status" }, text), this.filters.project ? look : null)];
  }

  async lookAgain() {
    const { changed } = await send("POST", "/api/review", { project_id: Number(this.filters.project) });
    toast(changed ? "Some code has changed since the last look." : "Nothing has changed since the last look.");
    await this.load(this.filters);
  }

  /** @param {ChangedItem} item */
  changedCard(item) {
    const name = item.title || "this memory";
    const action = (command, label, onClick, more = {}) =>
      button(label, onClick, { "data-command": command, "aria-label": `${label}: ${name}`, ...more });
    const node = card(item);
    node.append(
      h("p", { class: "why" }, whatChanged(item)),
      h(
        "p",
        { class: "toolbar" },
        item.validity === "kept" ? null : action("keep", "Keep", () => this.keep(item), { "aria-keyshortcuts": "k" }),
        action("correct", "Correct", () => this.correct(item), { "aria-keyshortcuts": "c" }),
        action("forget", "Forget", () => this.forget(item), { kind: "danger", "aria-keyshortcuts": "f" }),
      ),
    );
    return node;
  }

  /**
   * Show the list without what was decided, with the focus on what comes next. Undoing puts it back on what returns.
   * @param {string} text
   * @param {Item} item
   * @param {() => Promise<unknown>} undo
   */
  async finish(text, item, undo) {
    const place = this.placeOf(`observation-${item.id}`);
    toast(text, {
      undo: async () => {
        await undo();
        this.place = place;
        await this.refresh();
      },
    });
    this.place = place;
    this.list.querySelector("form")?.remove(); // it was saved
    await this.refresh();
  }

  /** @param {Item} item */
  async keep(item) {
    const path = `/api/observation/${item.id}/keep`;
    await send("POST", path);
    const text = "Kept: sessions are shown it until its code changes again.";
    await this.finish(text, item, () => send("DELETE", path));
  }

  /** @param {Item} item */
  async forget(item) {
    const path = `/api/observation/${item.id}`;
    await send("DELETE", path);
    await this.finish("Forgotten. It can be restored for 30 days.", item, () => send("POST", `${path}/undo`));
  }

  /**
   * @param {Item} item
   */
  async correct(item) {
    const path = `/api/observation/${item.id}`;
    /** @type {ObservationPage} */
    const page = await get(`${path}/page`);
    const shown = this.list.querySelector(`.card[data-id="observation-${item.id}"]`); // drawn again meanwhile, or gone
    if (!shown || this.isCorrecting()) return;
    const cancel = () => {
      form.replaceWith(shown);
      /** @type {HTMLElement | null} */ (shown.querySelector("[data-command=correct]"))?.focus();
      this.refresh().catch(showError); // with what has changed meanwhile
    };
    const save = async (changes) => {
      if (!Object.keys(changes).length) return cancel();
      await send("PATCH", path, changes);
      await send("POST", `${path}/keep`);
      const undo = async () => {
        await send("DELETE", `${path}/keep`);
        await send("POST", `${path}/undo`);
      };
      await this.finish("Corrected. Sessions are shown it again.", item, undo);
    };
    const form = editForm(page, save, cancel);
    form.setAttribute("data-id", `observation-${item.id}`);
    shown.replaceWith(form);
    /** @type {HTMLInputElement} */ (form.elements.namedItem("title")).focus();
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const target = /** @type {Element} */ (event.target);
    if (!KEYS[event.key] || target.closest("input, textarea, select")) return;
    const choice = target.closest(".card")?.querySelector(`[data-command=${KEYS[event.key]}]`);
    if (!choice) return;
    event.preventDefault();
    /** @type {HTMLElement} */ (choice).click();
  }
}

/** @param {ChangedItem} item */
function whatChanged(item) {
  const { successor } = item;
  const commit = item.validity === "reverted" ? item.work_commit : item.head;
  const link = successor && h("a", { href: `/observation/${successor.id}` }, successor.title || "Untitled");
  return [
    successor ? ["Replaced by ", link, ". "] : `${describeValidity(item.validity ?? "")}. `,
    item.moved_to?.length ? ["Now in ", h("code", {}, item.moved_to.join(", ")), ". "] : null,
    "Seen ",
    timeAgo(item.changed_at),
    commit ? [" at ", h("code", {}, commit.slice(0, 10))] : null,
    ".",
  ];
}

/** @param {Api.InstructionReview} report */
function outdatedInstructions({ files, items }) {
  if (!files.length) return null;
  const text = items.length
    ? ["Lines that name what a commit has removed since. ", h("code", {}, "claude-mem review"), " changes them."]
    : `Nothing that a commit has removed is named in ${files.join(", ")}.`;
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Instruction files"),
    h("p", { class: "muted" }, text),
    items.length ? h("ul", { class: "plain" }, items.map(outdatedStatement)) : null,
  );
}

/** @param {Api.OutdatedStatement} item */
function outdatedStatement(item) {
  const proposal = item.replacement === null ? [] : [`+ ${item.replacement}`];
  const change = item.has_proposal ? [`- ${item.text}`, ...proposal] : [`  ${item.text}`];
  const place = h("code", {}, `${item.file}:${item.line}`);
  return h(
    "li",
    {},
    h("p", {}, place, " names ", item.problems.map(outdatedName), "."),
    h("pre", {}, change.join("\n")),
  );
}

/** @type {(problem: Api.OutdatedName, index: number) => Child} */
const outdatedName = ({ name, now, commit, subject }, index) => [
  index ? "; " : null,
  h("code", {}, name),
  commit ? [", gone since ", h("code", {}, commit.slice(0, 10)), ` (${subject})`] : ", gone",
  now ? [": now ", h("code", {}, now)] : null,
];

const nothingChanged = () =>
  emptyState(
    "Nothing has changed under them",
    "A memory is listed here when the code that it speaks of is replaced, moved, dropped or reverted, or when a " +
      "later one supersedes it. In a terminal, `claude-mem review` goes through what is outdated.",
  );
