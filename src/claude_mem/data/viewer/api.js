// @ts-check
// Sends requests to the worker and reads its live stream. Errors are `ApiError`: a message, and a hint what to do next.

export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {string} [hint]
   * @param {number} [status] HTTP status; 0 if the worker did not answer
   * @param {string} [field] the invalid setting
   */
  constructor(message, hint = "", status = 0, field = "") {
    super(message);
    this.hint = hint;
    this.status = status;
    this.field = field;
  }
}

// --- credential ------------------------------------------------------------------------------------------------------

// Not a cookie: a browser sends cookies to every port of this machine. Storage belongs to this port alone.
const CREDENTIAL_KEY = "credential";
const LOGIN_PATH = "/open";
const RENEWAL_PATH = "/open/again";
let credential = localStorage.getItem(CREDENTIAL_KEY) ?? "";

const accessDenied = () =>
  new ApiError(
    "Access denied",
    "This browser is not logged in. Run `claude-mem open` in a terminal: it opens this page and logs the browser in. " +
      "After a restart of the worker, only pages that were open log in again by themselves.",
    401,
  );

/**
 * Exchange the code of a one-time link for a credential. Returns the page that the link leads to.
 * @param {string} code
 * @returns {Promise<string>}
 */
export async function logIn(code) {
  const login = await request("POST", LOGIN_PATH, JSON.stringify({ code }));
  credential = login.credential;
  localStorage.setItem(CREDENTIAL_KEY, credential);
  return login.path;
}

/**
 * The key that logs this page in again after the worker was restarted. It is in this page's memory only: another
 * program that takes the port while no worker runs could read our storage, but not this.
 * @type {{ id: string, key: string } | null}
 */
let renewalKey = null;

async function fetchRenewalKey() {
  renewalKey = await get("/api/renewal").catch(() => renewalKey);
}

/** @type {Promise<boolean> | undefined} */
let renewing;

/**
 * Get another credential after the worker refused this one. Resolves to whether we have one.
 * @param {string} refused
 * @returns {Promise<boolean>}
 */
function renewCredential(refused) {
  if (credential !== refused) return Promise.resolve(Boolean(credential));
  renewing ??= replaceCredential(refused).finally(() => {
    renewing = undefined;
  });
  return renewing;
}

/** @param {string} refused */
async function replaceCredential(refused) {
  const stored = localStorage.getItem(CREDENTIAL_KEY); // another tab may have logged in again before us
  if (stored && stored !== refused) credential = stored;
  else credential = renewalKey ? await proveIdentity(renewalKey).catch(() => "") : "";
  if (credential) localStorage.setItem(CREDENTIAL_KEY, credential);
  else localStorage.removeItem(CREDENTIAL_KEY);
  return Boolean(credential);
}

/**
 * Prove that this page was logged in, without sending the key, and have the worker prove that it issued the key.
 * @param {{ id: string, key: string }} renewal
 * @returns {Promise<string>} the new credential; "" if the worker's proof is wrong
 */
async function proveIdentity({ id, key }) {
  const { challenge } = await request("GET", RENEWAL_PATH, undefined, { retry: false });
  const proof = await hmac(key, `page ${challenge}`);
  const body = JSON.stringify({ id, proof });
  const login = await request("POST", RENEWAL_PATH, body, { retry: false }).catch((error) => {
    if (error.status === 409) renewalKey = null; // the token was changed
    throw error;
  });
  return login.proof === (await hmac(key, `worker ${challenge} ${login.credential}`)) ? login.credential : "";
}

/**
 * @param {string} key
 * @param {string} text
 */
async function hmac(key, text) {
  const encoder = new TextEncoder();
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const signingKey = await crypto.subtle.importKey("raw", encoder.encode(key), algorithm, false, ["sign"]);
  const signature = new Uint8Array(await crypto.subtle.sign("HMAC", signingKey, encoder.encode(text)));
  return [...signature].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @returns {Record<string, string>} */
const authorization = () => (credential ? { Authorization: `Viewer ${credential}` } : {});

// A login in another tab is valid for this one, too.
addEventListener("storage", (event) => {
  if (event.key !== CREDENTIAL_KEY || !event.newValue) return;
  const loggedOut = !credential;
  credential = event.newValue;
  if (loggedOut) location.reload();
});

// --- requests --------------------------------------------------------------------------------------------------------

/**
 * @template {string} Path
 * @param {Path} path
 * @param {Record<string, any>} [params] empty ones are left out
 * @returns {Promise<Api.Get<Path>>}
 */
export function get(path, params = {}) {
  const isPresent = ([, value]) => value !== "" && value !== null && value !== undefined;
  const query = new URLSearchParams(Object.entries(params).filter(isPresent));
  return request("GET", query.size ? `${path}?${query}` : path);
}

/**
 * @template {"POST" | "PATCH" | "DELETE"} Method
 * @template {string} Path
 * @param {Method} method
 * @param {Path} path
 * @param {any} [body]
 * @returns {Promise<Api.Send<Method, Path>>}
 */
export const send = (method, path, body = {}) => request(method, path, JSON.stringify(body));

/**
 * @param {string} method
 * @param {string} path
 * @param {string} [body]
 * @param {{ retry?: boolean }} [options]
 * @returns {Promise<any>}
 */
async function request(method, path, body, { retry = true } = {}) {
  const used = credential;
  if (!used && path !== LOGIN_PATH && path !== RENEWAL_PATH) throw accessDenied();
  const headers = { ...authorization(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  let response;
  try {
    const signal = path === RENEWAL_PATH ? AbortSignal.timeout(ANSWER_MS) : undefined;
    response = await fetch(path, { method, body, headers, credentials: "omit", signal });
  } catch {
    throw new ApiError("The worker does not answer.", "The page keeps trying; `claude-mem start` starts the worker.");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) {
    if (retry && (await renewCredential(used))) return request(method, path, body, { retry: false });
    throw accessDenied();
  }
  if (!response.ok) {
    const message = answer.error ?? `The worker answered ${response.status}.`;
    throw new ApiError(message, answer.hint ?? "", response.status, answer.field ?? "");
  }
  return answer;
}

const RESTART_POLL_MS = 150;
const RESTART_POLLS = 100;

/**
 * Wait until the worker has restarted with changed settings; it may not answer meanwhile.
 * @param {{ restarts: boolean, started_at: number }} change
 */
export async function waitForRestart({ restarts, started_at }) {
  if (!restarts) return;
  for (let polls = 0; polls < RESTART_POLLS; polls++) {
    await new Promise((resolve) => setTimeout(resolve, RESTART_POLL_MS));
    const health = await get("/api/health").catch(() => null);
    if (health && health.started_at !== started_at) return;
  }
  throw new ApiError(
    "The change is saved, but the worker has not restarted yet.",
    "`claude-mem start` starts it; `claude-mem logs` has the details.",
  );
}

/** @type {Promise<Facets> | undefined} */
let cachedFacets;

/**
 * Types, concepts, agents and projects. Requested once, and again when `fresh`.
 * @param {boolean} [fresh]
 * @returns {Promise<Facets>}
 */
export function facets(fresh = false) {
  if (fresh || !cachedFacets) {
    cachedFacets = get("/api/facets").catch((error) => {
      cachedFacets = undefined;
      throw error;
    });
  }
  return /** @type {Promise<Facets>} */ (cachedFacets);
}

// --- live stream -----------------------------------------------------------------------------------------------------

const RETRY_MS = [500, 1000, 2000, 4000];
// A connection that is accepted and never answered must not stop the page from trying again. The worker answers at once
// and sends a heartbeat every 15 seconds.
const ANSWER_MS = 10_000;
const SILENCE_MS = 60_000;

/**
 * Follow the live stream, and connect again when it ends.
 * @param {(event: LiveEvent) => void} onEvent
 * @param {(state: "live" | "reconnecting" | "logged-out") => void} onState
 */
export function listen(onEvent, onState) {
  /** @type {AbortController | undefined} */
  let connection;
  /** @type {number | undefined} */
  let timer;
  let failures = 0;
  let wasLive = false;
  const close = () => {
    clearTimeout(timer);
    connection?.abort();
    connection = undefined;
  };
  const onLive = () => {
    failures = 0;
    onState("live");
    fetchRenewalKey();
    if (wasLive) deliver(onEvent, { type: "reconnected" });
    wasLive = true;
  };
  const open = async () => {
    close();
    const current = new AbortController();
    connection = current;
    if (credential || (await renewCredential(""))) await readStream(current, onLive, onEvent).catch(() => {});
    if (current !== connection) return; // closed by us
    close();
    onState(credential ? "reconnecting" : "logged-out");
    if (credential || renewalKey) timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
  // A browser has six connections for all tabs of an origin together: a hidden tab must not occupy one.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!connection) open();
  });
  open();
}

/**
 * Read server-sent events until the stream ends. `EventSource` would do, but cannot send our credential.
 * @param {AbortController} connection
 * @param {() => void} onLive
 * @param {(event: LiveEvent) => void} onEvent
 */
async function readStream(connection, onLive, onEvent) {
  const used = credential;
  const within = (ms, promise) => {
    const timer = setTimeout(() => connection.abort(), ms);
    return promise.finally(() => clearTimeout(timer));
  };
  const { signal } = connection;
  const options = { headers: authorization(), credentials: "omit", cache: "no-store", signal };
  const response = await within(ANSWER_MS, fetch("/stream", /** @type {RequestInit} */ (options)));
  if (response.status === 401) await renewCredential(used);
  if (!response.ok || !response.body) return;
  onLive();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const read = () => within(SILENCE_MS, reader.read());
  let text = "";
  for (let part = await read(); !part.done; part = await read()) {
    const messages = (text + part.value).split("\n\n");
    text = messages.pop() ?? "";
    for (const message of messages.filter((each) => each.startsWith("data: "))) {
      deliver(onEvent, JSON.parse(message.slice("data: ".length)));
    }
  }
}

/**
 * A view that fails on an event must not end the stream.
 * @param {(event: LiveEvent) => void} onEvent
 * @param {LiveEvent} event
 */
function deliver(onEvent, event) {
  try {
    onEvent(event);
  } catch (error) {
    reportError(error);
  }
}
