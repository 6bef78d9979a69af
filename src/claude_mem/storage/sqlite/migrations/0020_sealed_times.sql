-- Seals vouch for the time of the last change too (store/seals.py): it is exported, and decides which of two records is newer.
drop trigger observations_seal_broken;
create trigger observations_seal_broken after update of
    session_id, project_id, turn_id, prompt_number, key, type, title, subtitle, narrative, facts, sources,
    concepts, files_read, files_modified, provider, model, tokens, trust, commit_id, hash, forgotten, pinned,
    verdict, created_at, updated_at on observations
    when (old.session_id, old.project_id, old.turn_id, old.prompt_number, old.key, old.type, old.title,
        old.subtitle, old.narrative, old.facts, old.sources, old.concepts, old.files_read, old.files_modified,
        old.provider, old.model, old.tokens, old.trust, old.commit_id, old.hash, old.forgotten, old.pinned,
        old.verdict, old.created_at, old.updated_at)
        is not (new.session_id, new.project_id, new.turn_id, new.prompt_number, new.key, new.type, new.title,
        new.subtitle, new.narrative, new.facts, new.sources, new.concepts, new.files_read, new.files_modified,
        new.provider, new.model, new.tokens, new.trust, new.commit_id, new.hash, new.forgotten, new.pinned,
        new.verdict, new.created_at, new.updated_at) begin
    delete from seals where id = new.id * 16 + 4;
    insert into unsealed values (new.id * 16 + 4) on conflict do nothing;
end;
delete from seals where id % 16 = 4;
insert into unsealed select id * 16 + 4 from observations where true on conflict do nothing;

drop trigger session_summaries_seal_broken;
create trigger session_summaries_seal_broken after update of
    session_id, project_id, turn_id, prompt_number, request, investigated, learned, completed, next_steps,
    notes, files_read, files_edited, closing, closing_trust, outcome, provider, trust, verdict, created_at,
    updated_at on session_summaries
    when (old.session_id, old.project_id, old.turn_id, old.prompt_number, old.request, old.investigated,
        old.learned, old.completed, old.next_steps, old.notes, old.files_read, old.files_edited, old.closing,
        old.closing_trust, old.outcome, old.provider, old.trust, old.verdict, old.created_at, old.updated_at)
        is not (new.session_id, new.project_id, new.turn_id, new.prompt_number, new.request, new.investigated,
        new.learned, new.completed, new.next_steps, new.notes, new.files_read, new.files_edited, new.closing,
        new.closing_trust, new.outcome, new.provider, new.trust, new.verdict, new.created_at, new.updated_at) begin
    delete from seals where id = new.id * 16 + 3;
    insert into unsealed values (new.id * 16 + 3) on conflict do nothing;
end;
delete from seals where id % 16 = 3;
insert into unsealed select id * 16 + 3 from session_summaries where true on conflict do nothing;
