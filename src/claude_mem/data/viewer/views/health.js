// Is all well? One sentence if it is; else what is wrong, and what can be done about it.

import { get, send } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { ask, badge, button, bytes, field, fields, number, panel, plural, span, table, toast, when } from "../parts.js";

const figured = (...given) => h("div", { class: "figured" }, table(...given));
const POLL_MS = 10_000;

export async function show() {
  const verdict = h("div", { role: "status" }), place = h("div", { tabindex: -1 });
  let seen = "", drawn = "";

  async function load({ always = false } = {}) {
    const [found, index] = await Promise.all([get("/api/health/page"), get("/api/index")]);
    const state = JSON.stringify([found.concerns, found.account, found.jobs, found.backup, found.spool]);
    if (state !== seen) clear(verdict, judged(found));
    seen = state;
    if (!always && (place.contains(document.activeElement) || state === drawn)) return; // nobody's place is taken from under them
    drawn = state;
    const held = place.contains(document.activeElement) ? document.activeElement.textContent : "";
    clear(place, account(found), queue(found, again), h("div", { class: "columns" }, worker(found, index), backups(found, again), disk(found)), times(found), aside(found));
    if (held) ([...place.querySelectorAll("button")].find((other) => other.textContent === held) ?? place).focus({ preventScroll: true });
  }
  const again = () => load({ always: true });

  await load();
  const timer = setInterval(() => document.hidden || load().catch(() => {}), POLL_MS);
  return { title: "Health", heading: "Is all well?", body: h("div", {}, verdict, place), news: debounce(() => load().catch(() => {}), 500), leave: () => clearInterval(timer) };
}

function judged(found) {
  if (!found.concerns.length) return h("p", { class: "verdict good" }, `All is well: ${plural(found.account.captured, "event")} captured, every one accounted for.`);
  return h("ul", { class: `verdict ${found.concerns[0].level}` }, found.concerns.map((row) => h("li", { class: row.level }, h("strong", {}, row.text), " ", h("span", {}, row.hint))));
}

// --- events and jobs -------------------------------------------------------------------------------------------------

function account({ account: counts, audit }) {
  const term = (name, label, sign) => h("div", {}, h("dt", {}, label), h("dd", { "data-sign": sign }, number(counts[name])));
  const rules = (title, by) => (Object.keys(by).length ? field(title, Object.entries(by).map(([rule, count]) => `${number(count)} ${RULES[rule] ?? rule.replaceAll("_", " ")}`).join(", ")) : null);
  return panel("Every event is somewhere",
    h("dl", { class: "equation" }, term("captured", "captured", ""), term("stored", "stored", "="), term("queued", "queued", "+"), term("set_aside", "set aside", "+"), term("filtered", "filtered", "+")),
    fields(rules("set aside", counts.set_aside_by), rules("filtered", counts.filtered_by)),
    h("p", { class: "muted" }, counts.adds_up ? "The sum is right; its two sides are counted apart." : "The sum is wrong: please report this."),
    audit?.at ? h("p", { class: "muted" }, audit.ok ? "It checks itself all the time; what it checked " : "It checks itself all the time, and found something wrong ", when(audit.at), audit.ok ? " was right. " : ". ", h("code", {}, "claude-mem audit"), " checks the rest.") : null);
}

const RULES = { dead_job: "of a turn that could not be digested", skip_tool: "of tools that are skipped", project_off: "in projects that are off", garbage: "no record of ours" };

function queue(found, again) {
  const { queue: counts, jobs, spool } = found;
  const figure = (label, value, kind = "") => h("div", {}, h("dt", {}, label), h("dd", { class: value ? kind : "" }, number(value)));
  return panel("Work owed",
    h("dl", { class: "figures" }, figure("in the spool", spool), figure("waiting", counts.waiting), figure("to be retried", counts.retrying, "warn"), figure("given up", counts.dead, "bad")),
    counts.dead > 1 ? h("p", { class: "toolbar" }, button("Try all again", async () => {
      const { retried } = await send("POST", "/api/queue/retry");
      toast(`${plural(retried, "job")} will be tried again.`);
      await again();
    })) : null,
    jobs.length ? table("Jobs, those that were given up first", ["what", "state", "since"], jobs.slice(0, 50).map((job) => row(job, again)))
      : h("p", { class: "muted" }, "Nothing waits. Each turn is digested a moment after it ends."));
}

function row(job, again) {
  const about = job.session_id ? h("a", { href: `/session/${job.session_id}` }, job.about) : job.about;
  const state = job.dead ? badge("given up", "bad") : job.error ? badge("to be retried", "warn") : badge("waiting");
  const actions = job.dead ? h("p", { class: "toolbar" },
    button("Try again", async () => {
      await send("POST", `/api/queue/${job.id}/retry`);
      toast("It is tried again.");
      await again();
    }),
    job.dropping ? button("Drop", () => drop(job, again), { kind: "danger" }) : null) : null;
  return [
    h("div", {}, about, job.error ? h("p", { class: "mono muted" }, job.error) : null, actions),
    h("span", {}, state, job.attempts ? ` ${plural(job.attempts, "attempt")}` : ""),
    when(job.created_at),
  ];
}

async function drop(job, again) {
  const sure = await ask({ title: "Drop this job?", body: [h("p", {}, job.about), h("p", {}, job.dropping)], action: "Drop", danger: true });
  if (!sure) return;
  const { means } = await send("DELETE", `/api/queue/${job.id}`);
  toast(means);
  await again();
}

function aside({ aside: found }) {
  if (!found.count) return null;
  return panel("Set aside",
    h("p", {}, `${plural(found.count, "file")} could not be read as events. They wait in `, h("code", {}, found.folder), ", cleaned of secrets."),
    table("The newest of them", ["file", "why", "size", "since"], found.newest.map((file) => [h("code", {}, file.name), RULES[file.reason] ?? file.reason, bytes(file.size), when(file.at)])));
}

// --- the machine -----------------------------------------------------------------------------------------------------

function backups({ backup }, again) {
  const { newest } = backup;
  const check = async (name) => {
    const found = await send("POST", "/api/backup/check", { name });
    toast(`${name} is sound: ${plural(found.counts.observations, "observation")}, ${plural(found.counts.events, "event")}.`);
  };
  return panel("Backup",
    newest ? fields(field("newest", when(newest.made_at), `, ${bytes(newest.size)}`), field("file", h("code", {}, newest.name)), field("all copies", `${number(backup.count)}, ${bytes(backup.size)}`))
      : h("p", { class: "muted" }, "There is none yet. A copy is made while everything goes on; ", h("code", {}, "claude-mem restore"), " puts one back."),
    h("p", { class: "toolbar" },
      button("Make one now", async () => {
        const made = await send("POST", "/api/backup");
        await check(made.path.split("/").pop());
        await again();
      }),
      newest ? button("Check the newest", () => check(newest.name)) : null));
}

function disk({ disk: found, process }) {
  const parts = Object.entries(found.parts);
  return panel("Disk",
    figured(`${bytes(found.all)} in ${process.data_dir}; ${bytes(found.free)} of ${bytes(found.total)} free`, ["part", "size"], parts.map(([name, size]) => [name, bytes(size)])));
}

function worker({ process, refining, settings }, index) {
  return panel("Worker", fields(
    field("version", process.version), field("process", process.pid), field("running for", span(process.uptime_ms)), field("memory", bytes(process.memory)),
    field("refining", h("a", { href: "/cost" }, refining.providers.join(", then ") || "by nobody")),
    field("search", index.busy ? `the index is being made, ${plural(index.stale, "row")} to go` : "every word can be found"),
    field("by meaning", index.model ? `${number(index.vectors)} of about ${number(index.embeddable)} with ${index.model}` : h("span", {}, "off; ", h("code", {}, "claude-mem model pull"), " turns it on"))),
  settings.length ? h("p", {}, h("a", { href: "/settings" }, `${plural(settings.length, "setting")} need a look`)) : null);
}

function times({ times: found }) {
  const ms = (value) => (value === null ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0ms`);
  return panel("How long things take",
    figured("Of the last thousand since the worker started, so many took no longer than", ["what", "half", "95\u00a0%", "99\u00a0%", "measured"],
      found.map((row) => [h("div", {}, row.name, h("p", { class: "muted" }, row.what)), ms(row.p50), ms(row.p95), ms(row.p99), row.count])));
}
