-- What a person said of it: 'approved' may be told though it came from outside, 'wrong' is neither told nor found.
alter table observations add column verdict text not null default '' check (verdict in ('', 'approved', 'wrong'));
alter table session_summaries add column verdict text not null default '' check (verdict in ('', 'approved', 'wrong'));

-- What waits for a person's word; all that listing and counting look at. The condition is `HELD` in store/observations.py.
create index observations_held on observations (created_at, id, project_id, trust, verdict, forgotten)
    where not forgotten and verdict = '' and trust not in ('user', 'agent', 'repo', 'tool');
create index session_summaries_held on session_summaries (created_at, id, project_id, trust, verdict)
    where verdict = '' and trust not in ('user', 'agent', 'repo', 'tool');

-- A wrong one leaves the index like a forgotten one.
drop trigger observations_changed;
create trigger observations_changed after update on observations begin
    delete from documents where kind = 'observation' and row_id = new.id and (new.forgotten or new.verdict = 'wrong');
    insert into stale values ('observation', new.id) on conflict do nothing;
end;
drop trigger summaries_changed;
create trigger summaries_changed after update on session_summaries begin
    delete from documents where kind = 'summary' and row_id = new.id and new.verdict = 'wrong';
    insert into stale values ('summary', new.id) on conflict do nothing;
end;

-- The content of what was forgotten, as long as that can be undone. Its row in `observations` is empty.
create table attic (
    observation_id  integer primary key references observations (id) on delete cascade,
    content         text not null,
    into_id         integer references observations (id) on delete set null,   -- the one it was merged into
    at              integer not null
) strict;
create index attic_by_time on attic (at);
create index attic_by_into on attic (into_id) where into_id is not null;

-- What people and agents did to an observation. `before` is what undoing it puts back; NULL when it is too late for that.
create table history (
    id              integer primary key autoincrement,
    observation_id  integer not null references observations (id) on delete cascade,
    at              integer not null,
    what            text not null check (what in ('edited', 'pinned', 'unpinned', 'merged', 'wrong', 'right', 'approved',
                                                  'forgotten', 'restored')),
    before          text,
    by              text not null,          -- user | agent
    undone          integer not null default 0
) strict;
create index history_by_observation on history (observation_id, id);
create index history_to_fade on history (at) where before is not null;
