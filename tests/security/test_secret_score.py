"""Values of which no rule is sure: which are judged, how they are described, and what the learned weights decide."""

from __future__ import annotations

import pytest

from claude_mem.privacy import secret_score
from claude_mem.privacy.secret_context import context_edits
from claude_mem.privacy.secret_score import candidates, features, score, score_edits
from claude_mem.privacy.secrets import redact
from tests.support.growth import LIMIT, growth


def judged(text: str) -> list[str]:
    unsure: list[tuple[int, int]] = []
    edits = list(context_edits(text, None, unsure))
    return [text[start:end] for start, end in candidates(text, [*unsure, *(edit[:2] for edit in edits)])]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("user: jo\npassword: velvet_Tractor9", ["velvet_Tractor9"]),
        ("the passphrase `copper kettle under snow` opens it", ["copper kettle under snow", "copper", "kettle"]),
        ("the token x9Q2mLp7Zr4K is old", ["x9Q2mLp7Zr4K"]),
        ("token = read_token(path)", []),  # words in code
        ("if token == 0 { tokenCount++ }", []),
        ("the password: string | undefined", []),  # a type
        ("x9Q2mLp7Zr4K is far from any noun of a secret", ["x9Q2mLp7Zr4K"]),
        ("x9Q2mLp7Zr4K is far from any such noun", []),
        (f"token: git cat-file -p {'0123456789abcdef' * 2}01234567", []),  # an object of git
    ],
)  # fmt: skip
def test_values_that_look_like_no_word_and_words_near_a_password_are_judged(text: str, values: list[str]) -> None:
    assert judged(text) == values


def test_a_value_is_described_by_its_form_and_its_place() -> None:
    text = "user: jo\npassword: velvet_Tractor9\nport: 5432"
    start = text.index("velvet")
    names = features(text, start, start + len("velvet_Tractor9"))
    assert {
        "form structured", "value classes aA9_", "before separator : ", "before last password", "before name password", "line key:",
        "user user", "before settings True True", "last password : whole", "form structured + near password0 :",
    } <= set(names)  # fmt: skip
    assert len(set(names)) == len(names)


def test_the_weights_are_a_short_readable_file() -> None:
    lines = secret_score.FILE.read_text("utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len("\n".join(lines)) < 60_000
    assert len(secret_score.WEIGHTS) == len(lines) - 1
    assert secret_score.WEIGHTS["threshold"] > 0
    assert score(["of no weight"]) == secret_score.WEIGHTS["bias"]


def test_without_weights_nothing_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_score, "_THRESHOLD", float("inf"))
    text = "user: jo\npassword: velvet_Tractor9"
    assert list(score_edits(text, [(20, len(text))])) == []


@pytest.mark.parametrize(
    "unit",
    ["password velvet_Tractor9 ", "token x9Q2mLp7Zr4K, ", 'pass "a b c d e f" ', "password=\"'`", "-----BEGIN key x9Q2mLp7Zr4K\n"],
)  # fmt: skip
def test_the_time_grows_with_the_text(unit: str) -> None:
    assert growth(redact, unit * (20_000 // len(unit))) <= LIMIT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("pulumi config set --secret dbPassword {} && pulumi up -y", "Gravity7" + "overTunnel"),
        ("In [4]: session.auth\nOut[4]: ('svc', '{}')", "Wisdom_" + "Cactus.310"),
        ("rootpw --plaintext {}", "tun4" + "Ladder_3761"),
    ],
)
def test_weights_find_what_the_rules_leave(text: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert value not in redact(text.format(value))
    monkeypatch.setattr(secret_score, "_THRESHOLD", float("inf"))
    assert value in redact(text.format(value))
