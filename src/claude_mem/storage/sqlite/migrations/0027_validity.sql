-- A person's word that an observation holds although its code has changed or a later one superseded it. It counts until
-- the code changes again.
create table confirmations (
    observation_id  integer primary key references observations (id) on delete cascade,
    at              integer not null,
    fingerprint     text not null,  -- of the state of its code that the person saw
    superseded_by   integer         -- the observation that had superseded it, and does not any more
) strict;
create trigger observations_kept before update of superseded_by on observations
 when new.superseded_by is not null and old.superseded_by is null begin
    select raise(ignore) where exists (
        select 1 from confirmations c where c.observation_id = new.id and c.superseded_by = new.superseded_by);
end;

-- What was seen of an observation, and when: one row for each change of its validity.
create table validity_changes (
    id              integer primary key autoincrement,
    observation_id  integer not null references observations (id) on delete cascade,
    at              integer not null,
    validity        text not null,
    superseded_by   integer,
    head            text not null default '',  -- the commit of the work tree at that time
    commit_id       text not null default '',  -- the commit that has the work, or that took it back
    latest          integer not null default 1
) strict;
create index validity_changes_by_observation on validity_changes (observation_id, id);
create unique index validity_changes_latest on validity_changes (observation_id) where latest;

-- Observations whose state may have changed since the last row above. Filled by triggers, worked off after each look.
create table validity_queue (
    observation_id  integer primary key,
    head            text not null default ''
) strict;
create trigger anchors_added after insert on anchors begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;
create trigger anchors_removed after delete on anchors begin
    insert or ignore into validity_queue (observation_id) values (old.observation_id);
end;
create trigger anchors_committed after update of committed, landed on anchors begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;
create trigger sightings_added after insert on sightings begin
    insert into validity_queue select observation_id, new.commit_id from anchors where id = new.anchor_id
        on conflict do update set head = excluded.head where excluded.head != '';
end;
create trigger sightings_changed after update on sightings begin
    insert into validity_queue select observation_id, new.commit_id from anchors where id = new.anchor_id
        on conflict do update set head = excluded.head where excluded.head != '';
end;
create trigger outcomes_added after insert on outcomes begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;
create trigger outcomes_changed after update of outcome on outcomes begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;
create trigger observations_superseded after update of superseded_by on observations
 when new.superseded_by is not old.superseded_by begin
    insert or ignore into validity_queue (observation_id) values (new.id);
end;
create trigger observations_validity_forgotten after update of forgotten on observations when new.forgotten begin
    delete from confirmations where observation_id = new.id;
    delete from validity_changes where observation_id = new.id;
end;
insert or ignore into validity_queue (observation_id) select observation_id from anchors;
insert or ignore into validity_queue (observation_id) select id from observations where superseded_by is not null;
