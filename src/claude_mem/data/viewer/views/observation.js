// @ts-check
// One observation: its content, its origin, its history, and everything a person can do with it.

import { get, send } from "../api.js";
import { chooseMerged, deletionQuestion, editForm } from "../correct.js";
import { debounce, h, isEqual, setContent } from "../dom.js";
import { formatCount } from "../format.js";
import {
  agentTag,
  badge,
  button,
  confirmDialog,
  describeValidity,
  field,
  fields,
  panel,
  projectTag,
  richText,
  showError,
  timeAgo,
  toast,
  typeIcon,
  validityBadge,
  withErrorToast,
} from "../parts.js";

const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "long" });
const CHANGE_EVENTS = ["new_observation", "observation"]; // written again, or corrected
const FORGET = "Forget (undo within 30 days)";
const ERASE = "Erase now";
const KEEPABLE = ["superseded", "outdated", "gone", "partly", "reworked", "dropped", "reverted", "failed"];
const CHANGE_LABELS = {
  edited: "Edited",
  pinned: "Pinned",
  unpinned: "Unpinned",
  merged: "Merged",
  wrong: "Marked wrong",
  right: "Marked right",
  approved: "Approved",
  forgotten: "Forgotten",
  restored: "Undone",
};
const FIELD_LABELS = {
  title: "Title",
  subtitle: "Subtitle",
  narrative: "Narrative",
  type: "Type",
  facts: "Facts",
  concepts: "Concepts",
  files_read: "Files read",
  files_modified: "Files changed",
  commit_id: "Commit",
  pinned: "Pinned",
  verdict: "Verdict",
};
const WRITER_LABELS = { local: "the writer, without a model", user: "you" };
const TRUST_LABELS = {
  user: "you",
  agent: "the agent",
  repo: "the agent, about the project's files",
  tool: "the agent, about the output of commands",
  suspect: "suspect: it reads like an instruction to an agent",
  import: "someone else (imported)",
  team: "someone else (team)",
};

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
export async function show({ id }) {
  const editor = new Editor(id, await get(`/api/observation/${id}/page`));
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => editor.handleKey(event);
  document.addEventListener("keydown", onKeyDown);
  editor.render();
  return {
    title: editor.heading(),
    body: editor.body,
    onEvent: (event) => {
      const isChange = event.id === id && CHANGE_EVENTS.includes(event.kind ?? event.type);
      if (event.type === "reconnected" || isChange) editor.refreshSoon();
    },
    leave: () => {
      editor.isLeft = true;
      document.removeEventListener("keydown", onKeyDown);
    },
  };
}

/** The page of one observation, and the actions on it. */
class Editor {
  /**
   * @param {number} id
   * @param {ObservationPage} page
   */
  constructor(id, page) {
    this.id = id;
    this.path = `/api/observation/${id}`;
    this.page = page;
    this.body = h("div", { class: "observation" });
    this.isEditing = false;
    this.isLeft = false;
    this.refreshSoon = debounce(() => this.refreshIfChanged(), 200);
  }

  heading() {
    const { forgotten, title } = this.page.observation;
    return forgotten ? `Observation ${this.id} is forgotten` : title || "Untitled";
  }

  render() {
    const content = this.page.observation.forgotten ? forgottenContent(this) : pageContent(this);
    setContent(this.body, content);
  }

  /**
   * Load and show the observation again.
   * @param {string} [focused] the action whose button gets the focus
   */
  async refresh(focused) {
    this.page = await get(`${this.path}/page`);
    if (this.isLeft) return;
    this.isEditing = false;
    this.render();
    setContent(/** @type {HTMLElement} */ (document.getElementById("heading")), this.heading());
    document.title = `${this.heading()} · claude-mem`;
    if (focused) this.focusAction(focused);
  }

  /** Show a change that was made elsewhere. A button that has the focus keeps it. */
  async refreshIfChanged() {
    const page = await get(`${this.path}/page`).catch(() => null);
    if (!page || this.isLeft || this.isEditing || isEqual(page, this.page)) return;
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    const focused = this.body.contains(active) ? active?.dataset.command : "";
    await this.refresh(focused).catch(showError);
  }

  /** @param {string} action */
  focusAction(action) {
    /** @type {HTMLElement | null} */ (this.body.querySelector(`[data-command="${action}"]`))?.focus();
  }

  /**
   * Show that something was done, with a button to undo it.
   * @param {string} text
   * @param {string} [focused]
   */
  async finish(text, focused) {
    toast(text, { undo: () => this.undo() });
    await this.refresh(focused);
  }

  async undo() {
    const { undone } = await send("POST", `${this.path}/undo`);
    toast(undone === "forgotten" ? "Restored." : `${CHANGE_LABELS[undone]}: undone.`);
    await this.refresh();
  }

  edit() {
    this.isEditing = true;
    const cancel = () => {
      this.isEditing = false;
      this.render();
      this.focusAction("edit");
    };
    const form = editForm(this.page, (changes) => this.save(changes), cancel);
    setContent(this.body, form);
    /** @type {HTMLInputElement} */ (form.elements.namedItem("title")).focus();
  }

  /** @param {Record<string, any>} changes */
  async save(changes) {
    if (!Object.keys(changes).length) {
      toast("Nothing was changed.");
      return this.refresh("edit");
    }
    await send("PATCH", this.path, changes);
    await this.finish("Saved. From now on, no model changes this observation.", "edit");
  }

  async pin() {
    const pinned = !this.page.observation.pinned;
    await send(pinned ? "POST" : "DELETE", `${this.path}/pin`);
    toast(pinned ? "Pinned: it comes first in every brief of this project." : "Unpinned.");
    await this.refresh("pin");
  }

  async wrong() {
    if (this.page.observation.verdict === "wrong") {
      await send("DELETE", `${this.path}/wrong`);
      toast("Marked right: it is injected and found again.");
      await this.refresh("wrong");
    } else {
      await send("POST", `${this.path}/wrong`);
      await this.finish("Marked wrong: it is no longer injected or found.", "wrong");
    }
  }

  async approve() {
    await send("POST", `${this.path}/approve`);
    await this.finish("Approved: it may be injected.", "pin");
  }

  async merge() {
    const ids = await chooseMerged(this.page);
    if (!ids.length) return;
    await send("POST", `${this.path}/merge`, { ids });
    await this.finish(`${formatCount(ids.length, "observation")} merged into this one.`, "merge");
  }

  async keep() {
    const isKept = this.page.observation.validity === "kept";
    await send(isKept ? "DELETE" : "POST", `${this.path}/keep`);
    const undo = async () => {
      await send("DELETE", `${this.path}/keep`);
      await this.refresh("keep");
    };
    if (isKept) toast("What looks at its code find decides again.");
    else toast("Kept: sessions are shown it until its code changes again.", { undo });
    await this.refresh("keep");
  }

  async forget() {
    const question = deletionQuestion(await get(`${this.path}/forget`));
    const isForgotten = this.page.observation.forgotten;
    const actions = isForgotten ? { action: ERASE, danger: true } : { action: FORGET, secondAction: ERASE };
    const chosen = await confirmDialog({ ...question, ...actions });
    if (chosen === FORGET) {
      await send("DELETE", this.path);
      await this.finish("Forgotten. It can be restored for 30 days.");
    } else if (chosen === ERASE) {
      await send("DELETE", `${this.path}?now=1`);
      toast("Erased, with every copy in the database.");
      await this.refresh();
    }
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    if (this.isEditing || event.metaKey || event.ctrlKey || event.altKey || this.page.observation.forgotten) return;
    if (/** @type {Element} */ (event.target).closest?.("input, textarea, select, dialog[open]")) return;
    const action = { e: () => this.edit(), p: () => this.pin() }[event.key];
    if (!action) return;
    event.preventDefault();
    withErrorToast(action)(event);
  }
}

// --- content ---------------------------------------------------------------------------------------------------------

/** @param {Editor} editor */
function pageContent(editor) {
  const { observation: item, origin, history, told: isInjected, held: reason } = editor.page;
  const isWrong = item.verdict === "wrong";
  const awaitsApproval = !isInjected && item.verdict === "" && !item.superseded_by;
  return [
    metaLine(item, { awaitsApproval }),
    toolbar(editor, { awaitsApproval }),
    isWrong
      ? h("p", { class: "bad" }, "Marked wrong: it is not injected, and no search finds it. It stays in its session.")
      : null,
    awaitsApproval
      ? h("p", { class: "warn" }, `${reason} A search finds it, but it is not injected unless you approve it.`)
      : null,
    h(
      "div",
      { class: "beside" },
      h("div", {}, contentPanel(item, origin), panel("Related", relatedList(item.id))),
      h(
        "div",
        {},
        panel("Origin", originFields(item, origin)),
        validityPanel(editor.page),
        historyPanel(history, editor),
      ),
    ),
  ];
}

/**
 * @param {ObservationPage["observation"]} item
 * @param {{ awaitsApproval: boolean }} options
 */
function metaLine(item, { awaitsApproval }) {
  return h(
    "p",
    { class: "meta" },
    typeIcon(item.type),
    item.type,
    projectTag(item.project, item.project_id),
    agentTag(item.host),
    item.pinned ? badge("pinned", "good") : null,
    item.verdict === "wrong" ? badge("marked wrong", "bad") : null,
    item.verdict === "approved" ? badge("approved", "good") : null,
    awaitsApproval ? badge("awaits approval", "warn") : null,
    validityBadge(item),
    timeAgo(item.created_at),
  );
}

/**
 * @param {Editor} editor
 * @param {{ awaitsApproval: boolean }} options
 */
function toolbar(editor, { awaitsApproval }) {
  const item = editor.page.observation;
  const isWrong = item.verdict === "wrong";
  /** @typedef {"edit" | "pin" | "approve" | "merge" | "keep" | "wrong" | "forget"} Action */
  /** @type {(name: Action, label: string, more?: any) => any} */
  const action = (name, label, more = {}) => button(label, () => editor[name](), { "data-command": name, ...more });
  return h(
    "div",
    { class: "toolbar", role: "toolbar", "aria-label": "Actions" },
    action("edit", "Edit", { "aria-keyshortcuts": "e", title: "e" }),
    action("pin", item.pinned ? "Unpin" : "Pin", { "aria-keyshortcuts": "p", title: "p" }),
    awaitsApproval ? action("approve", "Approve", { kind: "primary" }) : null,
    isWrong ? null : action("merge", "Merge…"),
    KEEPABLE.includes(item.validity) ? action("keep", "Keep", { title: "It holds all the same" }) : null,
    item.validity === "kept" ? action("keep", "Do not keep") : null,
    action("wrong", isWrong ? "Mark right" : "Mark wrong"),
    action("forget", "Forget…", { kind: "danger" }),
  );
}

/**
 * @param {ObservationPage["observation"]} item
 * @param {ObservationPage["origin"]} origin
 */
function contentPanel(item, origin) {
  const known = new Set(origin.events.map((event) => event.seq));
  const sourceLink = (seq) => [
    " ",
    h("a", { href: `#event-${seq}`, class: "why", title: "The event this fact was taken from" }, `[${seq}]`),
  ];
  const sources = (seqs = []) => seqs.filter((seq) => known.has(seq)).map(sourceLink);
  const fact = (text, index) => h("li", {}, richText(text), sources(item.sources[index]));
  const concept = (name) => h("a", { class: "tag", href: `/?concept=${encodeURIComponent(name)}` }, name);
  const isEmpty = !item.subtitle && !item.narrative && !item.facts.length;
  return h(
    "section",
    { class: "panel", "aria-label": "Content" },
    item.subtitle && h("p", { class: "muted" }, richText(item.subtitle)),
    item.narrative ? h("div", { class: "prose" }, richText(item.narrative)) : null,
    item.facts.length ? [h("h2", {}, "Facts"), h("ul", {}, item.facts.map(fact))] : null,
    item.concepts.length ? h("p", { class: "row" }, item.concepts.map(concept)) : null,
    isEmpty ? h("p", { class: "muted" }, "It has only a title.") : null,
  );
}

/**
 * Related observations. They are loaded afterwards, so that the page does not wait for them.
 * @param {number} id
 */
function relatedList(id) {
  const container = h("div", { "aria-live": "polite" }, h("p", { class: "muted" }, "…"));
  const note = (text) => h("p", { class: "muted" }, text);
  const line = (/** @type {Item} */ item) =>
    h(
      "li",
      {},
      typeIcon(item.type),
      " ",
      h("a", { href: `/observation/${item.id}` }, richText(item.title || "Untitled")),
      h("span", { class: "muted" }, item.why === "files" ? " · same files · " : " · ", timeAgo(item.created_at)),
    );
  get(`/api/observation/${id}/related`).then(
    ({ items }) => {
      const list = () => h("ul", { class: "plain" }, items.map(line));
      setContent(container, items.length ? list() : note("No related observation in this project."));
    },
    (error) => setContent(container, note(error.message)),
  );
  return container;
}

/**
 * @param {ObservationPage["observation"]} item
 * @param {ObservationPage["origin"]} origin
 */
function originFields(item, origin) {
  const files = (paths) =>
    h(
      "ul",
      { class: "plain mono" },
      paths.map((name) => h("li", {}, name)),
    );
  const { session, turn, prompt, events } = origin;
  const writer = item.model ? `${item.provider}, ${item.model}` : (WRITER_LABELS[item.provider] ?? item.provider);
  const sessionPath = session ? `/session/${session.id}` : "";
  return [
    fields(
      session && field("Session", h("a", { href: sessionPath }, session.title || `Session ${session.id}`)),
      turn && field("Turn", h("a", { href: `${sessionPath}#turn-${turn.number}` }, `Turn ${turn.number}`)),
      prompt && field("Prompt", h("q", {}, prompt.text)),
      field("Written by", writer),
      field("Source", trustLabel(item)),
      item.commit_id && field("Commit", h("code", {}, item.commit_id)),
      item.files_modified.length ? field("Files changed", files(item.files_modified)) : null,
      item.files_read.length ? field("Files read", files(item.files_read)) : null,
      field("Changed", timeAgo(item.updated_at)),
      field("Length", formatCount(item.tokens ?? 0, "token")),
    ),
    origin.events_gone && !events.length ? purgedNote(origin.events_gone) : null,
    events.length ? eventDetails(events) : null,
  ];
}

/** @param {ObservationPage["observation"]} item */
function trustLabel({ trust, why }) {
  if (trust === "external") return `external content${why ? `: ${why}` : ""}`;
  return TRUST_LABELS[trust] ?? trust;
}

/** @param {number} count */
function purgedNote(count) {
  const events = formatCount(count, "raw event");
  return h("p", { class: "muted" }, `The ${events} of its turn were purged after their retention (keep_events_days).`);
}

/** @param {ObservationPage["origin"]["events"]} events */
function eventDetails(events) {
  const line = (event) =>
    h(
      "li",
      { id: `event-${event.seq}` },
      h(
        "span",
        { class: "muted" },
        `[${event.seq}] `,
        event.tool ?? event.kind,
        event.failed ? badge("failed", "bad") : null,
      ),
      " ",
      h("code", {}, event.text),
    );
  return h(
    "details",
    { open: events.length < 6 },
    h("summary", {}, `From ${formatCount(events.length, "event")}`),
    h("ol", { class: "plain" }, events.map(line)),
  );
}

// --- validity --------------------------------------------------------------------------------------------------------

/** @param {ObservationPage} page */
function validityPanel({ observation: item, validity }) {
  if (!validity.length && !item.validity) return null;
  const moved = item.moved_to?.length ? h("p", {}, "Now in ", h("code", {}, item.moved_to.join(", ")), ".") : null;
  return panel(
    "Does it still hold?",
    h("p", {}, `${describeValidity(item.validity)}.`),
    moved,
    h("ol", { class: "plain history" }, validity.map(validityEntry)),
  );
}

/** @param {ObservationPage["validity"][number]} change */
function validityEntry(change) {
  const { at, validity, superseded_by: successor, head, commit_id: commit } = change;
  const title = change.successor ?? "";
  const link = successor && h("a", { href: `/observation/${successor}` }, `${successor} ${title}`);
  const isTakenBack = validity === "reverted" && commit;
  return h(
    "li",
    {},
    h("div", { class: "row" }, h("span", {}, link ? ["superseded by ", link] : validity || "not known"), timeAgo(at)),
    isTakenBack ? h("p", { class: "why" }, "Taken back by ", h("code", {}, commit.slice(0, 10))) : null,
    head && !isTakenBack ? h("p", { class: "why" }, "Seen at ", h("code", {}, head.slice(0, 10))) : null,
  );
}

// --- history ---------------------------------------------------------------------------------------------------------

/**
 * @param {HistoryEntry[]} history
 * @param {Editor} editor
 */
function historyPanel(history, editor) {
  const none = h("p", { class: "muted" }, "No changes. Changes made here can be undone for 30 days.");
  const entries = history.map((entry) => historyEntry(entry, editor));
  return panel("History", entries.length ? h("ol", { class: "plain history" }, entries) : none);
}

/**
 * @param {HistoryEntry} entry
 * @param {Editor} editor
 */
function historyEntry({ what, by, at, undone, undo, before }, editor) {
  const observationLink = (id) => h("a", { href: `/observation/${id}` }, String(id));
  const author = by === "agent" ? " by an agent" : "";
  const target = before?.into ? [" into ", observationLink(before.into)] : null;
  return h(
    "li",
    { class: undone ? "muted" : null },
    h(
      "div",
      { class: "row" },
      h("span", {}, CHANGE_LABELS[what], undone ? ", undone" : "", author, target),
      timeAgo(at),
      undo ? button("Undo", () => editor.undo(), { kind: "quiet" }) : null,
    ),
    before?.ids
      ? h(
          "p",
          { class: "why" },
          "With ",
          before.ids.map((id) => [observationLink(id), " "]),
        )
      : null,
    earlierVersion(before ?? {}),
  );
}

/** @param {Record<string, any>} before */
function earlierVersion(before) {
  const values = Object.entries(before).filter(([name]) => Object.hasOwn(FIELD_LABELS, name));
  const format = (value) => (Array.isArray(value) ? value.join("; ") : String(value ?? "")) || "empty";
  if (!values.length) return null;
  const earlier = values.map(([name, value]) => field(FIELD_LABELS[name], format(value)));
  return h("details", {}, h("summary", {}, "Earlier version"), fields(earlier));
}

/** @param {Editor} editor */
function forgottenContent(editor) {
  const { observation: item, history } = editor.page;
  const erased = h("p", {}, "It was erased. Only its number is left, so that it is not stored again.");
  return [
    h(
      "p",
      { class: "meta" },
      typeIcon(item.type),
      item.type,
      projectTag(item.project, item.project_id),
      timeAgo(item.created_at),
    ),
    item.undo_until ? restoreOptions(editor, item.undo_until) : erased,
    historyPanel(history, editor),
  ];
}

/**
 * @param {Editor} editor
 * @param {number} undoUntil
 */
function restoreOptions(editor, undoUntil) {
  const successor = editor.page.observation.into_id;
  const link = h("a", { href: `/observation/${successor}` }, `observation ${successor}`);
  const deadline = DATE.format(undoUntil);
  return [
    h("p", {}, `It is not injected, and no search finds it. You can restore it until ${deadline}; then it is erased.`),
    successor ? h("p", {}, "It was merged into ", link, ".") : null,
    h(
      "p",
      { class: "toolbar" },
      button("Restore", () => editor.undo(), { kind: "primary" }),
      button("Erase now…", () => editor.forget(), { kind: "danger" }),
    ),
  ];
}
