-- What was or is being brought in from elsewhere: how far it is, what came of it, and why it ended.
create table imports (
    id          integer primary key autoincrement,
    path        text not null,
    mark        text not null,              -- the file as it was: its size and time
    source      text not null check (source in ('export', 'older')),
    project     text not null default '',   -- only what belongs to this one
    untrusted   integer not null default 0, -- someone else's: found when searched for, never told unasked
    dry_run     integer not null default 0, -- counted, and nothing kept
    position    text not null default '',   -- where the next batch begins, as its reader writes it
    done        integer not null default 0, -- of `total`, in the reader's own measure
    total       integer not null default 0,
    counts      text not null default '{}', -- what became of the records, by outcome and kind
    notes       text not null default '[]', -- the first things that were wrong, in words
    error       text,
    started_at  integer not null,
    ended_at    integer
) strict;

-- What was saved by hand is known by its key, here and in every export.
create index observations_by_own_key on observations (key) where turn_id is null;
