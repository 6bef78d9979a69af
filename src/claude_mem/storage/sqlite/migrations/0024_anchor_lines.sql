-- Which lines of an anchor are meant, as bit sets: bit 0 is the first line.
alter table anchors add column committed integer not null default 0;  -- some commit has had these lines
alter table anchors add column removed integer not null default 0;    -- later turns have removed these lines

-- What looks have found is derived; it is found again at the next look.
drop table sightings;
create table sightings (
    anchor_id  integer not null references anchors (id) on delete cascade,
    root       text not null,             -- of the work tree
    stamp      text not null,             -- modification time and size of the file that was read; empty: no such file
    present    integer not null,          -- the lines that were there, as a bit set
    moved_to   text not null default '',
    commit_id  text not null default '',  -- HEAD at that time
    primary key (anchor_id, root)
) strict, without rowid;
