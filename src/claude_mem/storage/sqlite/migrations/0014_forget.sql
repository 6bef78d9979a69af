-- Each time that someone forgot by a scope. What they asked for is not kept: it may be the very words to be forgotten.
create table forgettings (
    id        integer primary key autoincrement,
    at        integer not null,
    erased    integer not null default 0,   -- for good, and in every file
    counts    text not null default '{}',
    done_at   integer,                      -- NULL: under way, or broken off; the next start of the worker goes on
    undone_at integer
) strict;

-- What was forgotten and can still be brought back: whole rows, for thirty days. An observation that was forgotten by
-- itself has its content in `attic`, and only its name here.
create table put_away (
    forgetting_id  integer not null references forgettings (id),
    kind           text not null,
    row_id         integer not null,
    session_id     integer,
    project_id     integer,
    at             integer not null,            -- when it happened
    content        text not null,
    primary key (kind, row_id)
) strict, without rowid;
create index put_away_by_forgetting on put_away (forgetting_id);

-- What must not come back, from whatever file: the keyed hash of what something is known by, and the time for which
-- that holds. `forgotten.jsonl` has the same, so that a database that is put back learns it again (store/stones.py).
create table tombstones (
    mark           text not null,
    forgetting_id  integer not null,
    since          integer not null,
    until          integer not null,
    primary key (mark, forgetting_id)
) strict, without rowid;
create index tombstones_by_forgetting on tombstones (forgetting_id);

-- How long `audit.jsonl` was when it was last written, and its last hash: lines cut off its end are missed.
create table audit_head (
    id    integer primary key check (id = 1),
    n     integer not null,
    hash  text not null
) strict;

alter table sdk_sessions add column forgotten integer not null default 0;   -- by which forgetting, until it goes on
