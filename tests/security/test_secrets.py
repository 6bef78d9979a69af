"""How well secrets are kept out, in figures; that it takes no longer than the text is long; and that none is anywhere.

The figures go to `make proof`. The corpus is made here, at this moment: see tests/support/secret_corpus.py.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from claude_mem.client import Client
from claude_mem.config import Config
from claude_mem.domain.records import ToolUsed
from claude_mem.privacy import files
from claude_mem.privacy import secret_rules as rules
from claude_mem.privacy.secrets import redact
from tests.models.server import Mirror, Server
from tests.storage.test_portable import observation
from tests.support import proof, secret_corpus
from tests.support.embedder import FakeEmbedder
from tests.support.growth import LIMIT, growth
from tests.support.lab import Lab
from tests.support.moving import write
from tests.support.refining import place
from tests.support.secret_corpus import Maker
from tests.worker.test_mcp import ask as ask_tool
from tests.worker.test_reconcile import Transcript

if TYPE_CHECKING:
    from array import array

COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/security/test_secrets.py"


def note(name: str, *, of: str = "P1", goal: str, measured: Any, ok: bool, unit: str = "", note: str = "") -> None:
    proof.record(name, of=of, goal=goal, measured=measured, ok=ok, unit=unit, command=COMMAND, note=note)


# --- recall and false alarms -----------------------------------------------------------------------------------------


def test_of_the_known_formats_nearly_all_are_found_wherever_they_stand() -> None:
    cases = secret_corpus.positives(20 if proof.long() else 1)
    kinds, contexts = {case.kind for case in cases}, {case.context for case in cases}
    assert len(kinds) >= 30
    assert len(contexts) >= 10
    missed = [(case.kind, case.context) for case in cases if case.leaks(redact(case.text))]
    recall = 100 * (1 - len(missed) / len(cases))
    about = f"{len(cases)} texts: {len(kinds)} formats in {len(contexts)} contexts"
    note(
        "secrets found: known formats", goal="≥ 99 %", measured=round(recall, 2), unit="%", ok=recall >= 99, note=about
    )
    assert recall >= 99, missed


def test_of_values_that_only_their_name_gives_away_most_are_found() -> None:
    cases = list(secret_corpus.assignments())
    missed = [case.text for case in cases if case.leaks(redact(case.text))]
    recall = 100 * (1 - len(missed) / len(cases))
    note(
        "secrets found: key=value",
        goal="≥ 90 %",
        measured=round(recall, 2),
        unit="%",
        ok=recall >= 90,
        note=f"{len(cases)} texts",
    )
    assert recall >= 90, missed


def test_where_the_place_gives_it_away_any_sign_may_be_in_it() -> None:
    cases = list(secret_corpus.shaped())
    missed = [(case.context, case.text) for case in cases if case.leaks(redact(case.text))]
    recall = 100 * (1 - len(missed) / len(cases))
    about = f"{len(cases)} texts: lines of an environment, pairs, commands"
    note(
        "secrets found: by their place", goal="≥ 99 %", measured=round(recall, 2), unit="%", ok=recall >= 99, note=about
    )
    assert recall >= 99, missed


def test_what_only_looks_like_a_secret_is_hardly_ever_changed() -> None:
    texts = secret_corpus.negatives()
    assert len(texts) >= 300
    changed = [text for _, text in texts if redact(text) != text]
    share = 100 * len(changed) / len(texts)
    note(
        "innocent texts changed",
        goal="≤ 1 %",
        measured=round(share, 2),
        unit="%",
        ok=share <= 1,
        note=f"{len(texts)} texts",
    )
    assert share <= 1, changed


@pytest.mark.parametrize("kind", secret_corpus.MUST_STAY)
def test_results_expressions_and_settings_stay_as_they_are(kind: str) -> None:
    """Each by itself, all together, as a patch shows them, and as text of text."""
    texts = [text for of, text in secret_corpus.negatives() if of == kind]
    assert len(texts) >= 30
    assert [text for text in texts if redact(text) != text] == []
    whole = "\n".join(texts)
    assert redact(whole) == whole
    added = "\n".join(f"+{line}" for line in whole.split("\n"))
    assert redact(added) == added
    quoted = [json.dumps(text, ensure_ascii=False) for text in texts]
    assert [text for text in quoted if redact(text) != text] == []


def test_what_is_clean_stays_as_it_is() -> None:
    """Scrubbing twice changes nothing."""
    cases = [*secret_corpus.positives(), *secret_corpus.assignments(), *secret_corpus.shaped()]
    once = [redact(case.text) for case in cases]
    assert [text for text in once if redact(text) != text] == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("token secret=x9fQ2vLm77", "x9fQ2vLm77"),  # the first name's value is the second name
        ('password: str = "x9fQ2vLm77"', "x9fQ2vLm77"),
        ("CREATE USER shop WITH PASSWORD 'x9fQ2vLm77';", "x9fQ2vLm77"),
        ("mysql -h db -u shop -px9fQ2vLm77 shop", "x9fQ2vLm77"),
        ("curl -u jane:x9fQ2vLm77 https://example.com", "x9fQ2vLm77"),
        ("İ password=x9fQ2vLm77", "x9fQ2vLm77"),  # a letter that becomes two in lower case
        ("password%3Dx9fQ2vLm77", "x9fQ2vLm77"),
        ("https://jane:p@ss-w0rd@example.com/", "ss-w0rd"),
        ("PGPASSWORD=correcthorsebattery psql", "correcthorsebattery"),
    ],
)
def test_a_secret_in_an_odd_place_is_found_too(text: str, secret: str) -> None:
    assert secret not in redact(text)


def test_base64_of_a_whole_file_is_looked_into_even_if_it_is_folded() -> None:
    secret = "gh" + "p_" + Maker(3).some(36)
    plain = "\n".join(["# settings of the shop", "page = 2", f"thing = {secret}", *(f"line {n}" for n in range(9))])
    folded = base64.encodebytes(plain.encode()).decode()
    assert "[redacted base64]" in redact(f"$ base64 settings\n{folded}$ ")
    twice = base64.b64encode(base64.b64encode(plain.encode())).decode()
    assert redact(twice) == "[redacted base64]"
    innocent = base64.encodebytes(plain.replace(secret, "none").encode()).decode()
    assert redact(innocent) == innocent


# --- time ------------------------------------------------------------------------------------------------------------

UNITS = (
    "eyJ", "eyJ-", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJ-", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----", "sk-", "sk-a ",
    "password=", "password: ", "password='", "password: a=", "password >", "token", "token\\", "token    ", "auth", "auth_", "api_key",
    "key", "://", "://a:", "a:b@", "A", "SG.aaaaaaaaaaaaaaaa.", "authorization: bearer ", ":AA", "M.", "Maaaaaaaaaaaaaaaaaaaaaaaa.",
    "1", "=", ":", " ", "\n", "a", "_", "-", ".", "%41", "%", "a%41", "YWFhYWFhYWFhYWFhYWFhYWFhYWFh", "YWFhYWFhYWFhYWFhYWFhYWFh ",
    "aaaaaaaaaaaaaaaaaaaa\n", "Cookie: a=", "cookie ", "login a password ", "mysql ", "mysql -p", " -u", " -ua:", "sig=", "?sig=",
    "--password ", "<password>", "pass", "p" + "wd", "earer ", "Bearer a", "İ", "secret\n", "/", "~/", "a/b",
    "\nDB_PASSWORD=", "\nDB_PASSWORD=a(", "\nDB_PASSWORD='a ", "\nDB_PASSWORD=a,", "DB_PASSWORD=", '"PASSWORD=', "PASSWORD value: ",
    "PASSWORD, value", "PASSWORD\n", ";Password=", ";Password=a1", "IDENTIFIED BY ", "identified by '", "curl --user ", "curl --user a:",
    "docker login -p", "docker login ", "mongo -u ", "mongo -u a -p", "redis-cli ", "ldap -w", "\x1b[0m", "a\x1b[0m", "\\u001b[", "\x1b[",
    "https://a1B", "://0123456789abcdef", "authorization: a1", "authorization: 1111", ' Signature=', 'password: "a\\"', "gh secret set ",
)  # fmt: skip


def shapes(literal: str, size: int) -> Iterator[str]:
    """A rule's own literal, in all the ways that could make it look again and again at the same text."""
    for unit in (
        literal,
        f"{literal}a",
        f"{literal}1",
        f"{literal} ",
        f"{literal}{'a1' * 12}",
        f"a{literal}",
        f"{literal}=",
    ):
        yield unit * (size // len(unit))
    for rest in ("a", "1", "-", " ", "a=", "A:"):
        yield literal + rest * (size // len(rest))


def test_no_rule_takes_more_than_twice_the_time_for_twice_the_text() -> None:
    size = 50_000 if proof.long() else 20_000
    *tokens, last = rules.TOKEN_RULES  # of the many that are a beginning and letters, the last stands for all
    tried = [rule for rule in (*tokens, *rules.TEXT_RULES, *rules.IDIOM_RULES) if rule[1] not in rules.PREFIXES] + [
        last
    ]
    grown = {
        (literal, text[:30]): growth(partial(pattern.sub, ""), text)
        for _, literal, pattern in tried
        for text in shapes(literal, size)
    }
    worst = max(grown, key=lambda at: grown[at])
    about = f"{len(tried)} rules, {len(grown)} hostile texts of {size:,} characters; the worst: {worst}"
    ok = grown[worst] <= LIMIT
    note(
        "a rule's time for twice the text",
        of="I4",
        goal="≤ 2.5 ×",
        measured=round(grown[worst], 2),
        unit="×",
        ok=ok,
        note=about,
    )
    assert ok, about


def test_all_rules_together_take_no_more_than_twice_the_time_for_twice_the_text() -> None:
    size = 200_000 if proof.long() else 20_000
    grown = {unit: growth(redact, unit * (size // len(unit))) for unit in UNITS}
    worst = max(grown, key=lambda unit: grown[unit])
    about = f"{len(UNITS)} hostile texts of {size:,} characters; the worst: {worst!r}"
    ok = grown[worst] <= LIMIT
    note(
        "the time to redact twice the text",
        of="I4",
        goal="≤ 2.5 ×",
        measured=round(grown[worst], 2),
        unit="×",
        ok=ok,
        note=about,
    )
    assert ok, about


COMMAND_UNITS = (
    "'", '"', "\\", "$(", "`", "<<A\n", "<<A ", "cat <<A <<B\n", ";", "cat .env;", ".env ", "a=", "> .env ", "tee .env|", ".", "\n", "a\n",
    "sed -i .env ", "{a,", "*", "--key ", "grep -e ", '"$(a ', "find -exec ", "xargs ", "${A}", "source .env;echo $",
)  # fmt: skip
OUTPUT_UNITS = (
    "diff ", "diff --git a/.env b/.env\n", "--- a\n+++ b\n", "--- ", ".env:1:a\n", ".env-1-a\n", "a-1-", "-1", ":", "a:", "==> ", ".env\n1:a\n",
    "commit 0123456\n", "\x1b[0m", "\x1b[", "\n", "a", "a\n", "/", ".ssh/", "/secrets", ".env.", "*",
)  # fmt: skip


def test_what_withholds_files_takes_no_more_than_twice_the_time_for_twice_the_text() -> None:
    size = 100_000 if proof.long() else 10_000
    ways: dict[str, Callable[[str], object]] = {
        "command": lambda text: files.withhold_content(ToolUsed("Bash", {"command": text}, "fine")),
        "path": lambda text: files.withhold_content(ToolUsed("Read", {"file_path": text}, "fine")),
        "output": lambda text: files.withhold_content(ToolUsed("Bash", {"command": "make"}, text)),
        "aside": files.mentions_withheld_file,
    }
    grown = {
        (way, unit): growth(work, unit * (size // len(unit)))
        for way, work in ways.items()
        for unit in (COMMAND_UNITS if way == "command" else OUTPUT_UNITS)
    }
    worst = max(grown, key=lambda at: grown[at])
    about = f"{len(grown)} hostile commands, paths and outputs of {size:,} characters; the worst: {worst}"
    ok = grown[worst] <= LIMIT
    measured = round(grown[worst], 2)
    note("the time to withhold twice the text", of="I4", goal="≤ 2.5 ×", measured=measured, unit="×", ok=ok, note=about)
    assert ok, about


def milliseconds_for_a_megabyte(work: Callable[[str], object]) -> float:
    """On text as it usually is: our own source and docs."""
    root = Path(__file__).parents[2]
    texts = [path.read_text("utf-8") for folder in ("src", "docs") for path in (root / folder).rglob("*.[pm][yd]")]
    took = []
    for _ in range(3):
        begin = time.process_time()
        for text in texts:
            work(text)
        took.append(time.process_time() - begin)
    return round(min(took) * 1e9 / sum(map(len, texts)), 1)


def _search(literal: str, pattern: re.Pattern[str], text: str) -> bool:
    return literal in text and pattern.search(text) is not None


def test_no_rule_slows_down_what_has_no_secrets_in_it() -> None:
    """A figure, not a limit: how long it takes depends on who else is at work here."""
    if not proof.long():
        assert redact("no secret at all, only words") == "no secret at all, only words"
        return
    places = (*rules.TEXT_RULES, *rules.IDIOM_RULES)
    each = [milliseconds_for_a_megabyte(partial(_search, literal, pattern)) for _, literal, pattern in places]
    worst, together = max(each), milliseconds_for_a_megabyte(redact)
    note("one rule on ordinary text", of="I4", goal="≤ 50 ms/MB", measured=worst, unit="ms/MB", ok=worst <= 50)
    note(
        "all rules on ordinary text",
        of="I4",
        goal="–",
        measured=together,
        unit="ms/MB",
        ok=True,
        note="CPU time, as busy as the machine was",
    )
    assert worst < together * 2


# --- nowhere ---------------------------------------------------------------------------------------------------------


def forms(secret: str) -> dict[str, bytes]:
    """As it might lie in a file: of base64 the middle is the same wherever it begins, for one of three beginnings."""
    wrapped = {
        f"base64 at {at}": base64.b64encode(b"x" * at + secret.encode())[4 if at else 0 : -4].rstrip(b"=")
        for at in range(3)
    }
    wide = {name: secret.encode(name) for name in ("utf-16-le", "utf-16-be")}
    return {
        "raw": secret.encode(),
        "lower": secret.lower().encode(),
        **wrapped,
        **wide,
        "hex": secret.encode().hex().encode(),
    }


def found_in(folder: Path, secrets: list[str]) -> list[tuple[str, str]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    held = {path: path.read_bytes() for path in files}
    return [
        (path.name, f"{form} of {secret[:6]}…")
        for path, content in held.items()
        for secret in secrets
        for form, needle in forms(secret).items()
        if needle in content or (form == "lower" and needle in content.lower())
    ]


class Canaries:
    """A fresh one for every place it is put, so that a leak says where it came from."""

    def __init__(self) -> None:
        self.make = Maker(99)
        self.all: list[str] = []

    def token(self) -> str:
        self.all.append("gh" + "p_" + self.make.some(36))
        return self.all[-1]

    def password(self) -> str:
        self.all.append(self.make.some(20))
        return self.all[-1]

    def text(self) -> str:
        return f"the key is {self.token()} and DB_PASSWORD={self.password()} as said"


def plant_turn(lab: Lab, canaries: Canaries, transcript: Transcript) -> None:
    """In a prompt, in what a tool was given and said, in last words, and in what only the transcript tells."""
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    lab.spool("UserPromptSubmit", at=int(transcript.clock * 1000), prompt=f"Fix it: {canaries.text()}", **where)
    transcript.prompt("Fix it", "p1")
    tool = {
        "tool_name": "Bash",
        "tool_input": {"command": f"deploy --token {canaries.password()}", "password": canaries.password()},
    }
    lab.spool(
        "PostToolUse", at=int(transcript.clock * 1000) + 1, **tool, tool_response={"stdout": canaries.text()}, **where
    )
    path = str(lab.project / ".env")
    plain = canaries.password()
    read = {"tool_name": "Read", "tool_input": {"file_path": path}, "tool_response": f"thing {plain}"}
    lab.spool("PostToolUse", at=int(transcript.clock * 1000) + 2, **read, **where)
    edit = {"file_path": str(lab.project / "shop.py"), "old_string": "a", "new_string": f"key = '{canaries.token()}'"}
    lab.spool(
        "PostToolUse", at=int(transcript.clock * 1000) + 3, tool_name="Edit", tool_input=edit, tool_response={}, **where
    )
    transcript.call("c9", "Bash", result=canaries.text(), prompt="p1", command=f"cat notes {canaries.token()}")
    failed = {"tool_name": "Bash", "tool_input": {"command": "make"}, "error": f"KeyError: {canaries.token()}"}
    lab.spool("PostToolUseFailure", at=int(transcript.clock * 1000) + 4, **failed, **where)
    lab.spool("Stop", at=int(transcript.clock * 1000) + 5, last_assistant_message=f"Done. {canaries.text()}", **where)


class Attentive(FakeEmbedder):
    """Remembers every text it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def embed(self, given: Sequence[str]) -> list[array[float]]:
        self.given += given
        return super().embed(given)


def test_a_secret_that_was_told_is_in_no_file_and_in_no_request(tmp_path: Path) -> None:
    """A model that repeats what it was told can't give away what it never got; nor can one that makes vectors."""
    pytest.importorskip("numpy", reason="the extra `vectors` is not installed")
    canaries, embedder, vectors = Canaries(), Attentive(), 0

    async def all_of_it(server: Server) -> None:
        nonlocal vectors
        settings = {"provider": "anthropic", "anthropic_api_key": "k", "anthropic_base_url": server.url}
        async with place(tmp_path, chain=False, settings=settings, embedder=embedder) as there:
            plant_turn(there.lab, canaries, Transcript(tmp_path / "talk.jsonl"))
            there.lab.raw_spool(b"command save\nhost claude\n\n{broken " + canaries.text().encode())
            await there.digest()
            assert await there.refine() >= 1
            await there.digest()
            while await there.service.indexer.step():
                pass
            ((vectors,),) = [tuple(row.values()) for row in await there.rows("select count(*) from vectors")]
            assert (await there.service.event_account()).set_aside == 1
            # With its log and all else as it is while the worker runs.
            assert found_in(there.lab.data, canaries.all) == []

    echo = "<observation><type>change</type><title>Echo</title><narrative>{}</narrative></observation>"
    with Server(Mirror(lambda seen: echo.format(seen.prompt))) as server:
        asyncio.run(all_of_it(server))
        sent = "\n".join([*(seen.everything for seen in server.requests), *embedder.given])
    assert server.requests
    assert vectors
    left = found_in(tmp_path / "data", canaries.all)
    left += [
        ("sent", secret)
        for secret in canaries.all
        for form in forms(secret).values()
        if form.decode("utf-8", "replace") in sent
    ]
    about = f"{len(canaries.all)} canaries in prompt, tool, transcript, last words, broken record; 7 forms; {len(server.requests)} requests"
    about += f", {vectors} vectors of {len(embedder.given)} texts"
    note("canary bytes in files, vectors and requests", goal="0", measured=len(left), ok=not left, note=about)
    assert left == []
    assert list((tmp_path / "data" / "spool").iterdir()) == []


def plant_by_hand(lab: Lab, client: Client, canaries: Canaries) -> None:
    """By every other door: the API, the tools, a correction, an import, a question."""
    client.post("/api/memory/save", {"text": f"Remember {canaries.text()}", "title": f"Key {canaries.token()}"})
    said = {"contentSessionId": "x1", "project": "shop"}
    client.post("/api/sessions/init", {**said, "prompt": canaries.text()})
    used = {"tool_name": "Bash", "tool_input": {"command": canaries.token()}, "tool_response": canaries.text()}
    client.post("/api/sessions/observations", {**said, **used, "cwd": str(lab.project)})
    client.post("/api/sessions/summarize", {**said, "last_assistant_message": canaries.text()})
    client.post("/api/sessions/complete", said)
    ask_tool(lab, "save_memory", text=f"Told by an agent: {canaries.text()}")
    row = client.get("/api/observations")["items"][0]["id"]
    client.patch(f"/api/observation/{row}", {"narrative": canaries.text(), "facts": [canaries.token()]})
    client.patch(f"/api/observation/{row}", {"title": f"Again {canaries.token()}"})
    odd = observation(f"The key is {canaries.token()}", narrative=canaries.text(), facts=(canaries.token(),))
    lab.mem("import", str(write(lab.folder / "theirs.jsonl", [odd])))
    client.get("/api/search", query=canaries.token())
    client.post("/api/context/semantic", {"q": canaries.text(), "project": "shop"})
    lab.hook("UserPromptSubmit", prompt=canaries.text(), session_id="x2")


def test_a_secret_that_comes_in_by_hand_is_in_no_file_no_export_and_no_backup(lab: Lab) -> None:
    canaries = Canaries()
    lab.mem("start", CLAUDE_MEM_LOG_LEVEL="DEBUG")
    plant_by_hand(lab, lab.client(), canaries)
    lab.wait_digested()
    lab.mem("export", str(lab.data / "out.jsonl"))
    lab.mem("backup")
    left = found_in(lab.data, canaries.all)
    assert left == []
    assert b"[redacted github-token]" in (lab.data / "out.jsonl").read_bytes()
    about = f"{len(canaries.all)} canaries by API, tools, correction, import, question, hook; 7 forms; log level DEBUG"
    note("canary bytes in files, export and backup", goal="0", measured=len(left), ok=not left, note=about)


def test_the_hook_keeps_what_it_was_given_to_its_owner_until_it_is_taken_in(lab: Lab) -> None:
    """The one place where a secret lies as it came: the hook may not spend the time to look for any."""
    lab.no_worker()
    secret = Canaries().token()
    lab.hook("UserPromptSubmit", prompt=f"the key is {secret}")
    (waiting,) = list((lab.data / "spool").iterdir())
    assert secret.encode() in waiting.read_bytes()
    assert [path.stat().st_mode & 0o777 for path in (waiting, waiting.parent, lab.data)] == [0o600, 0o700, 0o700]
    lab.mem("drain")
    assert found_in(lab.data, [secret]) == []


def test_a_full_disk_leaves_no_secret_among_what_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from claude_mem.capture import sanitize
    from claude_mem.system import spool as spools

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    spool = spools.Spool(tmp_path / "spool", tmp_path / "aside")
    secret = Canaries().token()
    name = spool.put({"command": "save"}, f"broken {secret}".encode())
    monkeypatch.setattr(spools, "write_private", full)
    spool.set_aside(name, clean=partial(sanitize.clean_set_aside, config=Config(data_dir=tmp_path)))
    assert (tmp_path / "aside" / name).read_text().endswith("broken [redacted github-token]")
    assert list((tmp_path / "spool").iterdir()) == []


def test_json_that_names_its_secrets_is_clean_after_ingest_in_any_nesting(lab: Lab) -> None:
    canaries = Canaries()
    given = {
        "env": [{"DB_PASSWORD": canaries.password()}],
        "body": json.dumps({"a": {"clientSecret": canaries.password()}}),
    }
    lab.spool("PostToolUse", tool_name="mcp__x__y", tool_input=given, tool_response=json.dumps(given), prompt_id="p1")
    lab.mem("drain")
    assert found_in(lab.data, canaries.all) == []
