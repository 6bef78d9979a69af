"""Shapes of secrets and of what only looks like one, read from `tests/support/shapes` and filled when they are asked for.

No key stands in those files: `«kind»` is replaced by letters by chance, always the same ones, and so is `‹kind›`, which is no secret. `⟦…⟧` is an
invented password, which stays as it stands. The shapes of a tool or a
language are a family, and a family is either seen or held out, as the hash of its name decides. The rules were made with
the seen ones at hand; how well they do on the others says what to expect of shapes that nobody thought of.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.domain.records import Event, ToolUsed
from tests.support.secret_corpus import HEX, LETTERS, UPPER, URLSAFE, Maker, pieces

FOLDER = Path(__file__).parent / "shapes"
_HEAD = re.compile(r"^=== (?P<family>[^/\n]+) / (?P<label>[^\n\[]+?)(?P<json> \[json\])?\n", re.MULTILINE)
_MARK = re.compile(r"[«‹]([a-zA-Z]+)(\d*)[»›]|⟦([^⟧\n]+)⟧")


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape, filled: what a tool was given and answered, and what must not be left of it."""

    family: str
    label: str
    body: ToolUsed
    secrets: tuple[str, ...]

    @property
    def held_out(self) -> bool:
        return hashlib.sha256(self.family.encode()).digest()[0] % 2 == 1

    def cleaned(self) -> ToolUsed:
        event = Event(id="e1", host="claude", content_session_id="s1", at=0, body=self.body)
        body = sanitize.clean_event(event, Config()).body
        assert isinstance(body, ToolUsed)
        return body

    def leaks(self) -> bool:
        kept = json.dumps([self.cleaned().input, self.cleaned().output], ensure_ascii=False)
        return any(piece in kept for secret in self.secrets for piece in pieces(secret))

    def altered(self) -> bool:
        return self.cleaned() != self.body


def read(name: str, seed: int = 0) -> list[Shape]:
    """Return the shapes of a file, filled with letters by chance."""
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [_shape(head, text[head.end() : end], seed) for head, end in zip(heads, ends, strict=True)]


def _shape(head: re.Match[str], text: str, seed: int) -> Shape:
    make = Maker(int(hashlib.sha256(f"{seed} {head[0]}".encode()).hexdigest()[:8], 16))
    secrets: list[str] = []

    def fill(mark: re.Match[str]) -> str:
        made = mark[3] or _MADE[mark[1]](make, int(mark[2] or 0))
        secrets.extend([made] * (mark[0][0] != "‹"))
        return made

    value: Any = _MARK.sub(fill, text.removesuffix("\n"))
    if head["json"]:
        value = json.loads(value)
    command = value.pop("command", "make") if isinstance(value, dict) else "make"
    output = value if head["json"] else {"stdout": value, "stderr": ""}
    return Shape(head["family"], head["label"], ToolUsed("Bash", {"command": command}, output), tuple(secrets))


def _letters(make: Maker, count: int) -> str:
    """Letters alone, in both cases: a token without a digit."""
    return "".join(make.chance.choices(string.ascii_letters, k=count or 24))


def _base64(make: Maker, count: int) -> str:
    return base64.b64encode(make.chance.randbytes(count)).decode()


def _wrapped(make: Maker, _: int) -> str:
    return base64.b64encode(make.password().encode()).decode()


def _human(make: Maker, _: int) -> str:
    """A password as people make them: mostly words."""
    one, two, number = make.chance.choice(_WORDS), make.chance.choice(_WORDS), str(make.chance.randrange(10, 9999))
    kinds = (
        f"{one.title()}{number}!",
        f"{one}{number}",
        f"{one}-{two}-{number}",
        f"{one[:3]}4{two.title()}_{number}",
        make.some(16),
    )
    return make.chance.choice(kinds)


def _titled(make: Maker, _: int) -> str:
    """A password of capitalized words, a number and different joints."""
    one, two = (make.chance.choice(_WORDS).title() for _ in range(2))
    number = make.chance.randrange(100, 999)
    kinds = (
        f"{one}-{two}-{number}!",
        f"{one}_{two}.{number}",
        f"{one}{number}{two}{number}",
        f"{one}{two.lower()}{number}!",
    )
    return make.chance.choice(kinds)


def _compound(make: Maker, _: int) -> str:
    return "".join(make.chance.sample(_WORDS, k=2))


def _joined(make: Maker, _: int) -> str:
    """A password of two words, without a number."""
    one, two = make.chance.sample(_WORDS, k=2)
    kinds = (f"{one.title()}_{two}", f"{one}-{two.title()}", f"{one.title()}.{two.title()}", f"{one}{two.title()}")
    return make.chance.choice(kinds)


def _jwt(make: Maker, _: int) -> str:
    return ".".join(
        (make.coded({"alg": "HS256", "typ": "JWT"}), make.coded({"sub": make.some(9)}), make.some(43, URLSAFE))
    )


_WORDS = (
    "abandon",
    "ladder",
    "orbit",
    "velvet",
    "cactus",
    "wisdom",
    "tunnel",
    "gravity",
    "lemon",
    "puzzle",
    "rocket",
    "shadow",
    "timber",
    "violin",
)
_MADE: dict[str, Callable[[Maker, int], str]] = {
    "human": _human,
    "titled": _titled,
    "weak": lambda make, _: make.chance.choice(_WORDS) + str(make.chance.randrange(10, 99)),
    "compound": _compound,
    "joined": _joined,
    "bitlocker": lambda make, _: "-".join(make.some(6, string.digits) for _ in range(8)),
    "seed": lambda make, count: "".join(make.chance.choices(string.ascii_uppercase + "234567", k=count)),
    "strong": lambda make, count: make.some(count, LETTERS + "!#*+-_.^~%"),
    "lower": lambda make, count: "".join(make.chance.choices(string.ascii_lowercase, k=count)),
    "url": lambda make, count: make.some(count * 4 // 3, URLSAFE),
    "escaped": lambda make, count: quote(make.some(count) + "@/#9", safe=""),
    "jwt": _jwt,
    "pw": lambda make, _: make.password(),
    "tok": lambda make, count: make.some(count or 32),
    "let": _letters,
    "signs": lambda make, _: make.some(48, LETTERS + "!#%^&*()-_=+@"),
    "hex": lambda make, count: make.some(count, HEX),
    "HEX": lambda make, count: make.some(count, HEX.upper()),
    "upper": lambda make, count: make.some(count, UPPER),
    "low": lambda make, count: make.some(count, string.ascii_lowercase + "023456789"),
    "digits": lambda make, count: make.some(count, string.digits),
    "uuid": lambda make, _: str(uuid.UUID(int=make.chance.getrandbits(128), version=4)),
    "bof": _base64,
    "basic": lambda make, _: base64.b64encode(f"jane:{make.password()}".encode()).decode(),
    "wrapped": _wrapped,
    "bline": lambda make, _: make.some(64, LETTERS + "+/"),
    "bcrypt": lambda make, count: make.some(count, LETTERS + "./"),
    "words": lambda make, count: " ".join(make.chance.sample(_WORDS, k=count)),
    "passphrase": lambda make, count: "-".join(make.chance.sample(_WORDS, k=count)),
    "colonhex": lambda make, _: ":".join(make.some(2, HEX) for _ in range(15)) + ":",
    "bytes": lambda make, count: ",".join(str(make.chance.randrange(256)) for _ in range(count)),
}
