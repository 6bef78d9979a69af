// @ts-check
// Numbers, times and text as people read them. Pure functions: nothing here needs a document.

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });
const COUNT = new Intl.NumberFormat("en");
const DAY_MS = 86_400_000;

/** Units of relative time: the upper limit in seconds, the unit and its length. */
const UNITS = /** @type {[number, Intl.RelativeTimeFormatUnit, number][]} */ ([
  [60, "second", 1],
  [3600, "minute", 60],
  [86400, "hour", 3600],
  [604800, "day", 86400],
  [2629800, "week", 604800],
  [31557600, "month", 2629800],
  [Infinity, "year", 31557600],
]);

/**
 * "3 hours ago", "in 2 days", "just now".
 * @param {number} ms
 * @param {number} [now]
 */
export function relativeTime(ms, now = Date.now()) {
  const seconds = (ms - now) / 1000;
  const [, unit, length] = UNITS.find(([limit]) => Math.abs(seconds) < limit) ?? UNITS[UNITS.length - 1];
  return unit === "second" ? "just now" : RELATIVE.format(Math.round(seconds / length), unit);
}

/** @param {number | null | undefined} value */
export const formatNumber = (value) => COUNT.format(value ?? 0);

/**
 * An amount in millionths of a dollar.
 * @param {number} millionths
 */
export const formatMoney = (millionths) =>
  millionths ? `$${(millionths / 1e6).toFixed(millionths < 1e4 ? 4 : 2)}` : "$0";

/**
 * "1 turn", "2 turns", "3 memories".
 * @param {number} count
 * @param {string} singular
 * @param {string} [plural]
 */
export const formatCount = (count, singular, plural = `${singular}s`) =>
  `${formatNumber(count)} ${count === 1 ? singular : plural}`;

/**
 * "Today", "Yesterday" or a date.
 * @param {number} ms
 * @param {number} [now]
 */
export function formatDay(ms, now = Date.now()) {
  const date = DAY.format(ms);
  if (date === DAY.format(now)) return "Today";
  return date === DAY.format(now - DAY_MS) ? "Yesterday" : date;
}

/**
 * "2026-01-31", in local time.
 * @param {Date} date
 */
export function isoDate(date) {
  const month = String(date.getMonth() + 1).padStart(2, "0");
  return `${date.getFullYear()}-${month}-${String(date.getDate()).padStart(2, "0")}`;
}

/** @param {number} size */
export function formatBytes(size) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, size)) / 10)));
  const scaled = size / 2 ** (10 * step);
  return `${scaled.toFixed(step && scaled < 10 ? 1 : 0)} ${units[step]}`;
}

/** @param {number} ms */
export function formatDuration(ms) {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 1) return `${Math.max(0, Math.round(ms / 1000))} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const ENDINGS = /(?<=.{4})(?:ing|ed|es|s|ly|ions?)$/i; // as the index stems, so that the words that matched are marked
const stemPattern = (word) => word.replace(ENDINGS, "").replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/**
 * Split a text into parts; those that begin like one of the words match.
 * @param {string} text
 * @param {string[]} words
 * @returns {{ text: string, match: boolean }[]}
 */
export function splitMatches(text, words) {
  if (!words.length) return [{ text, match: false }];
  const stems = words.map(stemPattern).join("|");
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${stems})[\\p{L}\\p{N}]*`, "giu");
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push({ text: text.slice(end, match.index), match: false }, { text: match[0], match: true });
    end = match.index + match[0].length;
  }
  parts.push({ text: text.slice(end), match: false });
  return parts.filter((part) => part.text);
}
