// One session as a story: what was asked, what was done, what failed and was mended, and what memory told.

import { get } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { markdown } from "../markdown.js";
import { agentMark, badge, button, clock, day, marked, money, number, outcomeMark, pager, plural, projectMark, span, tell, typeMark, when } from "../parts.js";
import { state } from "./sessions.js";

const SIZE = 10, TAIL = 3, FEW = 8;
const LONG = 900; // characters of a prompt that are shown at once
const LABELS = { completed: "Done", investigated: "Looked into", learned: "Learned", next_steps: "Next", notes: "Notes" };
const ENDED = { __proto__: null, silence: "nothing more was heard", host_gone: "the agent was gone", deleted: "it was called off", session_start: "the session began anew" };

export async function show(route) {
  let { id } = route;
  let found, first, next, paging, shown;
  const head = h("div", { class: "panel" });
  const start = h("div");
  const list = h("ol", { class: "turns" });
  const outline = h("nav", { class: "outline", "aria-label": "Turns" });
  const earlier = button("Show earlier turns", () => before(), { kind: "more" });
  const live = h("p", { class: "unseen", role: "status" });
  let more = h("span");
  const ask = (from, limit = SIZE) => get(`/api/session/${id}/story`, { from, limit });

  function begin(page) {
    let ready = page;
    const mine = (shown = new Map());
    paging?.leave();
    clear(list);
    first = next = page.from;
    earlier.hidden = !first;
    paging = pager(list, async (cursor) => {
      const page = ready ?? (await ask(cursor));
      ready = null;
      if (mine !== shown) return { nodes: [] }; // someone has jumped elsewhere meanwhile
      next = page.from + page.turns.length;
      return { nodes: page.turns.map(keep), next: page.hasMore ? next : 0 };
    });
    more.replaceWith((more = paging.more));
    return paging.next();
  }

  const keep = (turn) => {
    const node = h("li", { id: `turn-${turn.number}`, class: "turn", tabindex: -1 }, told(turn, id));
    shown.set(turn.number, { node, turn, text: JSON.stringify(turn) });
    return node;
  };

  async function before() {
    const from = Math.max(0, first - SIZE);
    const page = await ask(from, first - from);
    const height = document.documentElement.scrollHeight;
    list.prepend(...page.turns.map(keep));
    scrollBy(0, document.documentElement.scrollHeight - height); // what is being read stays where it is
    first = from;
    earlier.hidden = !first;
  }

  function around(page) {
    const same = (name) => JSON.stringify(found?.[name]) === JSON.stringify(page[name]); // what is open stays open
    if (!same("session")) clear(head, about(page.session));
    if (!same("told_at_start")) clear(start, page.told_at_start.length ? page.told_at_start.map(telling) : h("p", { class: "muted" }, "What it was told at its start is not known."));
    if (!same("outline")) clear(outline, lines(page.outline));
    found = page;
  }

  async function open() {
    const page = await ask(0);
    around(page);
    await begin(page);
  }

  // To the turn that the address names, wherever in the story it is.
  async function jump() {
    const wanted = Number(/^#turn-(\d+)$/.exec(location.hash)?.[1]);
    const at = found.outline.findIndex((turn) => turn.number === wanted);
    if (at < 0) return;
    if (!shown.has(wanted)) await begin(await ask(Math.max(0, at)));
    shown.get(wanted)?.node.scrollIntoView();
    shown.get(wanted)?.node.focus({ preventScroll: true });
  }

  // The end of the story, where news is made. What did not change is left alone: someone may be reading it.
  async function refreshed() {
    const mine = shown, reached = next >= found.outline.length;
    around(await ask(0, 1));
    let from = Math.max(first, next - TAIL), more = true;
    while (more) { // to the end: many turns may have come while nobody looked
      const page = await ask(from);
      if (mine !== shown) return;
      for (const turn of page.turns) {
        const old = shown.get(turn.number);
        if (old && old.text !== JSON.stringify(turn)) old.node.replaceWith(keep(turn));
        else if (!old && reached) list.append(keep(turn));
      }
      from += page.turns.length;
      more = reached && page.hasMore;
    }
    if (reached) next = from;
    live.textContent = "The story has been brought up to date.";
  }
  const refresh = debounce(() => refreshed().catch(() => {}), 200); // a worker that is away is told above, and comes back

  function news(item) {
    const hidden = [...shown.values()].some(({ turn }) => turn.id === item.turn_id);
    if (hidden) open().catch(tell); // it was private after all: nothing of it may stay in sight
    else if (item.session_id === id || item.type === "reconnected") refresh();
  }

  const moved = () => jump().catch(tell);
  await open();
  setTimeout(moved); // when it is in the page
  addEventListener("hashchange", moved);
  return {
    title: found.session.title || `Session ${id}`,
    body: h("div", { class: "story" }, h("div", {}, head, live, start, earlier, list, more), outline),
    news,
    update: async (to) => {
      if (to.id !== id) {
        id = to.id;
        await open();
        document.getElementById("heading").textContent = found.session.title || `Session ${id}`;
      }
      await jump();
    },
    leave: () => (removeEventListener("hashchange", moved), paging.leave()),
  };
}

// --- the whole -------------------------------------------------------------------------------------------------------

function about(session) {
  const { counts } = session;
  const figure = (label, value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));
  return [
    session.subtitle && h("p", {}, marked(session.subtitle)),
    h("p", { class: "meta" }, projectMark(session.project, session.project_id), agentMark(session.host), state(session), h("span", {}, "began ", when(session.started_at)), h("span", {}, "last heard of ", when(session.last_event_at))),
    h("dl", { class: "figures" }, figure("turns", number(counts.turns)), figure("observations", number(counts.observations)), figure("events", number(counts.events)),
      figure("long", span(session.last_event_at - session.started_at)), session.requests ? [figure("model tokens", number(session.model_tokens)), figure("cost", money(session.cost))] : null),
  ];
}

function lines(turns) {
  return [h("h2", {}, "Turns"), h("ol", {}, turns.map((turn) => h("li", { value: turn.number }, h("a", { href: `#turn-${turn.number}` }, turn.private ? "private" : turn.text || "without words"))))];
}

// --- a turn ----------------------------------------------------------------------------------------------------------

function told(turn, id) {
  const title = h("h2", {}, h("a", { href: `#turn-${turn.number}` }, `Turn ${turn.number}`),
    h("span", { class: "meta" }, day(turn.opened_at), clock(turn.opened_at), turn.closed_at ? span(turn.last_at - turn.opened_at) : badge("at work", "good"), ENDED[turn.closed_by] && `ended: ${ENDED[turn.closed_by]}`));
  if (turn.private) return [title, h("p", { class: "muted" }, "Private: nothing was kept.")];
  return [
    title,
    turn.prompt ? quote(turn.prompt.text) : h("p", { class: "muted" }, "What was asked is not known."),
    done(turn),
    closing(turn.summary),
    turn.observations.length ? h("div", { class: "made" }, turn.observations.map((item) => observation(item, turn.prompt?.text ?? ""))) : null,
    part("Failed", turn.failures.map((item) => failure(item, turn.number))),
    part("Committed", turn.commits.map((item) => h("li", {}, item.id && h("code", {}, item.id.slice(0, 10)), " ", item.subject))),
    part("Files", turn.files.map(file)),
    turn.told.map(telling),
    raw(turn, id),
  ];
}

function quote(text) {
  if (text.length <= LONG) return h("blockquote", {}, text);
  const rest = button("Show all of it", () => clear(place, text), { kind: "quiet" });
  const place = h("blockquote", {}, `${text.slice(0, LONG)}… `, rest);
  return place;
}

function done({ summary, digested, closed_at }) {
  const said = Object.entries(LABELS).filter(([name]) => summary?.[name]);
  const marks = summary && [summary.verdict === "wrong" && badge("marked wrong", "bad"), outcomeMark(summary.outcome)].filter(Boolean);
  if (said.length) return [
    marks.length ? h("p", {}, marks) : null,
    h("dl", { class: `brief ${summary.verdict}` }, said.map(([name, label]) => [h("dt", {}, label), h("dd", {}, name === "request" ? marked(summary[name]) : markdown(summary[name]))])),
  ];
  return closed_at && !digested ? h("p", { class: "muted" }, "It is being digested.") : null;
}

/** What the agent said at the end of the turn, word for word. Made when it is looked at: it may be long. */
function closing(summary) {
  if (!summary?.closing) return null;
  const place = h("div", { class: "markdown" });
  const opened = ({ target }) => target.open && !place.hasChildNodes() && place.append(...markdown(summary.closing));
  return h("details", { class: "closing", on: { toggle: opened } },
    h("summary", {}, "Closing message", summary.closing_held ? [" ", badge(`may repeat outside content: ${summary.closing_held}`, "warn")] : null), place);
}

const observation = (item, asked) => h("article", { class: `card${item.verdict === "wrong" ? " wrong" : ""}` },
  h("h3", {}, typeMark(item.type), h("a", { href: `/observation/${item.id}` }, marked(item.title || "Untitled"))),
  item.subtitle && !asked.startsWith(item.subtitle.replace(/…$/, "")) && h("p", { class: "clip" }, marked(item.subtitle)), // it was said above
  item.pinned || item.verdict === "wrong" ? h("p", { class: "meta" }, item.pinned ? badge("pinned", "good") : null, item.verdict === "wrong" ? badge("marked wrong", "bad") : null) : null);

/** A few at once; the rest when someone asks. */
function part(label, items) {
  if (!items.length) return null;
  const rest = items.slice(FEW);
  return h("section", { class: "part" }, h("h3", {}, label), h("ul", {}, items.slice(0, FEW)),
    rest.length ? h("details", {}, h("summary", {}, `${number(rest.length)} more`), h("ul", {}, rest)) : null);
}

function failure({ command, error, fixed }, here) {
  const mended = fixed && (fixed.turn === here ? badge("passed later", "good") : h("a", { href: `#turn-${fixed.turn}` }, badge(`passed in turn ${fixed.turn}`, "good")));
  return h("li", {}, h("code", {}, command), " ", mended || badge("not seen to pass", "warn"), error && h("p", { class: "muted mono" }, error));
}

function file({ path, edited, read }) {
  const times = [edited && `edited ${edited}×`, edited === null && "edited", read && `read ${read}×`, read === null && "read"].filter(Boolean);
  return h("li", {}, h("span", { class: "mono" }, path), " ", h("span", { class: "muted" }, times.join(", ")));
}

// --- what it was told ------------------------------------------------------------------------------------------------

const MOMENTS = { start: "at the start", prompt: "at the prompt", file: "before a file was opened", failure: "after a failure" };
const USED = { fetched: ["fetched", "It was read in full afterwards"], touched: ["file touched", "A file that it is about was read or edited afterwards"] };

function telling({ moment, about, tokens, items }) {
  const used = items.filter((item) => item.used).length, known = items.some((item) => item.used !== null);
  const use = used ? `, ${number(used)} probably used` : known ? ", none used" : ", use not known";
  const what = items.length ? plural(items.length, "thing") + use : "that nothing is remembered yet";
  return h("details", { class: "told" }, h("summary", {}, `Was told ${MOMENTS[moment]}${about ? ` (${about})` : ""}: ${what} · ${plural(tokens, "token")}`),
    h("ul", {}, items.map(heard)));
}

function heard(item) {
  const name = item.kind === "file" ? h("span", { class: "mono" }, item.path)
    : [typeMark(item.type, item.kind), item.kind === "observation" && item.id ? h("a", { href: `/observation/${item.id}` }, item.title) : h("span", {}, item.title)];
  const [word, reason] = USED[item.how] ?? [];
  return h("li", {}, name, " ", word ? h("span", { class: "badge good", title: reason }, word) : item.used === false ? h("span", { class: "muted" }, "not used") : null);
}

// --- raw events ------------------------------------------------------------------------------------------------------

function raw(turn, id) {
  const { spent } = turn;
  const place = h("ol", { class: "raw" });
  const more = button("Show more events", () => load(), { kind: "more" });
  let from = 0;
  async function load() {
    const page = await get(`/api/session/${id}/events`, { turn: turn.number, from });
    place.append(...page.items.map(event));
    from += page.items.length;
    more.hidden = !page.hasMore;
  }
  const opened = ({ target }) => target.open && !from && load().catch(tell);
  return h("details", { class: "told", on: { toggle: opened } },
    h("summary", {}, turn.events_gone ? `Raw events: ${number(turn.events_gone)}, which were kept for some days and are gone (keep_events_days)` : `Raw events: ${number(turn.events)}`, turn.whole ? null : " (the first of them are told above)", spent.requests ? ` · refined for ${money(spent.cost)}, ${plural(spent.tokens, "token")}` : null), place, more);
}

function event({ at, kind, source, body }) {
  const { type, ...rest } = body;
  return h("li", {}, h("details", {}, h("summary", {}, clock(at), " ", kind, " ", h("strong", {}, body.name ?? ""), body.failed ? badge("failed", "bad") : null, ` ${source === "hook" ? "" : `from the ${source}`}`), h("pre", {}, JSON.stringify(rest, null, 2))));
}
