"""Transcripts of any size: read in parts, in little memory, while everyone else goes on."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claude_mem.agents import registry
from claude_mem.agents.canonical import TranscriptContent
from claude_mem.capture import transcripts
from claude_mem.config import Config
from claude_mem.domain.records import Event
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_value
from claude_mem.worker.app import Service
from tests.support import large, proof
from tests.support.amounts import LONG
from tests.support.peak import end_of
from tests.support.waiting import SECONDS

MEGABYTE = 1 << 20
RISE_MB, MOST_MB = 40, 250  # by an honest transcript; by whatever is read, in all
linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process's largest memory"
)
every_host = pytest.mark.parametrize("host", large.TURNS)

# --- readers ---------------------------------------------------------------------------------------------------------


def _whole(host: str, path: Path) -> TranscriptContent:
    reader = registry.get_agent(host).transcripts
    assert reader is not None
    return reader.read(path, host=host, content_session_id="s1", over=True)


def _in_parts(host: str, path: Path, most: int, *, over: bool) -> tuple[TranscriptContent, int]:
    """All parts put together, and how many there were."""
    reader = registry.get_agent(host).transcripts
    assert reader is not None and reader.part is not None
    every, mark, count = TranscriptContent(), "", 0
    while True:
        found, mark = reader.part(path, host=host, mark=mark, most=most, content_session_id="s1", over=over)
        every.events += found.events
        every.closings |= found.closings
        every.private |= found.private
        every.bad_lines += found.bad_lines
        every.offset, every.problem, count = found.offset, found.problem, count + 1
        if not mark:
            return every, count


def _told(found: TranscriptContent) -> dict[str, Event]:
    return {event.id: event for event in found.events}


@every_host
@pytest.mark.parametrize("most", [1, 700, 5_000, 1 << 30])
@pytest.mark.parametrize("over", [True, False])
def test_all_parts_together_tell_what_the_whole_does(tmp_path: Path, host: str, most: int, over: bool) -> None:
    path = tmp_path / "talk.jsonl"
    large.write(path, host, size=40_000, calls=4, chars=400)
    whole, (parts, count) = _whole(host, path), _in_parts(host, path, most, over=over)
    assert (count > 20) == (most < 1_000)
    assert _told(parts) == _told(whole)
    assert (parts.closings, parts.private) == (whole.closings, whole.private)
    assert (parts.problem, parts.bad_lines, parts.offset) == ("", 0, path.stat().st_size)


@every_host
def test_a_line_that_is_too_long_is_left_out_wherever_a_part_ends(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claude_mem.agents.transcript_lines.MAX_LINE_BYTES", 5_000)
    monkeypatch.setattr("claude_mem.agents.transcript_lines._PIECE", 100)
    monkeypatch.setattr("claude_mem.agents.transcript_lines._SKIPPED_COST", 1)
    path = tmp_path / "talk.jsonl"
    large.write(path, host, size=10_000, calls=3, chars=400)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    forged = rest[0].replace(b"\n", b"")
    path.write_bytes(first + b"x" * 30_000 + forged + b"\n" + b"".join(rest))
    expected = tmp_path / "honest.jsonl"
    expected.write_bytes(first + b"".join(rest))
    found, _ = _in_parts(host, path, 50, over=True)
    assert [event.body for event in found.events] == [event.body for event in _whole(host, expected).events]
    assert (found.bad_lines, found.problem) == (1, "")


def test_a_call_that_is_never_answered_does_not_have_everything_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.jsonl"
    large.write(path, "claude", size=20_000, calls=3, chars=400)
    lines = path.read_bytes().splitlines(keepends=True)
    open_call = next(line for line in lines if b'"tool_use", "id"' in line).replace(b"s1-c1-0", b"never")
    path.write_bytes(open_call + b"".join(lines))
    assert _in_parts("claude", path, 1_000, over=False)[0].offset == 0
    monkeypatch.setattr("claude_mem.agents.transcript_lines.LOOK_BACK_BYTES", 5_000)
    assert _in_parts("claude", path, 1_000, over=False)[0].offset == path.stat().st_size


# --- a session that ends ---------------------------------------------------------------------------------------------


def inside(config: Config, scene: Callable[[Service], Awaitable[None]]) -> None:
    async def run() -> None:
        service = Service(config)
        try:
            await scene(service)
        finally:
            service.close()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


async def all_read(service: Service) -> None:
    await service.run_until_idle()


def stored(conn: Connection) -> list[Any]:
    query = "select e.event_id, e.kind, t.number, e.body from events e left join turns t on t.id = e.turn_id"
    return [tuple(row.values()) for row in fetch_all(conn, f"{query} order by e.event_id")]


def _rows(config: Config) -> list[Any]:
    found: list[Any] = []

    async def look(service: Service) -> None:
        found.extend(row for row in await service.db.read(stored) if row[0].startswith("t-"))

    inside(config, look)
    return found


def _read_back(config: Config, host: str, path: Path) -> list[Any]:
    config.spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    end_of("s1", host, str(path), config)
    inside(config, all_read)
    return _rows(config)


@every_host
def test_a_transcript_that_is_reconciled_in_parts_leaves_the_same_rows(
    tmp_path: Path, config: Config, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.jsonl"
    calls = large.write(path, host, size=30_000, calls=3, chars=300)
    at_once = _read_back(replace(config, data_dir=tmp_path / "at-once"), host, path)
    monkeypatch.setattr(transcripts, "PART_BYTES", 2_000)
    in_parts = _read_back(replace(config, data_dir=tmp_path / "in-parts"), host, path)
    assert in_parts == at_once
    assert sum(kind == "tool" for _, kind, *_ in in_parts) == calls


def test_files_of_subagents_are_read_in_parts_as_well(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.jsonl"
    calls = large.write(path, "claude", size=10_000, calls=3, chars=300)
    folder = tmp_path / "talk" / "subagents"
    folder.mkdir(parents=True)
    for name in ("a1", "a2", "a3"):
        file = folder / f"agent-{name}.jsonl"
        large.write(file, "claude", size=10_000, session=name, calls=3, chars=300)
        of_agent = file.read_bytes().replace(b'"cwd": "/"', b'"cwd": "/", "isSidechain": true')
        file.write_bytes(of_agent.replace(f'"sessionId": "{name}"'.encode(), b'"sessionId": "s1"'))
    at_once = _read_back(replace(config, data_dir=tmp_path / "at-once"), "claude", path)
    monkeypatch.setattr(transcripts, "PART_BYTES", 2_000)
    in_parts = _read_back(replace(config, data_dir=tmp_path / "in-parts"), "claude", path)
    assert in_parts == at_once
    assert sum(kind == "tool" for _, kind, *_ in in_parts) > 3 * calls


def test_others_go_on_while_a_large_transcript_is_read(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By events: another session's turn is stored and digested before the large transcript has been read."""
    monkeypatch.setattr(transcripts, "PART_BYTES", 10_000)
    path = tmp_path / "talk.jsonl"
    calls = large.write(path, "claude", size=200_000, calls=3, chars=2_000)

    async def scene(service: Service) -> None:
        end_of("s1", "claude", str(path), config)
        await service.drain_once()
        assert await service.runner.step()
        end_of("other", "claude", "", config)
        await service.drain_once()
        while not await service.db.read(_summaries, "other"):
            assert await service.runner.step()
        assert await service.db.read(_waits, "s1"), "the large one is not read yet"
        assert 0 < await service.db.read(_calls) < calls
        await service.run_until_idle()
        assert await service.db.read(_calls) == calls
        assert await service.db.read(_summaries, "s1")

    inside(config, scene)


def _summaries(conn: Connection, session: str) -> int:
    of_it = "select id from sdk_sessions where content_session_id = ?"
    return int(fetch_value(conn, f"select count(*) from session_summaries where session_id in ({of_it})", (session,)))


def _waits(conn: Connection, session: str) -> bool:
    of_it = "select id from sdk_sessions where content_session_id = ?"
    query = f"select count(*) from jobs where kind = 'reconcile' and subject like ({of_it}) || '.%'"
    return bool(fetch_value(conn, query, (session,)))


def _calls(conn: Connection) -> int:
    return int(fetch_value(conn, "select count(*) from events where kind = 'tool'"))


@pytest.mark.parametrize("after", [1, 3])
def test_a_worker_that_ends_in_the_middle_leaves_it_to_the_next(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(transcripts, "PART_BYTES", 3_000)
    path = tmp_path / "talk.jsonl"
    calls = large.write(path, "claude", size=60_000, calls=3, chars=1_000)

    async def begin(service: Service) -> None:
        end_of("s1", "claude", str(path), config)
        await service.drain_once()
        for _ in range(after):
            assert await service.runner.step()

    inside(config, begin)
    inside(config, all_read)
    found = _rows(config)
    assert sum(kind == "tool" for _, kind, *_ in found) == calls
    assert len({event_id for event_id, *_ in found}) == len(found)


def test_a_part_that_could_not_be_written_is_read_again(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is set within the transaction; if that fails at its end, the mark must not count."""
    monkeypatch.setattr(transcripts, "PART_BYTES", 3_000)
    path = tmp_path / "talk.jsonl"
    calls = large.write(path, "claude", size=60_000, calls=3, chars=1_000)
    go_on = transcripts.UnfinishedReads.go_on
    fails = iter([False, True, False, True, True])

    def failing(self: transcripts.UnfinishedReads, *given: Any, **more: Any) -> None:
        go_on(self, *given, **more)
        if next(fails, False):
            raise ValueError("the disk is full")

    monkeypatch.setattr(transcripts.UnfinishedReads, "go_on", failing)

    async def scene(service: Service) -> None:
        end_of("s1", "claude", str(path), config)
        await service.drain_once()
        while await service.db.read(_waits, "s1"):
            await service.db.write(_make_due)
            await service.runner.step()

    inside(config, scene)
    assert sum(kind == "tool" for _, kind, *_ in _rows(config)) == calls


def _make_due(conn: Connection) -> None:
    conn.execute("update jobs set due_at = 0 where not dead")


def test_two_ends_of_a_session_share_the_reading(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "PART_BYTES", 5_000)
    path = tmp_path / "talk.jsonl"
    large.write(path, "claude", size=100_000, calls=3, chars=1_000)
    offsets: list[int] = []
    part = transcripts._read_file_part

    def watched(*given: Any, **more: Any) -> Any:
        found = part(*given, **more)
        offsets.append(found[0].offset)
        return found

    monkeypatch.setattr(transcripts, "_read_file_part", watched)

    async def scene(service: Service) -> None:
        for _ in range(3):
            end_of("s1", "claude", str(path), config)
            await service.drain_once()
            await service.runner.step()
        await service.run_until_idle()

    inside(config, scene)
    assert len(offsets) < 2 * path.stat().st_size // 5_000, "each part is read about once"


# --- memory ----------------------------------------------------------------------------------------------------------


def _peaks(tmp_path: Path, host: str, *paths: Path) -> list[dict[str, Any]]:
    """What reading each of them took, after what a worker needs anyway."""
    command = [sys.executable, "-m", "tests.support.peak", host, *map(str, paths)]
    done = subprocess.run(
        command, env={**os.environ, "CLAUDE_MEM_DATA_DIR": str(tmp_path / "peak")}, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, check=True, timeout=SECONDS * (10 if LONG else 1),
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@linux
def test_an_honest_transcript_of_any_size_takes_little_memory(tmp_path: Path) -> None:
    size = 300 if LONG else 60
    path = tmp_path / "talk.jsonl"
    calls = large.write(path, "claude", size=size * MEGABYTE, calls=8, chars=200_000)
    before, found = _peaks(tmp_path, "claude", path)
    assert (found["tool"], found["waiting"]) == (calls, 0)
    assert found["parts"] >= size // 3
    assert found["peak"] - before["peak"] < RISE_MB
    proof.record(
        f"an honest transcript of {size} MB that hooks have missed: rise of the largest memory", of="R10b",
        goal=f"{RISE_MB} MB at most", measured=round(found["peak"] - before["peak"], 1), ok=True, unit="MB",
        note=f"{before['peak']} MB before; {found['parts']} parts",
    )  # fmt: skip


@linux
def test_nothing_that_a_transcript_can_be_takes_much_memory(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in large.HOSTILE]
    for path in paths:
        large.HOSTILE[path.name](path)
    before, *found = _peaks(tmp_path, "claude", *paths)
    assert {Path(each["path"]).name: each["peak"] for each in found if each["peak"] > MOST_MB} == {}
    assert {Path(each["path"]).name: each["waiting"] for each in found if each["waiting"]} == {}
    most = max(found, key=lambda each: each["peak"])
    proof.record(
        f"the worst of {len(found)} files that no agent writes: the largest memory", of="R10b",
        goal=f"{MOST_MB} MB at most", measured=most["peak"], ok=True, unit="MB",
        note=f"{Path(most['path']).name}; {before['peak']} MB without any",
    )  # fmt: skip


def test_a_packed_file_of_a_session_at_work_is_not_unpacked(tmp_path: Path, config: Config) -> None:
    """No agent writes one; and each look would have to unpack it from its beginning."""
    plain = tmp_path / "talk.jsonl"
    large.write(plain, "claude", size=5_000, calls=2, chars=300)
    packed = tmp_path / "talk.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert _read_back(config, "claude", packed) == []
