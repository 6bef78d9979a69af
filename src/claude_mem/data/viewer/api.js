// Asks the worker, and listens to it. What goes wrong comes as a Failure: words for people, and what to do next.

export class Failure extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    Object.assign(this, { hint, status });
  }
}

export const get = (path, params = {}) => {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return ask("GET", query.size ? `${path}?${query}` : path);
};

export const send = (method, path, body = {}) => ask(method, path, JSON.stringify(body));

async function ask(method, path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(path, { method, body, headers });
  } catch {
    throw new Failure("The worker does not answer.", "It is tried again by itself; `claude-mem start` starts it.");
  }
  const found = await answer.json().catch(() => ({}));
  if (answer.status === 401) throw new Failure("This browser is no longer known here.", "Type `claude-mem open` in a terminal.", 401);
  if (!answer.ok) throw new Failure(found.error ?? `The worker answered ${answer.status}.`, found.hint ?? "", answer.status);
  return found;
}

/** After a change of settings: until the worker has opened anew with them; meanwhile it may not answer. */
export async function restarted({ restarts, started_at }) {
  for (let tries = 0; restarts; tries++) {
    if (tries === 100) throw new Failure("It is saved, but the worker has not come back yet.", "`claude-mem start` starts it; `claude-mem logs` may say more.");
    await new Promise((resolve) => setTimeout(resolve, 150));
    const health = await get("/api/health").catch(() => null);
    if (health && health.started_at !== started_at) return;
  }
}

let facts;
/** Types, concepts, agents and projects there are; asked for once, and again when `fresh`. */
export const facets = (fresh = false) => (facts = fresh || !facts ? get("/api/facets").catch((failure) => { facts = undefined; throw failure; }) : facts);

// --- the live stream -------------------------------------------------------------------------------------------------

const WAITS = [500, 1000, 2000, 4000];

/** Tells `onNews` what happens and `onState` whether we hear it: "live", "reconnecting" or "unknown" (not let in). */
export function listen(onNews, onState) {
  let source, timer, tries = 0, was = false;
  const close = () => (clearTimeout(timer), source?.close(), (source = undefined));
  const open = () => {
    close();
    source = new EventSource("/stream");
    source.onopen = () => {
      tries = 0;
      onState("live");
      if (was) onNews({ type: "reconnected" });
      was = true;
    };
    source.onmessage = (event) => onNews(JSON.parse(event.data));
    source.onerror = async () => {
      close();
      onState("reconnecting");
      timer = setTimeout(open, WAITS[Math.min(tries++, WAITS.length - 1)]);
      const answer = await fetch("/", { method: "HEAD" }).catch(() => null);
      if (answer?.status === 401) onState("unknown");
    };
  };
  // A browser has six connections for all its tabs together: one that nobody looks at gives its own back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : source || open()));
  open();
}
