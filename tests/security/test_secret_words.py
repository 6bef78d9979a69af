"""Passwords that are words: where one is expected, what counts as one, and what stays."""

from __future__ import annotations

import pytest

from claude_mem.privacy.secret_words import is_chosen, is_named_password, is_structured, word_edits
from claude_mem.privacy.secrets import redact, redact_json
from tests.support.growth import LIMIT, growth

WORDS = "velvet" + "tunnel"
JOINED = "Velvet_" + "tunnel"


@pytest.mark.parametrize("value", [WORDS, JOINED, "velvet-" + "tunnel", "Velvet.Tunnel", "gr8t" + "Tunnel"])
def test_words_may_be_chosen(value: str) -> None:
    assert is_chosen(value)


@pytest.mark.parametrize(
    "value",
    ["string", "required", "hashed", "changeme", "user_input", "form.value", "$VALUE", "{{ x }}", "DB_NAME", "newPassword",
     "settings.mail", "src/app/main.py", "wachtwoord", "https://x.y", "d0a1b2c3d4e5", "TODO", "<secret>"],
)  # fmt: skip
def test_types_messages_labels_and_references_are_not_chosen(value: str) -> None:
    assert not is_chosen(value)


def test_a_sentence_names_only_words_with_signs_inside() -> None:
    assert is_structured(JOINED)
    assert not is_structured(WORDS)
    assert not is_structured("case-sensitive")
    assert f"is {WORDS} and" in redact(f"The password is {WORDS} and nobody knows it.")
    assert JOINED not in redact(f"The password of the printer is {JOINED}.")


def test_code_without_quotes_stays() -> None:
    for text in (
        "const x = {\n  user: name,\n  password: inputValue\n}",
        "class A:\n    user = userName\n    password = inputValue",
        "interface X {\n  username: UserName\n  password: Cleartext\n}",
        "f(\n    user=name,\n    db_password=inputValue\n)",
        "send({ email: mail, password: plainText })",
    ):
        assert redact(text) == text


def test_a_setting_among_settings_is_redacted() -> None:
    assert redact(f"host: db\nmail_password: {WORDS}\n") == "host: db\nmail_password: [redacted]\n"
    assert redact(f"[mail]\nuser = eva\npassword = {WORDS}\n") == "[mail]\nuser = eva\npassword = [redacted]\n"


def test_dummies_of_tests_stay() -> None:
    text = f'def test_login(client):\n    client.login(name="eva", password="{WORDS}")\n'
    assert redact(text) == text


def test_a_json_key_names_a_password() -> None:
    assert is_named_password("dbPassword", WORDS)
    assert not is_named_password("password_type", WORDS)
    assert not is_named_password("pass", WORDS)
    assert redact_json({"user": "eva", "password": WORDS}) == {"user": "eva", "password": "[redacted]"}
    assert redact_json({"password": "required"}) == {"password": "required"}


@pytest.mark.parametrize("part", ["password ", "password=a ", "password,a\n", "user=a&", "<th>Password</th>", "passphrase \"a b ",
                                  "INSERT INTO a (password,", "{a: b, password: ", "user:a "])  # fmt: skip
def test_twice_the_text_takes_at_most_twice_the_time(part: str) -> None:
    assert growth(lambda text: list(word_edits(text)), part * 2_000) < LIMIT
