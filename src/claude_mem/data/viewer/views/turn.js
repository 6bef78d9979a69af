// @ts-check
// One turn of a session: prompt, summary, observations, failures, commits, files, injections and raw events.

import { get } from "../api.js";
import { h, setContent } from "../dom.js";
import { formatCount, formatDay, formatDuration, formatMoney, formatNumber } from "../format.js";
import { markdown } from "../markdown.js";
import { badge, button, clockTime, outcomeBadge, richText, showError, typeIcon, validityBadge } from "../parts.js";

const VISIBLE_ITEMS = 8; // of a list; the rest is folded
const VISIBLE_PROMPT = 900; // characters
const SUMMARY_LABELS = {
  completed: "Done",
  investigated: "Investigated",
  learned: "Learned",
  next_steps: "Next",
  notes: "Notes",
};
/** @type {Record<string, string>} */
const END_LABELS = Object.assign(Object.create(null), {
  silence: "no more events arrived",
  host_gone: "the agent exited",
  deleted: "it was cancelled",
  session_start: "the session was started again",
});

/**
 * @param {Turn} turn
 * @param {number} sessionId
 * @returns {Child}
 */
export function turnContent(turn, sessionId) {
  if (turn.private) return [turnHeading(turn), h("p", { class: "muted" }, "Private: nothing was stored.")];
  const prompt = turn.prompt?.text;
  const cards = turn.observations.map((item) => observationCard(item, prompt ?? ""));
  return [
    turnHeading(turn),
    turn.prompt ? promptQuote(turn.prompt.text) : h("p", { class: "muted" }, "The prompt is not known."),
    summarySection(turn),
    closingMessage(turn.summary),
    cards.length ? h("div", { class: "observations" }, cards) : null,
    foldedList(
      "Failed",
      turn.failures.map((failure) => failureItem(failure, turn.number)),
    ),
    foldedList("Committed", turn.commits.map(commitItem)),
    foldedList("Files", turn.files.map(fileItem)),
    turn.told.map(injectionDetails),
    rawEvents(turn, sessionId),
  ];
}

/** @param {Turn} turn */
function turnHeading(turn) {
  const end = END_LABELS[turn.closed_by ?? ""];
  return h(
    "h2",
    {},
    h("a", { href: `#turn-${turn.number}` }, `Turn ${turn.number}`),
    h(
      "span",
      { class: "meta" },
      formatDay(turn.opened_at),
      clockTime(turn.opened_at),
      turn.closed_at ? formatDuration(turn.last_at - turn.opened_at) : badge("running", "good"),
      end && `ended: ${end}`,
    ),
  );
}

/** @param {string} text */
function promptQuote(text) {
  if (text.length <= VISIBLE_PROMPT) return h("blockquote", {}, text);
  const showAll = button("Show the whole prompt", () => setContent(quote, text), { kind: "quiet" });
  const quote = h("blockquote", {}, `${text.slice(0, VISIBLE_PROMPT)}… `, showAll);
  return quote;
}

/** @param {Turn} turn */
function summarySection({ summary, digested, closed_at: closedAt }) {
  const lines = Object.entries(SUMMARY_LABELS).filter(([name]) => summary?.[name]);
  if (!summary || !lines.length) {
    return closedAt && !digested ? h("p", { class: "muted" }, "This turn is being digested.") : null;
  }
  const badges = [summary.verdict === "wrong" ? badge("marked wrong", "bad") : null, outcomeBadge(summary.outcome)];
  const line = ([name, label]) => [h("dt", {}, label), h("dd", {}, markdown(summary[name]))];
  return [
    badges.some(Boolean) ? h("p", {}, badges) : null,
    h("dl", { class: `brief ${summary.verdict}` }, lines.map(line)),
  ];
}

/**
 * The agent's last message of the turn, verbatim. It is rendered when it is opened, because it may be long.
 * @param {Summary | null} summary
 */
function closingMessage(summary) {
  if (!summary?.closing) return null;
  const content = h("div", { class: "markdown" });
  const onToggle = ({ target }) => {
    if (target.open && !content.hasChildNodes()) content.append(...markdown(summary.closing));
  };
  const warning = summary.closing_held && [" ", badge(`may repeat external content: ${summary.closing_held}`, "warn")];
  return h(
    "details",
    { class: "closing", on: { toggle: onToggle } },
    h("summary", {}, "Closing message", warning),
    content,
  );
}

/**
 * @param {Api.StoryObservation} item
 * @param {string} prompt
 */
function observationCard(item, prompt) {
  const isWrong = item.verdict === "wrong";
  const repeatsPrompt = item.subtitle && prompt.startsWith(item.subtitle.replace(/…$/, ""));
  const badges = [
    item.pinned ? badge("pinned", "good") : null,
    isWrong ? badge("marked wrong", "bad") : null,
    validityBadge(item),
  ];
  return h(
    "article",
    { class: `card${isWrong ? " wrong" : ""}` },
    h("h3", {}, typeIcon(item.type), h("a", { href: `/observation/${item.id}` }, richText(item.title || "Untitled"))),
    item.subtitle && !repeatsPrompt ? h("p", { class: "clip" }, richText(item.subtitle)) : null,
    badges.some(Boolean) ? h("p", { class: "meta" }, badges) : null,
  );
}

/**
 * A list of which only the first items are visible.
 * @param {string} label
 * @param {HTMLElement[]} items
 */
function foldedList(label, items) {
  if (!items.length) return null;
  const folded = items.slice(VISIBLE_ITEMS);
  const more = () => h("details", {}, h("summary", {}, `${formatNumber(folded.length)} more`), h("ul", {}, folded));
  return h(
    "section",
    { class: "part" },
    h("h3", {}, label),
    h("ul", {}, items.slice(0, VISIBLE_ITEMS)),
    folded.length ? more() : null,
  );
}

/**
 * @param {Failure} failure
 * @param {number} turnNumber
 */
function failureItem({ command, error, fixed }, turnNumber) {
  return h(
    "li",
    {},
    h("code", {}, command),
    " ",
    fixed ? fixBadge(fixed.turn, turnNumber) : badge("did not pass", "warn"),
    error && h("p", { class: "muted mono" }, error),
  );
}

/** @type {(fixedIn: number, turnNumber: number) => HTMLElement} */
function fixBadge(fixedIn, turnNumber) {
  if (fixedIn === turnNumber) return badge("passed later", "good");
  return h("a", { href: `#turn-${fixedIn}` }, badge(`passed in turn ${fixedIn}`, "good"));
}

/** @param {Turn["commits"][number]} commit */
const commitItem = ({ id, subject }) => h("li", {}, id && h("code", {}, id.slice(0, 10)), " ", subject);

/** @param {Turn["files"][number]} file a count is null if it is not known how often */
function fileItem({ path, edited, read }) {
  const uses = [
    edited && `edited ${edited}×`,
    edited === null && "edited",
    read && `read ${read}×`,
    read === null && "read",
  ].filter(Boolean);
  return h("li", {}, h("span", { class: "mono" }, path), " ", h("span", { class: "muted" }, uses.join(", ")));
}

// --- injections ------------------------------------------------------------------------------------------------------

const TRIGGER_LABELS = {
  start: "at session start",
  prompt: "at the prompt",
  file: "before a file was opened",
  failure: "after an error",
  command: "before a command",
};
const SPOILED = ["contradicted", "repeated"]; // a warning that was wrong, or not followed
const USE_LABELS = {
  fetched: ["fetched", "The session asked for the full text afterwards"],
  opened: ["file opened", "The session read a file that it is about"],
  edited: ["file edited", "The session edited a file that it is about"],
  ran: ["command run", "The session ran the command that it names"],
  quoted: ["quoted", "The agent wrote its words, in a message, an edit or a command"],
  avoided: ["avoided", "The session did not make the call that it warns of"],
};

/** @param {Injection} injection */
export function injectionDetails({ moment, about, tokens, items, held_out: isHeldOut }) {
  const content = items.length ? formatCount(items.length, "item") + injectionUse(items) : "nothing was remembered yet";
  const verb = isHeldOut ? "Held back, for comparison," : "Injected";
  const trigger = `${TRIGGER_LABELS[moment] ?? moment}${about ? ` (${about})` : ""}`;
  return h(
    "details",
    { class: "injection" },
    h("summary", {}, `${verb} ${trigger}: ${content} · ${formatCount(tokens, "token")}`),
    h("ul", {}, items.map(injectedItem)),
  );
}

/** @param {InjectedItem[]} items */
function injectionUse(items) {
  const used = items.filter((item) => item.used).length;
  if (used) return `, ${formatNumber(used)} used`;
  return items.some((item) => item.used !== null) ? ", no use seen" : ", use not known";
}

/** @param {InjectedItem} item */
function injectedItem(item) {
  const [label, reason] = USE_LABELS[item.how] ?? [];
  const unused = item.used === false ? h("span", { class: "muted" }, "no use seen") : null;
  const note = SPOILED.includes(item.how) ? badge(item.how, "warn") : unused;
  return h("li", {}, injectedName(item), " ", label ? h("span", { class: "badge good", title: reason }, label) : note);
}

/** @param {InjectedItem} item */
function injectedName(item) {
  if (item.kind === "file") return h("span", { class: "mono" }, item.path);
  if (item.kind === "call") return h("code", {}, item.title);
  const hasPage = item.kind === "observation" && item.id;
  const title = hasPage ? h("a", { href: `/observation/${item.id}` }, item.title) : h("span", {}, item.title);
  return [typeIcon(item.type ?? "", item.kind), title];
}

// --- raw events ------------------------------------------------------------------------------------------------------

/**
 * @param {Turn} turn
 * @param {number} sessionId
 */
function rawEvents(turn, sessionId) {
  const list = h("ol", { class: "raw" });
  const more = button("Show more events", () => load(), { kind: "more" });
  let from = 0;
  async function load() {
    const page = await get(`/api/session/${sessionId}/events`, { turn: turn.number, from });
    list.append(...page.items.map(rawEvent));
    from += page.items.length;
    more.hidden = !page.hasMore;
  }
  const onToggle = ({ target }) => {
    if (target.open && !from) load().catch(showError);
  };
  return h(
    "details",
    { class: "injection", on: { toggle: onToggle } },
    h("summary", {}, rawEventsLabel(turn)),
    list,
    more,
  );
}

/** @param {Turn} turn */
function rawEventsLabel({ events, events_gone: purged, whole, spent }) {
  const count = purged
    ? `Raw events: ${formatNumber(purged)}, purged after their retention period (keep_events_days)`
    : `Raw events: ${formatNumber(events)}`;
  const cost = `${formatMoney(spent.cost)}, ${formatCount(spent.tokens, "token")}`;
  return [
    count,
    whole ? null : " (only the first ones are evaluated above)",
    spent.requests ? ` · refined for ${cost}` : null,
  ];
}

/** @param {{ at: number, kind: string, source: string, body: Record<string, any> }} event */
function rawEvent({ at, kind, source, body }) {
  const { type, ...shown } = body;
  const summary = h(
    "summary",
    {},
    clockTime(at),
    " ",
    kind,
    " ",
    h("strong", {}, body.name ?? ""),
    body.failed ? badge("failed", "bad") : null,
    source === "hook" ? " " : ` from the ${source}`,
  );
  return h("li", {}, h("details", {}, summary, h("pre", {}, JSON.stringify(shown, null, 2))));
}
