// Asks the worker, and listens to it. What goes wrong comes as a Failure: words for people, and what to do next.

export class Failure extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    Object.assign(this, { hint, status });
  }
}

// --- who we are ------------------------------------------------------------------------------------------------------

// Not a cookie: a browser sends those to every port of this machine. Storage belongs to this port alone.
const KEY = "credential", OPEN = "/open", AGAIN = "/open/again";
let credential = localStorage.getItem(KEY) ?? "";

const UNKNOWN = ["This browser is not known here", "The memory of your agents is for you alone. Type `claude-mem open` in a terminal: it opens this page and lets the browser in. When the worker was restarted, only pages that were open come back by themselves."];

/** Show the worker the code of a one-time link. Returns the page that the link leads to. */
export async function enter(code) {
  const entry = await ask("POST", OPEN, JSON.stringify({ code }));
  credential = entry.credential;
  localStorage.setItem(KEY, credential);
  return entry.path;
}

// Kept in this page's memory only. Another program that takes the port while no worker runs could read our storage, but not this.
let renewal = null;

/** Ask for what brings this page back after the worker was restarted. */
const prepare = async () => (renewal = await get("/api/renewal").catch(() => renewal));

let coming;
/** The worker does not know this credential (any more). Resolves to whether we have another by now. */
function comeBack(refused) {
  if (credential !== refused) return Promise.resolve(Boolean(credential));
  return (coming ??= renewed(refused).finally(() => (coming = undefined)));
}

async function renewed(refused) {
  const stored = localStorage.getItem(KEY); // another tab may have come back before us
  credential = stored && stored !== refused ? stored : ((renewal && (await prove(renewal).catch(() => ""))) || "");
  if (credential) localStorage.setItem(KEY, credential);
  else localStorage.removeItem(KEY);
  return Boolean(credential);
}

/** Prove that we were let in, without sending the key, and have the worker prove that it is the one who did. */
async function prove({ id, key }) {
  const { challenge } = await ask("GET", AGAIN, undefined, { again: false });
  const proof = await mac(key, `page ${challenge}`);
  const entry = await ask("POST", AGAIN, JSON.stringify({ id, proof }), { again: false }).catch((failure) => {
    if (failure.status === 409) renewal = null; // the token was changed
    throw failure;
  });
  return entry.proof === (await mac(key, `worker ${challenge} ${entry.credential}`)) ? entry.credential : "";
}

async function mac(key, text) {
  const bytes = (given) => new TextEncoder().encode(given);
  const signer = await crypto.subtle.importKey("raw", bytes(key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", signer, bytes(text)));
  return [...signed].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const authorization = () => (credential ? { Authorization: `Viewer ${credential}` } : {});

// Another tab was let in: so are we.
addEventListener("storage", (event) => {
  if (event.key !== KEY || !event.newValue) return;
  const lost = !credential;
  credential = event.newValue;
  if (lost) location.reload();
});

// --- asking ----------------------------------------------------------------------------------------------------------

export const get = (path, params = {}) => {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return ask("GET", query.size ? `${path}?${query}` : path);
};

export const send = (method, path, body = {}) => ask(method, path, JSON.stringify(body));

async function ask(method, path, body, { again = true } = {}) {
  const as = credential;
  if (!as && path !== OPEN && path !== AGAIN) throw new Failure(...UNKNOWN, 401);
  const headers = { ...authorization(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  let answer;
  try {
    answer = await fetch(path, { method, body, headers, credentials: "omit" });
  } catch {
    throw new Failure("The worker does not answer.", "It is tried again by itself; `claude-mem start` starts it.");
  }
  const found = await answer.json().catch(() => ({}));
  if (answer.status === 401) {
    if (again && (await comeBack(as))) return ask(method, path, body, { again: false });
    throw new Failure(...UNKNOWN, 401);
  }
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
  let hearing, timer, tries = 0, was = false;
  const close = () => (clearTimeout(timer), hearing?.abort(), (hearing = undefined));
  const live = () => {
    tries = 0;
    onState("live");
    prepare();
    if (was) onNews({ type: "reconnected" });
    was = true;
  };
  const open = async () => {
    close();
    const own = (hearing = new AbortController());
    if (credential || (await comeBack(""))) await hear(own.signal, live, onNews).catch(() => {});
    if (own !== hearing) return; // we have hung up ourselves
    close();
    onState(credential ? "reconnecting" : "unknown");
    if (credential || renewal) timer = setTimeout(open, WAITS[Math.min(tries++, WAITS.length - 1)]);
  };
  // A browser has six connections for all its tabs together: one that nobody looks at gives its own back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : hearing || open()));
  open();
}

/** Read server-sent events until they end. `EventSource` would do it, but can't send our credential. */
async function hear(signal, live, onNews) {
  const as = credential;
  const answer = await fetch("/stream", { headers: authorization(), credentials: "omit", cache: "no-store", signal });
  if (answer.status === 401) await comeBack(as);
  if (!answer.ok) return;
  live();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", part; !(part = await reader.read()).done; ) {
    const events = (text + part.value).split("\n\n");
    text = events.pop();
    for (const event of events.filter((each) => each.startsWith("data: "))) tellSafely(onNews, JSON.parse(event.slice(6)));
  }
}

/** A view that stumbles over an event is no reason to stop listening. */
function tellSafely(onNews, item) {
  try {
    onNews(item);
  } catch (error) {
    reportError(error);
  }
}
