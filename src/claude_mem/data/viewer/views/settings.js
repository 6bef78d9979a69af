// @ts-check
// All settings: value, source, and a control to change it. Changes are saved together or not at all.

import { ApiError, get, send, waitForRestart } from "../api.js";
import { h, isEqual, setContent } from "../dom.js";
import { formatCount, formatNumber } from "../format.js";
import { badge, button, richText, showError } from "../parts.js";

/** @type {[string, string[]][]} */
const GROUPS = [
  ["Injection", ["context_tokens", "context_observations", "greeting", "command_hints", "read_outlines", "holdout"]],
  ["Capture", ["mode", "skip_tools", "excluded_projects", "event_chars", "silence_minutes", "session_hours"]],
  ["Privacy", ["redact_secrets", "withheld_files", "foreign_text"]],
  ["Retention", ["keep_events_days", "keep_dead_days", "keep_log_days", "disk_quota_mb"]],
  [
    "Refining and budget",
    ["provider", "model", "daily_tokens", "monthly_cost", "request_tokens", "verbosity", "language"],
  ],
  [
    "Keys and addresses",
    [
      "anthropic_api_key",
      "anthropic_base_url",
      "openai_api_key",
      "openai_base_url",
      "openrouter_api_key",
      "gemini_api_key",
      "claude_path",
      "claude_env_file",
      "claude_sdk",
      "claude_resume",
      "proxy",
    ],
  ],
  ["Search", ["embedding_model"]],
  ["Worker", ["worker_port", "log_level", "data_dir"]],
];
const OTHER = "Other";
const SOURCE_LABELS = { default: "default", file: "config.toml", environment: "environment" };
const SPELLING = { api: "API", url: "URL", openai: "OpenAI", openrouter: "OpenRouter", mb: "MB" };

/** @returns {Promise<View>} */
export async function show() {
  const page = new SettingsForm();
  await page.load();
  page.focusFromAddress();
  return { title: "Settings", body: page.form };
}

/** The form with all settings and the changes that are not saved yet. */
class SettingsForm {
  constructor() {
    this.form = h("form", { class: "settings", novalidate: true, "aria-label": "Settings" });
    this.status = h("p", { role: "status" });
    this.saveButton = h("button", { type: "submit", class: "primary" }, "Save");
    this.discardButton = button("Discard", () => this.load(), { kind: "quiet" });
    this.saveBar = h("div", { class: "savebar" }, this.saveButton, this.discardButton, this.status);
    /** @type {Map<string, any>} new values by name; null resets a setting to its default */
    this.changes = new Map();
    /** @type {Map<string, SettingRow>} */
    this.rows = new Map();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.changes.size) this.save();
    });
  }

  async load() {
    /** @type {Record<string, Setting>} */
    const settings = await get("/api/settings");
    this.changes = new Map();
    const row = ([name, setting]) => [name, new SettingRow(name, setting, (value) => this.setChange(name, value))];
    this.rows = new Map(/** @type {[string, SettingRow][]} */ (Object.entries(settings).map(row)));
    setContent(
      this.form,
      settingGroups([...this.rows.keys()]).map((group) => this.groupPanel(group)),
      this.saveBar,
    );
    this.showChangeCount();
  }

  /** @param {[string, string[]]} group */
  groupPanel([title, names]) {
    const nodes = names.map((name) => this.rows.get(name)?.node);
    return h("section", { class: "panel" }, h("h2", {}, title), nodes);
  }

  /**
   * @param {string} name
   * @param {any} value undefined if the setting is as it was
   */
  setChange(name, value) {
    if (value === undefined) this.changes.delete(name);
    else this.changes.set(name, value);
    const note = value === null ? "reset to its default when saved" : "not saved";
    this.rows.get(name)?.showError("");
    this.rows.get(name)?.showChange(value === undefined ? "" : note);
    this.showChangeCount();
  }

  showChangeCount() {
    const count = this.changes.size;
    this.saveButton.hidden = this.discardButton.hidden = !count;
    this.status.textContent = count ? `${formatCount(count, "change")}, not saved` : "";
  }

  async save() {
    this.saveButton.disabled = true;
    try {
      const answer = await send("PATCH", "/api/settings", Object.fromEntries(this.changes));
      if (answer.restarts) this.status.textContent = "Saved. The worker is restarting…";
      await waitForRestart(answer);
      await this.load();
      this.rows.get(answer.changed[0])?.focus();
      this.status.textContent = answer.restarts ? "Saved. The worker has restarted with the new settings." : "Saved.";
    } catch (error) {
      this.showFailure(error);
    } finally {
      this.saveButton.disabled = false;
    }
  }

  /** @param {unknown} error */
  showFailure(error) {
    if (!(error instanceof ApiError)) {
      showError(error);
      return;
    }
    const row = this.rows.get(error.field);
    if (row) {
      this.status.textContent = "Nothing was saved.";
      row.showError(`${error.message.replace(/^not changed: /, "")}. ${error.hint}`);
      row.control.node.focus();
    } else {
      this.status.textContent = `Nothing was saved. ${error.message} ${error.hint}`;
    }
  }

  /** A link such as /settings#provider leads to one setting. */
  focusFromAddress() {
    const row = this.rows.get(location.hash.slice(1));
    if (!row) return;
    requestAnimationFrame(() => {
      row.node.scrollIntoView({ block: "center" });
      row.focus();
    });
  }
}

/**
 * The groups with the settings that exist; those of no group are in the last one.
 * @param {string[]} names
 * @returns {[string, string[]][]}
 */
function settingGroups(names) {
  const grouped = new Set(GROUPS.flatMap(([, members]) => members));
  /** @type {[string, string[]][]} */
  const groups = [...GROUPS, [OTHER, names.filter((name) => !grouped.has(name))]];
  return groups
    .map(
      ([title, members]) => /** @type {[string, string[]]} */ ([title, members.filter((name) => names.includes(name))]),
    )
    .filter(([, members]) => members.length);
}

// --- one setting -----------------------------------------------------------------------------------------------------

class SettingRow {
  /**
   * @param {string} name
   * @param {Setting} setting
   * @param {(value: any) => void} onChange
   */
  constructor(name, setting, onChange) {
    const id = `set-${name}`;
    const shownValue = setting.kind === "secret" ? "" : setting.current;
    this.error = h("p", { class: "fault bad", id: `${id}-fault`, hidden: true });
    this.change = h("span", { class: "badge warn changed", hidden: true });
    this.control = createControl(name, setting, id, () => {
      const value = this.control.read();
      onChange(isEqual(value, shownValue) ? undefined : value);
    });
    if (setting.fixed) this.control.node.disabled = true;
    const reset = setting.source === "file" && !setting.fixed ? this.resetButton(name, setting, onChange) : null;
    this.node = h(
      "div",
      { class: "setting", id: name },
      h("div", {}, h("label", { for: id }, settingLabel(name)), h("code", {}, name)),
      h(
        "div",
        {},
        this.control.node,
        h("p", { class: "muted", id: `${id}-help` }, richText(setting.reason), rangeText(setting)),
        this.error,
        h(
          "p",
          { class: "meta" },
          badge(SOURCE_LABELS[setting.source]),
          this.change,
          setting.waits ? badge("takes effect after claude-mem restart", "warn") : null,
          setting.fixed ? h("span", {}, "Cannot be changed here: ", richText(setting.fixed), ".") : null,
          reset,
        ),
      ),
    );
    if (setting.problem) this.showError(`Not used: ${setting.problem}. ${setting.hint}`);
  }

  /** @type {(name: string, setting: Setting, onChange: (value: null) => void) => HTMLElement} */
  resetButton(name, setting, onChange) {
    const isSecret = setting.kind === "secret";
    const reset = () => {
      this.control.write(isSecret ? "" : setting.default);
      onChange(null);
    };
    const label = isSecret ? "Remove" : "Reset to default";
    return button(label, reset, { kind: "quiet", "aria-label": `${isSecret ? "Remove" : "Reset"} ${name}` });
  }

  /** @param {string} text */
  showError(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
    this.control.node.setAttribute("aria-invalid", String(Boolean(text)));
  }

  /** @param {string} text */
  showChange(text) {
    this.change.textContent = text;
    this.change.hidden = !text;
  }

  focus() {
    this.control.node.focus({ preventScroll: true });
  }
}

/** @param {string} name */
function settingLabel(name) {
  const text = (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ");
  return text.replace(/\b(api|url|openai|openrouter|mb)\b/gi, (word) => SPELLING[word.toLowerCase()]);
}

/** @param {Setting} setting */
const rangeText = ({ kind, low, high }) =>
  kind.endsWith("number") && high !== null ? ` From ${formatNumber(low)} to ${formatNumber(high)}.` : "";

/** @typedef {{ node: any, read: () => any, write: (value: any) => void }} Control */

/**
 * @param {string} name
 * @param {Setting} setting
 * @param {string} id
 * @param {() => void} onInput
 * @returns {Control}
 */
function createControl(name, setting, id, onInput) {
  const attributes = { id, name, "aria-describedby": `${id}-help ${id}-fault`, on: { input: onInput } };
  if (setting.kind === "switch") return switchControl(setting, attributes);
  if (setting.kind === "list") return listControl(setting, attributes);
  if (setting.kind.endsWith("number")) return numberControl(setting, attributes);
  if (setting.kind === "choice") {
    const option = (value) => h("option", { value, selected: value === setting.current }, value);
    return textControl(h("select", attributes, setting.choices.map(option)));
  }
  if (setting.kind === "secret") {
    const current = setting.current.startsWith("file:") ? setting.current : "set, not shown";
    const placeholder = setting.set ? current : "not set";
    return textControl(h("input", { ...attributes, type: "password", autocomplete: "new-password", placeholder }));
  }
  const text = { value: setting.current, spellcheck: "false", autocomplete: "off" };
  return textControl(h("input", { ...attributes, ...text }));
}

/**
 * @param {any} node
 * @returns {Control}
 */
const textControl = (node) => ({
  node,
  read: () => node.value,
  write: (value) => {
    node.value = value;
  },
});

/** @type {(setting: Setting, attributes: Record<string, any>) => Control} */
function switchControl(setting, attributes) {
  const node = h("input", { ...attributes, type: "checkbox" });
  const write = (value) => {
    node.checked = value;
  };
  write(setting.current);
  return { node, read: () => node.checked, write };
}

/** @type {(setting: Setting, attributes: Record<string, any>) => Control} */
function listControl(setting, attributes) {
  const rows = Math.max(2, setting.current.length);
  const node = h("textarea", { ...attributes, rows, spellcheck: "false", placeholder: "one per line" });
  const write = (value) => {
    node.value = value.join("\n");
  };
  write(setting.current);
  const trimmed = () => node.value.split("\n").map((line) => line.trim());
  return { node, read: () => trimmed().filter(Boolean), write };
}

/** @type {(setting: Setting, attributes: Record<string, any>) => Control} */
function numberControl(setting, attributes) {
  const node = h("input", { ...attributes, inputmode: "decimal", class: "num", value: setting.current });
  const isNumber = () => /^-?\d+(\.\d+)?$/.test(node.value.trim());
  return { ...textControl(node), read: () => (isNumber() ? Number(node.value) : node.value) };
}
