// @ts-check
// The frame of the viewer: routing, login, keyboard shortcuts, the state of the connection, the theme.

import { ApiError, get, listen, logIn } from "./api.js";
import { debounce, latest, setContent } from "./dom.js";
import { emptyState, loadLabels, richText, showError } from "./parts.js";

/** @type {[RegExp, string][]} */
const VIEWS = [
  [/^\/$/, "home"],
  [/^\/search$/, "search"],
  [/^\/sessions$/, "sessions"],
  [/^\/session\/(\d+)$/, "session"],
  [/^\/observation\/(\d+)$/, "observation"],
  [/^\/projects$/, "projects"],
  [/^\/project\/(\d+)$/, "project"],
  [/^\/context$/, "context"],
  [/^\/worth$/, "worth"],
  [/^\/cost$/, "cost"],
  [/^\/health$/, "health"],
  [/^\/logs$/, "logs"],
  [/^\/settings$/, "settings"],
  [/^\/quarantine$/, "quarantine"],
  [/^\/changes$/, "changes"],
];

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const searchBox = /** @type {HTMLInputElement} */ (byId("find"));

// --- routing ---------------------------------------------------------------------------------------------------------

/** The view on the screen. `number` counts navigations: a view that is loaded too late is not shown. */
const current = { name: "", view: /** @type {View | null} */ (null), number: 0, address: "" };
let hasShownView = false;
history.scrollRestoration = "manual";

/** @returns {Route} */
function currentRoute() {
  const place = { path: location.pathname, query: new URLSearchParams(location.search) };
  for (const [pattern, name] of VIEWS) {
    const match = pattern.exec(place.path);
    if (match) return { ...place, name, id: Number(match[1] ?? 0) };
  }
  return { ...place, name: "", id: 0 };
}

/**
 * Go to a page of the viewer.
 * @param {string} url
 * @param {{ replace?: boolean }} [options] `replace`: leave no entry in the browser's history
 */
export function go(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  return navigate({ replace });
}

/** Show the view of the address: the one on the screen if it can update itself, a stored one, or a new one. */
async function navigate({ back = false, replace = false } = {}) {
  const route = currentRoute();
  const address = location.pathname + location.search;
  markCurrentLink(route.path);
  if (route.name === "search" && document.activeElement !== searchBox) searchBox.value = route.query.get("q") ?? "";
  if (back && address === current.address) return; // only the position on the page differs
  closeDialogs();
  const stored = back ? storedViews.get(address) : undefined;
  if (stored) storedViews.delete(address);
  const isStored = !replace && storeCurrentView();
  if (current.view?.update && current.name === route.name && !isStored && !stored) {
    current.address = address;
    return Promise.resolve(current.view.update(route)).catch(showError);
  }
  if (!isStored) current.view?.leave?.();
  const number = current.number + 1;
  Object.assign(current, { name: route.name, view: null, number, address });
  byId("view").setAttribute("aria-busy", "true");
  const view = stored?.view ?? (await loadView(route));
  if (number !== current.number) return view.leave?.(); // the user went on while it was loaded
  current.view = view;
  display(view);
  if (stored) view.onEvent?.({ type: "reconnected" });
  if (hasShownView && !location.hash) scrollTo(0, stored?.scroll ?? 0);
  hasShownView = true;
}

/** @param {View} view */
function display(view) {
  document.title = view.title ? `${view.title} · claude-mem` : "claude-mem";
  setContent(byId("heading"), richText(view.heading ?? view.title));
  setContent(byId("view"), view.body);
  byId("view").removeAttribute("aria-busy");
  if (hasShownView && document.activeElement !== searchBox) byId("main").focus({ preventScroll: true });
}

/** A dialog belongs to the page that opened it. */
function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) if (dialog.open) dialog.close("");
}

const STORED_VIEWS = 5;
/**
 * Long lists that were left, by address. Going back shows them as they were, with everything that had been loaded.
 * @type {Map<string, { view: View, scroll: number }>}
 */
const storedViews = new Map();

function storeCurrentView() {
  if (!current.view?.restorable) return false;
  dropStoredView(current.address); // of an earlier visit
  storedViews.set(current.address, { view: current.view, scroll: scrollY });
  if (storedViews.size > STORED_VIEWS) dropStoredView([...storedViews.keys()][0]);
  return true;
}

/** @param {string} address */
function dropStoredView(address) {
  storedViews.get(address)?.view.leave?.();
  storedViews.delete(address);
}

/**
 * @param {Route} route
 * @returns {Promise<View>}
 */
async function loadView(route) {
  if (route.path === "/open" && loginError) return errorView(loginError);
  if (!route.name) {
    const body = emptyState("", "The address may be mistyped, or belong to another version.");
    return { title: "Page not found", body };
  }
  try {
    await loadLabels().catch(() => {}); // views are readable without them
    return await (await import(`./views/${route.name}.js`)).show(route);
  } catch (error) {
    if (!(error instanceof ApiError)) console.error(error);
    return errorView(error);
  }
}

/**
 * A page that says what went wrong, and what to do.
 * @param {unknown} error
 * @returns {View}
 */
function errorView(error) {
  if (error instanceof ApiError) return { title: error.message, body: emptyState("", error.hint), failed: true };
  const hint = "Reload the page; `claude-mem logs` may have the details.";
  return { title: "Something went wrong on this page", body: emptyState("", hint), failed: true };
}

/** @param {string} path */
function markCurrentLink(path) {
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".side a"))) {
    const isParent = link.pathname !== "/" && path.startsWith(`${link.pathname.replace(/s$/, "")}/`);
    if (link.pathname === path || isParent) {
      link.setAttribute("aria-current", "page");
      /** @type {HTMLElement} */ (link.closest("nav")).scrollLeft = link.offsetLeft - 60;
    } else {
      link.removeAttribute("aria-current");
    }
  }
}

document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  const isFragment = link.getAttribute("href")?.startsWith("#");
  if (link.origin !== location.origin || isFragment || link.hasAttribute("download")) return;
  event.preventDefault();
  go(link.href);
});
addEventListener("popstate", () => navigate({ back: true }));

// --- login -----------------------------------------------------------------------------------------------------------

/** Why the code of a link was refused. */
let loginError = /** @type {unknown} */ (null);

/** A link leads to /open with a code behind the `#`. The code leaves the address before anything else happens. */
async function logInFromAddress() {
  if (location.pathname !== "/open") return;
  const code = location.hash.slice(1);
  history.replaceState(null, "", code ? "/open" : "/");
  if (!code) return;
  try {
    history.replaceState(null, "", await logIn(code));
  } catch (error) {
    loginError = error;
  }
}

// --- search box ------------------------------------------------------------------------------------------------------

const isEditable = (target) => target.closest?.("input, textarea, select, dialog[open]");

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "/" && !isEditable(event.target)) {
    event.preventDefault();
    searchBox.focus();
    searchBox.select();
  }
});

const search = latest(() => {
  if (document.activeElement !== searchBox) return; // the user has left the box meanwhile
  const isSearching = currentRoute().name === "search";
  const query = isSearching ? currentRoute().query : new URLSearchParams();
  query.set("q", searchBox.value);
  return go(`/search?${query}`, { replace: isSearching });
});
searchBox.addEventListener("input", search);
searchBox.form?.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});

// --- connection to the worker ----------------------------------------------------------------------------------------

const STATES = {
  live: "live",
  reconnecting: "reconnecting…",
  "logged-out": "not logged in: run `claude-mem open`",
};

/** @param {keyof typeof STATES} state */
function showState(state) {
  byId("live").textContent = STATES[state];
  byId("live").dataset.state = state;
}

/** @param {LiveEvent} event */
function handleEvent(event) {
  current.view?.onEvent?.(event);
  if (event.type === "corrected" || event.turn_id) {
    for (const { view } of storedViews.values()) view.onEvent?.(event); // nothing that was deleted may remain in them
  }
  if (event.type === "reconnected" && current.view?.failed) navigate({ replace: true });
  if (event.type !== "connected") showApprovalCount();
}

const showApprovalCount = debounce(async () => {
  const queue = await get("/api/quarantine", { limit: 1 }).catch(() => null);
  const total = queue?.total ?? 0;
  byId("approval-count").textContent = String(total);
  byId("approval-count").hidden = !total;
}, 1000);

// --- theme -----------------------------------------------------------------------------------------------------------

const THEMES = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" };
const THEME_NAMES = /** @type {(keyof typeof THEMES)[]} */ (Object.keys(THEMES));

const storedTheme = () => THEME_NAMES.find((name) => name === localStorage.getItem("theme")) ?? "auto";

/** @param {keyof typeof THEMES} theme */
function applyTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = THEMES[theme];
  byId("theme").setAttribute("aria-label", `Theme: ${theme}. Change it`);
}

byId("theme").addEventListener("click", () => {
  const next = THEME_NAMES[(THEME_NAMES.indexOf(storedTheme()) + 1) % THEME_NAMES.length];
  localStorage.setItem("theme", next);
  applyTheme(next);
});
applyTheme(storedTheme());

await logInFromAddress();
listen(handleEvent, showState);
showApprovalCount();
navigate();
