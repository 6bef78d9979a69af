-- Phrases of the anchored lines: pairs of neighbouring words, as hashes of three bytes each. A line that was reworded keeps
-- most of its phrases, one that was replaced does not.
alter table anchors add column phrases blob not null default x'';
alter table sightings add column phrases integer not null default -1;  -- those that were there, as a bit set, or -1

-- Observations whose anchors are older than phrases get them from the events or the transcripts that remain.
insert or ignore into jobs (kind, subject, due_at, created_at)
select distinct 'anchor', o.turn_id, unixepoch() * 1000, unixepoch() * 1000
  from anchors a join observations o on o.id = a.observation_id
 where a.kind = 'edit' and o.turn_id is not null and not o.forgotten;

-- A person's word that an observation holds outweighs all that had superseded it by then, also when both are imported.
drop trigger observations_kept;
create trigger observations_kept before update of superseded_by on observations
 when new.superseded_by is not null and old.superseded_by is null begin
    select raise(ignore) where exists (
        select 1 from confirmations c join observations n on n.id = new.superseded_by
         where c.observation_id = new.id and (c.superseded_by = n.id or n.created_at <= c.at));
end;
