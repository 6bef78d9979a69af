// @ts-check
// What the worker is doing now: sessions at work, running jobs, the job queue.

import { h } from "../dom.js";
import { formatCount, formatNumber } from "../format.js";
import { agentTag, badge, figure, panel, projectTag, timeAgo } from "../parts.js";

/** @type {Record<string, string>} */
const JOB_LABELS = Object.assign(Object.create(null), {
  compress: "Digesting",
  past: "Digesting",
  refine: "Refining",
  reconcile: "Reading a transcript",
  backfill: "Reading an old transcript",
  import: "Importing",
  render: "Writing the next context",
});

/** @param {NowPage} now */
export const nowPanels = (now) => [
  panel("Now", sessionList(now.sessions), now.working.map(runningJob)),
  panel("Job queue", queueFigures(now), now.backfill && backfillProgress(now.backfill), healthLink(now)),
];

/** @param {NowPage["sessions"]} sessions */
function sessionList(sessions) {
  if (!sessions.length) return h("p", { class: "muted" }, "No session is active.");
  return h("ul", {}, sessions.map(activeSession));
}

/** @param {NowPage["sessions"][number]} session */
const activeSession = (session) =>
  h(
    "li",
    {},
    h("a", { href: `/session/${session.id}` }, session.title || "A session without a prompt yet"),
    h(
      "p",
      { class: "meta" },
      projectTag(session.project, session.project_id),
      agentTag(session.host),
      session.open ? badge(`turn ${session.turn} running`, "good") : null,
      session.last_event?.tool ? h("span", { class: "mono" }, session.last_event.tool) : null,
      timeAgo(session.last_event_at),
    ),
  );

/** @param {NowPage["working"][number]} job */
function runningJob(job) {
  const turn = job.turn ? `, turn ${job.turn}` : "";
  const subject = job.session_id ? h("a", { href: `/session/${job.session_id}` }, job.title || "a session", turn) : "…";
  return h("p", { class: "muted" }, `${JOB_LABELS[job.kind] ?? job.kind}: `, subject);
}

/** @param {NowPage} now */
function queueFigures({ queue, spool, set_aside: setAside }) {
  const isEmpty = ![spool, queue.waiting, queue.running, queue.retrying, queue.dead, setAside].some(Boolean);
  if (isEmpty) return h("p", { class: "muted" }, "The queue is empty: all captured events are digested.");
  return h(
    "dl",
    { class: "figures" },
    figure("in the spool", spool),
    figure("waiting", queue.waiting),
    figure("running", queue.running),
    figure("to be retried", queue.retrying),
    figure("dead letters", queue.dead, "bad"),
    figure("set aside", setAside, "warn"),
  );
}

/** @param {NonNullable<NowPage["backfill"]>} backfill */
function backfillProgress({ done, files, digesting }) {
  const progress = `${formatNumber(done)} of ${formatCount(files, "file")} read`;
  return h("p", { class: "muted" }, `Back-fill: ${progress}, ${formatCount(digesting, "turn")} to digest`);
}

/** @param {NowPage} now */
const healthLink = ({ queue, set_aside: setAside }) =>
  queue.dead || setAside ? h("p", {}, h("a", { href: "/health" }, "See the reasons and what to do")) : null;
