"""Secrets in the shapes and places they are met in, and what only looks like one. Made when it is asked for.

No key stands in this file: each is put together from its known beginning and letters by chance, always the same ones.
"""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

LETTERS = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = string.hexdigits[:16]
URLSAFE = LETTERS + "_-"
PIECE = 12  # a stretch of a key that is long enough to be of use to a thief


@dataclass(frozen=True, slots=True)
class Case:
    """A text, and what must not be left of it."""

    kind: str
    context: str
    text: str
    secret: str

    def leaks(self, found: str) -> bool:
        return any(piece in found for piece in pieces(self.secret))


def pieces(secret: str) -> list[str]:
    """Stretches of it; of a key file those of its lines; of what is short only the whole."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    stretches = [line[at : at + PIECE] for line in lines for at in range(0, len(line) - PIECE, PIECE // 2)]
    return stretches or [secret]


class Maker:
    """Letters by chance, but the same ones every time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def some(self, count: int, of: str = LETTERS) -> str:
        """With a digit among them: hardly any real one has none, and by chance alone some would."""
        made = self.chance.choices(of, k=count)
        made[self.chance.randrange(1, count)] = self.chance.choice("23456789")
        return "".join(made)

    def coded(self, value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    def pem(self, kind: str, *, block: str = "") -> str:
        body = "\n".join(self.some(64, LETTERS + "+/") for _ in range(12))
        return f"-----BEGIN {kind}PRIVATE KEY{block}-----\n{body}\n-----END {kind}PRIVATE KEY{block}-----"

    def password(self) -> str:
        return self.some(14, LETTERS + "!#%+-.?_")


def formats(make: Maker) -> dict[str, tuple[str, str]]:
    """Each kind: what is secret in it, and the text it is met in; mostly the two are the same."""
    some = make.some
    alone = {
        "anthropic": "sk" + "-ant-" + "api03-" + some(93, URLSAFE) + "AA",
        "openai project": "sk" + "-proj-" + some(74, URLSAFE),
        "aws key id": "AK" + "IA" + some(16, UPPER),
        "google api key": "AI" + "za" + some(35, URLSAFE),
        "github personal": "gh" + "p_" + some(36),
        "github oauth": "gh" + "o_" + some(36),
        "github app": "gh" + "s_" + some(36),
        "github refresh": "gh" + "r_" + some(76),
        "github fine-grained": "github" + "_pat_" + some(22) + "_" + some(59),
        "gitlab": "gl" + "pat-" + some(20, URLSAFE),
        "slack bot": "xo" + "xb-" + some(12, string.digits) + "-" + some(12, string.digits) + "-" + some(24),
        "slack user": "xo" + "xp-" + some(12, string.digits) + "-" + some(12, string.digits) + "-" + some(32, HEX),
        "stripe live": "sk" + "_live_" + some(24),
        "stripe restricted": "rk" + "_live_" + some(99),
        "npm": "np" + "m_" + some(36),
        "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + some(120, URLSAFE),
        "docker": "dckr" + "_pat_" + some(27, URLSAFE),
        "hugging face": "h" + "f_" + some(34, string.ascii_letters),
        "sendgrid": "S" + "G." + some(22, URLSAFE) + "." + some(43, URLSAFE),
        "twilio": "S" + "K" + some(32, HEX),
        "jwt": ".".join((make.coded({"alg": "HS256", "typ": "JWT"}), make.coded({"sub": some(9)}), some(43, URLSAFE))),
        "rsa key": make.pem("RSA "),
        "ec key": make.pem("EC "),
        "pkcs8 key": make.pem(""),
        "pgp key": make.pem("PGP ", block=" BLOCK"),
        "openssh key": make.pem("OPENSSH "),
    }
    signed, hook = quote(some(43, LETTERS + "+/") + "=", safe=""), "hooks.slack.com/services"
    aws, session, cookie = some(40, LETTERS + "+/"), make.password(), some(32, HEX)
    basic = base64.b64encode(f"jane:{make.password()}".encode()).decode()
    placed = {
        "aws secret key": (aws, f"aws_secret_access_key = {aws}"),
        "azure sas": (signed, f"https://shop.blob.core.windows.net/a?sv=2024-05-04&sr=c&sp=r&sig={signed}"),
        "slack webhook": (
            tail := f"T{some(8, UPPER)}/B{some(8, UPPER)}/{some(24)}",
            f"https://{hook}/{tail}",
        ),
        "postgres url": (word := some(16), f"postgres://shop:{word}@db.example.com:5432/shop"),
        "mongo url": (word := some(16), f"mongodb+srv://shop:{word}@cluster0.example.net/shop"),
        "redis url": (word := some(16), f"rediss://:{word}@cache.example.com:6379/0"),
        "basic auth": (basic, f"Authorization: Basic {basic}"),
        "cookie": (cookie, f"Cookie: theme=dark; sessionid={cookie}"),
        "netrc": (session, f"machine example.com login jane password {session}"),
        ".env": (word := make.password(), f"SMTP_PASSWORD={word}"),
    }
    return {**{kind: (secret, secret) for kind, secret in alone.items()}, **placed}


def _escaped(text: str) -> str:
    return text.replace("\n", "\\n")


CONTEXTS: dict[str, Callable[[str], str]] = {
    "env": lambda text: f"HOME=/home/jane\nexport THING='{text}'\nPATH=/usr/bin:/bin\n",
    "json": lambda text: json.dumps({"page": 2, "thing": text, "more": ["a", "b"]}),
    "yaml": lambda text: "thing: |\n" + "".join(f"  {line}\n" for line in text.splitlines()) + "page: 2\n",
    "url": lambda text: f"GET https://api.example.com/v1/things?page=2&thing={quote(text, safe='')}&sort=asc",
    "header": lambda text: f"> Accept: */*\r\n> X-Thing: {_escaped(text)}\r\n> Host: api.example.com\r\n",
    "shell": lambda text: f'deploy --region eu-1 --thing "{text}" --verbose && echo done',
    "diff": lambda text: "@@ -1,2 +1,9 @@\n-thing\n" + "".join(f"+{line}\n" for line in text.splitlines()) + " end\n",
    "lines": lambda text: f"Here is what I found:\n\n{text}\n\nIt was used twice.\n",
    "base64": lambda text: f"data:\n  thing: {base64.b64encode(text.encode()).decode()}\nkind: Secret\n",
    "escaped": lambda text: json.dumps(json.dumps({"stdout": f"first line\n{text}\nlast line"})),
    "colour": lambda text: f"first line\n\x1b[1;32m{text}\x1b[0m\nlast line",
    "log": lambda text: f'2026-01-02T03:04:05Z WARN [api] refused: "{_escaped(text)}" status=401 took=12ms',
}


def positives(rounds: int = 1) -> list[Case]:
    """Every kind in every context."""
    return [
        Case(kind, context, frame(text), base64.b64encode(text.encode()).decode() if context == "base64" else hidden)
        for turn in range(rounds)
        for kind, (secret, text) in formats(Maker(turn)).items()
        for context, frame in CONTEXTS.items()
        for hidden in [quote(secret, safe="") if context == "url" else secret]
    ]


NAMES = (
    "password", "DB_PASSWORD", "db-password", "dbPassword", "PGPASSWORD", "MYSQL_PWD", "passwd", "passphrase", "SMTP_PASS",
    "secret", "CLIENT_SECRET", "clientSecret", "token", "API_TOKEN", "accessToken", "refresh_token", "api_key", "apiKey",
    "X-API-Key", "AWS_SECRET_ACCESS_KEY", "SECRET_KEY", "private_key", "ENCRYPTION_KEY", "SECRET_KEY_BASE", "NPM_AUTH",
)  # fmt: skip
ASSIGNED: dict[str, Callable[[str, str], str]] = {
    "env": lambda name, value: f"export {name}={value}\nPATH=/usr/bin",
    "quoted": lambda name, value: f'{name} = "{value}"\n',
    "json": lambda name, value: json.dumps({"a": 1, name: value, "b": 2}),
    "yaml": lambda name, value: f"{name}: {value}\nb: 2",
    "header": lambda name, value: f"{name}: {value}\r\nAccept: */*",
    "option": lambda name, value: f"run --{name.lower()} {value} --verbose",
    "xml": lambda name, value: f"<{name}>{value}</{name}>",
    "ruby": lambda name, value: f":{name} => '{value}',",
}


def assignments() -> Iterator[Case]:
    """A name that says secret, and a value that says nothing."""
    make = Maker(7)
    words = (
        make.password,
        lambda: make.some(8),
        lambda: make.some(32, HEX),
        lambda: make.some(40, LETTERS + "+/"),
        lambda: "-".join(make.chance.choices(("correct", "horse", "battery", "staple"), k=3)) + "-7",
        lambda: "".join(make.chance.choices(string.ascii_lowercase, k=14)),
        lambda: str(uuid.UUID(int=make.chance.getrandbits(128))),
    )
    for number, name in enumerate(NAMES):
        for shape, frame in ASSIGNED.items():
            value = words[(number + len(shape)) % len(words)]()
            yield Case(name, shape, frame(name, value), value)


# Whole commands, lines and pairs in which the place gives it away, whatever signs are in it. `{0}` is the secret.
SHAPED = {
    "env line": "HOME=/home/jane\nDB_PASSWORD={0}\nPATH=/usr/bin",
    "exported": "export ADMIN_PASSWORD={0}\n",
    "declared": 'declare -x SMTP_PASSWORD="{0}"\n',
    "diff of env": "@@ -1 +1 @@\n-PORT=1\n+DB_PASSWORD={0}\n",
    "escaped lines": 'stdout: "PORT=1\\nDB_PASSWORD={0}\\nHOME=/root"',
    "inspected": '"Env": [\n  "PORT=1",\n  "DB_PASSWORD={0}",\n  "HOME=/root"\n]',
    "windows": "$env:DB_PASSWORD={0}\r\n",
    "make": "DB_PASSWORD := {0}\n",
    "connection string": '"Server=db;User Id=sa;Password={0};Encrypt=true"',
    "short connection string": "Server=db;Uid=sa;Pwd={0};",
    "yaml pair": "      - name: DB_PASSWORD\n        value: {0}\n      - name: PORT\n",
    "quoted yaml pair": '- name: DB_PASSWORD\n  value: "{0}"\n',
    "json pair": '{{"name": "DB_PASSWORD", "value": "{0}"}}',
    "pretty pair": '{{\n    "name": "API_TOKEN",\n    "value": "{0}"\n}}',
    "pair in text": '"{{\\"Name\\": \\"DB_PASSWORD\\", \\"Value\\": \\"{0}\\"}}"',
    "xml pair": '<add key="DbPassword" value="{0}" />',
    "parameter": '"ParameterKey": "DbPassword", "ParameterValue": "{0}"',
    "curl --user": "curl -s --user jane:{0} https://example.com",
    "docker login": "docker login -u jane -p {0} registry.example.com",
    "redis": "redis-cli -h cache -a {0} ping",
    "mongo": "mongosh -u root -p {0} shop",
    "ldap": "ldapsearch -x -w {0}",
    "github": "gh secret set NOTE --body {0}",
    "sql": "CREATE USER shop IDENTIFIED BY '{0}';",
    "old sql": "create user shop identified by '{0}'",
    "plugin": "ALTER USER shop IDENTIFIED WITH caching_sha2_password BY '{0}'",
    "negotiate": "Authorization: Negotiate {0}",
    "no scheme": "authorization: {0}",
    "aws signature": "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature={0}",
    "cookie option": "curl -s -b 'sessionid={0}' https://example.com",
    "httpie": "http -a jane:{0} https://example.com/api",
    "aws configure": "aws configure set profile.shop.aws_secret_access_key {0}",
    "php": "define('DB_PASSWORD', '{0}');",
    "template literal": "const apiKey = `{0}`;",
    "rust": 'const API_KEY: &str = "{0}";',
    "yaml block": "kind: Secret\ntoken: |\n  {0}\npage: 2\n",
    "folded block": "  password: >-\n    {0}\n",
    "block in a diff": "+token: |\n+  {0}\n end\n",
    "fish": "set -gx API_TOKEN {0}",
    "openssl": "openssl rsa -in key.pem -passin pass:{0}",
    "pass in yaml": "smtp:\n  user: jane\n  pass: {0}\n",
    "pass in json": '{{"user": "jane", "pass": "{0}"}}',
    "pass in an environment": "PASS={0}\nPORT=1",
    "pass in a flow": "{{user: jane, pass: {0}}}",
    "pass in code": "auth({{ user, pass: '{0}' }})",
    "token as user": "origin\thttps://{0}@github.com/shop/shop.git (fetch)",
}
_LONG_ONES = ("negotiate", "no scheme")
_SIGNS = ("(", "$$", ",", "<", "}}", "!", "[", "{{")  # `env` prints them as they are
_ANY_SIGN = ("env line", "exported", "diff of env", "windows")


def shaped() -> Iterator[Case]:
    make = Maker(13)
    for shape, frame in SHAPED.items():
        for _ in range(5):
            hexadecimal = shape in ("token as user", "aws signature")
            value = make.some(40, HEX) if hexadecimal else "k7" + make.some(40 if shape in _LONG_ONES else 12)
            yield Case("shaped", shape, frame.format(value), value)
    for shape in _ANY_SIGN:
        for sign in _SIGNS:
            value = make.some(6) + sign.replace("{{", "{").replace("}}", "}") + make.some(8)
            yield Case("any sign", shape, SHAPED[shape].format(value), value)
    for text, value in (
        ("MAIL_PASSWORD=abcd efgh ijkl mnop\n", "efgh ijkl"),
        ('DB_PASSWORD="correct horse battery 9"\n', "horse battery"),
        ("export DB_PASSWORD='horse7battery staple44'", "staple44"),
        (json.dumps({"password": 'ab"cd9Kx!zz12'}), "cd9Kx"),
        ("x;Password=Pa$$" + "w0rd;y", "w0rd"),
    ):
        yield Case("spaced", "line", text, value)
    for token in ("gh" + "p_" + make.some(36), "sk" + "-ant-" + "api03-" + make.some(93)):
        for end in ("\x1b[0m", "\x1b[m\x1b[K", "\\u001b[0m", "\\033[1;31m"):
            yield Case("cut by a colour", end, f"\x1b[32m{token[:9]}{end}{token[9:]} done", token[9:])


# --- what only looks like one ----------------------------------------------------------------------------------------

# Where ten different ones are made of each line: # a number of letters by chance in place of {hex40} and the like.
_MADE = {
    "uuid": (
        "session_id: {uuid}", 'GET /orders/{uuid}?page=2 200 in 12 ms', '"requestId":"{uuid}","level":"info"',
        "trace={uuid} span={hex16} done",
    ),
    "git sha": (
        "commit {hex40}\nAuthor: Jane <jane@example.com>", "HEAD is now at {hex7} Mend the basket",
        "index {hex10}..{hex10} 100644", "uses: actions/checkout@{hex40}  # v4", "[main {hex7}] Mend the basket",
    ),
    "image": (
        '<img src="data:image/png;base64,{image}">', "url(data:image/svg+xml;base64,{svg})", "src = '{image}'",
    ),
    "lock file": (
        '"integrity": "sha512-{b64of64}"', "    --hash=sha256:{hex64} \\", 'checksum = "{hex64}"',
        "golang.org/x/net v0.20.0 h1:{b64of32}=", 'resolved "https://registry.yarnpkg.com/left-pad/-/left-pad-1.3.0.tgz#{hex40}"',
        '{{file = "shop-1.0.tar.gz", hash = "sha256:{hex64}"}}', 'sha256 = "{b32of52}";', "  image: shop@sha256:{hex64}",
    ),
    "numbers": (
        "container {hex12} started", "etag: \"{hex32}\"", "x-amz-request-id: {upper16}", "build-{digits10}-{hex8}.log",
        "key: linux-pip-{hex64}", "cache-key: node-{hex16}",
    ),
}  # fmt: skip
_CODE = (
    'token = os.environ["{NAME}"]', 'password = os.getenv("{NAME}", "")', "apiKey: process.env.{NAME},",
    "const token = process.env.{NAME} ?? '';", "password: ${{{NAME}}}", 'token: "${{{{ secrets.{NAME} }}}}"',
    "export {NAME}=$(pass show shop/{name})", "Authorization: Bearer ${NAME}", "secret = settings.{NAME}",
    '{name} = request.headers.get("x-{name}-1")', "{name}: string | undefined;", "def login(user: str, {name}: SecretStr) -> User:",
    "self.{name}_tokens = tokens_of({name})", "if not verify_password({name}, user.password_hash2):",
    "const {{ {name}, setToken }} = useAuth();", "password=self.config.{name}_password", "auth = HTTPBasicAuth(user, {name})",
    "tokens = tokenizer.encode({name}1)", "password_field = forms.CharField(widget=PasswordInput2)",
    'assert response.json()["token"] == expected_{name}', "key = f\"{{prefix}}:{{{name}_id}}\"",
    "secretKeyRef:\n  name: {name}-secrets\n  key: {name}", "vault kv get -field={name} secret/shop2/{name}",
    "$password = $_POST['{name}'];", "password := cfg.{NAME}2", "let token = &args[{digits1}];",
    "private_key_path = /etc/ssl/private/{name}2.pem", 'secret_name = "{name}/prod/db-2"', "token_type: bearer{digits1}x",
    "--token-file /run/secrets/{name}_2", "password_hash = bcrypt.hashpw({name}.encode(), salt2)",
    "public_key = load_key('{name}_2.pub')", "access_key_id_column: str = 'k{digits1}'",
)  # fmt: skip
_DOCS = (
    "{NAME}=your-{name}-here-123", 'password: "<your password 1>"', "export {NAME}=xxxxxxxxxxxxxxxxxxxx",
    "Authorization: Bearer <your {name} here>", "{NAME}=changeme123", "token: YOUR_{NAME}_TOKEN_1", "{NAME}=***********",
    "postgres://user:password@localhost:5432/shop", "psql postgresql://postgres:postgres@localhost/{name}",
    "https://user:pass@example.com/{name}.git", "mysql -u root -p {name}2", "redis://localhost:6379/{digits1}",
    "the {name} must have at least 8 characters, 1 digit and 1 sign", "set `{NAME}` to the token of step 2",
    "pass --password-stdin, not --password", "a token is 40 characters long; {name} tokens begin with `gh" + "p_`",
    "-----BEGIN CERTIFICATE-----\n{b64of64}\n-----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----\n{b64of64}\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64of32} jane@laptop", "token: [redacted]", "gh" + "p_" + "x" * 36,
    "AK" + "IAIOSFODNN7EXAMPLE", "sk-" + "X" * 32, "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "max_tokens: {digits4}000", "tokens used: {digits4},{digits3} of 200,000", "author: jane{digits4}doe", "authority: {name}1.example.com",
)  # fmt: skip
_TEXT = (
    "src/auth/tokens.py:{digits2}: in refresh_{name}", '<div class="sk-fading-circle-{digits2} sk-container-wrapper">',
    "task-runner-for-many-small-and-large-{name}-jobs-{digits2}", "pip install scikit-learn=={digits1}.5.{digits1}",
    "git@example.com:shop/{name}.git", "http://localhost:{digits4}/a?b=c@d", "npm_config_registry=https://registry.example.org",
    "hf_hub_download(repo_id, '{name}_model_{digits2}.bin')", "KeyError: '{name}_token_{digits2}'", "assert total == {digits3}",
    "ERROR 1045 (28000): Access denied for user '{name}'@'localhost' (using password: YES)", "auth: ok, tokens: {digits4}",
    "  ✓ keeps the password field masked ({digits2} ms)", "2026-01-02 03:04:05 INFO token refreshed for user {digits4}",
    "font-family: Inter; src: url(/static/{hex8}.woff2)", "cookie: accepted {digits2} of {digits3}", "Set the cookie banner's text",
    "import {{ createHash }} from 'node:crypto';  // {name}", "SELECT id, password_hash FROM users WHERE id = {digits3};",
    "arn:aws:iam::123456789012:role/{name}-{digits2}", "eyJ is how a JSON Web Token begins", "{{ \"kind\": \"Secret\", \"type\": \"Opaque\" }}",
)  # fmt: skip
# What the rules for lines, pairs and commands could take for theirs.
_HARMLESS = (
    'PASSWORD=os.environ["{NAME}"]', "PASSWORD=get_password({digits1})", 'DB_PASSWORD=config["db"]["{name}"]', "TOKEN=$(pass show {name})",
    "export {NAME}=${{OTHER_{NAME}}}", "{NAME}=$OTHER_{NAME}", "{NAME}=prefix-${{{name}}}-{digits2}", "{NAME}=`cat {name}`", "{NAME}=<your-{name}-{digits2}>",
    "password = get_password()", "    PASSWORD=load_secret(\n        '{name}',\n    ),", "{NAME}=${{{{ secrets.{NAME} }}}}", "{NAME}={{{{ .Values.{name}2 }}}}",
    "ENV {NAME}_FILE=/run/secrets/{name}_{digits1}", "PASSWORD_MESSAGE=\"Use at least {digits1} characters, please\"",
    'ERROR_PASSWORD="The password needs {digits1} signs"', "{NAME}=\nPORT={digits4}\nHOME=/root", "SECRET_NAME={name}-{digits2}",
    "services:\n  {name}:\n    image: {name}:{digits1}\n    env_file: .env\n    ports: ['{digits4}:80']",
    "- name: {NAME}\n  valueFrom:\n    secretKeyRef:\n      name: {name}\n      key: token{digits1}", "- name: PORT\n  value: '{digits4}'",
    '{{"name": "token", "value": "string"}}', '{{"name": "password", "value": ""}}', '{{"name": "{name}-key", "type": "k{digits3}x"}}',
    "diff --git a/{name}.py b/{name}.py\n@@ -1 +1 @@\n-    token = None\n+    token = self.tokens[{digits1}]\n",
    "diff --git a/.env.example b/.env.example\n+{NAME}=\n+DB_PASSWORD=changeme{digits1}\n",
    "docker run --user 1000:1000 {name}:{digits2}", "docker compose run --user www-data:www-data {name}", "ssh login{digits1}.example.com -p 2222",
    "curl --user $USER:$PASS https://example.com/{name}", "docker login --password-stdin -u {name}{digits2}", "mkdir -p mongo/{name}{digits2}",
    "each row is identified by its id, {name}{digits2}", "identified by 'name' and `{name}`", "IDENTIFIED BY ?", "https://{name}-team@dev.azure.com/{name}/_git/shop",
    "git@github.com:{name}/{hex40}.git", "authorization: required for /{name}/{digits3}", "authorization = check(request, {digits4})",
    "if (a) {{ x = 1;password=props.password;y = 2 }}", "for(i=0;pwd=next();i++)", "\x1b[32mPASS\x1b[0m tests/{name}.test.ts ({digits2} ms)",
    "\x1b[1mtoken\x1b[0m \x1b[33m{name}\x1b[0m", "the key and its value: {name}{digits2}", "auth, value={name}", "SESSION_KEY=session_key",
)  # fmt: skip
# What test runners print: a name that passed is no password.
_RESULTS = (
    "--- PASS: TestBasket (0.00s)", "    --- PASS: TestBasket/empty_{name}_{digits2} (0.01s)", "--- PASS: Test{name}Login/v{digits1}",
    "--- FAIL: TestAuth/password=hunter{digits2}x (0.00s)", "=== RUN   TestAuth/token:_valid_jwt{digits1}",
    "--- SKIP: TestSecrets/api_key:x{digits2}fQ2vLm (0.00s)", "=== CONT  TestToken/auth={name}{digits3}",
    "PASS: tests/{name}_{digits1}.sh", "PASS: test_{name}_v{digits1}.log", "XPASS: tests/login_{digits2}", "PASS: {name}Test::testToken{digits1}",
    "# PASS:  {digits3}", "# pass {digits2}", "PASS={digits4} FAIL=0 ERROR=0", "PASS_COUNT={digits4}{digits3}", "pass_rate: 0.{digits10}",
    "pass-rate = {digits2}.25percent", "passRate: {digits2}.5abc", "passed={digits4}{digits4} failed=0", "Passed: {digits2}, Failed: 0",
    " PASS  src/{name}.test.tsx ({digits1}.123 s)", "PASS   src/auth/token{digits1}.test.ts", "  ✓ auth: login-v{digits1} works ({digits2} ms)",
    "ok {digits2} - pass: keeps token{digits1} fresh", "ok {digits1} auth::v2::refresh_{name}", "not ok {digits1} - password: rejects {digits2}-character input",
    "test auth::tests::v{digits1}_token ... ok", "test token::v2::expires_after_{digits1}h ... FAILED", "[  PASSED  ] {digits2} tests.",
    "[       OK ] AuthTest.Token{digits1} (0 ms)", "tests/test_auth.py::test_token[v{digits1}-refresh] PASSED [ 50%]", "pass: test_{name}_{digits1}",
    '"pass": true, "total": {digits2}', "result: pass/{digits4}{digits4}", "status=pass duration{digits1}={digits2}",
)  # fmt: skip
# Code in which a name is given a type, an address, a member or a call, in several languages.
_EXPRESSIONS = (
    "SubagentTokens: &agent.TokenUsage{{", "    Token: &oauth2.Token{{AccessToken: tok{digits1}}},", "password := &cfg.Password{digits1}",
    "Secret: &corev1.SecretKeySelector{{", "let token = &self.tokens{digits1};", "auth := &http2.Transport{{}}", "let token = &mut {name}.token{digits1};",
    "inputTokens: response.usage?.input_tokens,", "const {name}Tokens = event.data?.batch{digits1}Tokens as", "tokens: session?.usage!.input{digits1},",
    "const auth = !er.headers{digits1}", "  {digits3} │ + → → totalTokens:·d.runningTotalTokens·as·number,", "token = Auth::Token{digits1}::new",
    "password: Uint8Array;", "token: Float32Array | null", "tokens: uint64_t", "secret: Option<[u8; 32]>,", "apiKey: base64url-encoded", "auth: OAuth2Client",
    "key: HmacSha256Signer", "authToken: Ed25519PublicKeyBytes", "credentials: X509Certificate2Collection", "const authToken = nextToken{digits1};",
    "let password = userPassword{digits1}", "self.token = token_v{digits1}", "this.auth = authHelper{digits1};", "auth: SOCKS5_CUSTOM_AUTH_START",
    "exports.SOCKS5_AUTH = SOCKS5_AUTH_V{digits1};", "const UNEXPECTED_TOKEN = /^Unexpected token '{digits1}'/", "token: /^gh[pousr]_/",
    "private final String token = config.getToken{digits1}();", 'String password = System.getenv("{NAME}{digits1}");',
    '@Value("${{app.jwt.secret{digits1}}}") private String jwtSecret;', "authToken: z.string().min({digits2})", "accessToken: Promise<Token{digits1}>;",
    "pub auth: Arc<dyn Auth{digits1}>,", "token: impl Into<Token{digits1}Type>,", "fn token(&self) -> &Token{digits1} {{",
    "let secret: SecretBox<Token{digits1}> = args.secret{digits1}.clone();", 'Password string `json:"password{digits1}"`', "token, err := jwt.ParseV{digits1}(raw)",
    "$token = $this->tokens{digits1}->find($id);", "password => $cfg->{{password{digits1}}},", "@token = Token{digits1}.find_by(auth: params[:auth{digits1}])",
    "CancelToken: CancelToken{digits1},", "withCredentials: defaultToConfig{digits1},", "const cookie = [`${{name}}=${{encodeURIComponent(value)}}`];",
    "* 认证失败（lastAuthFailure=true）：使用 auth{digits1}", "'{{{{tokens}}}} tokens': '总计：{{{{tokens}}}} 个',",
    "render_pass: RenderPass{digits1}D", "shadow_pass = shaders/shadow{digits1}.glsl", "compiler_pass: loop-unroll-{digits1}", "two_pass: x264_2pass",
    'publicKeyToken="{hex16}"', "token=0x7ffe{digits4}abcd", 'SECRET = "%(secret{digits1})s"', "token = strtok_r(NULL, sep{digits1}, &save);",
)  # fmt: skip
# Settings that say where a secret is to be had, versions and sizes, prose about secrets.
_SETTINGS = (
    "existingSecret: shop-postgresql-{digits1}", "imagePullSecret: regcred-v{digits1}", "tlsSecret: web-tls-{digits1}", "secretName: shop-tls-{digits1}",
    "env:\n  - name: {NAME}\n    valueFrom:\n      secretKeyRef:\n        name: {name}-{digits1}\n        key: password{digits1}",
    "password: ${{{{ secrets.{NAME}_{digits1} }}}}", "token: ${{{{ github.token }}}}", "{NAME}: $(NPM_TOKEN_{digits1})", "secrets: inherit",
    "  {NAME}: !Ref ApiToken{digits1}", "password: !secret wifi_password{digits1}", "password: !vault |", "token: {{{{ .Values.auth.token{digits1} }}}}",
    'password: "{{{{ vault_{name}_password{digits1} }}}}"', "secret: op://vault/item{digits1}/password", "password: vault:secret/data/{name}#password{digits1}",
    "token: arn:aws:secretsmanager:eu-west-1:{digits10}:secret:{name}-{digits1}", "password = var.{name}_password{digits1}",
    "token = data.vault_generic_secret.{name}{digits1}.data", 'private_key = file("~/.ssh/id_{digits1}")', '"js-tokens": "^4.0.0-beta.{digits1}",',
    '"passwd-user": "^3.0.{digits1}",', '"passport-auth": "~0.7.0-rc.{digits1}",', "token_created: 2026-01-02T03:04:05Z", "session_key_rotated: 2026-01-02",
    "tokens: {digits2}.20tok/s", "tokens={digits4}{digits3}k/200k", "secret_len={digits2}bytes", "auth: src/auth{digits1}.ts:{digits2}:5",
    "token: tests/Token{digits1}Test.java", "password_test: ./lib/Auth{digits1}.tsx", "passphrase: {digits2}-word mnemonic", "password: the user's password",
    "password: at least {digits1} characters", "secret: see docs/secrets{digits1}.md", "token: the JWT{digits1} of the caller", "secret: base64-encoded value",
    "auth: oauth2-proxy", "auth: use argon2id for passwords", "auth: sha256-based tokens", "auth: token{digits1} expired", "credentials=[PROTECTED]",
    "password=[FILTERED]", "password: [a-z0-9]{{8,{digits2}}}", "urn:ietf:params:oauth:grant-type:jwt-bearer{digits1}", '"auth0": "types-auth0-python",',
    "machine {{host}} login {{self.username}} password {{self.password}}", "perldoc -u Some::Module{digits1}", "| password | string{digits1} | the password |",
    "curl -b cookies{digits1}.txt https://example.com", "curl --cookie $COOKIE{digits1} https://example.com", "over http -a and -b: {digits2}",
    "aws configure set region eu-west-{digits1}", "define('TOKEN_TTL', '{digits4}');", "define( 'AUTH_KEY', 'put your unique phrase here' );",
    "token: |\n  the words of\n  a block", "password: >-\n  see the vault for it\n", "set -x fish_color_{digits1} {name}{digits1}", "openssl req -passin pass:$PASS{digits1}",
    "Authorization: Bearer a-very-secret-token", '"Authorization": "Bearer your-{name}-token",', '$env:{NAME}="C:\\path\\to\\{name}{digits1}.json"',
    '"ipcToken": "c0ffee…{digits2} hex…"', '"ANTHROPIC_API_KEY": "sk' + "-ant-" + 'your-actual-anthropic-key-{digits1}-here"',
    "const KEY_NAME: &str = \"{name}-{digits1}\";", "the token = `{name}`, say", "src=\"{base64run}\"",
)  # fmt: skip
_WORDS = ("github", "stripe", "database", "session", "billing", "search", "mail", "deploy", "upload", "admin")


def _material(make: Maker) -> dict[str, str]:
    chance, some = make.chance, make.some
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + chance.randbytes(300)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{chance.randrange(99)}"><path d="M{chance.random()}z"/></svg>'
    )
    name = chance.choice(_WORDS)
    return {
        **{f"hex{size}": some(size, HEX) for size in (7, 8, 10, 12, 16, 32, 40, 64)},
        **{f"digits{size}": "".join(chance.choices(string.digits[1:], k=size)) for size in (1, 2, 3, 4, 10)},
        **{f"b64of{size}": base64.b64encode(chance.randbytes(size)).decode().rstrip("=") for size in (32, 64)},
        "b32of52": some(52, string.ascii_lowercase + "234567"),
        "upper16": some(16, UPPER),
        "uuid": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "image": base64.b64encode(png).decode(),
        "base64run": "iVBOR/EAA" + some(70) + "/+LTAI" + some(30) + "/aa",  # holds the beginnings of tokens by chance
        "svg": base64.b64encode(svg.encode()).decode(),
        "name": name,
        "NAME": f"{name.upper()}_TOKEN",
    }


MUST_STAY = {"results": _RESULTS, "expressions": _EXPRESSIONS, "settings": _SETTINGS}


def negatives() -> list[tuple[str, str]]:
    """At least three hundred: kind and text."""
    make = Maker(11)
    made = [
        (kind, template.format(**_material(make)))
        for kind, templates in _MADE.items()
        for template in templates
        for _ in range(5)
    ]
    for kind, templates, times in (
        ("code", _CODE, 3),
        ("docs", _DOCS, 2),
        ("text", _TEXT, 2),
        ("harmless", _HARMLESS, 2),
        *((kind, templates, 1) for kind, templates in MUST_STAY.items()),
    ):
        made += [(kind, template.format(**_material(make))) for template in templates for _ in range(times)]
    return made
