-- What the agent said at the end of the turn, word for word, and how the work ended.
alter table session_summaries add column closing text not null default '';
alter table session_summaries add column closing_trust text not null default 'agent';   -- the lowest of what it rests on
alter table session_summaries add column outcome text not null default ''
    check (outcome in ('', 'done', 'partly', 'failed', 'abandoned', 'answered', 'proposed'));

-- A later rule on the same subject: the earlier one is kept, but no longer shown unasked.
alter table observations add column superseded_by integer references observations (id) on delete set null;
create index observations_superseded on observations (superseded_by) where superseded_by is not null;
create index observations_rules on observations (project_id, created_at) where type = 'rule';

-- The version of the writer that last digested the turn. 0: up to 0.1.0; such turns are digested again in the background.
-- Negative: that version found nothing left to digest.
alter table turns add column writer integer not null default 0;
create index turns_to_rewrite on turns (writer, id)
 where digested_at is not null and not private;

-- Seals vouch for the closing message too (store/seals.py).
drop trigger session_summaries_seal_broken;
create trigger session_summaries_seal_broken after update of
    session_id, project_id, turn_id, prompt_number, request, investigated, learned, completed, next_steps, notes,
    files_read, files_edited, closing, closing_trust, outcome, provider, trust, verdict, created_at on session_summaries
    when (old.session_id, old.project_id, old.turn_id, old.prompt_number, old.request, old.investigated, old.learned,
        old.completed, old.next_steps, old.notes, old.files_read, old.files_edited, old.closing, old.closing_trust,
        old.outcome, old.provider, old.trust, old.verdict, old.created_at) is not (new.session_id, new.project_id,
        new.turn_id, new.prompt_number, new.request, new.investigated, new.learned, new.completed, new.next_steps,
        new.notes, new.files_read, new.files_edited, new.closing, new.closing_trust, new.outcome, new.provider,
        new.trust, new.verdict, new.created_at) begin
    delete from seals where id = new.id * 16 + 3;
    insert into unsealed values (new.id * 16 + 3) on conflict do nothing;
end;
delete from seals where id % 16 = 3;
insert into unsealed select id * 16 + 3 from session_summaries where true on conflict do nothing;
