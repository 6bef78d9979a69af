// @ts-check
// Health: one sentence if everything is in order, otherwise each problem and what to do about it.

import { get, send } from "../api.js";
import { debounce, h, isEqual, setContent } from "../dom.js";
import { formatBytes, formatCount, formatDuration, formatNumber } from "../format.js";
import {
  badge,
  button,
  confirmDialog,
  field,
  fields,
  figure,
  numericTable,
  panel,
  table,
  timeAgo,
  toast,
} from "../parts.js";

const POLL_MS = 10_000;
const MAX_JOBS = 50;
const RULE_LABELS = {
  dead_job: "of a turn that could not be digested",
  skip_tool: "of skipped tools",
  project_off: "in projects that are switched off",
  garbage: "not written by a hook",
};

/** @returns {Promise<View>} */
export async function show() {
  const verdict = h("div", { role: "status" });
  const details = h("div", { tabindex: -1 });
  /** @type {any[]} */
  let verdictState = [];
  /** @type {any[]} */
  let detailState = [];

  async function load({ always = false } = {}) {
    const [health, index] = await Promise.all([get("/api/health/page"), get("/api/index")]);
    const state = [health.concerns, health.account, health.jobs, health.backup, health.spool];
    if (!isEqual(state, verdictState)) setContent(verdict, verdictContent(health));
    verdictState = state;
    const active = document.activeElement;
    const hasFocus = details.contains(active);
    if (!always && (hasFocus || isEqual(state, detailState))) return; // an element with the focus is not replaced
    detailState = state;
    setContent(details, healthPanels(health, index, reload));
    if (hasFocus) focusButton(active?.textContent ?? "");
  }
  const reload = () => load({ always: true });
  const loadQuietly = () => load().catch(() => {}); // the frame says when the worker does not answer

  /** @param {string} label */
  function focusButton(label) {
    const sameButton = [...details.querySelectorAll("button")].find((other) => other.textContent === label);
    (sameButton ?? details).focus({ preventScroll: true });
  }

  await load();
  const timer = setInterval(() => document.hidden || loadQuietly(), POLL_MS);
  return {
    title: "Health",
    body: h("div", {}, verdict, details),
    onEvent: debounce(loadQuietly, 500),
    leave: () => clearInterval(timer),
  };
}

/** @typedef {() => Promise<void>} Reload */

/** @param {Api.HealthPage} health */
function verdictContent({ concerns, account }) {
  if (!concerns.length) {
    const events = formatCount(account.captured, "event");
    return h("p", { class: "verdict good" }, `No problems: ${events} captured, all accounted for.`);
  }
  const line = ({ level, text, hint }) => h("li", { class: level }, h("strong", {}, text), " ", h("span", {}, hint));
  return h("ul", { class: `verdict ${concerns[0].level}` }, concerns.map(line));
}

/**
 * @param {Api.HealthPage} health
 * @param {Api.IndexProgress} index
 * @param {Reload} reload
 */
const healthPanels = (health, index, reload) => [
  accountPanel(health),
  queuePanel(health, reload),
  h("div", { class: "columns" }, workerPanel(health, index), backupPanel(health.backup, reload), diskPanel(health)),
  timesPanel(health.times),
  setAsidePanel(health.aside),
];

// --- events and jobs -------------------------------------------------------------------------------------------------

/** @param {Api.HealthPage} health */
function accountPanel({ account, audit }) {
  const term = (name, label, sign) =>
    h("div", {}, h("dt", {}, label), h("dd", { "data-sign": sign }, formatNumber(account[name])));
  return panel(
    "Event accounting",
    h(
      "dl",
      { class: "equation" },
      term("captured", "captured", ""),
      term("stored", "stored", "="),
      term("queued", "queued", "+"),
      term("set_aside", "set aside", "+"),
      term("filtered", "filtered", "+"),
    ),
    fields(ruleField("set aside", account.set_aside_by), ruleField("filtered", account.filtered_by)),
    h(
      "p",
      { class: "muted" },
      account.adds_up ? "Both sides are counted independently and are equal." : "The sum is wrong: please report this.",
    ),
    audit?.at ? auditNote(audit) : null,
  );
}

/** @type {(title: string, counts: Record<string, number>) => HTMLElement | null} */
function ruleField(title, counts) {
  const rules = Object.entries(counts).map(([rule, count]) => `${formatNumber(count)} ${ruleLabel(rule)}`);
  return rules.length ? field(title, rules.join(", ")) : null;
}

/** @param {string} rule */
const ruleLabel = (rule) => (Object.hasOwn(RULE_LABELS, rule) ? RULE_LABELS[rule] : rule.replaceAll("_", " "));

/** @param {Api.AuditState} audit */
function auditNote({ at, ok }) {
  const result = ok ? "no errors. " : "errors. ";
  return h(
    "p",
    { class: "muted" },
    "The worker checks itself continuously. The check ",
    timeAgo(at ?? 0),
    ` found ${result}`,
    h("code", {}, "claude-mem audit"),
    " checks everything.",
  );
}

/**
 * @param {Api.HealthPage} health
 * @param {Reload} reload
 */
function queuePanel({ queue, jobs, spool }, reload) {
  const retryAll = async () => {
    const { retried } = await send("POST", "/api/queue/retry");
    toast(`${formatCount(retried, "job")} will be retried.`);
    await reload();
  };
  const rows = jobs.slice(0, MAX_JOBS).map((job) => jobRow(job, reload));
  return panel(
    "Job queue",
    h(
      "dl",
      { class: "figures" },
      figure("in the spool", spool),
      figure("waiting", queue.waiting),
      figure("to be retried", queue.retrying, "warn"),
      figure("dead letters", queue.dead, "bad"),
    ),
    queue.dead > 1 ? h("p", { class: "toolbar" }, button("Retry all", retryAll)) : null,
    rows.length
      ? table("Jobs, dead letters first", ["job", "state", "since"], rows)
      : h("p", { class: "muted" }, "The queue is empty. Each turn is digested shortly after it ends."),
  );
}

/**
 * @param {Job} job
 * @param {Reload} reload
 * @returns {Child[]}
 */
function jobRow(job, reload) {
  const subject = job.session_id ? h("a", { href: `/session/${job.session_id}` }, job.about) : job.about;
  const error = job.error ? h("p", { class: "mono muted" }, job.error) : null;
  return [
    h("div", {}, subject, error, job.dead ? jobActions(job, reload) : null),
    h("span", {}, jobState(job), job.attempts ? ` ${formatCount(job.attempts, "attempt")}` : ""),
    timeAgo(job.created_at),
  ];
}

/** @param {Job} job */
function jobState({ dead, error }) {
  if (dead) return badge("dead letter", "bad");
  return error ? badge("to be retried", "warn") : badge("waiting");
}

/**
 * @param {Job} job
 * @param {Reload} reload
 */
function jobActions(job, reload) {
  const retry = async () => {
    await send("POST", `/api/queue/${job.id}/retry`);
    toast("The job will be retried.");
    await reload();
  };
  return h(
    "p",
    { class: "toolbar" },
    button("Retry", retry),
    job.dropping ? button("Drop", () => dropJob(job, reload), { kind: "danger" }) : null,
  );
}

/**
 * @param {Job} job
 * @param {Reload} reload
 */
async function dropJob(job, reload) {
  const body = [h("p", {}, job.about), h("p", {}, job.dropping)];
  if (!(await confirmDialog({ title: "Drop this job?", body, action: "Drop", danger: true }))) return;
  const { means } = await send("DELETE", `/api/queue/${job.id}`);
  toast(means);
  await reload();
}

/** @param {Api.SetAside} setAside */
function setAsidePanel({ count, folder, newest }) {
  if (!count) return null;
  const row = (file) => [h("code", {}, file.name), ruleLabel(file.reason), formatBytes(file.size), timeAgo(file.at)];
  return panel(
    "Set aside",
    h(
      "p",
      {},
      `${formatCount(count, "file")} could not be read as events. They are kept, without secrets, in `,
      h("code", {}, folder),
      ".",
    ),
    table("The newest files", ["file", "reason", "size", "since"], newest.map(row)),
  );
}

// --- worker, backups, disk -------------------------------------------------------------------------------------------

/**
 * @param {Api.HealthPage} health
 * @param {Api.IndexProgress} index
 */
function workerPanel({ process, refining, settings }, index) {
  const pull = h("span", {}, "off: ", h("code", {}, "embedding_model"), " is ", h("code", {}, "none"));
  const embedded = `${formatNumber(index.vectors)} of about ${formatNumber(index.embeddable)} with ${index.model}`;
  const indexState = index.busy ? `indexing, ${formatCount(index.stale, "row")} left` : "index complete";
  const problems = `${formatCount(settings.length, "setting has a problem", "settings have problems")}`;
  return panel(
    "Worker",
    fields(
      field("version", process.version),
      field("process", process.pid),
      field("running for", formatDuration(process.uptime_ms)),
      field("memory", formatBytes(process.memory)),
      field("refining", h("a", { href: "/cost" }, refining.providers.join(", then ") || "off")),
      field("search", indexState),
      field("embeddings", index.model ? embedded : pull),
    ),
    settings.length ? h("p", {}, h("a", { href: "/settings" }, problems)) : null,
  );
}

/**
 * @param {Api.BackupsState} backup
 * @param {Reload} reload
 */
function backupPanel({ newest, count, size }, reload) {
  const verify = async (name) => {
    const { counts } = await send("POST", "/api/backup/check", { name });
    const rows = `${formatCount(counts.observations, "observation")}, ${formatCount(counts.events, "event")}`;
    toast(`${name} is valid: ${rows}.`);
  };
  const create = async () => {
    const { path } = await send("POST", "/api/backup");
    await verify(path.split("/").pop());
    await reload();
  };
  const none = h(
    "p",
    { class: "muted" },
    "No backup yet. A backup does not interrupt anything; ",
    h("code", {}, "claude-mem restore"),
    " restores one.",
  );
  const newestFields = () =>
    newest &&
    fields(
      field("newest", timeAgo(newest.made_at), `, ${formatBytes(newest.size)}`),
      field("file", h("code", {}, newest.name)),
      field("all backups", `${formatNumber(count)}, ${formatBytes(size)}`),
    );
  return panel(
    "Backup",
    newest ? newestFields() : none,
    h(
      "p",
      { class: "toolbar" },
      button("Back up now", create),
      newest ? button("Verify the newest", () => verify(newest.name)) : null,
    ),
  );
}

/** @param {Api.HealthPage} health */
function diskPanel({ disk, process }) {
  const free = `${formatBytes(disk.free)} of ${formatBytes(disk.total)} free`;
  const rows = Object.entries(disk.parts).map(([name, size]) => [name, formatBytes(size)]);
  return panel(
    "Disk",
    numericTable(`${formatBytes(disk.all)} in ${process.data_dir}; ${free}`, ["part", "size"], rows),
  );
}

/** @param {any[]} times */
function timesPanel(times) {
  const ms = (value) => (value === null ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0ms`);
  const row = (item) => [
    h("div", {}, item.name, h("p", { class: "muted" }, item.what)),
    ms(item.p50),
    ms(item.p95),
    ms(item.p99),
    item.count,
  ];
  return panel(
    "Latency",
    numericTable(
      "Percentiles of the last thousand since the worker started",
      ["operation", "50\u00a0%", "95\u00a0%", "99\u00a0%", "count"],
      times.map(row),
    ),
  );
}
