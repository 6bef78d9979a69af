// The frame: which view is shown, where the keyboard goes, and whether the worker is heard.

import { Failure, enter, get, listen } from "./api.js";
import { clear, debounce, latest } from "./dom.js";
import { empty, marked, tell } from "./parts.js";

const VIEWS = [
  [/^\/$/, "home"],
  [/^\/search$/, "search"],
  [/^\/sessions$/, "sessions"],
  [/^\/session\/(\d+)$/, "session"],
  [/^\/observation\/(\d+)$/, "observation"],
  [/^\/projects$/, "projects"],
  [/^\/project\/(\d+)$/, "project"],
  [/^\/context$/, "context"],
  [/^\/cost$/, "cost"],
  [/^\/health$/, "health"],
  [/^\/logs$/, "logs"],
  [/^\/settings$/, "settings"],
  [/^\/quarantine$/, "quarantine"],
];
const $ = (id) => document.getElementById(id);
let shown = { name: "", view: null, turn: 0, address: "" };

// --- which view ------------------------------------------------------------------------------------------------------

function route() {
  const at = { path: location.pathname, query: new URLSearchParams(location.search) };
  for (const [pattern, name] of VIEWS) {
    const match = pattern.exec(at.path);
    if (match) return { ...at, name, id: Number(match[1] ?? 0) };
  }
  return { ...at, name: "", id: 0 };
}

export function go(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  return change({ replace });
}

async function change({ back = false, replace = false } = {}) {
  const to = route(), address = location.pathname + location.search;
  mark(to.path);
  if (to.name === "search" && document.activeElement !== $("find")) $("find").value = to.query.get("q") ?? "";
  if (back && address === shown.address) return; // only the place on the page is another
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close(""); // it asked about what is left now
  const before = back ? kept.get(address) : undefined;
  if (before) kept.delete(address);
  const stays = !replace && keep();
  if (shown.view?.update && shown.name === to.name && !stays && !before) {
    shown.address = address;
    return Promise.resolve(shown.view.update(to)).catch(tell);
  }
  const turn = shown.turn + 1;
  if (!stays) shown.view?.leave?.();
  shown = { name: to.name, view: null, turn, address };
  $("view").setAttribute("aria-busy", "true");
  const view = before?.view ?? (await made(to));
  if (turn !== shown.turn) return view.leave?.(); // someone went on while this one was made
  shown.view = view;
  document.title = view.title ? `${view.title} · claude-mem` : "claude-mem";
  clear($("heading"), marked(view.heading ?? view.title));
  clear($("view"), view.body);
  $("view").removeAttribute("aria-busy");
  if (arrived && document.activeElement !== $("find")) $("main").focus({ preventScroll: true });
  if (before) view.news?.({ type: "reconnected" });
  if (arrived && !location.hash) scrollTo(0, before?.scroll ?? 0);
  arrived = true;
}
let arrived = false;
history.scrollRestoration = "manual";

// A long list is come back to as it was left: as far as it was read, with all that had been loaded.
const kept = new Map();

function keep() {
  if (!shown.view?.keep) return false;
  drop(shown.address); // of an earlier visit
  kept.set(shown.address, { view: shown.view, scroll: scrollY });
  if (kept.size > 5) drop(kept.keys().next().value);
  return true;
}

const drop = (address) => (kept.get(address)?.view.leave?.(), kept.delete(address));

async function made(to) {
  if (to.path === "/open" && refusal) return told(refusal);
  if (!to.name) return { title: "Nothing here", body: empty("There is no such page", "The address may be mistyped, or from another version.") };
  try {
    return await (await import(`./views/${to.name}.js`)).show(to);
  } catch (failure) {
    if (!(failure instanceof Failure)) console.error(failure);
    return told(failure);
  }
}

/** A page that says what went wrong, and what to do. */
function told(failure) {
  const known = failure instanceof Failure;
  const text = known ? failure.hint : "Reload the page; `claude-mem logs` may say more.";
  return { title: known ? failure.message : "Something went wrong here", body: empty("", text), failed: true };
}

// --- being let in ----------------------------------------------------------------------------------------------------

let refusal = null; // why the code of a link was not taken

/** A link leads to /open with a code behind the `#`. It leaves the address before anything else happens. */
async function arrive() {
  if (location.pathname !== "/open") return;
  const code = location.hash.slice(1);
  history.replaceState(null, "", code ? "/open" : "/");
  if (!code) return;
  try {
    history.replaceState(null, "", await enter(code));
  } catch (failure) {
    refusal = failure;
  }
}

function mark(path) {
  for (const link of document.querySelectorAll(".side a")) {
    const here = link.pathname === path || (link.pathname !== "/" && path.startsWith(link.pathname.replace(/s$/, "") + "/"));
    if (here) link.setAttribute("aria-current", "page"), (link.closest("nav").scrollLeft = link.offsetLeft - 60);
    else link.removeAttribute("aria-current");
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (link.origin !== location.origin || link.getAttribute("href").startsWith("#") || link.hasAttribute("download")) return;
  event.preventDefault();
  go(link.href);
});
addEventListener("popstate", () => change({ back: true }));

// --- keyboard --------------------------------------------------------------------------------------------------------

const typing = (target) => target.closest?.("input, textarea, select, dialog[open]");

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "/" && !typing(event.target)) {
    event.preventDefault();
    $("find").focus();
    $("find").select();
  }
});

const search = latest(() => {
  if (document.activeElement !== $("find")) return; // whoever typed has gone elsewhere meanwhile
  const query = route().name === "search" ? route().query : new URLSearchParams();
  query.set("q", $("find").value);
  return go(`/search?${query}`, { replace: route().name === "search" });
});
$("find").addEventListener("input", search);
$("find").form.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});

// --- the worker ------------------------------------------------------------------------------------------------------

const STATES = { live: "live", reconnecting: "reconnecting…", unknown: "not let in: type `claude-mem open`" };

function heard(item) {
  shown.view?.news?.(item);
  if (item.type === "corrected" || item.turn_id) for (const { view } of kept.values()) view.news?.(item); // nothing that was taken back may wait in them
  if (item.type === "reconnected" && shown.view?.failed) change({ replace: true });
  if (item.type !== "connected") held();
}

const held = debounce(async () => {
  const { total = 0 } = await get("/api/quarantine", { limit: 1 }).catch(() => ({}));
  $("held").textContent = total;
  $("held").hidden = !total;
}, 1000);

function showState(state) {
  $("live").textContent = STATES[state];
  $("live").dataset.state = state;
}

// --- light and dark --------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function dress(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme").textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
  $("theme").setAttribute("aria-label", `Theme: ${theme}. Change it`);
}

$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  dress(next);
});
dress(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");

await arrive();
listen(heard, showState);
held();
change();
