import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../../../src/claude_mem/data/viewer/format.js";

const NOW = new Date(2026, 0, 31, 12).getTime();
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

for (const [offset, text] of [
    [0, "just now"],
    [-59_000, "just now"],
    [-MINUTE, "1 minute ago"],
    [-90 * MINUTE, "1 hour ago"],
    [-DAY, "yesterday"],
    [2 * DAY, "in 2 days"],
    [-15 * DAY, "2 weeks ago"],
    [-400 * DAY, "last year"],
]) {
    test(`relativeTime of ${offset} ms is "${text}"`, () => {
        assert.equal(format.relativeTime(NOW + offset, NOW), text);
    });
}

test("formatDay names today and yesterday", () => {
    assert.equal(format.formatDay(NOW - HOUR, NOW), "Today");
    assert.equal(format.formatDay(NOW - DAY, NOW), "Yesterday");
    assert.match(format.formatDay(NOW - 2 * DAY, NOW), /29 Jan 2026/);
});

test("isoDate is the local date", () => assert.equal(format.isoDate(new Date(2026, 0, 5, 23, 59)), "2026-01-05"));

for (const [size, text] of [
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1.0 KB"],
    [10 * 1024, "10 KB"],
    [1.5 * 1024 ** 2, "1.5 MB"],
    [5 * 1024 ** 5, "5120 TB"],
]) {
    test(`formatBytes of ${size} is "${text}"`, () => assert.equal(format.formatBytes(size), text));
}

for (const [ms, text] of [
    [-5, "0 s"],
    [29_000, "29 s"],
    [30_000, "1 min"],
    [59 * MINUTE, "59 min"],
    [125 * MINUTE, "2 h 5 min"],
]) {
    test(`formatDuration of ${ms} is "${text}"`, () => assert.equal(format.formatDuration(ms), text));
}

test("formatMoney has more digits for small amounts", () => {
    assert.equal(format.formatMoney(0), "$0");
    assert.equal(format.formatMoney(1_234), "$0.0012");
    assert.equal(format.formatMoney(1_020_000), "$1.02");
});

test("formatCount uses the plural unless there is one", () => {
    assert.equal(format.formatCount(1, "turn"), "1 turn");
    assert.equal(format.formatCount(0, "turn"), "0 turns");
    assert.equal(format.formatCount(1200, "memory", "memories"), "1,200 memories");
});

const matches = (text, words) =>
    format
        .splitMatches(text, words)
        .filter((part) => part.match)
        .map((part) => part.text);

test("splitMatches marks words that begin like one of the words", () => {
    assert.deepEqual(matches("Vouchers expire; the voucher expired", ["vouchers"]), ["Vouchers", "voucher"]);
    assert.deepEqual(matches("rounding, round, ground", ["rounding"]), ["rounding", "round"]);
});

test("splitMatches keeps the text", () => {
    const text = "a (b) [c] a+b";
    for (const words of [[], ["b"], ["(b)", "a+b"], ["zzz"]]) {
        const parts = format.splitMatches(text, words);
        assert.equal(parts.map((part) => part.text).join(""), text);
    }
});

test("splitMatches treats words as text, not as patterns", () => {
    assert.deepEqual(matches("abc a.c", ["a.c"]), ["a.c"]);
});
