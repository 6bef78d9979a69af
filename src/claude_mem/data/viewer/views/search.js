// Search as you type: what fits, what in it fits, and why.

import { facets, get } from "../api.js";
import { clear, debounce, h } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { card, empty, pager, plural } from "../parts.js";

const WANTED = ["project", "kind", "type", "concept", "host", "since", "until"];
const box = () => document.getElementById("find");

export async function show(route) {
  const list = h("div", { class: "feed" });
  const said = h("p", { class: "muted", role: "status" });
  const foot = h("div");
  let asked = 0, paging, last = route, answered;

  async function search(to) {
    const query = (to.query.get("q") ?? "").trim();
    const turn = ++asked;
    last = to;
    const params = { query, explain: 1, typing: document.activeElement === box() ? 1 : "", limit: 20, ...asSearch(chosen(to, WANTED)) };
    const found = await get("/api/search", params);
    if (turn !== asked) return; // an answer to what is no longer asked
    paging?.leave();
    let ready = found;
    paging = pager(list, async (offset) => {
      const page = ready ?? (await get("/api/search", { ...params, offset }));
      ready = null;
      return { nodes: page.items.map(hit), next: page.hasMore ? page.offset + page.limit : 0 };
    });
    clear(list);
    clear(foot, paging.more);
    await paging.next();
    answered = query;
    clear(said, summary(query, found));
    if (!found.items.length) clear(list, query ? nothing(query) : teach());
  }

  // Arrows go from the box through the results and back; Enter opens, in the box the first.
  const move = (event) => {
    if (!list.isConnected || event.isComposing) return;
    const links = [box(), ...list.querySelectorAll(".card h3 a")];
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && at === 0 && links.length > 1 && box().value.trim() === answered) {
      event.preventDefault();
      links[1].click();
    } else if (step && at >= 0) {
      event.preventDefault();
      links[Math.max(0, Math.min(links.length - 1, at + step))].focus();
    }
  };
  const body = h("div", {}, filters(route, await facets(), WANTED), said, h("h2", { class: "unseen" }, "Results"), list, foot);
  await search(route);
  document.addEventListener("keydown", move);
  const again = debounce(() => search(last).catch(() => {}), 150); // nothing that was taken back may stay in sight
  if (!route.query.get("q")) queueMicrotask(() => box().focus());
  return {
    title: "Search",
    body,
    keep: true,
    update: search,
    news: (item) => (item.type === "corrected" || item.turn_id) && again(),
    leave: () => (document.removeEventListener("keydown", move), paging?.leave()),
  };
}

const asSearch = ({ type, concept, since, until, project, ...rest }) => ({ ...rest, project_id: project, obs_type: type, concepts: concept, dateStart: since, dateEnd: until });

function hit(item) {
  const node = card(item, item.explain.terms);
  node.append(h("p", { class: "why" }, why(item.explain)));
  return node;
}

/** Which of the rankings spoke for it, the strongest first. */
function why(explain) {
  const reasons = [
    [explain.exact, explain.signals.length ? `the same ${explain.signals.join(" and ")}` : "an exact sign"],
    [explain.words, explain.terms.length ? `the words ${explain.terms.join(", ")}` : "its words"],
    [explain.meaning, "its meaning"],
  ].filter(([share]) => share > 0.01).sort((a, b) => b[0] - a[0]);
  if (!reasons.length) return "the newest come first";
  return `Found by ${reasons.map(([share, text]) => `${text} (${Math.round(share * 100)})`).join(", ")}${explain.confirmed ? "; a person confirmed it" : ""}`;
}

const summary = (query, found) => (query && found.items.length ? `${found.hasMore ? "The best" : "All"} ${plural(found.items.length, "result")} for “${query}”. Arrows choose, Enter opens.` : "");

const nothing = (query) => empty(`Nothing is remembered about “${query}”`, "Try other words, or fewer; file names, error messages and commit ids work too.");
const teach = () => empty("What are you looking for?", "A question in your own words, a file name, an error message or a commit: all of them find the turn in which it happened.");
