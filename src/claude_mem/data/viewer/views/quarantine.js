// @ts-check
// The approval queue: observations based on external or suspect text. Searches find them; they are not injected unless
// a person approves them.

import { get, send } from "../api.js";
import { h, setContent } from "../dom.js";
import { formatCount } from "../format.js";
import { button, card, confirmDialog, emptyState, pager, panel, projectTag, startingWith, toast } from "../parts.js";

const PAGE_SIZE = 20;
const INTRODUCTION =
  " review. A search finds them, marked; they are not injected unless you approve them. If a source is your team's " +
  "own, trust it once: memories that are based on nothing else from outside are then injected.";
const TRUST_EFFECT =
  " that are based on nothing else from outside are approved, now and from now on. Text that resembles a prompt " +
  "injection still waits for approval.";

const memories = (count) => formatCount(count, "memory", "memories");

/** @returns {Promise<View>} */
export async function show() {
  const body = h("div");
  /** @type {ReturnType<typeof pager> | null} */
  let paging = null;
  let isLeft = false;

  async function refresh() {
    const firstPage = await get("/api/quarantine", { limit: PAGE_SIZE });
    if (isLeft) return;
    paging?.leave();
    paging = null;
    const trusted = trustedSources(await get("/api/trust"), refresh);
    if (!firstPage.total) {
      setContent(body, emptyQueue(), trusted);
      return;
    }
    const list = h("div", { class: "feed" });
    const load = startingWith(firstPage, (offset) => get("/api/quarantine", { limit: PAGE_SIZE, offset }));
    paging = pager(list, async (cursor) => {
      const page = await load(cursor);
      const nodes = page.items.map((item) => waitingCard(item, afterDecision, refresh));
      return { nodes, next: page.hasMore ? page.offset + page.limit : 0 };
    });
    const introduction = formatCount(firstPage.total, "memory needs", "memories need") + INTRODUCTION;
    const groups = groupTable(firstPage.sources, refresh);
    setContent(body, h("p", {}, introduction), groups, trusted, list, paging.more);
    await paging.next();
  }

  /** Focus the next item, not the button that decides on all. */
  async function afterDecision() {
    await refresh();
    const next = body.querySelector(".feed button") ?? body.querySelector("button");
    /** @type {HTMLElement | null} */ (next)?.focus();
  }

  await refresh();
  return {
    title: "Approval queue",
    body,
    leave: () => {
      isLeft = true;
      paging?.leave();
    },
  };
}

/** @typedef {() => Promise<void>} Refresh */

/**
 * @param {Item} item
 * @param {Refresh} afterDecision
 * @param {Refresh} refresh
 */
function waitingCard(item, afterDecision, refresh) {
  const path = `/api/${item.kind}/${item.id}`;
  const isObservation = item.kind === "observation";
  const undo = async () => {
    await send("POST", `${path}/undo`);
    await refresh();
  };
  /** @type {(method: "POST" | "DELETE", where: string, text: string) => () => Promise<void>} */
  const decide = (method, where, text) => async () => {
    await send(method, where);
    toast(text, { undo: isObservation ? undo : undefined });
    await afterDecision();
  };
  const name = item.title || item.completed || item.request || "this memory";
  const approve = decide("POST", `${path}/approve`, "Approved: it may be injected.");
  const forget = decide("DELETE", path, "Forgotten. It can be restored for 30 days.");
  const markWrong = decide("POST", `${path}/wrong`, "Marked wrong: it is no longer injected or found.");
  const trustButton = (source) =>
    button(`Always trust ${source} in this project`, () => trustSource(item, source, refresh), {
      "aria-label": `Always trust ${source} in ${item.project}`,
    });
  const node = card(item);
  node.append(
    h("p", { class: "why" }, item.why),
    h(
      "p",
      { class: "toolbar" },
      button("Approve", approve, { "aria-label": `Approve: ${name}` }),
      isObservation
        ? button("Forget", forget, { kind: "danger", "aria-label": `Forget: ${name}` })
        : button("Mark wrong", markWrong, { kind: "danger", "aria-label": `Mark wrong: ${name}` }),
      (item.sources ?? []).map(trustButton),
    ),
  );
  return node;
}

// --- sources ---------------------------------------------------------------------------------------------------------

/**
 * @param {Item} item
 * @param {string} source
 * @param {Refresh} refresh
 */
async function trustSource(item, source, refresh) {
  const title = `Always trust ${source} in ${item.project}?`;
  const body = h("p", {}, `Memories of ${item.project}${TRUST_EFFECT}`);
  if (!(await confirmDialog({ title, body, action: "Trust" }))) return;
  const { approved } = await send("POST", "/api/trust", { project_id: item.project_id, source });
  toast(`${source} is trusted; ${memories(approved)} approved. Each can be undone on its page.`);
  await refresh();
}

/**
 * @param {{ items: { project_id: number, project: string, source: string }[] }} trust
 * @param {Refresh} refresh
 */
function trustedSources({ items }, refresh) {
  const stop = async ({ project_id, source, project }) => {
    await send("DELETE", `/api/trust?${new URLSearchParams({ project_id, source })}`);
    toast(`${source} is no longer trusted in ${project}. Approved memories stay approved.`);
    await refresh();
  };
  const line = (item) =>
    h(
      "li",
      { class: "row" },
      h("span", { class: "grow" }, projectTag(item.project, item.project_id), ` ${item.source}`),
      button("Stop trusting", () => stop(item), { "aria-label": `Stop trusting ${item.source} in ${item.project}` }),
    );
  return items.length ? panel("Trusted sources", h("ul", { class: "plain" }, items.map(line))) : null;
}

/** @typedef {{ project: string, project_id: number, trust: string, count: number, why: string }} Group */

const APPROVE_EFFECT = "They may then be injected into sessions of this project.";
const WRONG_EFFECT = "Searches no longer find them. Each can be marked right again on its page.";

/**
 * The waiting memories by project and reason, with buttons that decide on a whole group.
 * @param {Group[]} groups
 * @param {Refresh} refresh
 */
function groupTable(groups, refresh) {
  const line = (/** @type {Group} */ group) => {
    const { project } = group;
    const approve = () => decideOnGroup(group, "approved", refresh);
    const markWrong = () => decideOnGroup(group, "wrong", refresh);
    const label = h("span", { class: "grow" }, projectTag(project, group.project_id));
    label.append(` ${memories(group.count)}. ${group.why}`);
    return h(
      "li",
      { class: "row" },
      label,
      h(
        "span",
        { class: "row" },
        button("Approve all", approve, { "aria-label": `Approve all of ${project}` }),
        button("Mark all wrong", markWrong, { kind: "danger", "aria-label": `Mark all wrong of ${project}` }),
      ),
    );
  };
  return panel("By project and reason", h("ul", { class: "plain" }, groups.map(line)));
}

/**
 * @param {Group} group
 * @param {"approved" | "wrong"} verdict
 * @param {Refresh} refresh
 */
async function decideOnGroup(group, verdict, refresh) {
  const isWrong = verdict === "wrong";
  const action = isWrong ? "Mark wrong" : "Approve";
  const title = `${action} ${memories(group.count)} of ${group.project}?`;
  const body = h("p", {}, isWrong ? WRONG_EFFECT : APPROVE_EFFECT);
  if (!(await confirmDialog({ title, body, action, danger: isWrong }))) return;
  const scope = { trust: group.trust, project_id: group.project_id };
  const { count } = await send("POST", "/api/quarantine", { ...scope, verdict });
  toast(`${memories(count)} ${isWrong ? "marked wrong" : "approved"}.`);
  await refresh();
}

const emptyQueue = () =>
  emptyState(
    "Nothing awaits approval",
    "Memories that are based on external text (web pages, other tools, imports) or that read like an instruction to " +
      "an agent wait here until you approve them; searches find them meanwhile.",
    "claude-mem import FILE --untrusted",
  );
