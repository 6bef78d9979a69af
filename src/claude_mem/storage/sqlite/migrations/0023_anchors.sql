-- The lines of code that an observation speaks of.
create table anchors (
    id              integer primary key,
    observation_id  integer not null references observations (id) on delete cascade,
    path            text not null,             -- relative to the work tree
    kind            text not null check (kind in ('edit', 'read')),
    lines           blob not null,             -- hashes of its telling lines, eight bytes each
    blob_id         text not null default '',  -- git's id of the file as the turn left it, if that is known
    unique (observation_id, path)
) strict;
create index anchors_by_path on anchors (path);

-- What became of the work that an observation describes. One row for each observation that has anchors.
create table outcomes (
    observation_id  integer primary key references observations (id) on delete cascade,
    outcome         text not null check (outcome in ('tried', 'committed', 'landed', 'dropped', 'reverted', 'failed')),
    head            text not null default '',  -- commit and branch of the work tree when the turn ended, if known
    branch          text not null default '',
    commit_id       text not null default '',  -- the commit that has the lines, or that took them back
    judged_at       integer not null           -- when the outcome last changed
) strict;

-- What the last look at a work tree found of each anchor. Derived: it is found again at the next look.
create table sightings (
    anchor_id  integer not null references anchors (id) on delete cascade,
    root       text not null,             -- of the work tree
    stamp      text not null,             -- modification time and size of the file that was read; empty: no such file
    present    integer not null,          -- how many of the lines were there
    moved_to   text not null default '',
    commit_id  text not null default '',  -- HEAD at that time
    primary key (anchor_id, root)
) strict, without rowid;

-- A deleted observation keeps its row without content: its anchors name files, so they go.
create trigger observations_anchors_forgotten after update of forgotten on observations when new.forgotten begin
    delete from anchors where observation_id = new.id;
    delete from outcomes where observation_id = new.id;
end;
