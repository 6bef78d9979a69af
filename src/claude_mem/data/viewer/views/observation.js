// One observation: what it says, where it comes from, what was done to it, and everything a person may do with it.

import { get, send } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { form, forgetting, pick } from "../correct.js";
import { agentMark, ask, badge, button, field, fields, guarded, marked, panel, plural, projectMark, tell, toast, typeMark, when } from "../parts.js";

const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "long" });
const ABOUT = ["new_observation", "observation"]; // what is told of one: that it was made anew, or corrected
const TEXTS = { title: "Title", subtitle: "Subtitle", narrative: "Narrative" };
const DEEDS = { edited: "Edited", pinned: "Pinned", unpinned: "Unpinned", merged: "Merged", wrong: "Marked wrong", right: "Marked right", approved: "Approved", forgotten: "Forgotten", restored: "Undone" };
const LABELS = { ...TEXTS, type: "Type", facts: "Facts", concepts: "Concepts", files_read: "Files read", files_modified: "Files changed", commit_id: "Commit", pinned: "Pinned", verdict: "Verdict" };

export async function show({ id }) {
  const path = `/api/observation/${id}`;
  const body = h("div", { class: "observation" });
  let found = await get(`${path}/page`), editing = false, here = true;

  async function refresh(focus) {
    found = await get(`${path}/page`);
    if (!here) return;
    editing = false;
    draw();
    document.getElementById("heading").textContent = heading();
    document.title = `${heading()} · claude-mem`;
    if (focus) body.querySelector(`[data-do="${focus}"]`)?.focus();
  }
  // Someone else may have changed it; whoever is at a button of it stays there.
  const heard = debounce(async () => {
    const page = await get(`${path}/page`).catch(() => null);
    if (!page || !here || editing || JSON.stringify(page) === JSON.stringify(found)) return;
    await refresh(body.contains(document.activeElement) ? document.activeElement.dataset.do : "").catch(tell);
  }, 200);
  const heading = () => (found.observation.forgotten ? `Observation ${id} is forgotten` : found.observation.title || "Untitled");
  const draw = () => clear(body, found.observation.forgotten ? away(found, deeds) : page(found, deeds));

  const undo = async () => {
    const back = await send("POST", `${path}/undo`);
    toast(back.undone === "forgotten" ? "It is back." : `${DEEDS[back.undone]}: undone.`);
    await refresh();
  };
  const done = async (text, focus) => (toast(text, { undo }), refresh(focus));
  const deeds = {
    undo,
    edit() {
      editing = true;
      clear(body, form(found, save, () => ((editing = false), draw(), body.querySelector('[data-do="edit"]')?.focus())));
      body.querySelector('[name="title"]').focus();
    },
    async pin() {
      const pinned = !found.observation.pinned;
      await send(pinned ? "POST" : "DELETE", `${path}/pin`);
      toast(pinned ? "Pinned: every session of this project is told it first." : "No longer pinned.");
      await refresh("pin");
    },
    async wrong() {
      const wrong = found.observation.verdict !== "wrong";
      await send(wrong ? "POST" : "DELETE", `${path}/wrong`);
      await (wrong ? done("Marked wrong: it is no longer told or found.", "wrong") : (toast("Marked right: it is told and found again."), refresh("wrong")));
    },
    async approve() {
      await send("POST", `${path}/approve`);
      await done("Approved: sessions may be told it.", "pin");
    },
    async merge() {
      const ids = await pick(found);
      if (!ids.length) return;
      await send("POST", `${path}/merge`, { ids });
      await done(`${plural(ids.length, "observation")} went into this one.`, "merge");
    },
    async forget() {
      const { title, body: told } = forgetting(await get(`${path}/forget`));
      const soft = found.observation.forgotten ? "" : "Forget, with a way back";
      const chosen = await ask({ title, body: told, action: soft || "Erase at once", danger: !soft, also: soft && "Erase at once" });
      if (!chosen) return;
      await send("DELETE", chosen === soft ? path : `${path}?now=1`);
      await (chosen === soft ? done("Forgotten. For 30 days it can be brought back.") : (toast("Erased, with every copy in the database."), refresh()));
    },
  };
  async function save(changes) {
    if (!Object.keys(changes).length) return toast("Nothing was changed."), refresh("edit");
    await send("PATCH", path, changes);
    await done("Saved. It is yours now: no model changes it again.", "edit");
  }

  const keys = (event) => {
    if (editing || event.metaKey || event.ctrlKey || event.altKey || found.observation.forgotten) return;
    if (event.target.closest?.("input, textarea, select, dialog[open]")) return;
    const deed = { e: deeds.edit, p: deeds.pin }[event.key];
    if (deed) event.preventDefault(), guarded(deed)(event);
  };
  document.addEventListener("keydown", keys);
  draw();
  return {
    title: heading(),
    body,
    news: (item) => (item.type === "reconnected" || (item.id === id && ABOUT.includes(item.kind ?? item.type))) && heard(),
    leave: () => ((here = false), document.removeEventListener("keydown", keys)),
  };
}

// --- what it says ----------------------------------------------------------------------------------------------------

function page(found, deeds) {
  const { observation: item, origin, history, told, held: why } = found;
  const act = (name, label, more = {}) => button(label, deeds[name.split("-")[0]], { "data-do": name, ...more });
  const held = !told && item.verdict === "" && !item.superseded_by;
  return [
    h("p", { class: "meta" }, typeMark(item.type), item.type, projectMark(item.project, item.project_id), agentMark(item.host),
      item.pinned ? badge("pinned", "good") : null, item.verdict === "wrong" ? badge("marked wrong", "bad") : null,
      item.verdict === "approved" ? badge("approved", "good") : null, held ? badge("in quarantine", "warn") : null,
      item.superseded_by ? h("a", { href: `/observation/${item.superseded_by}` }, badge(`superseded by ${item.superseded_by}`, "warn")) : null, when(item.created_at)),
    h("div", { class: "toolbar", role: "toolbar", "aria-label": "What you can do" },
      act("edit", "Edit", { "aria-keyshortcuts": "e", title: "e" }), act("pin", item.pinned ? "Unpin" : "Pin", { "aria-keyshortcuts": "p", title: "p" }),
      held ? act("approve", "Approve", { kind: "primary" }) : null,
      item.verdict === "wrong" ? null : act("merge", "Merge…"), act("wrong", item.verdict === "wrong" ? "Mark right" : "Mark wrong"), act("forget", "Forget…", { kind: "danger" })),
    item.verdict === "wrong" ? h("p", { class: "bad" }, "It is wrong: no session is told it and no search finds it. It stays in its session, and here.") : null,
    held ? h("p", { class: "warn" }, `${why} A search finds it, but no session is told it unless you approve it.`) : null,
    h("div", { class: "beside" },
      h("div", {}, says(item, origin), panel("Related", relatives(item))),
      h("div", {}, panel("Where it comes from", comes(item, origin)), past(history, deeds))),
  ];
}

/** Those that are about the same, when they have been found: the rest does not wait for them. */
function relatives(item) {
  const place = h("div", { "aria-live": "polite" }, h("p", { class: "muted" }, "…"));
  get(`/api/observation/${item.id}/related`).then(
    ({ items }) => clear(place, items.length ? h("ul", { class: "plain" }, items.map(near)) : h("p", { class: "muted" }, "Nothing in this project is about the same.")),
    (failure) => clear(place, h("p", { class: "muted" }, failure.message)));
  return place;
}

function says(item, origin) {
  const known = new Set(origin.events.map((event) => event.seq));
  const links = (seqs = []) => seqs.filter((seq) => known.has(seq)).map((seq) => [" ", h("a", { href: `#event-${seq}`, class: "why", title: "The event it was taken from" }, `[${seq}]`)]);
  return h("section", { class: "panel", "aria-label": "What it says" },
    item.subtitle && h("p", { class: "muted" }, marked(item.subtitle)),
    item.narrative ? h("div", { class: "prose" }, marked(item.narrative)) : null,
    item.facts.length ? [h("h2", {}, "Facts"), h("ul", {}, item.facts.map((fact, at) => h("li", {}, marked(fact), links(item.sources[at]))))] : null,
    item.concepts.length ? h("p", { class: "row" }, item.concepts.map((concept) => h("a", { class: "tag", href: `/?concept=${encodeURIComponent(concept)}` }, concept))) : null,
    item.subtitle || item.narrative || item.facts.length ? null : h("p", { class: "muted" }, "Its title says it all."));
}

function comes(item, origin) {
  const files = (paths) => h("ul", { class: "plain mono" }, paths.map((name) => h("li", {}, name)));
  const { session, turn, prompt, events } = origin;
  return [
    fields(
      session && field("Session", h("a", { href: `/session/${session.id}` }, session.title || `Session ${session.id}`)),
      turn && field("Turn", h("a", { href: `/session/${session.id}#turn-${turn.number}` }, `Turn ${turn.number}`)),
      prompt && field("Prompt", h("q", {}, prompt.text)),
      field("Written by", item.model ? `${item.provider}, ${item.model}` : { local: "what the turn shows, without a model", user: "you" }[item.provider] ?? item.provider),
      field("Whose word", { user: "yours", agent: "the agent's", repo: "the agent's, about the project's files", tool: "the agent's, about what commands showed", external: `from outside${item.why ? `: ${item.why}` : ""}`, suspect: "doubtful: it reads like an attack", import: "someone else's, imported", team: "someone else's, of the team" }[item.trust] ?? item.trust),
      item.commit_id && field("Commit", h("code", {}, item.commit_id)),
      item.files_modified.length ? field("Files changed", files(item.files_modified)) : null,
      item.files_read.length ? field("Files read", files(item.files_read)) : null,
      field("Changed", when(item.updated_at)), field("To read it", plural(item.tokens ?? 0, "token"))),
    origin.events_gone && !events.length ? h("p", { class: "muted" }, `The ${plural(origin.events_gone, "raw event")} of its turn were kept for some days and are gone (keep_events_days).`) : null,
    events.length ? h("details", { open: events.length < 6 }, h("summary", {}, `Taken from ${plural(events.length, "event")}`),
      h("ol", { class: "plain" }, events.map((event) => h("li", { id: `event-${event.seq}` }, h("span", { class: "muted" }, `[${event.seq}] `, event.tool ?? event.kind, event.failed ? badge("failed", "bad") : null), " ", h("code", {}, event.text))))) : null,
  ];
}

const near = (item) => h("li", {}, typeMark(item.type), " ", h("a", { href: `/observation/${item.id}` }, marked(item.title || "Untitled")), h("span", { class: "muted" }, item.why === "files" ? " · the same files · " : " · ", when(item.created_at)));

// --- what was done to it ---------------------------------------------------------------------------------------------

function past(history, deeds) {
  const shown = (name, value) => (Array.isArray(value) ? value.join("; ") : String(value ?? "")) || "nothing";
  const line = (entry) => {
    const before = Object.entries(entry.before ?? {}).filter(([name]) => name in LABELS);
    return h("li", { class: entry.undone ? "muted" : null },
      h("div", { class: "row" }, h("span", {}, DEEDS[entry.what], entry.undone ? ", undone" : "", entry.by === "agent" ? " by an agent" : "", entry.before?.into ? [" into ", h("a", { href: `/observation/${entry.before.into}` }, String(entry.before.into))] : null), when(entry.at), entry.undo ? button("Undo", deeds.undo, { kind: "quiet" }) : null),
      entry.before?.ids ? h("p", { class: "why" }, "With ", entry.before.ids.map((other) => [h("a", { href: `/observation/${other}` }, String(other)), " "])) : null,
      before.length ? h("details", {}, h("summary", {}, "What it was before"), fields(before.map(([name, value]) => field(LABELS[name], shown(name, value))))) : null);
  };
  return panel("History", history.length ? h("ol", { class: "plain past" }, history.map(line)) : h("p", { class: "muted" }, "Nobody has changed it. What you do here can be undone for 30 days."));
}

function away({ observation: item, history }, deeds) {
  const back = item.undo_until
    ? [h("p", {}, `No session is told it and no search finds it. You can bring it back until ${DATE.format(item.undo_until)}; then it is erased.`),
       item.into_id ? h("p", {}, "It was merged into ", h("a", { href: `/observation/${item.into_id}` }, `observation ${item.into_id}`), ".") : null,
       h("p", { class: "toolbar" }, button("Bring it back", deeds.undo, { kind: "primary" }), button("Erase at once…", deeds.forget, { kind: "danger" }))]
    : h("p", {}, "It was erased: nothing of it is left but its number, so that it does not come back.");
  return [h("p", { class: "meta" }, typeMark(item.type), item.type, projectMark(item.project, item.project_id), when(item.created_at)), back, past(history, deeds)];
}
