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


PHRASE = "velvet ladder " + "under orbit 7"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"user":"eva","password":"{PHRASE}"}}', f"gpg --batch --passphrase '{PHRASE}' -c a", f'wpa2-pre-shared-key="{PHRASE}"',
        f"Enter new passphrase: {PHRASE}\nEnter same passphrase again:", f"A=1\nRESTIC_PASSWORD={PHRASE}\nB=2",
    ],
)  # fmt: skip
def test_a_passphrase_of_several_words_is_the_value_of_a_setting(text: str) -> None:
    new = redact(text)
    assert "ladder" not in new
    assert "[redacted]" in new


def test_a_json_key_names_a_passphrase() -> None:
    assert redact_json({"password": PHRASE}) == {"password": "[redacted]"}
    for label in ("Mot de passe", "correct horse battery staple", "Enter your new password", "pwgen -s 24"):
        assert redact_json({"password": label}) == {"password": label}


@pytest.mark.parametrize(
    "text",
    [
        "A senha do banco de produção é {} e o usuário continua", "Hasło do panelu administratora: {}, login: biuro.",
        "fly secrets set MAIL_PW={} -a api", "SQL> CONNECT hr/{}@//ora:1521/HR", "Login: shop_api / {}, account 20041",
        "the db creds are app_rw : {} on db-7", "steamcmd +login builder {} +quit", "kadmin.local -q \"addprinc -pw {} http/web1\"",
        "radius-server key {}", 'AT+CWJAP="office","{}"', '#define SECRET_PASS "{}"',
        "> what was the wifi password?\n{} (guests have their own)",
    ],
)  # fmt: skip
def test_words_with_a_number_are_passwords_in_more_places(text: str) -> None:
    value = "Velvet_Tunnel" + "-im-9"
    assert value not in redact(text.format(value))


@pytest.mark.parametrize(
    "text",
    [
        'mot_de_passe = "votre_mot_de_passe"', "$ ssh-keygen -lf ~/.ssh/id_ed25519.pub", '"POST /settings/password HTTP/1.1" 302 0',
        "'Secret' => 'Geheimnis',", "login(email: String!, password: String!): Session!", "fixed the errors to pass `mise run lint`",
        "the token's header encodes to `eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9`", "cache key: deps-Linux-" + "c0ffee12" * 8,
        "GPG_KEY=" + "A9C2228C" * 5, "$ wg pubkey < private.key\njO8V8+NYI/gQjWau04U/LUEvlXG1NDTIGlPJMTdu7LQ=",
    ],
)  # fmt: skip
def test_placeholders_types_headers_and_public_keys_stay(text: str) -> None:
    assert redact(text) == text


def test_a_line_of_a_public_key_stays_although_its_letters_spell_a_noun() -> None:
    lines = [
        "moBUBzPw1b8oK/pfGfYmYXuB2+2SmJq3f3VZTGJnaeeVwreB96Z4L8uejMMxAAab",
        "xM7w9W/KAqwW/0ZWnH7ARvpXroHeV3H6QwY0B1lGOsqsTZzrNyWskKUZLrMxPxF3",
    ]
    text = "-----BEGIN PUBLIC KEY-----\n" + "\n".join(lines) + "\n-----END PUBLIC KEY-----"
    assert redact(text) == text
