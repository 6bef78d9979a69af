// What is happening now, and what was remembered lately.

import { facets, get, send } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { agentMark, badge, card, day, empty, guarded, number, pager, plural, projectMark, when } from "../parts.js";

const WANTED = ["project", "kind", "type", "concept", "host", "since", "until"];
const FRESH = ["new_observation", "new_summary", "new_prompt", "backfilled"];
const AT_ONCE = 200; // that can be asked for by their ids

export async function show(route) {
  let given = chosen(route, WANTED);
  const [found, now, first] = await Promise.all([facets(true), get("/api/now"), get("/api/feed", given)]);
  const feed = h("div", { class: "feed" });
  const fresh = h("div", { class: "fresh", role: "status" });
  const happening = h("aside", { class: "now", "aria-label": "Now" }, present(now));
  let drawn = JSON.stringify({ ...now, at: 0 });
  let shown, turn = 0, paging = begin(first); // `shown`: what is in the feed, by its mark

  function keep(item) {
    const node = card(item);
    shown.set(mark(item), { item, node, text: JSON.stringify(item) });
    return node;
  }

  function begin(page) {
    let last = "";
    shown = new Map();
    const nodes = (items) => items.flatMap((item) => {
      const date = day(item.created_at);
      const head = date === last ? [] : [h("h2", {}, date)];
      last = date;
      return [...head, keep(item)];
    });
    let ready = page;
    const pages = pager(feed, async (cursor) => {
      const next = ready ?? (await get("/api/feed", { ...given, before: cursor }));
      ready = null;
      return { nodes: nodes(next.items), next: next.next };
    });
    clear(feed, page.items.length ? [] : nothing(found));
    pages.next();
    return pages;
  }

  // Only when something has changed: whoever has come here by keyboard stays where they are.
  function draw(item) {
    const text = JSON.stringify({ ...item, at: 0 });
    if (text !== drawn) clear(happening, present(item));
    drawn = text;
  }

  async function again() {
    const own = ++turn, page = await get("/api/feed", given);
    if (own !== turn) return; // something else is wanted by now
    paging.leave();
    paging = begin(page);
    more.replaceWith((more = paging.more));
    clear(fresh);
  }

  // What was corrected is shown as it is now, what was forgotten is gone; all else stays where it is.
  async function checked() {
    const own = turn, ids = [...shown.values()].filter(({ item }) => item.kind === "observation").map(({ item }) => item.id);
    for (let at = 0; at < ids.length; at += AT_ONCE) {
      const some = ids.slice(at, at + AT_ONCE);
      const { items } = await send("POST", "/api/observations/batch", { ids: some });
      if (own !== turn) return;
      const known = new Map(items.map((item) => [item.id, item]));
      for (const id of some) put(`observation-${id}`, known.get(id));
    }
  }

  function put(name, item) {
    const { node, text } = shown.get(name) ?? {};
    if (!item) shown.delete(name), node?.remove();
    else if (node && text !== JSON.stringify(item)) node.replaceWith(keep(item));
  }

  // What is new waits for a click: what is being read must not move.
  const look = debounce(() => looked().catch(() => {}), 150); // a worker that is away is told above, and comes back
  async function looked() {
    draw(await get("/api/now"));
    const own = turn, { items } = await get("/api/feed", given);
    if (own !== turn) return;
    if (!shown.size) return items.length ? again() : undefined;
    const names = new Set(items.map(mark)), all = [...shown.values()], last = all.at(-1).item.created_at;
    for (const { item } of all) if (item.created_at > items.at(-1)?.created_at && !names.has(mark(item))) put(mark(item), null);
    // Work that was done earlier may be digested later: what is new need not be on top.
    const count = items.filter((item) => item.created_at >= last && !shown.has(mark(item))).length;
    const button = () => h("button", { type: "button", on: { click: guarded(() => again().then(() => scrollTo(0, 0))) } }, `${count === items.length ? `${count}+` : count} new · show`);
    clear(fresh, count ? button() : []);
  }
  const check = debounce(() => checked().then(looked).catch(() => {}), 150);
  const hidden = async () => (await again(), glance()); // it was private after all: nothing of it may stay in sight
  const glance = () => get("/api/now").then(draw, () => {});

  let more = paging.more;
  const body = h("div", { class: "home" }, h("div", {}, filters(route, found, WANTED), fresh, feed, more), happening);
  const timer = setInterval(() => document.hidden || !body.isConnected || glance(), 5_000);
  return {
    title: "Home",
    heading: "What your agents remember",
    body,
    keep: true,
    news: (item) => {
      if (item.turn_id) hidden().catch(() => {});
      else if (item.type === "corrected" || item.type === "reconnected") check();
      else if (FRESH.includes(item.type)) look();
      else glance();
    },
    update: (to) => ((given = chosen(to, WANTED)), again()),
    leave: () => (clearInterval(timer), paging.leave()),
  };
}

const mark = (item) => (item ? `${item.kind}-${item.id}` : "");

function nothing(found) {
  if (found.projects.length) return empty("Nothing fits these filters", "Take one away, or search for words with `/`.");
  return empty("Nothing is remembered yet", "Connect your agents, then work as usual: each turn appears here when it ends. Or have the sessions from before read.", "claude-mem install && claude-mem backfill");
}

// --- now -------------------------------------------------------------------------------------------------------------

function present({ sessions, working, queue, spool, set_aside: aside, backfill }) {
  const states = [["in the spool", spool], ["waiting", queue.waiting], ["running", queue.running], ["to retry", queue.retrying], ["given up", queue.dead, "bad"], ["set aside", aside, "warn"]];
  return [
    h("section", { class: "panel" }, h("h2", {}, "Now"),
      sessions.length ? h("ul", {}, sessions.map(session)) : h("p", { class: "muted" }, "No session is at work."),
      working.map((job) => h("p", { class: "muted" }, `${WORK[job.kind] ?? job.kind}: `, job.session_id ? h("a", { href: `/session/${job.session_id}` }, job.title || "a session", job.turn ? `, turn ${job.turn}` : "") : "…"))),
    h("section", { class: "panel" }, h("h2", {}, "Queue"),
      states.some(([, value]) => value) ? h("dl", { class: "figures" }, states.map(figure)) : h("p", { class: "muted" }, "Nothing waits: all that was captured is digested."),
      backfill ? h("p", { class: "muted" }, `Old sessions: ${number(backfill.done)} of ${plural(backfill.files, "file")} read, ${plural(backfill.digesting, "turn")} to digest`) : null,
      queue.dead || aside ? h("p", {}, h("a", { href: "/health" }, "See why, and what to do")) : null),
  ];
}

const WORK = { __proto__: null, compress: "Being digested", past: "Being digested", refine: "Being refined", reconcile: "Transcript being read", backfill: "Old transcript being read", import: "Being brought in", render: "Next context being written" };

const figure = ([label, value, kind = ""]) => h("div", {}, h("dt", {}, label), h("dd", { class: value ? kind : "" }, number(value)));

const session = (item) => h("li", {},
  h("a", { href: `/session/${item.id}` }, item.title || "A session that has only begun"),
  h("p", { class: "meta" }, projectMark(item.project, item.project_id), agentMark(item.host), item.open ? badge(`turn ${item.turn} at work`, "good") : null, item.last_event?.tool ? h("span", { class: "mono" }, item.last_event.tool) : null, when(item.last_event_at)));
