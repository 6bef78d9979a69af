import assert from "node:assert/strict";
import { test } from "node:test";
import { outline } from "./fake-dom.mjs";
import { markdown } from "../../../src/claude_mem/data/viewer/markdown.js";

const rendered = (...lines) => markdown(lines.join("\n")).map(outline).join(" ");

const CASES = {
    "a paragraph of two lines": [["one", "two"], "p(one\ntwo)"],
    "two paragraphs": [["one", "", "two"], "p(one) p(two)"],
    "headings that skip no level": [["# a", "### b", "# c"], "h3(a) h4(b) h3(c)"],
    "a rule": [["a", "", "---"], "p(a) hr()"],
    "a list": [["- a", "- b"], "ul(li(a)li(b))"],
    "a nested list": [["1. a", "   - b", "2. c"], "ol(li(aul(li(b)))li(c))"],
    "a list with a blank line": [["- a", "", "- b"], "ul(li(a)li(b))"],
    "two lists of different kinds": [["- a", "1. b"], "ul(li(a)) ol(li(b))"],
    "an item of two lines": [["- a", "  b"], "ul(li(a\nb))"],
    "an item with code": [["- a", "  ```", "  x", "  ```"], "ul(li(apre(code(x))))"],
    "a quote": [["> a", "> b"], "blockquote(a\nb)"],
    "a fenced block": [["```js", "a *b*", "```", "c"], "pre(code(a *b*)) p(c)"],
    "a fenced block without an end": [["~~~", "a"], "pre(code(a))"],
    "inline code, bold and italics": [["`a` **b `c`** *d*"], "p(code(a) strong(b code(c)) em(d))"],
    "a link as text": [["[a](https://x.example)"], "p(a span((https://x.example)))"],
    "markup as text": [["<b>x</b>"], "p(<b>x</b>)"],
    "Windows line ends": [["- a\r", "- b\r"], "ul(li(a)li(b))"],
};
for (const [name, [lines, expected]] of Object.entries(CASES)) {
    test(name, () => assert.equal(rendered(...lines), expected));
}

test("a table, with an escaped bar", () => {
    const [scroll] = markdown("| a | b |\n|---|:-:|\n| 1 \\| 2 | 3 | 4 |");
    assert.deepEqual(
        scroll.all("th").map((cell) => cell.textContent),
        ["a", "b"],
    );
    assert.deepEqual(
        scroll.all("td").map((cell) => cell.textContent),
        ["1 | 2", "3"],
    );
});

test("no link leads anywhere", () => {
    const elements = markdown("[a](javascript:alert(1)) ![b](//x.example) <https://x.example>");
    assert.deepEqual(
        elements.flatMap((element) => [...element.all("a"), ...element.all("img")]),
        [],
    );
});

for (const text of ["`".repeat(50_000), "[".repeat(50_000), "**a".repeat(20_000), "- ".repeat(30_000)]) {
    test(`${text.slice(0, 3)}… is rendered in linear time`, { timeout: 10_000 }, () => {
        assert.ok(markdown(text).length > 0);
    });
}
