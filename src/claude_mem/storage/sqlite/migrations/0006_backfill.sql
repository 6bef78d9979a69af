-- One time that old transcripts were asked for. How far the tables were then: what is beyond is new since.
create table backfills (
    id            integer primary key autoincrement,
    asked_at      integer not null,
    sessions      integer not null,
    turns         integer not null,
    events        integer not null,
    observations  integer not null
) strict;

-- An old transcript: as it was when it was asked for, how far it has been read, and what became of it.
create table backfill_files (
    id           integer primary key autoincrement,
    backfill_id  integer not null references backfills (id),
    path         text not null unique,
    host         text not null default '',
    size         integer not null,
    changed_at   integer not null,          -- nanoseconds, as the file system says
    state        text not null check (state in ('waiting', 'read', 'skipped')),
    problem      text not null default '',  -- why it was skipped; or what was wrong with one that was read
    bad_lines    integer not null default 0,
    session_id   integer references sdk_sessions (id) on delete set null,
    opened       integer not null default 0,   -- the session was not known before: it is this file's to close
    parts        integer not null default 0,   -- how many have been read
    agent        text not null default '',  -- the subagent whose file is read now; '': the session's own
    mark         text not null default '',  -- where to go on in it, in its reader's words
    offset       integer not null default 0    -- about how far that is, in bytes
) strict;

create index backfill_files_by_backfill on backfill_files (backfill_id, state);
create index backfill_files_waiting on backfill_files (session_id) where state = 'waiting';
