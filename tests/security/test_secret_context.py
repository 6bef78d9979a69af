"""Values judged by the words around them: what names a value, what does not, and what a value is worth by its form."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from claude_mem.privacy.secret_context import context_edits, is_named_secret, noun_strength
from claude_mem.privacy.secret_grades import (
    NAME,
    NOTHING,
    PASSPHRASE,
    PASSWORD,
    RANDOM,
    SYMBOLS,
    VERY_LONG_RANDOM,
    grade,
)
from claude_mem.privacy.secret_rules import LiteralIndex, Literals
from claude_mem.privacy.secrets import redact, redact_json, redact_printed_secrets
from tests.support.growth import LIMIT, growth
from tests.support.secret_corpus import Maker

TOKEN = Maker(11).some(40)
SHORT = Maker(12).some(12)
HUMAN = "Velvet" + "2931!"
TITLE = "Velvet-Harbor" + "-62!"
MIXED = "Velvet_Harbor" + ".629"


def cut(text: str) -> str:
    """Return the text after the edits of this module alone."""
    for start, end, new in sorted(context_edits(text), reverse=True):
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize(
    "text",
    [
        f"bindpw {SHORT}",
        f"user admin insecure-password {SHORT}",
        f"le mot de passe du serveur est {HUMAN}",
        f"密码是 {SHORT}",
        f"Das neue Kennwort lautet: {HUMAN}",
        f"Password (staging): {HUMAN}",
        f"Passwort fürs WLAN: {HUMAN}",
        f"creds: OFFICE\\jane:{TOKEN}",
        f'password = lookup("db") or "{HUMAN}"',
        f"tool -u jane -p {HUMAN} run",
        f"<wsse:Password Type='text'>{HUMAN}</wsse:Password>",
        f"<key>ClientSecret</key>\n<string>{TOKEN}</string>",
        f"(gdb) p config.password\n$1 = 0x5581 \"{HUMAN}\"",
        f"Copy your token now, you will not see it again:\n\n{TOKEN}",
        f"please use {TOKEN} as the password for staging",
        f"assert '{TOKEN}' != None  (API_TOKEN)",
        f"?access_token={TOKEN}&state=x",
        f"#define WIFI_PASS \"{MIXED}\"",
        f"Passwort: {TITLE}",
        f"A senha do Wi-Fi é {TITLE}, conecta.",
        f"wifi: office-guest / {TITLE}",
        f"the new password ({MIXED}) works",
        f"changed the passphrase from {MIXED} to another",
        f"export mot_de_passe={MIXED}",
        f"<mot_de_passe>{MIXED}</mot_de_passe>",
        f'["password"]=>\n  string(17) "{MIXED}"',
        f'password = "[redacted]" -> "{SHORT}"',
        f"API keys\n  prod   {TOKEN}   created 2026-01-02",
        f'assert_equal "{TOKEN}", client.api_key',
    ],
)  # fmt: skip
def test_a_value_is_named_by_the_nearest_noun(text: str) -> None:
    left = cut(text)
    assert "[redacted]" in left
    assert not any(secret in left for secret in (TOKEN, SHORT, HUMAN, TITLE, MIXED))
    harmless = re.sub("|".join(map(re.escape, (TOKEN, SHORT, HUMAN, TITLE, MIXED))), "word", text)
    assert cut(harmless) == harmless


@pytest.mark.parametrize(
    "text",
    [
        f"token id: {TOKEN}",
        f"password sha256 {TOKEN}",
        f"token, trace={TOKEN}",
        f"cache key {TOKEN}",
        f"NextToken: {TOKEN}",
        f"arn:aws:secretsmanager:eu-west-1:1:secret:{TOKEN}",
        f"password: ENC[AES256_GCM,data:{TOKEN}]",
        f"docker login --password-stdin -u {HUMAN}",
        f"token\n\x00\n{TOKEN}",
        f"the API key is {TOKEN}... (shortened)",
        f'{{"secrets": {{"{TOKEN}": ["current"]}}}}',
        f"--- PASS: TestSecret/token:{SHORT} (0.00s)",
        "password: Uint8Array of keys",
        "auth: login-page-v2 works",
        "Pass onReRun2={handler} to it",
        "user.signingkey=94B50B727420485E",
        f"{TOKEN.upper()[:26]} (ulid) created token bucket 4",
        f"the token (sha256) of {TOKEN}",
        f'assert_equal "{TOKEN}", client.id',
    ],
)  # fmt: skip
def test_the_noun_of_another_thing_keeps_its_value(text: str) -> None:
    assert cut(text) == text


def test_the_items_of_a_list_have_the_name_of_the_first() -> None:
    assert (
        cut(f"passwords:\n  - {HUMAN}\n  - {SHORT}\n  - other")
        == "passwords:\n  - [redacted]\n  - [redacted]\n  - other"
    )
    assert cut(f'token = "{TOKEN}" + \\\n  "{TOKEN}"') == 'token = "[redacted]" + \\\n  "[redacted]"'


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("DB_PASSWORD", "password"), ("bindpw", "password"), ("stripeSecret2", "secret"), ("OAuthHandler", "inner"),
        ("public_key", None), ("token_type", None), ("requestToken", None), ("compass", ""), ("monkey", ""),
    ],
)  # fmt: skip
def test_nouns_are_found_in_names(word: str, kind: str | None) -> None:
    strength = noun_strength(word)
    assert {"password": 3.5, "secret": 3.0, "inner": 1.5, "": 0, None: None}[kind] == strength


@pytest.mark.parametrize(
    ("value", "worth"),
    [
        ("password", NOTHING), ("getUserById2", NAME), ("shop-db-2", NAME), ("a.b/c.py", NOTHING), ("1.2.3-beta", NOTHING),
        ("2025-01-14-session-A", NOTHING), ("jane@example.com", NOTHING), ("X509Certificate2Collection", NOTHING),
        ("velvet-harbor-62", PASSPHRASE), ("Velvet-Harbor-62", PASSPHRASE), ("VelvetHarbor_62", PASSPHRASE),
        (MIXED, SYMBOLS), (TITLE, SYMBOLS), ("Velvet62Harbor41", SYMBOLS), ("GrBL" + "qTag", PASSPHRASE),
        ("AuthService_2", NAME), ("save_2", NAME), ("ab12" * 4, 1.0), ("orchid751", PASSWORD), ("occ8U5J0LfaO0q", RANDOM), (TOKEN, VERY_LONG_RANDOM),
    ],
)  # fmt: skip
def test_the_form_of_a_value_has_a_grade(value: str, worth: float) -> None:
    assert grade(value) == worth


def test_a_secret_is_cut_wherever_it_occurs_in_its_event() -> None:
    value: Any = {"stdout": f"API_TOKEN={TOKEN}", "args": ["run", TOKEN], "note": f"x/{TOKEN[:8]} stays"}
    redacted: Any = redact_json(value)
    assert json.dumps(redacted).count(TOKEN) == 0
    assert redacted["args"] == ["run", "[redacted]"]
    assert redacted["note"] == value["note"]
    assert redact("password=shop-db-2 in shop-db-2") == "password=[redacted] in shop-db-2"


def test_a_token_of_an_unknown_vendor_is_cut_and_an_id_is_not() -> None:
    assert redact(f"acme_live_{TOKEN}") == "[redacted vendor-token]"
    for kept in (f"toolu_{TOKEN[:24]}", f"sha256-{TOKEN}", f"acme_{TOKEN[:20]}", "acme_" + "ab" * 20):
        assert redact(kept) == kept


def test_names_in_json_and_printed_words_are_judged_in_the_same_way() -> None:
    assert is_named_secret("bindpw", HUMAN)
    assert not is_named_secret("bindpw", "shop-db-2")
    assert redact_json({"Kennwort": HUMAN, "kind": HUMAN}) == {"Kennwort": "[redacted]", "kind": HUMAN}
    assert redact_printed_secrets(["cat /etc/app/token"], {"stdout": f"{TOKEN}\n"}) == {"stdout": "[redacted]\n"}
    assert redact_printed_secrets(["cat /etc/app/name"], {"stdout": f"{TOKEN}\n"}) == {"stdout": f"{TOKEN}\n"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"# client  server  secret  IP\nvpn   *   \"{HUMAN}\"   *", "# client  server  secret  IP\nvpn   *   \"[redacted]\"   *"),
        (f"$ vault kv get secret/shop\nKey     Value\nstripe  {TOKEN}\n$ ls\n{SHORT}", f"$ vault kv get secret/shop\nKey     Value\nstripe  [redacted]\n$ ls\n{SHORT}"),
        (f'begin("office", "{MIXED}")', 'begin("office", "[redacted password]")'),
        ("recovery phrase (keep it):\n" + "velvet harbor " * 6, "recovery phrase (keep it):\n[redacted seed-phrase] "),
        (f"$6$abcdefgh/.ijklmnopqrstuvwx${TOKEN}{TOKEN}", "[redacted password-hash]"),
        (f'{{"u": "admin", "p": "{MIXED}"}}', '{"u": "admin", "p": "[redacted password]"}'),
        (f"password = '{TOKEN[:9]}={TOKEN[9:20]}'", "password = '[redacted]'"),
        (f"password: ENC({TOKEN}=)", f"password: ENC({TOKEN}=)"),
        ("token  status  is\nok  avg=12.3ms  p95", "token  status  is\nok  avg=12.3ms  p95"),
    ],
)  # fmt: skip
def test_forms_that_several_rules_share(text: str, left: str) -> None:
    assert redact(text) == left


def test_literals_are_found_in_long_texts_as_in_short_ones() -> None:
    for text in ("a net use b", "a net use b " + "word " * 1_000):
        present, absent = ["net use ", " use", "ne", " "], ["net  use", "use net", "user"]
        index = LiteralIndex(present + absent)
        assert Literals(text).select(index, present + absent) == present
        assert dict(Literals(text.upper()).select_lower(index))["net use "] == 2


@pytest.mark.parametrize(
    "unit",
    [
        "password ab12cd34ef \n", f"token={SHORT},", "pw:\n- a1b2c3d4e5\n", "-u a -p b1c2d3e4 ", "<password>a1b2c3d4 ",
        f"acme_live_{TOKEN} ", "key a1 ", "密码",
    ],
)  # fmt: skip
def test_the_time_grows_with_the_text(unit: str) -> None:
    assert growth(cut_only, unit * (20_000 // len(unit))) <= LIMIT


def cut_only(text: str) -> None:
    list(context_edits(text))


def test_many_different_secrets_take_the_time_of_their_text() -> None:
    def lines(count: int) -> str:
        make = Maker(count)
        return "\n".join(f"API_TOKEN={make.some(32)} acme_live_{make.some(40)}" for _ in range(count))

    assert growth(redact, lines(200), lines(400)) <= LIMIT
