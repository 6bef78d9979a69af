"""How long a search takes, and how much room the worker needs, with many memories. Over HTTP, one request at a time.

The memories are made up: words as unevenly frequent as in real text, four observations a turn, and the turn's prompt,
summary and text beside them. Their vectors are random, the questions' are real: neither changes what a search costs.
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

from figures import percentile
from lab import Home, Lab, cpu_seconds, wait_until

from claude_mem import hook
from claude_mem.client import Client
from claude_mem.recall import documents, embed, models
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.system import process
from claude_mem.system.project_folders import identify_project

SIZES = (10_000, 100_000)
ROOT = "/scale"
PER_TURN, PER_SESSION, EDITS = 4, 10, 6  # observations a turn, turns a session, edits a turn
QUESTIONS, WARM_UP = 200, 10
_SYLLABLES = [
    "ba",
    "co",
    "di",
    "fe",
    "gu",
    "ha",
    "jo",
    "ke",
    "li",
    "mo",
    "nu",
    "pa",
    "qui",
    "ra",
    "so",
    "te",
    "vu",
    "wa",
    "xe",
    "zi",
]


class Words:
    """The n-th word comes up about 1/n as often as the first."""

    def __init__(self, seed: int, size: int = 30_000) -> None:
        self.dice = random.Random(seed)
        self._words = ["".join(self.dice.choices(_SYLLABLES, k=self.dice.randint(2, 4))) for _ in range(size)]
        total, self._until = 0.0, []
        for rank in range(size):
            total += 1 / (rank + 10)
            self._until.append(total)

    def text(self, count: int) -> str:
        return " ".join(self.dice.choices(self._words, cum_weights=self._until, k=count))

    def question(self) -> str:
        """A few words of middling frequency and one that is everywhere."""
        middling = [self._words[self.dice.randint(100, 20_000)] for _ in range(self.dice.randint(2, 5))]
        return " ".join([*middling, *self.text(2).split()])


def measure(lab: Lab, model: Path | None) -> list[tuple[str, tuple[float | None, ...]]]:
    """Once with words alone, once with the built-in embedding and, where there is a model, once with the encoder."""
    found: list[tuple[str, tuple[float | None, ...]]] = []
    systems = [("words", models.WORDS_ONLY), ("built-in", models.BUILT_IN)]
    for size, (system, setting) in product(SIZES, [*systems, *([("encoder", embed.DEFAULT)] if model else [])]):
        home = lab.home(f"scale-{size}")
        home.data.mkdir(parents=True, mode=0o700)
        vectors = {models.BUILT_IN: (models.NAME, models.DIMENSIONS), embed.DEFAULT: (embed.DEFAULT, 384)}.get(setting)
        total = fill(home, size, vectors=vectors)
        if system == "encoder" and model is not None:
            shutil.copytree(model, home.data / "models" / embed.DEFAULT)
        home.env["CLAUDE_MEM_EMBEDDING_MODEL"] = setting
        home.start()
        if vectors:
            wait_until(partial(_loaded, home), 300, "vectors are not loaded", every=0.5)
        before = cpu_seconds(home.pid)
        times = _ask(home)
        busy = (cpu_seconds(home.pid) - before) / (QUESTIONS + WARM_UP) * 1000
        prompts, starts = _speak(home, "new"), _speak(home, "context")
        row = (
            percentile(times, 50),
            percentile(times, 95),
            busy,
            percentile(prompts, 95),
            percentile(starts, 95),
            _megabytes(home.pid),
        )
        found.append((f"{size:,} observations ({total:,} documents), {system}", row))
        home.end()
        shutil.rmtree(home.data)
    return found


def _loaded(home: Home) -> bool:
    return bool(home.ask("/api/stats")["index"]["ready"])


def _ask(home: Home) -> list[float]:
    client, words, times = Client.of(home.data, seconds=60), Words(1), []
    for number in range(QUESTIONS + WARM_UP):
        question = words.question()
        begin = time.perf_counter()
        client.get("/api/search", query=question, limit=20)
        if number >= WARM_UP:  # the first ones load the model and warm the caches
            times.append((time.perf_counter() - begin) * 1000)
    return times


def _speak(home: Home, command: str) -> list[float]:
    """What a hook waits for at a prompt, or at a session's start; a session of its own each time."""
    worker, words, times = process.running_worker(home.data), Words(3), []
    assert worker is not None
    for number in range(QUESTIONS // 2 + WARM_UP):
        fields = {"session_id": f"new-{command}-{number}", "prompt": words.question(), "source": "startup"}
        record = f"command {command}\nhost claude\nproject_dir {ROOT}\n\n{json.dumps(fields)}".encode()
        begin = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=60)
        connection.request("POST", hook.CONTEXT_ROUTES[command], record, {"Authorization": f"Bearer {worker.token}"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, body
        if number >= WARM_UP:
            times.append((time.perf_counter() - begin) * 1000)
    return times


def _megabytes(pid: int) -> float:
    """What it alone needs: files that are mapped into memory can be dropped at any time."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) / 1024


def fill(
    home: Home,
    size: int,
    *,
    vectors: tuple[str, int] | None = None,
    then: Callable[[Connection], None] = lambda _: None,
) -> int:
    """Fill a database; `vectors` is the name of a model and the length of its vectors."""
    db = Database(home.data / "claude-mem.db", backups=home.data / "backups")
    words = Words(1)
    db.write_now(_rows, words, size)
    db.write_now(then)
    while db.write_now(documents.refresh_documents, limit=2_000):
        pass
    if vectors:
        db.write_now(_vectors, *vectors)
    total = db.read_now(lambda conn: next(iter(conn.execute("select count(*) as n from documents")))["n"])
    db.close()
    return int(total)


def _rows(conn: Connection, words: Words, size: int) -> None:
    now = int(time.time() * 1000)
    conn.execute("insert into projects values (1, 'scale', ?, 0)", (ROOT,))
    for identity in identify_project(ROOT).identities:
        conn.execute("insert into project_aliases values (?, 1)", (identity,))
    for turn in range(1, size // PER_TURN + 1):
        session, number = 1 + (turn - 1) // PER_SESSION, 1 + (turn - 1) % PER_SESSION
        at = now - (size // PER_TURN - turn) * 60_000
        if number == 1:
            conn.execute(
                "insert into sdk_sessions (id, host, content_session_id, project_id, status, started_at, last_event_at)"
                " values (?, 'claude', ?, 1, 'completed', ?, ?)",
                (session, f"s{session}", at, at),
            )
        conn.execute(
            "insert into turns (id, session_id, number, opened_at, last_at, closed_at, digested_at)"
            " values (?, ?, ?, ?, ?, ?, ?)",
            (turn, session, number, at, at, at, at),
        )
        conn.execute(
            "insert into user_prompts values (null, ?, ?, ?, ?, ?)", (session, turn, number, words.text(20), at)
        )
        stop = '{"type":"stop","message":"' + words.text(80) + '"}'
        conn.execute(
            "insert into events (event_id, session_id, turn_id, kind, at, source, body) values (?, ?, ?, 'stop', ?, 'api', ?)",
            (f"e{turn}", session, turn, at, stop),
        )
        conn.executemany(
            "insert into events (event_id, session_id, turn_id, kind, at, source, body) values (?, ?, ?, 'tool', ?, 'api', ?)",
            [(f"e{turn}-{place}", session, turn, at, body) for place, body in enumerate(_edits(words))],
        )
        conn.execute(
            "insert into session_summaries (session_id, project_id, turn_id, prompt_number, completed, provider,"
            " created_at, updated_at) values (?, 1, ?, ?, ?, 'local', ?, ?)",
            (session, turn, number, words.text(40), at, at),
        )
        conn.executemany(
            "insert into observations (session_id, project_id, turn_id, prompt_number, key, type, title, narrative, facts,"
            " provider, hash, created_at, updated_at) values (?, 1, ?, ?, ?, 'change', ?, ?, ?, 'local', '', ?, ?)",
            [
                (session, turn, number, f"k{key}", words.text(10), words.text(50), f'["{words.text(15)}"]', at, at)
                for key in range(PER_TURN)
            ],
        )


def _edits(words: Words) -> Iterator[str]:
    """Yield edits of files, some of which are edited all the time."""
    for _ in range(EDITS):
        path = f"{ROOT}/src/{words.text(1)}/{words.text(1)}.py"
        edit = {"file_path": path, "old_string": words.text(5), "new_string": words.text(10)}
        yield json.dumps({"type": "tool", "name": "Edit", "input": edit, "output": ""})


def _vectors(conn: Connection, model: str, dimensions: int) -> None:
    wanted = "select id from documents where kind in ('observation', 'turn')"
    conn.executemany(
        "insert into vectors values (?, ?, 0, '', ?)",
        _made([row["id"] for row in conn.execute(wanted)], model, dimensions),
    )


def _made(ids: list[int], model: str, dimensions: int) -> Iterator[tuple[int, str, bytes]]:
    dice = random.Random(2)
    for document_id in ids:
        yield document_id, model, struct.pack("<f", 0.001) + dice.randbytes(dimensions)
