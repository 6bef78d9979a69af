"""What is private stays out: the scanner against a second, simple one, and the whole way from hook to database."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from claude_mem import hook
from claude_mem.privacy.tags import MAX_TAGS, is_entirely_private, strip_private, strip_private_json
from tests.support import proof
from tests.support.amounts import many
from tests.support.growth import LIMIT, growth
from tests.support.lab import COMMANDS, Lab
from tests.worker.test_hook import payload, run, spooled, tool

NAMES = ("private", "claude-mem-context")
OPENERS = (
    "<",
    "&lt;",
    "&LT;",
    "&#60;",
    "&#0060;",
    "&#x3c;",
    "&#X3C;",
    "&#x003C;",
    "\\u003c",
    "\\u003C",
    "\\x3c",
    "%3c",
    "%3C",
    "\uff1c",
    "\\uff1c",
)
CLOSERS = (">", "&gt;", "&#62;", "&#x3e;", "&#x003E;", "\\u003e", "\\x3E", "%3e", "\uff1e", "\\uFF1E")
SLASHES = ("/", "\\/", "\\u002f", "%2f", "%2F", "\uff0f")
SPACES = ("", " ", "\t", "\n", " \r\n ", "\u00a0", "\u2003\u3000", " " * 64)
ATTRIBUTES = ("", " ", " a=1", ' reason="keys"', "\n", " / ", "\t-", " &amp;", "\\n", "'", " =", "/")
NEVER = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


# --- by example ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a <private>b</private> c", "a  c"),
        ("<private>b</private>", ""),
        ("a<private>b</private>c<private>d</private>e", "ace"),
        ("a <claude-mem-context>b</claude-mem-context> c", "a  c"),
        ("a <private></private> c", "a  c"),
        ("nothing to hide", "nothing to hide"),
        ("", ""),
    ],
)
def test_what_is_between_the_tags_is_cut(text: str, kept: str) -> None:
    assert strip_private(text) == kept


@pytest.mark.parametrize("name", NAMES)
def test_an_unclosed_tag_hides_the_rest_of_the_field(name: str) -> None:
    assert strip_private(f"a <{name}>b c\n\nd") == "a "
    assert strip_private(f"a <{name}") == "a "
    assert strip_private(f"a <{name}>b</{name}") == "a "  # a closing tag that does not end is none
    assert strip_private(f"a <{name}/>b") == "a "


def test_a_stray_closing_tag_hides_what_stands_before_it() -> None:
    """As `tail` shows the end of a private part. Between backticks it is only spoken of; our own fence hides nothing."""
    assert strip_private("a </private> b") == " b"
    assert strip_private("a </private> b <private>c</private> d") == " b  d"
    assert strip_private("a <private>b</private> c </private> d") == " d"
    assert strip_private("a `</private>` b") == "a `` b"
    assert strip_private("a </claude-mem-context> b") == "a  b"


def test_nested_tags_are_counted() -> None:
    assert strip_private("a <private>b <private>c</private> d</private> e") == "a  e"
    assert strip_private("a <private>b <private>c</private> d") == "a "
    assert strip_private("a <private><private><private>b</private></private></private> c") == "a  c"


def test_the_other_name_inside_a_hidden_part_means_nothing() -> None:
    assert strip_private("a <private>b <claude-mem-context> c</private> d") == "a  d"
    assert strip_private("a <private>b </claude-mem-context> c</private> d") == "a  d"
    assert strip_private("a <claude-mem-context>b <private> c</claude-mem-context> d") == "a  d"


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("closer", CLOSERS)
def test_a_tag_may_be_written_with_entities_or_escapes(opener: str, closer: str) -> None:
    for slash in SLASHES:
        assert strip_private(f"a {opener}Private{closer}b{opener}{slash}PRIVATE{closer} c") == "a  c"


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_a_tag_may_have_spaces_and_attributes(space: str, attributes: str) -> None:
    assert strip_private(f"a <{space}private{attributes}>b<{space}/{space}private{attributes}> c") == "a  c"


@pytest.mark.parametrize("unseen", ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200b\u200e"])
@pytest.mark.parametrize("name", NAMES)
def test_what_nobody_sees_makes_no_other_tag_of_it(name: str, unseen: str) -> None:
    for at in range(len(name) + 1):
        written = f"{name[:at]}{unseen}{name[at:]}"
        text = f"a <{written}>b<{unseen}/{written}> c"
        assert strip_private(text) == "a  c"
        assert all(map(hook.may_contain_private_tag, spellings(f"<{written}>b")))


@pytest.mark.parametrize(
    "text",
    [
        "<privately>b</privately>", "<private-key>b</private-key>", "<private_>b", "<private2>b", "<privé>b",
        "<nonprivate>b", "< x private>b", "private>b", "a < b, private > c", "<public>b</public>", "std::vector<Private_>",
        "class A { private: int b; }", "&private&gt;", "<claude-mem>b</claude-mem>", "<claude-mem-contexts>b", "<!private>b",
        "<<b>>", "&lt;b&gt;",
    ],
)  # fmt: skip
def test_other_tags_are_left_alone(text: str) -> None:
    assert strip_private(text) == text
    assert strip_private(f"{text}<private>c</private>") == text


def test_after_a_hundred_tags_everything_is_hidden() -> None:
    few = "x<private>y</private>" * (MAX_TAGS // 2)
    assert strip_private(few + "z") == "x" * (MAX_TAGS // 2) + "z"
    assert strip_private(few + "z<private>secret</private> secret") == "x" * (MAX_TAGS // 2) + "z"
    assert "secret" not in strip_private("</private>" * MAX_TAGS + "</private>secret")
    assert "secret" not in strip_private("<private>" * 5000 + "secret" + "</private>" * 5000 + "secret")


def test_every_string_of_a_value_is_scanned_keys_included() -> None:
    secret = "<private>s</private>"
    value = {f"a{secret}": [secret, {"b": f"c{secret}"}, 1, None, True, 1.5], "d": {"e": {"f": "<private>s"}}}
    assert strip_private_json(value) == {"a": ["", {"b": "c"}, 1, None, True, 1.5], "d": {"e": {"f": ""}}}


@pytest.mark.parametrize(
    ("text", "all_of_it"),
    [
        ("<private>b</private>", True),
        (" \n<private>b", True),
        ("<private>b</private>\n<private>c</private> ", True),
        ("<claude-mem-context>b</claude-mem-context>", True),
        ("a <private>b</private>", False),
        ("<private>b</private>.", False),
        ("", False),
        (" \n", False),
        ("b", False),
    ],
)
def test_a_text_is_wholly_private_when_there_was_something_and_nothing_is_left(text: str, all_of_it: bool) -> None:
    assert is_entirely_private(text) is all_of_it


# --- against a second scanner ----------------------------------------------------------------------------------------

SECRET = "ΩΨΞ"
OPEN = "λμν"


def _tag(closing: bool, name: str) -> st.SearchStrategy[str]:
    cases = (name, name.upper(), name.title(), name[:3] + name[3:].upper(), name[:-1].upper() + name[-1])
    slash = (SLASHES, SPACES) if closing else ()
    return st.tuples(*map(st.sampled_from, (OPENERS, SPACES, *slash, cases, ATTRIBUTES, CLOSERS))).map("".join)


TAGS = {(closing, name): _tag(closing, name) for closing in (False, True) for name in NAMES}


def tags(*, closing: bool, name: str) -> st.SearchStrategy[str]:
    return TAGS[closing, name]


@st.composite
def regions(draw: st.DrawFn, depth: int = 0) -> str:
    """A hidden part, closed and well nested: everything in it is secret."""
    name = draw(st.sampled_from(NAMES))
    inside = [
        draw(st.sampled_from((SECRET, SECRET * 3, f"{SECRET} > {SECRET}", f"{SECRET}<b>{SECRET}", f"< {SECRET}")))
    ]
    if depth < 2 and draw(st.booleans()):
        inside += [draw(nested(name, depth + 1)), SECRET]
    return draw(tags(closing=False, name=name)) + "".join(inside) + draw(tags(closing=True, name=name))


@st.composite
def nested(draw: st.DrawFn, name: str, depth: int) -> str:
    """A part inside a part: of the same name it is counted, of the other it means nothing, not even if left open."""
    other = NAMES[1 - NAMES.index(name)]
    which = draw(st.sampled_from(("same", "other", "unclosed other", "stray other")))
    if which == "same":
        return draw(tags(closing=False, name=name)) + SECRET + draw(tags(closing=True, name=name))
    if which == "other":
        return draw(tags(closing=False, name=other)) + SECRET + draw(tags(closing=True, name=other))
    return draw(tags(closing=which == "stray other", name=other))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and what must be left of it."""
    text = kept = ""
    for _ in range(draw(st.integers(0, 4))):
        plain = draw(
            st.sampled_from((OPEN, f" {OPEN}\n", f"<b>{OPEN}</b>", f"{OPEN} < {OPEN}", f"{OPEN}&amp;", "private "))
        )
        text, kept = text + plain + draw(regions()), kept + plain
    if draw(st.booleans()):  # the last one is never closed, and perhaps its tag neither
        ending = draw(tags(closing=False, name=draw(st.sampled_from(NAMES))))
        return text + draw(st.sampled_from((ending, ending.rstrip(">") + " "))) + SECRET, kept
    return text + OPEN, kept + OPEN


def test_of_thousands_of_shapes_exactly_the_open_text_is_left() -> None:
    seen = set()

    @settings(NEVER, max_examples=many(5_200))
    @given(documents())
    def each(document: tuple[str, str]) -> None:
        text, kept = document
        seen.add(text)
        assert strip_private(text) == kept

    each()
    assert len(seen) >= many(5_000)
    note("shapes of tags: leaks, or open text that was cut", len(seen), goal="0 of 5,000")


def note(name: str, count: int, *, goal: str) -> None:
    """None leaked, or no one would come here."""
    proof.record(name, of="P2", goal=goal, measured=0, ok=True, unit=f"of {count:,}")


WORD = re.compile(r"(?ai:private|claude-mem-context)(?![\w-])")


def hidden(text: str) -> list[bool]:
    """The second scanner, slow and plain: for every character whether it lies in a hidden part.

    From name to name: what stands before it decides whether it is a tag, and which one.
    """
    found = [False] * len(text)
    hiding, depth, since = "", 0, 0
    for number, tag in enumerate(_tags(text), start=1):
        start, end, name, closing = tag
        if number > MAX_TAGS and (not hiding or name == hiding):
            since = since if hiding else start
            return [at >= since or gone for at, gone in enumerate(found)]
        if hiding and name != hiding:
            continue
        if not closing:
            hiding, depth, since = name, depth + 1, since if hiding else start
        elif hiding:
            depth -= 1
            if depth == 0:
                hiding = ""
                found[since:end] = [True] * (end - since)
    if hiding:
        found[since:] = [True] * (len(text) - since)
    return found


def _tags(text: str) -> list[tuple[int, int, str, bool]]:
    """Where each tag begins, where its name ends, what it is called, and whether it closes."""
    found = []
    for word in WORD.finditer(text):
        bare = text[: word.start()].rstrip()
        slash = next(
            (slash for slash in sorted(SLASHES, key=len, reverse=True) if bare.lower().endswith(slash.lower())), ""
        )
        for ending in (bare, bare[: len(bare) - len(slash)].rstrip()):
            if opener := re.search(
                r"(?i)([<\uff1c]|&lt;|&#0{0,5}60;|&#x0{0,5}3c;|\\u003c|\\uff1c|\\x3c|%3c)\Z", ending
            ):
                found.append((opener.start(), word.end(), word[0].lower(), ending != bare))
                break
    return found


SOUP = st.lists(
    st.sampled_from(
        (*OPENERS, *CLOSERS, *SLASHES, *SPACES[1:], "private", "PRIVATE", "claude-mem-context", "Claude-Mem-Context",
         SECRET, OPEN, "privat", "e", "-", "_", "=", '"', "&", "\\", "%", "<private>", "</private>")
    ),
    max_size=24,
).map("".join).filter(lambda text: not re.search(r"\s{65}", text))  # fmt: skip


ONCE_BROKEN = (
    "<pri<private>ΩΨΞ</private>vate>λμν</private>",
    "</private <private>ΩΨΞ</private>",
    "<private></private <private>ΩΨΞ</private>",
    "<private>ΩΨΞ</private" + " " * 65 + "x",
    "<claude-mem-context><private></claude-mem-context>λμν</private>",
)


def test_no_hidden_character_survives_whatever_the_tags_look_like() -> None:
    count = 0

    @settings(NEVER, max_examples=many(5_000))
    @given(SOUP)
    def each(text: str) -> None:
        nonlocal count
        count += 1
        _check_hidden(text)

    each()
    for text in ONCE_BROKEN:
        _check_hidden(text)
    note("tags and halves of tags in any order, against a second scanner: leaks", count, goal="0 of 5,000")


def _check_hidden(text: str) -> None:
    """Every letter of a text is made another one, so that each that is left can be told from all others."""
    letters = iter(range(0x4E00, 0x9FFF))
    text = "".join(chr(next(letters)) if letter in SECRET + OPEN else letter for letter in text)
    secret = {
        letter for letter, gone in zip(text, hidden(text), strict=True) if gone and "\u4e00" <= letter <= "\u9fff"
    }
    assert secret.isdisjoint(strip_private(text))


@settings(NEVER, max_examples=many(1_500))
@given(SOUP)
def test_without_a_tag_nothing_is_cut(text: str) -> None:
    if not _tags(text):
        assert strip_private(text) == text


@settings(NEVER, max_examples=500)
@given(st.text(max_size=200))
def test_any_text_can_be_scanned(text: str) -> None:
    assert strip_private(text) == text or _tags(text)


# --- the hook's quick look -------------------------------------------------------------------------------------------


def spellings(text: str) -> list[bytes]:
    """The same text as JSON, as different programs write it."""
    plain, ascii_only = json.dumps({"prompt": text}, ensure_ascii=False), json.dumps({"prompt": text})
    html_safe = ascii_only
    for sign in "<>&/'":
        html_safe = html_safe.replace(sign, f"\\u{ord(sign):04x}")
    signs = "".join(f"\\u{ord(sign):04X}" if sign in "<>&;#%/" else sign for sign in ascii_only)
    letters = "".join(f"\\u{ord(sign):04x}" for sign in text)
    return [
        plain.encode("utf-8", "surrogatepass"),
        ascii_only.encode(),
        html_safe.encode(),
        signs.encode(),
        f'{{"prompt":"{letters}"}}'.encode(),
        ascii_only.replace("/", "\\/").encode(),
    ]


@settings(NEVER, max_examples=many(2_000))
@given(st.one_of(SOUP, documents().map(lambda document: document[0])))
@example("&lt;private&gt;ΩΨΞ")
@example("%3cprivate%3eΩΨΞ")
@example("<prıvate>ΩΨΞ")
@example("<" + "\u3000" * 64 + "\\u002f" + "\u3000" * 64 + "private>ΩΨΞ")
def test_the_quick_look_sees_whatever_the_scanner_would_cut(text: str) -> None:
    if strip_private(text) != text:
        for spelling in spellings(text):
            assert json.loads(spelling.decode("utf-8", "surrogatepass")) == {"prompt": text}
            assert hook.may_contain_private_tag(spelling), spelling


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        tool(),
        payload("UserPromptSubmit", prompt="why is this private?"),
        b'"a < b; private int c"',
    ],
)
def test_the_quick_look_does_not_cry_wolf(raw: bytes) -> None:
    assert not hook.may_contain_private_tag(raw)


# --- time ------------------------------------------------------------------------------------------------------------

CHARACTERS = 400_000
# How a text begins, and what follows again and again.
ADVERSARIAL = {
    "openers": ("", "<"),
    "openers and spaces": ("", "<" + " " * 63),
    "an opener and spaces": ("<", " "),
    "a closing slash and spaces": ("</", " "),
    "tags without a name": ("", "< / "),
    "half names": ("", "<privat"),
    "names": ("", "private "),
    "opening tags": ("", "<private>"),
    "closing tags": ("", "</private>"),
    "closing tags that never end": ("", "</private "),
    "a closing tag that never ends": ("</private", " a"),
    "both": ("", "<private></private>"),
    "both names": ("", "<private><claude-mem-context></private></claude-mem-context>"),
    "names that go on": ("", "<private-"),
    "entities": ("", "&lt;"),
    "zeros": ("&#", "0"),
    "many zeros": ("", "&#00000"),
    "escapes": ("", "\\u003c"),
    "spaces": ("", " "),
    "slashes": ("", "</"),
    "backslashes": ("", "\\"),
}


def adversarial(shape: str, characters: int) -> str:
    begin, unit = ADVERSARIAL[shape]
    return begin + unit * (characters // len(unit))


def assert_linear(work: Callable[[str], object], shape: str) -> None:
    grown = growth(work, adversarial(shape, CHARACTERS), adversarial(shape, 2 * CHARACTERS))
    assert grown <= LIMIT, f"twice the text takes {grown:.2f} times as long"


@pytest.mark.parametrize("shape", ADVERSARIAL)
def test_twice_the_text_takes_twice_the_time(shape: str) -> None:
    assert_linear(strip_private, shape)
    proof.record("hostile texts scanned in 2.5 × the time for twice the text", of="P2 I4", goal=f"{len(ADVERSARIAL)}",
                 measured=1, ok=True, tally=True)  # fmt: skip


@pytest.mark.parametrize("shape", ADVERSARIAL)
def test_the_quick_look_is_quick(shape: str) -> None:
    assert_linear(lambda text: hook.may_contain_private_tag(text.encode()), shape)


@pytest.mark.parametrize("shape", ADVERSARIAL)
def test_the_largest_payload_is_scanned_before_the_alarm_and_kept(lab: Lab, shape: str) -> None:
    text = adversarial(shape, (hook.MAX_PAYLOAD_BYTES - 4096) // 2).replace("\\", "\\\\")
    run(lab, "save", tool(tool_response="@").replace(b"@", text.encode()))
    (file,) = spooled(lab)
    assert not file.name.startswith(".")
    assert b"withheld" not in file.read_bytes().partition(b"\n\n")[0]


# --- the whole way ---------------------------------------------------------------------------------------------------

CANARY = "canary-7391"


def files_with(lab: Lab, text: str) -> list[Path]:
    """Every file of the data directory that holds the text, in any of the ways SQLite and JSON write it."""
    wanted = [text.encode(coding) for coding in ("utf-8", "utf-16-le", "utf-16-be")]
    files = [path for path in lab.data.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in wanted)]


def hide(text: str) -> str:
    return f"before <private>{text}</private> after"


def send(lab: Lab, event: str, **fields: Any) -> None:
    run(lab, COMMANDS[event], payload(event, cwd=str(lab.project), **fields))


@pytest.mark.parametrize(
    "private",
    ["<private>@</private>", "<PRIVATE\n>@", "&lt;private&gt;@&lt;/private&gt;", "\\u003cprivate\\u003e@", "< private a='1'>@</private >"],
)  # fmt: skip
def test_nothing_private_reaches_any_file(lab: Lab, private: str) -> None:
    secret = f"before {private.replace('@', CANARY)}"
    send(lab, "SessionStart", source="startup")
    send(lab, "UserPromptSubmit", prompt=secret, prompt_id="p1")
    called = {"tool_name": "Bash", "prompt_id": "p1"}
    send(
        lab, "PostToolUse", **called, tool_input={"command": secret, secret: [secret]}, tool_response={"stdout": secret}
    )
    send(lab, "PostToolUse", **called, tool_input={"command": "ls"}, tool_response=[{"type": "text", "text": secret}])
    send(lab, "PostToolUseFailure", **called, tool_input={"command": secret}, error=secret)
    send(lab, "PreCompact", custom_instructions=secret, trigger="manual")
    send(lab, "SubagentStop", last_assistant_message=secret, agent_id="a1")
    send(lab, "Stop", last_assistant_message=secret, prompt_id="p1")
    send(lab, "SessionEnd", reason=secret)
    assert len(spooled(lab)) == 9
    assert files_with(lab, "before")
    assert files_with(lab, CANARY) == []

    lab.mem("drain")
    assert files_with(lab, CANARY) == []
    found = lab.status()
    assert (found["captured"], found["stored"], found["queued"]) == (9, 9, 0)
    assert lab.rows("select text from user_prompts") == [("before ",)]


@pytest.mark.parametrize("broken", [-1, -40, 30])
def test_what_can_not_be_cut_safely_is_withheld_altogether(lab: Lab, broken: int) -> None:
    whole = payload("UserPromptSubmit", prompt=hide(CANARY + "x" * 40))
    run(lab, "new", whole[:broken] if broken < 0 else whole[:broken] + b'"' + whole[broken:])
    (file,) = spooled(lab)
    assert file.read_bytes().endswith(b"withheld yes\n\n")
    lab.mem("drain")
    assert files_with(lab, CANARY) == []
    assert lab.status()["set_aside_by"] == {"withheld": 1}


@pytest.mark.parametrize("end", ["</private> after", ""])
def test_of_a_giant_no_private_part_is_kept_whose_tag_was_left_out(lab: Lab, end: str) -> None:
    """Its opening tag lies where a text of this size is cut."""
    half = hook.MAX_PAYLOAD_BYTES * 3 // 4
    secret = f"{CANARY} " * (2 * half // len(CANARY))
    run(lab, "new", payload("UserPromptSubmit", prompt="a" * half + "<private>" + secret + end))
    assert len(spooled(lab)) == 1
    assert files_with(lab, CANARY) == []
    lab.mem("drain")
    assert files_with(lab, CANARY) == []
    assert lab.status()["set_aside"] == 1


def test_ingest_cuts_what_did_not_come_by_the_hook(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt=hide(CANARY), prompt_id="p1")
    lab.spool("PostToolUse", tool_name="Bash", tool_input={"command": hide(CANARY)}, tool_response=hide(CANARY))
    lab.spool("Stop", last_assistant_message=hide(CANARY), prompt_id="p1")
    assert files_with(lab, CANARY)
    lab.mem("drain")
    assert lab.status()["stored"] == 3
    assert files_with(lab, CANARY) == []


@pytest.mark.parametrize("ids", [True, False])
def test_of_a_private_prompt_the_whole_turn_is_left_out_and_counted(lab: Lab, ids: bool) -> None:
    def turn(prompt_id: str) -> dict[str, str]:
        return {"prompt_id": prompt_id} if ids else {}

    send(lab, "UserPromptSubmit", prompt=f"<private>read {CANARY}</private>", **turn("p1"))
    called = {"tool_name": "Bash", "tool_input": {"command": f"cat {CANARY}"}, "tool_response": {"stdout": CANARY}}
    send(lab, "PostToolUse", **called, tool_use_id="c1", **turn("p1"))
    send(lab, "PostToolUse", **called, tool_use_id="c2", **turn("p1"))
    send(lab, "Stop", last_assistant_message=f"It says {CANARY}.", **turn("p1"))
    send(lab, "UserPromptSubmit", prompt="Now mend the basket", **turn("p2"))
    send(lab, "PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_use_id="c3", **turn("p2"))
    send(lab, "Stop", last_assistant_message="The basket is mended.", **turn("p2"))
    lab.mem("drain")
    found = lab.status()
    assert found["filtered_by"] == {"private": 4}
    assert (found["captured"], found["stored"], found["queued"]) == (7, 3, 0)
    assert files_with(lab, CANARY) == []
    assert lab.rows("select text from user_prompts") == [("Now mend the basket",)]
    assert lab.rows("select count(*) from session_summaries") == [(1,)]


def test_the_transcript_does_not_bring_a_private_part_back(lab: Lab) -> None:
    transcript = lab.folder / "t.jsonl"
    lines: list[dict[str, Any]] = []

    def said(role: str, content: Any, prompt_id: str) -> None:
        stamp = f"2025-01-01T00:00:{len(lines):02}Z"
        lines.append({
            "type": role, "uuid": f"u{len(lines)}", "promptId": prompt_id, "timestamp": stamp, "isSidechain": False,
            "message": {"role": role, "content": content},
        })  # fmt: skip

    for prompt_id, prompt in (("p1", f"<private>read {CANARY}</private>"), ("p2", hide(CANARY))):
        said("user", prompt, prompt_id)
        command = CANARY if prompt_id == "p1" else hide(CANARY)
        said(
            "assistant",
            [{"type": "tool_use", "id": f"{prompt_id}-c", "name": "Bash", "input": {"c": command}}],
            prompt_id,
        )
        said("user", [{"type": "tool_result", "tool_use_id": f"{prompt_id}-c", "content": command}], prompt_id)
        said("assistant", [{"type": "text", "text": command}], prompt_id)
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    send(lab, "UserPromptSubmit", prompt=f"<private>read {CANARY}</private>", prompt_id="p1")
    send(lab, "SessionEnd", transcript_path=str(transcript), reason="other")
    lab.mem("drain")
    assert files_with(lab, CANARY) == []
    assert lab.rows("select text from user_prompts") == [("before  after",)]
    assert lab.status()["queued"] == 0


def test_the_hook_and_the_scanner_cut_the_same() -> None:
    """In this process: what the hook would write is what the scanner leaves."""
    count = 0

    @settings(NEVER, max_examples=1_000 if proof.long() else 25)
    @given(documents())
    def each(document: tuple[str, str]) -> None:
        nonlocal count
        count += 1
        _check_record(*document)

    each()
    note("shapes in every field of a payload, as the hook writes it: leaks", count, goal="0")


def _check_record(text: str, kept: str) -> None:
    fields = {"session_id": "s1", "prompt": text, "tool_input": {"a": [text]}}
    record = hook._record("new", "claude", json.dumps(fields).encode(), True)
    head, _, rest = record.partition(b"\n\n")
    assert json.loads(rest) == {"session_id": "s1", "prompt": kept, "tool_input": {"a": [kept]}}
    assert (b"private yes" in head) == is_entirely_private(text)


def test_noise_around_a_canary_never_lets_it_through() -> None:
    """Random letters between random tags, many of them: a plain search for the secret is the whole check."""
    chance = random.Random(20)
    for _ in range(2_000):
        noise = "".join(chance.choices(string.printable, k=20))
        tag = chance.choice(OPENERS) + chance.choice(SPACES) + "private" + chance.choice(ATTRIBUTES)
        assert CANARY not in strip_private(f"{noise}{tag}>{noise}{CANARY}{noise}"), (noise, tag)
