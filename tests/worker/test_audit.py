"""The product checks itself and notices what is wrong; the audit log has every transfer, and a tampered line shows."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from claude_mem.domain.errors import OperationFailed
from claude_mem.maintain import audit
from claude_mem.storage.sqlite import self_check
from claude_mem.system import audit_log
from claude_mem.system.audit_log import AuditLog, ChainHead
from claude_mem.worker.app import Service
from tests.storage.test_forget import WORD, digest, forget, spool_session, work
from tests.support import proof
from tests.support.lab import Lab
from tests.support.refining import place

COMMAND = "pytest tests/worker/test_audit.py"


# --- the chain -------------------------------------------------------------------------------------------------------


@pytest.fixture
def chain(tmp_path: Path) -> AuditLog:
    log = AuditLog(tmp_path, most_bytes=900)
    for number in range(12):
        log.append("transfer", bytes=number, sha256="0" * 64)
    return log


def tampered(folder: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """All lines of all files are changed as one, and put back where they were."""
    files = audit_log.log_files(folder)
    sizes = [len(path.read_bytes().splitlines()) for path in files]
    lines = change([line for path in files for line in path.read_bytes().splitlines()])
    for path, size in zip(files, sizes, strict=True):
        last = path == files[-1]
        path.write_bytes(b"".join(line + b"\n" for line in (lines if last else lines[:size])))
        lines = [] if last else lines[size:]


def test_a_chain_that_nobody_touched_holds_over_several_files(chain: AuditLog, tmp_path: Path) -> None:
    assert len(audit_log.log_files(tmp_path)) > 2
    assert audit_log.verify_chain(tmp_path, chain.head) == (12, [])
    assert AuditLog(tmp_path).head == chain.head  # another worker goes on with it
    AuditLog(tmp_path).append("transfer")
    assert audit_log.verify_chain(tmp_path, chain.head) == (13, [])  # it died before it could note that in the database
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in audit_log.log_files(tmp_path))


def test_a_line_that_was_never_whole_leaves_the_chain_whole(chain: AuditLog, tmp_path: Path) -> None:
    with (tmp_path / audit_log.FILE_NAME).open("ab") as file:
        file.write(b'{"n":13,"at":1')  # killed here: what it was to tell of did not happen
    log = AuditLog(tmp_path, chain.head)
    log.append("transfer", bytes=13)
    assert audit_log.verify_chain(tmp_path, log.head) == (13, [])


def test_every_tampering_with_any_line_is_noticed(chain: AuditLog, tmp_path: Path) -> None:
    original = {path: path.read_bytes() for path in audit_log.log_files(tmp_path)}
    seen = tried = 0
    for number in range(12):
        for change in _TAMPERINGS.values():
            tampered(tmp_path, lambda lines, number=number, change=change: change(lines, number))  # type: ignore[misc]
            tried += 1
            seen += bool(audit_log.verify_chain(tmp_path, chain.head)[1])
            for path, content in original.items():
                path.write_bytes(content)
    proof.record(
        "audit log: tamperings noticed", of="P6", goal="100 %", measured=f"{seen} of {tried}", ok=seen == tried, command=COMMAND,
        note="a line changed, changed with its own hash made right, removed, doubled, moved, or the end cut off there",
    )  # fmt: skip
    assert seen == tried == 72


def _rehashed(line: bytes) -> bytes:
    """Whoever changes a line may also mend its hash; the next line still has the old one."""
    told = {**json.loads(line), "bytes": 999}
    return json.dumps({**told, "hash": audit_log.line_hash(told)}).encode()


_TAMPERINGS: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "changed": lambda lines, n: [*lines[:n], lines[n].replace(b'"bytes":', b'"bytes":1'), *lines[n + 1 :]],
    "rehashed": lambda lines, n: [*lines[:n], _rehashed(lines[n]), *lines[n + 1 :]],
    "removed": lambda lines, n: [*lines[:n], *lines[n + 1 :]],
    "doubled": lambda lines, n: [*lines[: n + 1], *lines[n:]],
    "moved": lambda lines, n: [*lines[:n], *lines[n + 1 :], lines[n]] if n < 11 else [lines[n], *lines[:n]],
    "cut off": lambda lines, n: lines[:n],
}


def test_a_lost_file_is_noticed_and_the_numbers_go_on(chain: AuditLog, tmp_path: Path) -> None:
    for path in audit_log.log_files(tmp_path):
        path.unlink()
    assert "12 lines" in audit_log.verify_chain(tmp_path, chain.head)[1][0]
    assert AuditLog(tmp_path, chain.head).append("transfer").n == 13
    assert audit_log.verify_chain(tmp_path, ChainHead())[1]


# --- transfers -------------------------------------------------------------------------------------------------------


class Provider(ThreadingHTTPServer):
    """Looks at the audit log at the moment when a request comes in."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.seen: list[tuple[bytes, list[dict[str, Any]]]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        told = [line for _, line in audit_log.read_lines(self.server.folder) if line]
        self.server.seen.append((body, told))
        self.send_response(503)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    server = Provider(tmp_path / "data")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def settings(provider: Provider) -> dict[str, str]:
    url = f"http://127.0.0.1:{provider.server_port}/v1"
    return {"provider": "openai:m1", "openai_base_url": url, "openai_api_key": "k" * 20}


def test_every_request_is_on_record_before_it_leaves(provider: Provider, tmp_path: Path) -> None:
    async def do() -> tuple[ChainHead, list[dict[str, Any]]]:
        async with place(tmp_path, chain=False, settings=settings(provider)) as here:
            here.turn(prompt=f"Say nothing of {WORD}")
            await here.digest()
            await here.refine()
            return await here.db.read(self_check.get_audit_head), await here.ledger()

    head, booked = asyncio.run(do())
    assert provider.seen and len(provider.seen) == len(booked)
    recorded = 0
    for number, (body, told) in enumerate(provider.seen):
        line = [line for line in told if line["what"] == "transfer"][number]
        assert line["sha256"] == hashlib.sha256(body).hexdigest()
        assert (line["bytes"], line["provider"], line["model"]) == (len(body), "openai", "m1")
        assert line["session"] == line["turn"] == 1
        recorded += 1
        assert WORD.encode() in body
    assert audit_log.verify_chain(tmp_path / "data", head) == (head.n, [])
    assert all(WORD.encode() not in path.read_bytes() for path in audit_log.log_files(tmp_path / "data"))
    proof.record(
        "requests on record before they leave", of="P6", goal="100 %", measured=f"{recorded} of {len(provider.seen)}", ok=True,
        command=COMMAND, note="the provider reads the audit log when the request comes in and compares SHA-256",
    )  # fmt: skip


def test_a_memory_of_prompts_alone_is_sound(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt="Where does the river begin?", prompt_id="p1")
    lab.data.chmod(0o700)
    digest(lab)
    found = work(lab, lambda service: audit.run_all_checks(service.db, service.config, service.spool))
    assert lab.rows("select count(*) from documents where kind = 'prompt'") == [(1,)]
    assert [item for item in found if not item.ok] == []


def test_what_cannot_be_recorded_is_not_sent(provider: Provider, tmp_path: Path) -> None:
    async def do() -> list[dict[str, Any]]:
        async with place(tmp_path, chain=False, settings=settings(provider)) as here:
            here.turn()
            await here.digest()
            (tmp_path / "data" / audit_log.FILE_NAME).unlink(missing_ok=True)
            (tmp_path / "data" / audit_log.FILE_NAME).mkdir()
            await here.refine()
            assert await here.observations()  # the memory itself is made without
            return await here.ledger()

    booked = asyncio.run(do())
    assert provider.seen == []
    assert booked and all("not sent" in row["message"] and not row["input_tokens"] for row in booked)


def test_what_was_told_and_deleted_is_on_record_without_a_word_of_it(lab: Lab) -> None:
    spool_session(lab, "lit", secret=WORD)
    digest(lab)
    client = lab.start()
    lab.hook("SessionStart", source="startup", session_id="next")
    lab.hook("UserPromptSubmit", prompt=f"What about the lamp {WORD}?", session_id="next", prompt_id="n1")
    kept = client.post("/api/memory/save", {"text": f"Keep {WORD}", "title": WORD, "cwd": str(lab.project)})["id"]
    client.delete(f"/api/observation/{kept}")
    client.post(f"/api/observation/{kept}/undo")
    client.post(f"/api/observation/{kept}/wrong")
    lab.mem("export", str(lab.folder / "out.jsonl"))
    lab.mem("forget", "--matching", WORD, "--now", "--yes")
    lab.mem("config", "set", "language", "German")
    whats = [json.loads(line)["what"] for line in lab.mem("audit", "log", "--json", "-n", "1000").stdout.splitlines()]
    assert {"injection", "forgotten", "undone", "judged", "exported", "erased"} <= set(whats)
    assert WORD.lower().encode() not in (lab.data / audit_log.FILE_NAME).read_bytes().lower()
    assert "none missing" in lab.mem("audit", "log", "--verify").stdout
    path = lab.data / audit_log.FILE_NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    bad = lab.mem("audit", "log", "--verify", ok=False)
    assert bad.returncode == 1
    assert "the end is missing" in bad.stderr


# --- the checks ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy memory, made once."""
    folder = tmp_path_factory.mktemp("healthy")
    lab = Lab(folder)
    spool_session(lab, "lit", secret=WORD)
    spool_session(lab, "dark")
    digest(lab)
    forget(lab, matching=WORD)
    return folder


@pytest.fixture
def healthy(model: Path, lab: Lab) -> Lab:
    shutil.copytree(model / "data", lab.data)
    lab.data.chmod(0o700)
    return lab


def findings(lab: Lab) -> list[str]:
    async def do(service: Service) -> list[str]:
        return [
            item.name for item in await audit.run_all_checks(service.db, service.config, service.spool) if not item.ok
        ]

    return work(lab, do)


DAMAGE = {
    "events": "delete from events where seq = (select max(seq) from events)",
    "turns": "update turns set digested_at = null where id = (select max(turn_id) from events)",
    "attempts": "insert into ledger (at, purpose, turn_id, provider, model, input_tokens, output_tokens, cost)"
    " select value, 'refine', 1, 'x', 'y', 1, 1, 1 from json_each('[1, 2, 3, 4]')",
    "forgotten": "insert into injections (host, content_session_id, trigger, at, tokens, names)"
    " select 'claude', 'x', 'start', h.at + 1, 1, json_array('o' || h.observation_id) from history h"
    " where h.what = 'forgotten'",
    "hashes": "update observations set narrative = 'another' where id = (select max(id) from observations where not forgotten)",
    "indexed": "update documents set row_id = -row_id where kind = 'observation'",
    "index": "insert into words (words, rowid, title, body, hints, around)"
    " select 'delete', id, title, body, hints, around from passages limit 3",
    "database": "update observations set project_id = 99 where id = 1",
    "tombstones": "insert into tombstones values (keyed_hash('session', 'claude', 'dark'), 1, 0, 9000000000000000)",
    "audit log": "insert into audit_head values (1, 99, 'x') on conflict do update set n = 99",
}


def test_a_healthy_memory_passes_every_check(healthy: Lab) -> None:
    assert findings(healthy) == []


@pytest.mark.parametrize("check", DAMAGE)
def test_each_check_notices_what_it_is_there_for(healthy: Lab, check: str) -> None:
    async def harm(service: Service) -> None:
        service.db._writer.pragma("foreign_keys", "off")
        await service.db.write(lambda conn: conn.execute(DAMAGE[check]))

    work(healthy, harm)
    assert check in findings(healthy)


def test_a_file_that_others_can_read_is_noticed(healthy: Lab) -> None:
    (healthy.data / "forget.key").chmod(0o644)
    assert findings(healthy) == ["modes"]


def test_the_command_tells_and_status_and_health_show_what_is_checked_all_the_time(healthy: Lab) -> None:
    client = healthy.start()
    done = healthy.mem("audit")
    assert done.stdout.count("ok ") >= 9 and "BAD" not in done.stdout
    assert "all checks passed" in healthy.mem("status").stdout
    assert client.get("/api/health/page")["audit"]["ok"] is True
    (healthy.data / "token").chmod(0o644)
    bad = healthy.mem("audit", "--json", ok=False)
    assert bad.returncode == 1
    assert [item["name"] for item in map(json.loads, bad.stdout.splitlines()) if not item["ok"]] == ["modes"]
    assert healthy.mem("audit", "--verify", ok=False).returncode == 2


def test_what_is_wrong_is_seen_at_the_next_sweep_without_being_asked(healthy: Lab) -> None:
    async def do(service: Service) -> tuple[bool, list[Any]]:
        await service.sweep()
        before = service.self_check.state().ok
        await service.db.write(lambda conn: conn.execute(DAMAGE["events"]))
        await service.sweep()
        return before, service.self_check.state().wrong

    before, wrong = work(healthy, do)
    assert before is True
    assert [item.name for item in wrong] == ["events"]


def test_a_line_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / audit_log.FILE_NAME).mkdir()
    with pytest.raises(OperationFailed):
        AuditLog(tmp_path).append("transfer")


def test_an_empty_log_is_said_to_be_empty(lab: Lab) -> None:
    for words in (("audit", "log"), ("audit", "log", "--verify")):
        assert "the audit log is empty" in lab.mem(*words).stdout
    assert lab.mem("audit", "log", "--json").stdout == ""
    lab.mem("save", "Deploys run on Fridays.")
    lab.mem("export", "-")
    shown = lab.mem("audit", "log").stdout
    assert "exported" in shown
    assert "empty" not in shown


def test_a_log_that_was_taken_away_is_not_said_to_be_empty(lab: Lab) -> None:
    lab.mem("save", "Deploys run on Fridays.")
    lab.mem("export", "-")
    (lab.data / audit_log.FILE_NAME).unlink()
    done = lab.mem("audit", "log", ok=False)
    assert (done.returncode, "empty" in done.stdout) == (1, False)
