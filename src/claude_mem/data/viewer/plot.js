// Pictures in SVG. Each says in words what it shows; the exact figures stand in a table beside it.

import { s } from "./dom.js";

const DAY = 86_400_000;

const picture = (label, width, height, ...content) =>
  s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "xMinYMid meet" }, content);

/** Bars, one for each {label, value, title?, parts?}; `parts` are numbers that stand upon each other. `limit` is a line
 * across, such as a budget. It is drawn as wide as there is room, so that its words stay readable. */
export function bars(label, items, { limit = 0, height = 180, format = String, limitLabel = "limit" } = {}) {
  const top = 16, foot = 20, side = 4;
  const highest = Math.max(0, ...items.map((item) => item.value));
  const near = limit && (!highest || limit <= highest * 3); // one far above would press all bars flat
  const most = Math.max(1e-9, highest, near ? limit : 0);
  const y = (value) => height - foot - (value / most) * (height - foot - top);
  const svg = s("svg", { class: "plot bars", role: "img", "aria-label": label, height });
  const draw = (width) => {
    const step = (width - side) / Math.max(1, items.length), every = Math.ceil(items.length / Math.max(1, width / 64));
    const bar = (item, at) => {
      let under = 0;
      return s("g", {}, s("title", {}, item.title ?? `${item.label}: ${format(item.value)}`),
        (item.parts ?? [item.value]).map((value, part) => {
          const from = y(under);
          under += value;
          return value ? s("rect", { x: side + at * step + step * 0.12, y: y(under), width: Math.max(1, step * 0.76), height: Math.max(1, from - y(under)), class: `bar part-${part % 6}` }) : null;
        }));
    };
    svg.replaceChildren(...[
      s("line", { x1: 0, x2: width, y1: height - foot, y2: height - foot, class: "ground" }),
      s("line", { x1: 0, x2: width, y1: y(highest), y2: y(highest), class: "guide" }),
      ...items.map(bar),
      s("text", { x: 0, y: y(highest) - 4, class: "axis" }, format(highest)),
      ...items.map((item, at) => (at % every ? null : s("text", { x: side + at * step + step * 0.12, y: height - 5, class: "axis" }, item.label))),
      near ? s("line", { x1: 0, x2: width, y1: y(limit), y2: y(limit), class: "limit" }) : null,
      near ? s("text", { x: width, y: y(limit) - 4, class: "axis limited", "text-anchor": "end" }, `${limitLabel} ${format(limit)}`) : null,
    ].filter(Boolean));
  };
  draw(640);
  new ResizeObserver(([{ contentRect }]) => contentRect.width && draw(contentRect.width)).observe(svg);
  return svg;
}

/** A year as a calendar: a column a week, a square a day, darker with more. `days` maps 2026-01-31 to a number, `words`
 * to what is said of it. */
export function calendar(label, days, { end = Date.now(), weeks = 53, onpick, words = {} } = {}) {
  const size = 13, last = new Date(end), monday = (last.getDay() + 6) % 7;
  const first = new Date(last.getFullYear(), last.getMonth(), last.getDate() - monday - (weeks - 1) * 7);
  const most = Math.max(1, ...Object.values(days));
  const cells = [];
  for (let at = 0; at < weeks * 7; at++) {
    const date = new Date(first.getFullYear(), first.getMonth(), first.getDate() + at);
    if (date > last) break;
    const key = `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
    const count = days[key] ?? 0;
    const level = count ? Math.ceil((Math.log1p(count) / Math.log1p(most)) * 4) : 0;
    const x = Math.floor(at / 7) * size, y = 16 + (at % 7) * size;
    if (date.getDate() === 1) cells.push(s("text", { x, y: 10, class: "axis" }, date.toLocaleDateString("en", { month: "short" })));
    cells.push(s("rect", { x, y, width: size - 2, height: size - 2, rx: 2, class: `heat heat-${level}${onpick && count ? " pick" : ""}`, on: onpick && count ? { click: () => onpick(key) } : undefined }, s("title", {}, words[key] ?? `${key}: ${Math.round(count)}`)));
  }
  return picture(label, weeks * size, 16 + 7 * size, cells);
}

/** Things that lasted, as bars in lanes over time: {from, to, label, kind?}. A click picks one; whoever has no mouse finds
 * the same in a table beside it. */
export function lanes(label, items, { from, to, width = 1000, row = 18, onpick } = {}) {
  const begin = from ?? Math.min(...items.map((item) => item.from)), end = Math.max(to ?? 0, ...items.map((item) => item.to), begin + 1);
  const x = (ms) => ((ms - begin) / (end - begin)) * width;
  const ends = [];
  const drawn = [...items].sort((a, b) => a.from - b.from).map((item) => {
    const left = x(item.from), right = Math.max(left + 6, x(item.to));
    let lane = ends.findIndex((taken) => taken + 2 <= left);
    if (lane < 0) lane = ends.length;
    ends[lane] = right;
    return s("rect", { x: left, y: 18 + lane * row, width: right - left, height: row - 4, rx: 3, class: `lane ${item.kind ?? ""}${onpick ? " pick" : ""}`, on: onpick ? { click: () => onpick(item) } : undefined }, s("title", {}, item.label));
  });
  const ticks = [0, 0.25, 0.5, 0.75].map((share) => s("text", { x: share * width, y: 10, class: "axis" }, new Date(begin + share * (end - begin)).toLocaleDateString("en-GB", { day: "numeric", month: "short", ...(end - begin < 3 * DAY ? { hour: "2-digit", minute: "2-digit" } : {}) })));
  return picture(label, width, 22 + Math.max(1, ends.length) * row, ticks, drawn);
}
