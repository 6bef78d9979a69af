"""Secrets in the shapes they are met in, and what only looks like one.

No key stands in this file: each is put together when the tests run, from its known beginning and letters by chance.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import Any

import pytest

from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.domain.records import Event, ToolUsed
from claude_mem.privacy.secrets import redact
from tests.support.lab import Lab

CHANCE = random.Random(30)
LETTERS = string.ascii_letters + string.digits
HEX = string.hexdigits[:16]


def some(count: int, of: str = LETTERS) -> str:
    """Letters by chance, with a digit and a letter in them."""
    return (
        "a1" + "".join(CHANCE.choices(of, k=count - 2))
        if "a" in of
        else "A7" + "".join(CHANCE.choices(of, k=count - 2))
    )


def coded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def pem(kind: str, *, block: str = "") -> str:
    body = "\n".join(some(64, LETTERS + "+/") for _ in range(12))
    return f"-----BEGIN {kind}PRIVATE KEY{block}-----\n{body}\n-----END {kind}PRIVATE KEY{block}-----"


UPPER = string.ascii_uppercase + string.digits
# What can be known by its looks alone, wherever it stands.
TOKENS = {
    "anthropic": "sk" + "-ant-" + "api03-" + some(93, LETTERS + "_-") + "AA",
    "openai project": "sk" + "-proj-" + some(74, LETTERS + "_-"),
    "openai": "sk" + "-" + some(20) + "T3Blbk" + "FJ" + some(20),
    "openrouter": "sk" + "-or-v1-" + some(64, HEX),
    "aws key id": "AK" + "IA" + some(16, UPPER),
    "aws session key id": "AS" + "IA" + some(16, UPPER),
    "google": "AI" + "za" + some(35, LETTERS + "_-"),
    "google oauth": "ya" + "29." + some(120, LETTERS + "_-"),
    "google client secret": "GOC" + "SPX-" + some(28, LETTERS + "_-"),
    "github": "gh" + "p_" + some(36),
    "github app": "gh" + "s_" + some(36),
    "github fine-grained": "github" + "_pat_" + some(22) + "_" + some(59),
    "gitlab": "gl" + "pat-" + some(20, LETTERS + "_-"),
    "slack bot": "xo" + "xb-" + some(12, string.digits + "a") + "-" + some(24),
    "stripe": "sk" + "_live_" + some(24),
    "stripe webhook": "wh" + "sec_" + some(32),
    "npm": "np" + "m_" + some(36),
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + some(120, LETTERS + "_-"),
    "hugging face": "h" + "f_" + some(34),
    "sendgrid": "S" + "G." + some(22, LETTERS + "_-") + "." + some(43, LETTERS + "_-"),
    "jwt": f"{coded({'alg': 'HS256', 'typ': 'JWT'})}.{coded({'sub': '1', 'iat': 1})}.{some(43, LETTERS + '_-')}",
    "twilio": "S" + "K" + some(32, HEX),
    "discord": "M" + some(25) + "." + some(6) + "." + some(38, LETTERS + "_-"),
    "telegram": "123456789" + ":" + "AA" + some(33, LETTERS + "_-"),
    "digitalocean": "do" + "p_v1_" + some(64, HEX),
    "shopify": "shp" + "at_" + some(32, HEX),
    "databricks": "da" + "pi" + some(32, HEX),
    "vault": "hv" + "s." + some(90, LETTERS + "_-"),
    "groq": "gs" + "k_" + some(52),
    "xai": "xa" + "i-" + some(80),
    "replicate": "r" + "8_" + some(37),
    "linear": "lin" + "_api_" + some(40),
    "docker": "dckr" + "_pat_" + some(27, LETTERS + "_-"),
    "grafana": "gl" + "sa_" + some(32) + "_" + some(8, HEX),
    "age": "AGE-SECRET" + "-KEY-1" + some(58, UPPER),
    "rsa key": pem("RSA "),
    "pkcs8 key": pem(""),
    "openssh key": pem("OPENSSH "),
    "pgp key": pem("PGP ", block=" BLOCK"),
}
CONTEXTS: dict[str, Callable[[str], str]] = {
    "bare": lambda secret: secret,
    "env": lambda secret: f"export THING={secret}\nPATH=/usr/bin\n",
    "json": lambda secret: json.dumps({"thing": secret, "page": 2}),
    "json in json": lambda secret: json.dumps({"body": json.dumps({"thing": secret, "page": 2})}),
    "yaml": lambda secret: f"thing: {secret}\npage: 2\n",
    "url": lambda secret: f"https://example.com/v1?thing={secret}&page=2",
    "header": lambda secret: f"X-Thing: {secret}\r\nAccept: */*\r\n",
    "code": lambda secret: f'client = Client("{secret}", page=2)',
    "prose": lambda secret: f"the thing is {secret}, page 2",
    "diff": lambda secret: f"-thing = ''\n+thing = '{secret}'\n",
}


def pieces(secret: str) -> list[str]:
    """Stretches of a secret, long enough to be of use to a thief; of a key file those of its lines."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    return [line[at : at + 12] for line in lines for at in range(0, len(line) - 12, 6)]


def leaks(secret: str, text: str) -> list[str]:
    return [piece for piece in pieces(secret) if piece in text]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", TOKENS)
def test_a_known_kind_of_secret_is_replaced_wherever_it_stands(kind: str, context: str) -> None:
    secret, frame = TOKENS[kind], CONTEXTS[context]
    text = frame(secret)
    found = redact(text)
    assert leaks(secret, found) == []
    assert "[redacted " in found
    before, _, after = frame("@").partition("@")
    assert found.startswith(before)
    assert found.endswith(after)


def test_at_least_thirty_kinds_are_tried() -> None:
    assert len(TOKENS) >= 30
    assert len({token[:3] for token in TOKENS.values()}) >= 25


PASSWORDS = (
    "hunter2hunter2",
    "correct-horse-7",
    "x9!fQ2#vLm",
    "aB3/dE5+fG7=",
    "Tr0ub4dor&3.x",
    "0123456789abcdef",
    "pässwörd99",
)
NAMES = (
    "password", "PASSWORD", "DB_PASSWORD", "db-password", "dbPassword", "passwd", "pwd", "passphrase", "secret",
    "CLIENT_SECRET", "clientSecret", "token", "API_TOKEN", "accessToken", "token_v2", "api_key", "apiKey", "API-KEY",
    "x-api-key", "AWS_SECRET_ACCESS_KEY", "SECRET_KEY", "private_key", "SECRET_KEY_BASE", "password1", "NPM_AUTH",
)  # fmt: skip
ASSIGNED: dict[str, Callable[[str, str], str]] = {
    "env": lambda name, value: f"export {name}={value}\nPATH=/usr/bin",
    "quoted": lambda name, value: f'{name} = "{value}"\n',
    "single": lambda name, value: f"{name}='{value}';",
    "json": lambda name, value: json.dumps({"a": 1, name: value, "b": 2}, ensure_ascii=False),
    "json in json": lambda name, value: json.dumps(json.dumps({name: value}, ensure_ascii=False), ensure_ascii=False),
    "yaml": lambda name, value: f"{name}: {value}\nb: 2",
    "ruby": lambda name, value: f":{name} => '{value}'",
    "query": lambda name, value: f"{name}={value}",
}


@pytest.mark.parametrize("shape", ASSIGNED)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_says_secret_hides_its_value(name: str, shape: str) -> None:
    for password in PASSWORDS:
        text = ASSIGNED[shape](name, password)
        assert password not in redact(text), text
        assert name in redact(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://shop:@@@@db.example.com/shop", "p4ss-" + some(8)),
        ("amqp://:@@@@mq.example.com", some(12)),
        ("git remote add origin https://jane:@@@@example.com/shop.git", some(30)),
        ("curl -H 'Authorization: Bearer @@@'", some(40, LETTERS + "._~+/-")),
        ('{"Authorization": "Basic @@@"}', base64.b64encode(b"jane:" + some(20).encode()).decode()),
        ("authorization=token @@@", some(40, HEX)),
        ("proxy-authorization: bearer @@@\r\n", some(32)),
        (
            "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=@@@;EndpointSuffix=x",
            some(86, LETTERS + "+/") + "==",
        ),
        ("https://hooks.slack.com/services/@@@", f"T{some(8, UPPER)}/B{some(8, UPPER)}/{some(24)}"),
    ],
)
def test_where_a_secret_has_its_place_it_is_found_there(text: str, secret: str) -> None:
    found = redact(text.replace("@@@", secret))
    assert leaks(secret, found) == []
    assert secret not in found
    assert "redacted" in found


def test_a_key_that_was_cut_off_is_replaced_as_far_as_it_can_reach() -> None:
    key = pem("RSA ")
    for text in (key[:400], "x\n" + key[:400] + "\nand then\n" + "many other lines\n" * 5_000):
        assert leaks(key[:400], redact(text)) == []
    assert redact(key + "\nrest").endswith("rest")


def test_each_of_many_secrets_is_replaced() -> None:
    text = "\n".join(f"{number}: {token}" for number, token in enumerate(TOKENS.values()))
    found = redact(text)
    assert [kind for kind, token in TOKENS.items() if leaks(token, found)] == []


def test_what_is_redacted_stays_as_it_is() -> None:
    for frame in CONTEXTS.values():
        for token in TOKENS.values():
            once = redact(frame(token))
            assert redact(once) == once


SHA1, SHA256 = some(40, HEX), some(64, HEX)
UUID = "7d44b88c-4199-4bad-97dc-d78268e01398"
INNOCENT = (
    f"commit {SHA1}\nAuthor: Jane2024 Doe <jane@example.com>",
    f"HEAD is now at {SHA1[:7]} Mend the basket",
    f"index {SHA1[:10]}..{SHA256[:10]} 100644",
    f'"integrity": "sha512-{base64.b64encode(bytes(range(64))).decode()}"',
    f"    --hash=sha256:{SHA256} \\",
    f'{{file = "shop-1.0.tar.gz", hash = "sha256:{SHA256}"}}',
    f'"resolved": "https://registry.example.org/js-tokens/-/js-tokens-4.0.0.tgz#{SHA1}"',
    f"session_id: {UUID}",
    f"GET /orders/{UUID}?page=2",
    'token = os.environ["API_TOKEN"]',
    'password = os.getenv("DB_PASSWORD2")',
    "apiKey: process.env.API_KEY_2,",
    "password: ${DB_PASSWORD_1}",
    'token: "${{ secrets.GITHUB_TOKEN }}"',
    "secret = settings.SECRET_KEY",
    'token = request.headers.get("x-token-1")',
    'client_secret = boto3.client("secretsmanager")',
    'password = get_password2("shop")',
    "token: string",
    "token?: string | undefined;",
    'password: str = ""',
    "def login(user: str, password: SecretStr) -> Token: ...",
    "tokenizer: cl100k_base",
    '"tokenizer_class": "GPT2Tokenizer"',
    "max_tokens=1500000000",
    "tokens: 12,345,678",
    "author: jane2024doe",
    "authority: example1.com",
    "-----BEGIN CERTIFICATE-----\nMIIB8TCCAZegAwIBAgIUb\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYI\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ jane@laptop",
    '<div class="sk-fading-circle-container-wrapper">',
    "task-runner-for-many-small-and-large-jobs",
    "pip install scikit-learn  # sk-learn is deprecated",
    "git@example.com:shop/basket.git",
    "http://localhost:8080/a?b=c@d",
    "ftp://example.com:2121/x",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <your token here>",
    "the authorization header is missing",
    "eyJ is how a JSON Web Token begins",
    "npm_config_registry=https://registry.example.org",
    "AKIA is the prefix of a key id",
    "hf_hub_download(repo_id, filename)",
    "assert basket.total == 0  # was KeyError: 'total'",
    "src/auth/tokens.py:42: in refresh_token",
    "password: [redacted]",
    "key: linux-pip-3f2a1b",
)  # fmt: skip


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) == text


# --- on the way in ---------------------------------------------------------------------------------------------------


def cleaned(body: ToolUsed, **settings: Any) -> str:
    event = Event(id="e1", host="claude", content_session_id="s1", at=0, body=body)
    return repr(sanitize.clean_event(event, Config(**settings)).body)


def test_a_secret_under_a_key_of_json_is_replaced() -> None:
    """The arguments of a tool are not text: no line says both the name and the value."""
    given = {
        "password": "hunter2hunter2",
        "env": {"API_KEY": "x9fQ2vLm77"},
        "all": [{"accessToken": "0123456789abcdef"}],
    }
    found = cleaned(ToolUsed("mcp__db__open", given, {"client_secret": "aB3dE5fG7hI9"}))
    for secret in ("hunter2hunter2", "x9fQ2vLm77", "0123456789abcdef", "aB3dE5fG7hI9"):
        assert secret not in found


def test_an_innocent_value_under_such_a_key_stays() -> None:
    given = {"token": "string", "max_tokens": 1500, "tokenizer": "cl100k_base", "password": "", "author": "jane2024"}
    found = cleaned(ToolUsed("Write", given, {"token": "What 2 tokens?", "file": "/a/b1.py"}))
    assert "redacted" not in found


def test_redaction_can_be_switched_off() -> None:
    body = ToolUsed("Bash", {"password": "hunter2hunter2"}, f"token={TOKENS['github']}")
    assert "redacted" not in cleaned(body, redact_secrets=False)
    assert "redacted" in cleaned(body)


def test_no_secret_is_in_any_file_after_the_worker_has_been_there(lab: Lab) -> None:
    secrets = [secret for secret in TOKENS.values() if not secret.startswith("-----")]
    text = "\n".join(f"{number} {secret}" for number, secret in enumerate(secrets))
    lab.spool("UserPromptSubmit", prompt=text, prompt_id="p1")
    called = {"tool_name": "Bash", "tool_input": {"command": text, "password": "hunter2hunter2"}, "prompt_id": "p1"}
    lab.spool("PostToolUse", **called, tool_response={"stdout": text})
    lab.spool("Stop", last_assistant_message=text, prompt_id="p1")
    lab.mem("drain")
    assert lab.status()["stored"] == 3
    content = b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())
    assert b"[redacted github-token]" in content
    assert [secret for secret in [*secrets, "hunter2hunter2"] if secret.encode() in content] == []
