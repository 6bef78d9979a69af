// What came from outside, or reads like an attack, and waits for a person's word: found by whoever asks, told to no one.

import { get, send } from "../api.js";
import { clear, h } from "../dom.js";
import { ask, button, card, empty, pager, panel, plural, projectMark, toast } from "../parts.js";

export async function show() {
  const body = h("div");
  let paging, here = true;

  async function refresh() {
    const first = await get("/api/quarantine", { limit: 20 });
    if (!here) return;
    paging?.leave();
    paging = null;
    if (!first.total) return clear(body, nothing());
    const list = h("div", { class: "feed" });
    let ready = first;
    paging = pager(list, async (offset) => {
      const page = ready ?? (await get("/api/quarantine", { limit: 20, offset }));
      ready = null;
      return { nodes: page.items.map(waiting), next: page.hasMore ? page.offset + page.limit : 0 };
    });
    clear(body, h("p", {}, `${plural(first.total, "memory waits", "memories wait")} for your word. A search finds them, but no session is told them unless you approve.`), sources(first.sources), list, paging.more);
    await paging.next();
  }

  function waiting(item) {
    const node = card(item);
    const path = `/api/${item.kind}/${item.id}`;
    const settle = (method, where, text) => async () => {
      await send(method, where);
      const observed = item.kind === "observation";
      toast(text, { undo: observed ? async () => (await send("POST", `${path}/undo`), refresh()) : undefined });
      await refresh();
      (body.querySelector(".feed button") ?? body.querySelector("button"))?.focus(); // the next one, not the button for all
    };
    const name = item.title || item.completed || item.request || "it";
    node.append(h("p", { class: "why" }, item.why), h("p", { class: "toolbar" },
      button("Approve", settle("POST", `${path}/approve`, "Approved: sessions may be told it."), { "aria-label": `Approve: ${name}` }),
      item.kind === "observation"
        ? button("Forget", settle("DELETE", path, "Forgotten. For 30 days it can be brought back."), { kind: "danger", "aria-label": `Forget: ${name}` })
        : button("Mark wrong", settle("POST", `${path}/wrong`, "Marked wrong: it is no longer told or found."), { kind: "danger", "aria-label": `Mark wrong: ${name}` })));
    return node;
  }

  function sources(found) {
    const all = (source, verdict, action, text) => async () => {
      const what = `${plural(source.count, "memory", "memories")} of ${source.project}`;
      if (!(await ask({ title: `${action} ${what}?`, body: h("p", {}, text), action, danger: verdict === "wrong" }))) return;
      const { count } = await send("POST", "/api/quarantine", { trust: source.trust, project_id: source.project_id, verdict });
      toast(`${plural(count, "memory", "memories")} ${verdict === "wrong" ? "marked wrong" : "approved"}.`);
      await refresh();
    };
    const deeds = (source) => h("span", { class: "row" },
      button("Approve all", all(source, "approved", "Approve", "Sessions of this project may then be told them."), { "aria-label": `Approve all of ${source.project}` }),
      button("Mark all wrong", all(source, "wrong", "Mark wrong", "They are then no longer found either. Each can be marked right again on its page."), { kind: "danger", "aria-label": `Mark all wrong of ${source.project}` }));
    return panel("Where they came from", h("ul", { class: "plain" }, found.map((source) => h("li", { class: "row" }, h("span", { class: "grow" }, projectMark(source.project, source.project_id), ` ${plural(source.count, "memory", "memories")}. ${source.why}`), deeds(source)))));
  }

  await refresh();
  return {
    title: "Quarantine",
    body,
    leave: () => ((here = false), paging?.leave()),
  };
}

const nothing = () => empty("Nothing waits here", "Here waits what rests on text from outside (the web, tools of others, imports) and what reads like an instruction to an agent, until you say that sessions may be told it; a search finds it meanwhile.", "claude-mem import FILE --untrusted");
