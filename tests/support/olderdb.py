"""Databases as the older claude-mem, the one written in TypeScript, left them at several ages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

CLOCK = 1_760_000_000_000  # 2025-10-09

# The first tables: one text an observation, one text a summary, the host's id under its first name.
NARROW = """
create table schema_versions (id integer primary key, version integer unique not null, applied_at text not null);
create table sdk_sessions (
    id integer primary key autoincrement, claude_session_id text unique not null, sdk_session_id text unique,
    project text not null, user_prompt text, started_at text not null, started_at_epoch integer not null,
    completed_at text, completed_at_epoch integer, status text not null
);
create table observations (
    id integer primary key autoincrement, sdk_session_id text not null, project text not null, text text not null,
    type text not null, created_at text not null, created_at_epoch integer not null,
    foreign key (sdk_session_id) references sdk_sessions (sdk_session_id) on delete cascade
);
create table session_summaries (
    id integer primary key autoincrement, sdk_session_id text unique not null, project text not null,
    summary text not null, created_at text not null, created_at_epoch integer not null
);
"""

# In between: structured, many summaries a session, prompts in a table of their own.
MIDDLE = """
create table schema_versions (id integer primary key, version integer unique not null, applied_at text not null);
create table sdk_sessions (
    id integer primary key autoincrement, claude_session_id text unique not null, sdk_session_id text unique,
    project text not null, user_prompt text, started_at text, started_at_epoch integer, completed_at text,
    completed_at_epoch integer, status text, worker_port integer, prompt_counter integer default 0
);
create table observations (
    id integer primary key autoincrement, sdk_session_id text not null, project text not null, text text, type text,
    title text, subtitle text, facts text, narrative text, concepts text, files_read text, files_modified text,
    prompt_number integer, created_at text, created_at_epoch integer
);
create table session_summaries (
    id integer primary key autoincrement, sdk_session_id text not null, project text not null, request text,
    investigated text, learned text, completed text, next_steps text, notes text, prompt_number integer,
    created_at text, created_at_epoch integer
);
create table user_prompts (
    id integer primary key autoincrement, claude_session_id text not null, prompt_number integer not null,
    prompt_text text not null, created_at text, created_at_epoch integer
);
"""

# The newest, with the columns of merging, hashing, agents and syncing, and its search tables.
WIDE = """
create table schema_versions (id integer primary key, version integer unique not null, applied_at text not null);
create table sdk_sessions (
    id integer primary key autoincrement, content_session_id text not null, memory_session_id text unique,
    project text not null, platform_source text not null default 'claude', user_prompt text, started_at text not null,
    started_at_epoch integer not null, completed_at text, completed_at_epoch integer, status text not null,
    worker_port integer, prompt_counter integer default 0, custom_title text,
    unique (platform_source, content_session_id)
);
create table observations (
    id integer primary key autoincrement, memory_session_id text not null, project text not null,
    merged_into_project text, text text, type text not null, title text, subtitle text, facts text, narrative text,
    concepts text, files_read text, files_modified text, prompt_number integer, discovery_tokens integer default 0,
    created_at text not null, created_at_epoch integer not null, content_hash text, generated_by_model text,
    relevance_count integer default 0, agent_type text, agent_id text, metadata text, synced_at integer,
    origin_device_id text, origin_local_id integer, sync_rev integer,
    foreign key (memory_session_id) references sdk_sessions (memory_session_id) on delete cascade on update cascade
);
create table session_summaries (
    id integer primary key autoincrement, memory_session_id text not null, project text not null,
    merged_into_project text, request text, investigated text, learned text, completed text, next_steps text,
    notes text, files_read text, files_edited text, prompt_number integer, discovery_tokens integer default 0,
    created_at text not null, created_at_epoch integer not null, synced_at integer
);
create table user_prompts (
    id integer primary key autoincrement, session_db_id integer, content_session_id text not null,
    prompt_number integer not null, prompt_text text not null, created_at text not null,
    created_at_epoch integer not null, synced_at integer
);
create table pending_messages (id integer primary key, session_db_id integer, payload text);
create virtual table observations_fts using fts5 (title, subtitle, narrative, text, facts, concepts,
    content = 'observations', content_rowid = 'id');
"""


class OlderDb:
    """One of them, open and in use until `close`."""

    def __init__(self, path: Path, schema: str = WIDE, *, version: int = 49, wal: bool = True) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.conn = apsw.Connection(str(path))
        if wal:
            self.conn.pragma("journal_mode", "wal")
        self.conn.execute(schema)
        self.add("schema_versions", version=version, applied_at=iso(CLOCK))

    def add(self, table: str, **fields: Any) -> int:
        names = ", ".join(fields)
        self.conn.execute(
            f"insert into {table} ({names}) values ({', '.join('?' * len(fields))})", tuple(fields.values())
        )
        return self.conn.last_insert_rowid()

    def close(self) -> Path:
        self.conn.close()
        return self.path

    # --- rows of the newest kind -----------------------------------------------------------------------------------

    def session(self, name: str = "old-1", *, project: str = "shop", at: int = CLOCK, **more: Any) -> int:
        given = {"user_prompt": "Fix the empty basket", "status": "completed", "completed_at_epoch": at + 60_000}
        return self.add(
            "sdk_sessions",
            **{
                "content_session_id": name,
                "memory_session_id": f"m-{name}",
                "project": project,
                "started_at": iso(at),
                "started_at_epoch": at,
                **given,
                **more,
            },
        )

    def prompt(self, row_id: int, number: int, text: str, *, session: str = "old-1", at: int = CLOCK) -> int:
        return self.add(
            "user_prompts",
            session_db_id=row_id,
            content_session_id=session,
            prompt_number=number,
            prompt_text=text,
            created_at=iso(at),
            created_at_epoch=at,
        )

    def observation(self, title: str, *, session: str = "old-1", at: int = CLOCK + 5000, **more: Any) -> int:
        given: dict[str, Any] = {
            "memory_session_id": f"m-{session}",
            "project": "shop",
            "type": "bugfix",
            "title": title,
            "narrative": f"{title}, and why.",
            "facts": '["One fact", "Another fact"]',
            "concepts": '["problem-solution"]',
            "files_read": "[]",
            "files_modified": "[]",
            "prompt_number": 1,
            "discovery_tokens": 900,
            "content_hash": title.encode().hex()[:16],
            "generated_by_model": "claude-haiku-4-5",
            "created_at": iso(at),
            "created_at_epoch": at,
        }
        return self.add("observations", **{**given, **more})

    def summary(self, *, session: str = "old-1", at: int = CLOCK + 9000, **more: Any) -> int:
        given: dict[str, Any] = {
            "memory_session_id": f"m-{session}",
            "project": "shop",
            "request": "Fix the empty basket",
            "completed": "The basket no longer fails when it is empty.",
            "next_steps": "Round the totals.",
            "prompt_number": 1,
            "created_at": iso(at),
            "created_at_epoch": at,
        }
        return self.add("session_summaries", **{**given, **more})


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def files(folder: Path) -> Mapping[str, bytes]:
    """Everything in a folder, to see afterwards that nothing was touched. (The index of a log is scratch space.)"""
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.endswith("-shm")]
    return {path.name: path.read_bytes() for path in found}


def names(folder: Path) -> Sequence[str]:
    return sorted(path.name for path in folder.iterdir())
