-- Every request to a model. The row is written before the request is sent, with the most it may cost; what was counted
-- takes the place of that when the answer is there. `ended_at` NULL: no answer was seen, so the most still counts.
create table ledger (
    id                 integer primary key autoincrement,
    at                 integer not null,
    ended_at           integer,
    purpose            text not null,       -- refine | compress (asked for by a person)
    session_id         integer references sdk_sessions (id) on delete set null,
    turn_id            integer references turns (id) on delete set null,
    project_id         integer references projects (id) on delete set null,
    provider           text not null,
    model              text not null,
    input_tokens       integer not null,    -- those below included
    cached_tokens      integer not null default 0,
    written_tokens     integer not null default 0,
    output_tokens      integer not null,
    cost               integer not null,    -- millionths of a dollar
    verdict            text,
    message            text,                -- what went wrong, in the provider's words
    memory_session_id  text
) strict;
create index ledger_by_time on ledger (at);
create index ledger_by_turn on ledger (turn_id);
create index ledger_by_session on ledger (session_id);

-- The sessions that a model kept of its own, each belonging to one session of a host. `runtime` is the worker that
-- opened it: in another one it is not resumed.
create table memory_sessions (
    id          text primary key,
    session_id  integer not null references sdk_sessions (id) on delete cascade,
    provider    text not null,
    runtime     text not null,
    created_at  integer not null
) strict, without rowid;
create index memory_sessions_by_session on memory_sessions (session_id, created_at);

-- A provider that failed is left alone until then. No row: it is well.
create table breakers (
    provider  text primary key,
    failures  integer not null default 0,   -- in a row
    until     integer not null default 0,
    verdict   text not null,
    message   text not null default '',
    settings  text not null default ''      -- what it was set up with: with other settings it is tried at once
) strict, without rowid;

-- What a person should be told once, at the next start of a session.
create table notices (
    key      text primary key,
    text     text not null,
    at       integer not null,
    told_at  integer
) strict, without rowid;
