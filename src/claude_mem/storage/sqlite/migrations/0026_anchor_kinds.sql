-- Two more kinds of anchors, and which lines reached the default branch. A check can only be changed by making the table again.
create table anchors_now (
    id              integer primary key,
    observation_id  integer not null references observations (id) on delete cascade,
    path            text not null,             -- relative to the work tree; of a command its key, as in `calls`
    kind            text not null check (kind in ('edit', 'read', 'removal', 'command')),
    lines           blob not null,             -- hashes of its telling lines, eight bytes each
    blob_id         text not null default '',  -- git's id of the file as the turn left it, if that is known
    committed       integer not null default 0, -- the lines that some commit has had, as a bit set: bit 0 is the first line
    landed          integer not null default 0, -- the lines that a commit of the default branch has had
    unique (observation_id, path)
) strict;
insert into anchors_now
select a.id, a.observation_id, a.path, a.kind, a.lines, a.blob_id, a.committed, iif(u.outcome is 'landed', a.committed, 0)
  from anchors a left join outcomes u on u.observation_id = a.observation_id;
create table sightings_now as select * from sightings;
drop trigger observations_anchors_forgotten;
drop table sightings;
drop table anchors;
alter table anchors_now rename to anchors;
create index anchors_by_path on anchors (path);
create table sightings (
    anchor_id  integer not null references anchors (id) on delete cascade,
    root       text not null,             -- of the work tree
    stamp      text not null,             -- modification time and size of the file that was read; empty: no such file
    present    integer not null,          -- the lines that were there, as a bit set
    moved_to   text not null default '',
    commit_id  text not null default '',  -- HEAD at that time
    primary key (anchor_id, root)
) strict, without rowid;
insert into sightings select * from sightings_now;
drop table sightings_now;

-- Observations from before there were anchors get theirs from the events or the transcripts that remain.
insert or ignore into jobs (kind, subject, due_at, created_at)
select distinct 'anchor', o.turn_id, unixepoch() * 1000, unixepoch() * 1000 from observations o
 where o.turn_id is not null and not o.forgotten and o.files_modified != '[]'
   and not exists (select 1 from anchors a where a.observation_id = o.id);

-- A deleted observation keeps its row without content: its anchors name files, so they go.
create trigger observations_anchors_forgotten after update of forgotten on observations when new.forgotten begin
    delete from anchors where observation_id = new.id;
    delete from outcomes where observation_id = new.id;
end;

-- The anchor of a command follows from the title; so do its words, which may have been redacted.
create trigger observations_title_changed after update of title on observations when new.title is not old.title begin
    delete from anchors where observation_id = new.id and kind = 'command';
end;
