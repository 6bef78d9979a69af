import assert from "node:assert/strict";
import { test } from "node:test";
import "./fake-dom.mjs";
import { h, isEqual, latest, setContent } from "../../../src/claude_mem/data/viewer/dom.js";

test("text becomes a text node, whatever it contains", () => {
    const element = h("p", {}, "<b>bold</b>", null, false, undefined, 0);
    assert.equal(element.all("b").length, 0);
    assert.equal(element.textContent, "<b>bold</b>0");
});

for (const [name, value] of [
    ["onclick", "alert(1)"],
    ["style", "color: red"],
    ["src", "/x.png"],
    ["href", "https://example.com"],
    ["href", "//example.com"],
    ["href", "javascript:alert(1)"],
    ["xlink:href", "data:text/html,x"],
]) {
    test(`${name}=${value} is refused`, () => assert.throws(() => h("a", { [name]: value }), /may not be set/));
}

test("links to our own pages are allowed", () => {
    assert.equal(h("a", { href: "/session/1" }).attributes.href, "/session/1");
    assert.equal(h("a", { href: "#turn-1" }).attributes.href, "#turn-1");
});

test("setContent replaces all children", () => {
    const element = h("p", {}, "old");
    setContent(element, ["new", null, [" text"]]);
    assert.equal(element.textContent, "new text");
});

test("isEqual compares JSON values, whatever the order of keys", () => {
    assert.ok(isEqual({ a: 1, b: [1, { c: null }] }, { b: [1, { c: null }], a: 1 }));
    assert.ok(!isEqual({ a: 1 }, { a: 1, b: undefined }));
    assert.ok(!isEqual({ a: undefined }, { b: undefined }));
    assert.ok(!isEqual([1, 2], [2, 1]));
    assert.ok(!isEqual([], {}));
    assert.ok(!isEqual(null, {}));
});

test("latest runs once more for all calls that arrive meanwhile", async () => {
    let runs = 0;
    const run = latest(async () => {
        runs += 1;
        await Promise.resolve();
    });
    const first = run();
    run();
    run();
    await first;
    assert.equal(runs, 2);
});
