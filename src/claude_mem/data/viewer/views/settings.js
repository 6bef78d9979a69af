// Every setting: what it is, where it comes from, and another value for it. Saved together or not at all.

import { get, restarted, send } from "../api.js";
import { clear, h } from "../dom.js";
import { badge, button, number, plural } from "../parts.js";

const GROUPS = [
  ["What sessions are told", "context_tokens context_observations greeting"],
  ["What is kept", "mode skip_tools excluded_projects redact_secrets event_chars silence_minutes session_hours"],
  ["Who refines, and for how much", "provider model daily_tokens monthly_cost request_tokens verbosity language"],
  ["Keys and addresses", "anthropic_api_key anthropic_base_url openai_api_key openai_base_url openrouter_api_key gemini_api_key claude_path claude_env_file claude_sdk claude_resume proxy"],
  ["Search", "embedding_model"],
  ["The worker", "worker_port log_level data_dir"],
].map(([title, names]) => [title, names.split(" ")]);
const SOURCES = { default: "default", file: "config.toml", environment: "environment" };
const WORDS = { api: "API", url: "URL", openai: "OpenAI", openrouter: "OpenRouter" };

export async function show() {
  const form = h("form", { class: "settings", novalidate: true, "aria-label": "Settings" });
  const bar = h("div", { class: "savebar" }), note = h("p", { role: "status" });
  let pending = new Map(), rows = new Map();
  const save = h("button", { type: "submit", class: "primary" }, "Save");
  const discard = button("Discard", () => load(), { kind: "quiet" });
  bar.append(save, discard, note);

  async function load() {
    const found = await get("/api/settings");
    pending = new Map();
    rows = new Map(Object.entries(found).map(([name, item]) => [name, row(name, item, touched)]));
    const grouped = new Set(GROUPS.flatMap(([, names]) => names));
    const groups = [...GROUPS, ["More", [...rows.keys()].filter((name) => !grouped.has(name))]];
    clear(form, groups.map(([title, names]) => {
      const fields = names.filter((name) => rows.has(name)).map((name) => rows.get(name).node);
      return fields.length ? h("section", { class: "panel" }, h("h2", {}, title), fields) : null;
    }), bar);
    count();
  }

  function touched(name, value) {
    if (value === undefined) pending.delete(name);
    else pending.set(name, value);
    rows.get(name).fault("");
    rows.get(name).changed(value === undefined ? "" : value === null ? "back to its default when saved" : "not saved");
    count();
  }

  function count() {
    save.hidden = discard.hidden = !pending.size;
    note.textContent = pending.size ? `${plural(pending.size, "change")}, not saved` : "";
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!pending.size) return;
    save.disabled = true;
    try {
      const done = await send("PATCH", "/api/settings", Object.fromEntries(pending));
      if (done.restarts) note.textContent = "Saved. The worker restarts with it…";
      await restarted(done);
      await load();
      rows.get(done.changed[0])?.focus({ preventScroll: true });
      note.textContent = done.restarts ? "Saved. The worker has restarted and uses it." : "Saved.";
    } catch (failure) {
      const named = [...pending.keys()].find((name) => new RegExp(`\\b${name}\\b`).test(failure.message));
      note.textContent = "Nothing was saved.";
      if (named) rows.get(named).fault(`${failure.message.replace(/^not changed: /, "")}. ${failure.hint}`);
      else note.textContent += ` ${failure.message} ${failure.hint ?? ""}`;
    } finally {
      save.disabled = false;
    }
  });

  await load();
  const wanted = location.hash.slice(1);
  if (rows.has(wanted)) requestAnimationFrame(() => (rows.get(wanted).node.scrollIntoView({ block: "center" }), rows.get(wanted).focus({ preventScroll: true })));
  return { title: "Settings", body: form };
}

// --- one setting -----------------------------------------------------------------------------------------------------

function row(name, item, touched) {
  const id = `set-${name}`;
  const fault = h("p", { class: "fault bad", id: `${id}-fault`, hidden: true });
  const secret = item.kind === "secret";
  const field = control(name, item, id, () => {
    const value = field.read();
    touched(name, JSON.stringify(value) === JSON.stringify(secret ? "" : item.current) ? undefined : value);
  });
  if (item.fixed) field.node.disabled = true;
  const reset = item.source === "file" && !item.fixed ? button(secret ? "Remove" : "Reset to default", () => {
    field.write(secret ? "" : item.default);
    touched(name, null);
  }, { kind: "quiet", "aria-label": `${secret ? "Remove" : "Reset"} ${name}` }) : null;
  const node = h("div", { class: "setting", id: name },
    h("div", {}, h("label", { for: id }, label(name)), h("code", {}, name)),
    h("div", {}, field.node, h("p", { class: "muted", id: `${id}-help` }, coded(item.reason), range(item)), fault,
      h("p", { class: "meta" }, badge(SOURCES[item.source]), h("span", { class: "badge warn changed", hidden: true }), item.waits ? badge("waits for claude-mem restart", "warn") : null, item.fixed ? h("span", {}, "Can't be changed here: ", coded(item.fixed), ".") : null, reset)));
  const mark = node.querySelector(".changed");
  const say = (text) => {
    fault.textContent = text;
    fault.hidden = !text;
    field.node.setAttribute("aria-invalid", Boolean(text));
  };
  if (item.problem) say(`Not used: ${item.problem}. ${item.hint}`);
  const changed = (text) => ((mark.textContent = text), (mark.hidden = !text));
  return { node, changed, focus: (how) => field.node.focus(how), fault: (text) => (say(text), text && field.node.focus()) };
}

const label = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ").replace(/\b(api|url|openai|openrouter)\b/gi, (word) => WORDS[word.toLowerCase()]);
const coded = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
const range = ({ kind, low, high }) => (kind.endsWith("number") && high !== null ? ` From ${number(low)} to ${number(high)}.` : "");

function control(name, item, id, changed) {
  const about = { id, name, "aria-describedby": `${id}-help ${id}-fault`, on: { input: changed } };
  const make = (node, read = () => node.value, write = (value) => (node.value = value)) => ({ node, read, write });
  if (item.kind === "switch") {
    const node = h("input", { ...about, type: "checkbox" });
    node.checked = item.current;
    return make(node, () => node.checked, (value) => (node.checked = value));
  }
  if (item.kind === "choice") return make(h("select", about, item.choices.map((value) => h("option", { value, selected: value === item.current }, value))));
  if (item.kind === "list") {
    const node = h("textarea", { ...about, rows: Math.max(2, item.current.length), spellcheck: "false", placeholder: "one a line", value: item.current.join("\n") });
    return make(node, () => node.value.split("\n").map((part) => part.trim()).filter(Boolean), (value) => (node.value = value.join("\n")));
  }
  if (item.kind === "secret") {
    const placeholder = item.set ? (item.current.startsWith("file:") ? item.current : "set, not shown") : "not set";
    return make(h("input", { ...about, type: "password", autocomplete: "new-password", placeholder }));
  }
  if (item.kind.endsWith("number")) {
    const node = h("input", { ...about, inputmode: "decimal", class: "num", value: item.current });
    return make(node, () => (/^-?\d+(\.\d+)?$/.test(node.value.trim()) ? Number(node.value) : node.value));
  }
  return make(h("input", { ...about, value: item.current, spellcheck: "false", autocomplete: "off" }));
}
