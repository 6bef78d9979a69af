import assert from "node:assert/strict";
import { test } from "node:test";
import "./fake-dom.mjs";
import { assignLanes, bars, calendar, heatLevel, lanes } from "../../../src/claude_mem/data/viewer/plot.js";

const classes = (element) => element.attributes.class ?? "";
const number = (element, name) => Number(element.attributes[name]);

test("bars are proportional to their values", () => {
    const svg = bars("label", [
        { label: "a", value: 10 },
        { label: "b", value: 5 },
        { label: "c", value: 0 },
    ]);
    const [first, second, ...others] = svg.all("rect").map((rect) => number(rect, "height"));
    assert.equal(first / second, 2);
    assert.deepEqual(others, []);
});

test("the parts of a bar are stacked", () => {
    const svg = bars("label", [{ label: "a", value: 10, parts: [4, 0, 6] }]);
    const [lower, upper] = svg.all("rect");
    assert.equal(number(upper, "y") + number(upper, "height"), number(lower, "y"));
    assert.deepEqual([classes(lower), classes(upper)], ["bar part-0", "bar part-2"]);
});

test("a limit far above all bars is left out", () => {
    const limitOf = (limit) =>
        bars("label", [{ label: "a", value: 10 }], { limit })
            .all("line")
            .map(classes);
    assert.ok(limitOf(30).includes("limit"));
    assert.ok(!limitOf(31).includes("limit"));
});

test("a chart without bars is still a chart", () => {
    assert.equal(bars("nothing", []).attributes["aria-label"], "nothing");
});

test("heat levels go from 0 to 4", () => {
    assert.deepEqual(
        [0, 1, 10, 100].map((count) => heatLevel(count, 100)),
        [0, 1, 3, 4],
    );
});

test("a calendar has a square for each day up to the last one", () => {
    const end = new Date(2026, 0, 28, 12).getTime(); // a Wednesday
    const picked = [];
    const options = { end, weeks: 2, onPick: (day) => picked.push(day), titles: { "2026-01-27": "busy" } };
    const svg = calendar("label", { "2026-01-27": 3, "2026-01-01": 9 }, options);
    const days = svg.all("rect");
    assert.equal(days.length, 7 + 3);
    const [busy, ...others] = days.filter((day) => classes(day).includes("pick"));
    assert.deepEqual(others, []);
    assert.equal(busy.textContent, "busy");
    busy.listeners.click();
    assert.deepEqual(picked, ["2026-01-27"]);
});

test("spans that overlap are in different lanes", () => {
    const spans = [
        { left: 0, right: 10 },
        { left: 5, right: 20 },
        { left: 11, right: 30 },
        { left: 12, right: 30 },
    ];
    assert.deepEqual(
        assignLanes(spans).map(({ lane }) => lane),
        [0, 1, 2, 0],
    );
});

test("a click on a span picks it", () => {
    const picked = [];
    const items = [
        { from: 50, to: 60, label: "second" },
        { from: 0, to: 10, label: "first" },
    ];
    const svg = lanes("label", items, { from: 0, to: 100, width: 100, onPick: (item) => picked.push(item.label) });
    const rects = svg.all("rect");
    assert.deepEqual(
        rects.map((rect) => [number(rect, "x"), number(rect, "width")]),
        [
            [0, 10],
            [50, 10],
        ],
    );
    rects[1].listeners.click();
    assert.deepEqual(picked, ["second"]);
});
