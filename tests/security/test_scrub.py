"""What was stored before a rule is as clean afterwards as what comes in now: rows, index, contexts, logs, backups."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.domain import ids
from claude_mem.storage.records import TextCleaner
from claude_mem.storage.sqlite import backup, engine
from claude_mem.storage.sqlite.deletion import redaction
from claude_mem.storage.sqlite.engine import open_reader
from claude_mem.storage.sqlite.memory import observations
from tests.security.test_secrets import Canaries, found_in, note, plant_turn
from tests.support.lab import Lab
from tests.worker.test_reconcile import Transcript

ROOT = Path(engine.__file__).parent

# Text that is not looked at, and why that is right.
NOT_TEXT = {
    "names, kinds and states of ours": (
        "events.origin events.event_id events.kind events.source events.tool_use_id history.what history.by imports.source imports.file_signature"
        " imports.position imports.counts jobs.kind jobs.subject ledger.purpose ledger.provider ledger.model ledger.verdict"
        " ledger.memory_session_id memory_sessions.id memory_sessions.provider memory_sessions.runtime observations.type"
        " observations.trust observations.provider observations.model observations.hash observations.verdict observations.sources"
        " observations.memory_session_id observations.commit_id receipts.event_id receipts.outcome receipts.rule"
        " sdk_sessions.host sdk_sessions.status sdk_sessions.content_session_id sdk_sessions.memory_session_id"
        " session_summaries.provider session_summaries.trust session_summaries.verdict session_summaries.memory_session_id"
        " session_summaries.closing_trust session_summaries.outcome"
        " injections.host injections.content_session_id injections.trigger injected_items.host"
        " injected_items.content_session_id injected_items.item injected_items.trigger turns.closed_by turns.prompt_id backfill_files.host backfill_files.state backfill_files.problem"
        " backfill_files.agent backfill_files.cursor breakers.provider breakers.verdict breakers.settings notices.key documents.kind documents.trust"
        " signals.kind index_queue.kind vectors.model vectors.hash checks.name checks.text purged_counts.outcome purged_counts.rule"
        " audit_head.hash deletions.counts deleted_rows.kind tombstones.keyed_hash trusted_sources.source repositories.creation_id repositories.root_commit"
        " calls.kind anchors.kind anchors.blob_id outcomes.outcome outcomes.head outcomes.branch outcomes.commit_id sightings.stamp sightings.commit_id"
        " confirmations.fingerprint validity_changes.validity validity_changes.head validity_changes.commit_id validity_queue.head"
        " uses.use spaces.id spaces.kind spaces.device spaces.held_back space_devices.space_id space_devices.device space_changes.kind"
        " space_log.space_id space_log.device space_log.hash space_log.item_hash space_log.content space_log.state space_log.reason"
        " space_replaced.space_id space_replaced.hash space_items.space_id space_items.item_hash space_items.kind space_items.state"
        " space_items.device space_items.marks space_items.session_mark"
    ),
    "folders and files that a person named, by which things are found again": (
        "projects.name projects.root project_aliases.identity project_dirs.dir sdk_sessions.cwd sdk_sessions.transcript_path"
        " imports.path imports.project backfill_files.path known_files.path repositories.git_dir repositories.remote"
        " anchors.path sightings.root sightings.moved_to spaces.name spaces.transport spaces.projects"
    ),
}


def test_every_text_of_every_table_is_looked_at_or_named_as_none() -> None:
    """A new column has to be put somewhere."""
    conn = apsw.Connection(":memory:")
    for _, sql in engine.load_migrations():
        conn.execute(sql)
    tables = [
        name
        for (name,) in conn.execute("select name from sqlite_schema where type = 'table' and name not like 'words%'")
    ]
    there = {
        f"{table}.{name}"
        for table in tables
        if not table.startswith("sqlite_")
        for _, name, kind, *_ in conn.execute(f"pragma table_info({table})")
        if kind.lower() == "text"
    }
    looked = {
        f"{texts.table}.{name}"
        for texts in redaction.TEXT_TABLES
        for name in (*texts.plain, *texts.lists, *texts.columns)
    } | {"events.body"}
    named = {column for columns in NOT_TEXT.values() for column in columns.split()}
    assert looked & named == set()
    assert there - looked - named == set()
    assert (looked | named) - there == set()


def plant_rows(path: Path, canaries: Canaries) -> None:
    """Where only odd ways lead: an old version, what was forgotten, errors of jobs and providers."""
    conn = apsw.Connection(str(path))
    conn.pragma("foreign_keys", "on")
    row = next(iter(conn.execute("select id, type, hash from observations limit 1")))
    content = {
        **dict.fromkeys(("subtitle", "narrative", "commit_id")),
        **dict.fromkeys(("sources", "concepts", "files_read", "files_modified"), "[]"),
        "title": f"Kept away {canaries.token()}",
        "facts": json.dumps([canaries.text()]),
        "hash": "old",
    }
    conn.execute("insert into observations (project_id, key, type, provider, hash, forgotten, created_at, updated_at)"
                 " values (1, 'gone', 'change', 'local', '', 1, 1, 1)")  # fmt: skip
    conn.execute(
        "insert into deleted_observations values (?, ?, null, 1893456000000)",
        (conn.last_insert_rowid(), json.dumps(content)),
    )
    before = {"title": f"Before {canaries.token()}", "facts": json.dumps([canaries.text()])}
    conn.execute("insert into history (observation_id, at, what, before, by) values (?, 1893456000000, 'edited', ?, 'user')",
                 (row[0], json.dumps(before)))  # fmt: skip
    conn.execute("update observations set key = ? where id = ?", (f"command:{canaries.token()}", row[0]))
    conn.execute(
        "insert into jobs (kind, subject, due_at, dead, error, created_at) values ('compress', '9', ?2, 1, ?1, ?2)",
        (canaries.text(), ids.now_ms()),
    )
    conn.execute("insert into ledger (at, purpose, provider, model, input_tokens, output_tokens, cost, message)"
                 " values (1, 'refine', 'x', 'y', 1, 1, 1, ?)", (canaries.text(),))  # fmt: skip
    conn.execute("insert into notices values ('n', ?, 1, 1)", (canaries.text(),))
    conn.execute("insert into breakers (provider, verdict, message) values ('x', 'down', ?)", (canaries.text(),))
    conn.execute("insert into imports (path, file_signature, source, notes, error, started_at, ended_at) values ('/x', 'm', 'export', ?, ?, 1, 1)",
                 (json.dumps([canaries.text()]), canaries.text()))  # fmt: skip
    conn.close()


@pytest.fixture
def leaky(lab: Lab, tmp_path: Path) -> tuple[Lab, Canaries]:
    """A memory of the time before there were rules, with a backup of it."""
    canaries = Canaries()
    lab.folder.joinpath("home").mkdir(exist_ok=True)
    plant_turn(lab, canaries, Transcript(tmp_path / "talk.jsonl"))
    lab.mem("drain", CLAUDE_MEM_REDACT_SECRETS="false")
    plant_rows(lab.data / "claude-mem.db", canaries)
    (lab.data / "aside").mkdir(exist_ok=True)
    (lab.data / "aside" / "old").write_text(f"command save\n\nbroken {canaries.text()}")
    (lab.data / "logs").mkdir(exist_ok=True)
    (lab.data / "logs" / "worker.log.1").write_text(
        f"{datetime.now():%Y-%m-%d %H:%M:%S},000 INFO x: {canaries.text()}\n"
    )
    lab.mem("start")
    lab.mem("backup")
    return lab, canaries


def scrubbed(lab: Lab, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.mem("scrub", "--yes", "--json", *more).stdout)
    return found


def test_what_was_stored_before_a_rule_is_clean_afterwards_and_a_second_time_changes_nothing(
    leaky: tuple[Lab, Canaries],
) -> None:
    lab, canaries = leaky
    assert len({where for where, _ in found_in(lab.data, canaries.all)}) >= 4  # database, backup, aside, log
    counted = scrubbed(lab, "--dry-run")
    assert counted["dry_run"]
    assert len({where for where, _ in found_in(lab.data, canaries.all)}) >= 4
    told = scrubbed(lab)
    assert told["changed"] == counted["changed"]
    assert told["kept"] == []
    wanted = {
        "events",
        "user_prompts",
        "observations",
        "session_summaries",
        "sdk_sessions",
        "attic",
        "history",
        "ledger",
        "jobs",
    }
    assert wanted | {"notices", "breakers", "imports", "passages", "aside", "logs", "backups"} <= told["changed"].keys()
    lab.wait_digested()
    left = found_in(lab.data, canaries.all)
    assert left == []
    assert scrubbed(lab)["changed"] == {}
    rows = sum(told["changed"].values())
    note(
        "secrets left after `scrub`",
        goal="0",
        measured=len(left),
        ok=not left,
        note=f"{rows} rows and files changed; backups too",
    )


def test_what_was_scrubbed_is_sound_and_found_by_its_other_words(leaky: tuple[Lab, Canaries]) -> None:
    lab, canaries = leaky
    scrubbed(lab)
    (copy,) = (lab.data / "backups").glob("memory-*.db")
    assert backup.examine_backup(copy).counts["observations"]  # every fingerprint fits
    assert copy.stat().st_mode & 0o777 == 0o600
    hits = lab.client().get("/api/search", query="fix it key redacted")["items"]
    assert hits
    assert canaries.all[0][4:12] not in json.dumps(hits)
    lab.mem("stop")
    conn = open_reader(lab.data / "claude-mem.db")
    wrong = [
        row["id"]
        for row in conn.execute("select * from observations where not forgotten")
        if observations.hash_observation(row) != row["hash"]
    ]
    content = json.loads(next(iter(conn.execute("select content from deleted_observations")))["content"])
    bodies = [json.loads(row["body"]) for row in conn.execute("select body from events where kind = 'tool'")]
    conn.close()
    assert wrong == []
    assert content["hash"] == observations.hash_observation({**content, "type": "change"})
    assert "[content withheld]" in [body.get("output") for body in bodies]  # of `.env`
    lab.mem("restore", str(copy), "--yes")
    assert found_in(lab.data, canaries.all) == []


def test_nothing_is_changed_unless_someone_says_so(leaky: tuple[Lab, Canaries]) -> None:
    lab, canaries = leaky
    done = lab.mem("scrub", ok=False)
    assert done.returncode == 1
    assert re.search(r"would change: .*events", done.stderr)
    assert "nothing was changed" in done.stderr
    assert found_in(lab.data / "backups", canaries.all)


def test_a_copy_that_cannot_be_read_is_named(lab: Lab) -> None:
    lab.mem("save", "There is a database, so a broken backup is no sign of a loss")
    lab.mem("stop")
    (lab.data / "backups").mkdir(parents=True, exist_ok=True)
    (lab.data / "backups" / "memory-broken.db").write_bytes(b"SQLite format 3\0" + b"no" * 500)
    (lab.data / "quarantine" / "20260101-000000").mkdir(parents=True)
    told = scrubbed(lab)
    assert [kept.partition(":")[0] for kept in told["kept"]] == ["memory-broken.db", "quarantine/20260101-000000"]
    assert "not changed: memory-broken.db" in lab.mem("scrub", "--yes").stderr


def test_an_older_copy_is_cleaned_as_far_as_it_goes_and_keeps_its_version(tmp_path: Path) -> None:
    """Its tables are those of its day; whoever goes back to that version must be able to open it."""
    path, secret = tmp_path / "before-0002.db", Canaries().token()
    conn = apsw.Connection(str(path))
    conn.execute(engine.load_migrations()[0][1])
    conn.pragma("user_version", 1)
    conn.execute("insert into projects values (1, 'shop', '/shop', 1)")
    conn.execute("insert into sdk_sessions (host, content_session_id, project_id, first_prompt, started_at, last_event_at)"
                 " values ('claude', 's', 1, ?, 1, 1)", (f"the key is {secret}",))  # fmt: skip
    conn.close()
    clean = TextCleaner(lambda text: text.replace(secret, "[redacted]"), lambda body: body)
    told: dict[str, int] = {}
    backup.rewrite_backup(path, lambda copy: told.update(redaction.redact_copy(copy, clean=clean, write=True)))
    assert told == {"sdk_sessions": 1}
    assert found_in(tmp_path, [secret]) == []
    assert apsw.Connection(str(path)).pragma("user_version") == 1


def test_two_that_differed_only_in_a_secret_stay_two(tmp_path: Path) -> None:
    conn = open_reader(_two_alike(tmp_path / "a.db"))
    conn.close()
    clean = TextCleaner(lambda text: re.sub(r"key-\d", "[redacted]", text), lambda body: body)
    backup.rewrite_backup(tmp_path / "a.db", lambda copy: redaction.redact_copy(copy, clean=clean, write=True))
    conn = open_reader(tmp_path / "a.db")
    keys = [row["key"] for row in conn.execute("select key from observations order by id")]
    conn.close()
    assert len(set(keys)) == 2
    assert not any("key-" in key for key in keys)


def _two_alike(path: Path) -> Path:
    conn = apsw.Connection(str(path))
    for number, sql in engine.load_migrations():
        conn.execute(sql)
        conn.pragma("user_version", number)
    conn.execute("insert into projects values (1, 'shop', '/shop', 1)")
    conn.execute(
        "insert into sdk_sessions (id, host, content_session_id, project_id, started_at, last_event_at) values (1, 'claude', 's', 1, 1, 1)"
    )
    conn.execute("insert into turns (id, session_id, number, opened_at, last_at) values (1, 1, 1, 1, 1)")
    for number in (1, 2):
        conn.execute("insert into observations (session_id, project_id, turn_id, key, type, provider, hash, created_at, updated_at)"
                     " values (1, 1, 1, ?, 'change', 'local', 'x', 1, 1)", (f"run:key-{number}",))  # fmt: skip
    conn.close()
    return path
