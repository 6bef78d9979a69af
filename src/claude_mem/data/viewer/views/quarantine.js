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
    if (!first.total) return clear(body, nothing(), trusted(await get("/api/trust")));
    const list = h("div", { class: "feed" });
    let ready = first;
    paging = pager(list, async (offset) => {
      const page = ready ?? (await get("/api/quarantine", { limit: 20, offset }));
      ready = null;
      return { nodes: page.items.map(waiting), next: page.hasMore ? page.offset + page.limit : 0 };
    });
    clear(body, h("p", {}, `${plural(first.total, "memory needs", "memories need")} review. A search finds them, marked; sessions are not shown them unless you approve. If a source is your team's own, trust it once: what rests on nothing else is then shown.`), sources(first.sources), trusted(await get("/api/trust")), list, paging.more);
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
    const always = (source) => button(`Always trust ${source} in this project`, trust(item, source), { "aria-label": `Always trust ${source} in ${item.project}` });
    node.append(h("p", { class: "why" }, item.why), h("p", { class: "toolbar" },
      button("Approve", settle("POST", `${path}/approve`, "Approved: sessions may be told it."), { "aria-label": `Approve: ${name}` }),
      item.kind === "observation"
        ? button("Forget", settle("DELETE", path, "Forgotten. For 30 days it can be brought back."), { kind: "danger", "aria-label": `Forget: ${name}` })
        : button("Mark wrong", settle("POST", `${path}/wrong`, "Marked wrong: it is no longer told or found."), { kind: "danger", "aria-label": `Mark wrong: ${name}` }),
      ...(item.sources ?? []).map(always)));
    return node;
  }

  const trust = (item, source) => async () => {
    const text = `Memories of ${item.project} that rest on nothing else from outside are approved, now and from now on. Text that resembles a prompt injection is held anyway.`;
    if (!(await ask({ title: `Always trust ${source} in ${item.project}?`, body: h("p", {}, text), action: "Trust" }))) return;
    const { approved } = await send("POST", "/api/trust", { project_id: item.project_id, source });
    toast(`${source} is trusted; ${plural(approved, "memory", "memories")} approved. Each can be undone on its page.`);
    await refresh();
  };

  function trusted({ items }) {
    const stop = ({ project_id, source, project }) => async () => {
      await send("DELETE", `/api/trust?${new URLSearchParams({ project_id, source })}`);
      toast(`${source} is no longer trusted in ${project}. What was approved stays approved.`);
      await refresh();
    };
    const line = (one) => h("li", { class: "row" }, h("span", { class: "grow" }, projectMark(one.project, one.project_id), ` ${one.source}`), button("Stop trusting", stop(one), { "aria-label": `Stop trusting ${one.source} in ${one.project}` }));
    return items.length ? panel("Trusted sources", h("ul", { class: "plain" }, items.map(line))) : null;
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
