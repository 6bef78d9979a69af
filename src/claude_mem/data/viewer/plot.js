// @ts-check
// Charts in SVG. Each has a label that says what it shows; the exact figures are in a table beside it.

import { s } from "./dom.js";
import { isoDate } from "./format.js";

const DAY_MS = 86_400_000;

/** @type {(label: string, width: number, height: number, ...content: Child[]) => SVGSVGElement} */
const chart = (label, width, height, ...content) =>
  s(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": label,
      preserveAspectRatio: "xMinYMid meet",
    },
    content,
  );

// --- bars ------------------------------------------------------------------------------------------------------------

const TOP = 16;
const FOOT = 20;
const SIDE = 4;
const LABEL_WIDTH = 64;
const INITIAL_WIDTH = 640;

/** @typedef {{ label: string, value: number, title?: string, parts?: number[] }} Bar `parts` are stacked */
/** @typedef {(value: number) => string} Format */
/** @typedef {{ limit?: number, limitLabel?: string, height?: number, format?: Format }} BarOptions */

/**
 * A bar chart, drawn as wide as its container, so that its text stays readable. `limit` is a line across, such as a
 * budget; it is left out if it is so far above the bars that they would be flat.
 * @param {string} label
 * @param {Bar[]} items
 * @param {BarOptions} [options]
 */
export function bars(label, items, { limit = 0, limitLabel = "limit", height = 180, format = String } = {}) {
  const highest = Math.max(0, ...items.map((item) => item.value));
  const showsLimit = Boolean(limit && (!highest || limit <= highest * 3));
  const scale = Math.max(1e-9, highest, showsLimit ? limit : 0);
  const y = (value) => height - FOOT - (value / scale) * (height - FOOT - TOP);
  const line = (width, at, kind) => s("line", { x1: 0, x2: width, y1: at, y2: at, class: kind });
  const limitText = (width) =>
    s(
      "text",
      { x: width, y: y(limit) - 4, class: "axis limited", "text-anchor": "end" },
      `${limitLabel} ${format(limit)}`,
    );

  const svg = s("svg", { class: "plot bars", role: "img", "aria-label": label, height });
  const draw = (width) => {
    const step = (width - SIDE) / Math.max(1, items.length);
    const labelEvery = Math.ceil(items.length / Math.max(1, width / LABEL_WIDTH));
    const left = (index) => SIDE + index * step + step * 0.12;
    const labels = items
      .map((item, index) => s("text", { x: left(index), y: height - 5, class: "axis" }, item.label))
      .filter((_, index) => index % labelEvery === 0);
    svg.replaceChildren(
      line(width, height - FOOT, "ground"),
      line(width, y(highest), "guide"),
      ...items.map((item, index) => stackedBar(item, { x: left(index), width: Math.max(1, step * 0.76), y, format })),
      s("text", { x: 0, y: y(highest) - 4, class: "axis" }, format(highest)),
      ...labels,
      ...(showsLimit ? [line(width, y(limit), "limit"), limitText(width)] : []),
    );
  };
  draw(INITIAL_WIDTH);
  new ResizeObserver(([{ contentRect }]) => contentRect.width && draw(contentRect.width)).observe(svg);
  return svg;
}

/**
 * @param {Bar} item
 * @param {{ x: number, width: number, y: (value: number) => number, format: (value: number) => string }} place
 */
function stackedBar(item, { x, width, y, format }) {
  let bottom = 0;
  const rects = (item.parts ?? [item.value]).map((value, part) => {
    const from = y(bottom);
    bottom += value;
    const height = Math.max(1, from - y(bottom));
    return value ? s("rect", { x, y: y(bottom), width, height, class: `bar part-${part % 6}` }) : null;
  });
  return s("g", {}, s("title", {}, item.title ?? `${item.label}: ${format(item.value)}`), rects);
}

// --- calendar --------------------------------------------------------------------------------------------------------

const CELL = 13;
const HEADER = 16;
const LEVELS = 4;

/**
 * Which of the levels 0 to 4 a count has, on a logarithmic scale.
 * @param {number} count
 * @param {number} highest
 */
export const heatLevel = (count, highest) =>
  count ? Math.ceil((Math.log1p(count) / Math.log1p(highest)) * LEVELS) : 0;

/**
 * A calendar with a column per week and a square per day, darker with more. `days` maps 2026-01-31 to a count, and
 * `titles` to a description of the day.
 * @param {string} label
 * @param {Record<string, number>} days
 * @param {{ end?: number, weeks?: number, onPick?: (day: string) => void, titles?: Record<string, string> }} [options]
 */
export function calendar(label, days, { end = Date.now(), weeks = 53, onPick, titles = {} } = {}) {
  const last = new Date(end);
  const weekday = (last.getDay() + 6) % 7; // 0 is Monday
  const start = last.getDate() - weekday - (weeks - 1) * 7;
  const highest = Math.max(1, ...Object.values(days));
  const cells = [];
  for (let index = 0; index < weeks * 7; index++) {
    const date = new Date(last.getFullYear(), last.getMonth(), start + index);
    if (date > last) break;
    const day = isoDate(date);
    const count = days[day] ?? 0;
    const x = Math.floor(index / 7) * CELL;
    const y = HEADER + (index % 7) * CELL;
    const isPickable = onPick && count;
    const month = date.toLocaleDateString("en", { month: "short" });
    if (date.getDate() === 1) cells.push(s("text", { x, y: 10, class: "axis" }, month));
    const attributes = {
      ...{ x, y, width: CELL - 2, height: CELL - 2, rx: 2 },
      class: `heat heat-${heatLevel(count, highest)}${isPickable ? " pick" : ""}`,
      on: isPickable ? { click: () => onPick(day) } : undefined,
    };
    cells.push(s("rect", attributes, s("title", {}, titles[day] ?? `${day}: ${Math.round(count)}`)));
  }
  return chart(label, weeks * CELL, HEADER + 7 * CELL, cells);
}

// --- lanes -----------------------------------------------------------------------------------------------------------

const ROW = 18;
const MIN_BAR = 6;
const GAP = 2;

/** @typedef {{ from: number, to: number, label: string, kind?: string }} Span */

/**
 * Assign each span to the first lane in which it does not overlap another one.
 * @template {{ left: number, right: number }} S
 * @param {S[]} spans sorted by `left`
 * @returns {(S & { lane: number })[]}
 */
export function assignLanes(spans) {
  /** @type {number[]} */
  const ends = [];
  return spans.map((span) => {
    const free = ends.findIndex((end) => end + GAP <= span.left);
    const lane = free < 0 ? ends.length : free;
    ends[lane] = span.right;
    return { ...span, lane };
  });
}

/**
 * Spans of time as bars in lanes. A click picks one; the same spans are in a table for those without a mouse.
 * @template {Span} S
 * @param {string} label
 * @param {S[]} items
 * @param {{ from?: number, to?: number, width?: number, onPick?: (item: S) => void }} [options]
 */
export function lanes(label, items, { from, to, width = 1000, onPick } = {}) {
  const begin = from ?? Math.min(...items.map((item) => item.from));
  const end = Math.max(to ?? 0, ...items.map((item) => item.to), begin + 1);
  const x = (ms) => ((ms - begin) / (end - begin)) * width;
  const spans = items
    .map((item) => ({ item, left: x(item.from), right: Math.max(x(item.from) + MIN_BAR, x(item.to)) }))
    .sort((a, b) => a.left - b.left);
  const placed = assignLanes(spans);
  const rects = placed.map(({ item, left, right, lane }) => {
    const attributes = {
      ...{ x: left, y: ROW + lane * ROW, width: right - left, height: ROW - 4, rx: 3 },
      class: `lane ${item.kind ?? ""}${onPick ? " pick" : ""}`,
      on: onPick ? { click: () => onPick(item) } : undefined,
    };
    return s("rect", attributes, s("title", {}, item.label));
  });
  const laneCount = Math.max(1, ...placed.map(({ lane }) => lane + 1));
  return chart(label, width, 22 + laneCount * ROW, axis(begin, end, width), rects);
}

/** @type {(begin: number, end: number, width: number) => Child[]} */
function axis(begin, end, width) {
  /** @type {Intl.DateTimeFormatOptions} */
  const date = { day: "numeric", month: "short" };
  /** @type {Intl.DateTimeFormatOptions} */
  const options = end - begin < 3 * DAY_MS ? { ...date, hour: "2-digit", minute: "2-digit" } : date;
  return [0, 0.25, 0.5, 0.75].map((share) => {
    const text = new Date(begin + share * (end - begin)).toLocaleDateString("en-GB", options);
    return s("text", { x: share * width, y: 10, class: "axis" }, text);
  });
}
