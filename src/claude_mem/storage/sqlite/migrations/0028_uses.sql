-- What became of each item of an injection, turn by turn: `none` if nothing was seen of it in any turn so far. Computed
-- from the events when a turn is digested (`digest/uses.py`); a turn that is digested again replaces its rows.
create table uses (
    id            integer primary key,
    injection_id  integer not null references injections (id) on delete cascade,
    turn_id       integer not null references turns (id) on delete cascade,
    item          text not null,     -- its name in `injections.names`
    use           text not null check (use in ('none', 'opened', 'edited', 'ran', 'fetched', 'quoted', 'avoided',
                                               'repeated', 'contradicted')),
    at            integer not null,  -- of the event that shows it; of `none`, the end of the turn
    unique (injection_id, item, turn_id, use)
) strict;
create index uses_by_item on uses (item, injection_id, use);
create index uses_by_turn on uses (turn_id);
drop index events_recalling;  -- uses are stored now

-- The setting `holdout` when the moment was decided: the probability that nothing was said, and whether nothing was. A
-- row with `held_out` names what would have been said.
alter table injections add column holdout real not null default 0;
alter table injections add column held_out integer not null default 0;
create index injections_held_out on injections (id) where held_out;

-- How much a turn read, for comparison. Numbers only, so they stay when the events are purged.
create table turn_reading (
    turn_id                  integer primary key references turns (id) on delete cascade,
    characters               integer not null,  -- of files, that tools returned
    again_characters         integer not null,  -- of these, of files new to the session that an earlier session had read
    calls_before_edit        integer,           -- tool calls before the first edit of a file; null: there was none
    characters_before_edit   integer
) strict;

-- Uses go with the injection, the turn and the memory they are about. By triggers: in a copy of the database, foreign
-- keys are not enforced.
create trigger injections_uses_deleted after delete on injections begin
    delete from uses where injection_id = old.id;
end;
create trigger turns_uses_deleted after delete on turns begin
    delete from uses where turn_id = old.id;
    delete from turn_reading where turn_id = old.id;
end;
create trigger turns_uses_private after update of private on turns when new.private begin
    delete from uses where turn_id = new.id;
    delete from turn_reading where turn_id = new.id;
end;
create trigger observations_uses_forgotten after update of forgotten on observations when new.forgotten begin
    delete from uses where item in ('o' || new.id, 'rule:' || new.id, 'repeated:' || new.id);
end;
create trigger observations_uses_deleted after delete on observations begin
    delete from uses where item in ('o' || old.id, 'rule:' || old.id, 'repeated:' || old.id);
end;
create trigger summaries_uses_deleted after delete on session_summaries begin
    delete from uses where item = 's' || old.id;
end;
