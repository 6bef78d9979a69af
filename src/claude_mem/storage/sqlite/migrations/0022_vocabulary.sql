-- Names from docs/glossary.md for tables, columns, indexes and triggers. No row changes. SQLite rewrites the triggers and
-- indexes that mention a renamed table or column; those that are named after one are created again under a new name.
alter table attic rename to deleted_observations;
alter table put_away rename to deleted_rows;
alter table forgettings rename to deletions;
alter table told rename to injected_items;
alter table tellings rename to injections;
alter table seals rename to checksums;
alter table unsealed rename to checksum_queue;
alter table stale rename to index_queue;
alter table vectors_gone rename to deleted_vectors;
alter table seen rename to purged_event_hashes;
alter table tally rename to purged_counts;

alter table backfill_files rename column mark to cursor;
alter table backfill_files rename column opened to opened_session;
alter table backfills rename column asked_at to requested_at;
alter table deleted_observations rename column into_id to merged_into_id;
alter table deleted_rows rename column forgetting_id to deletion_id;
alter table imports rename column mark to file_signature;
alter table injected_items rename column moment to trigger;
alter table injected_items rename column what to item;
alter table injections rename column moment to trigger;
alter table notices rename column told_at to shown_at;
alter table purged_event_hashes rename column mark to hash;
alter table repositories rename column made to creation_id;
alter table sdk_sessions rename column heard_at to first_purged_at;
alter table sdk_sessions rename column informed_upto to newest_injected_id;
alter table tombstones rename column forgetting_id to deletion_id;
alter table tombstones rename column mark to keyed_hash;
alter table turns rename column events_gone to events_purged;

drop index observations_held;
create index observations_to_approve on observations (created_at, id, project_id, trust, verdict, forgotten)
    where not forgotten and verdict = '' and trust not in ('user', 'agent', 'repo', 'tool');
drop index session_summaries_held;
create index session_summaries_to_approve on session_summaries (created_at, id, project_id, trust, verdict)
    where verdict = '' and trust not in ('user', 'agent', 'repo', 'tool');
drop index attic_by_time;
create index deleted_observations_by_time on deleted_observations (at);
drop index attic_by_into;
create index deleted_observations_by_target on deleted_observations (merged_into_id) where merged_into_id is not null;
drop index history_to_fade;
create index history_to_expire on history (at) where before is not null;
drop index tellings_by_session;
create index injections_by_session on injections (host, content_session_id, at);
drop trigger tellings_gone;
create trigger injections_session_deleted after delete on sdk_sessions begin
    delete from injections where host = old.host and content_session_id = old.content_session_id;
end;

drop trigger tellings_in_private;
create trigger injections_private_refused before insert on injections begin
    select raise(ignore) where exists (
        select 1 from sdk_sessions s
         where s.host = new.host and s.content_session_id = new.content_session_id
           and (select t.private from turns t where t.session_id = s.id and t.opened_at <= new.at
                 order by t.opened_at desc, t.number desc limit 1));
end;

drop trigger tellings_made_private;
create trigger injections_turn_made_private after update of private on turns when new.private begin
    delete from injections
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;

drop trigger tellings_opened_private;
create trigger injections_turn_opened_private after insert on turns when new.private begin
    delete from injections
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;

drop index turns_to_fade;
create index turns_to_purge on turns (digested_at) where digested_at is not null and not events_purged;
drop trigger events_seal_added;
create trigger events_checksum_added after insert on events begin
    delete from checksums where id = new.seq * 16 + 1;
    insert into checksum_queue values (new.seq * 16 + 1) on conflict do nothing;
end;

drop trigger events_seal_broken;
create trigger events_checksum_outdated after update of
    event_id, session_id, turn_id, kind, at, tool_use_id, source, body on events
    when (old.event_id, old.session_id, old.turn_id, old.kind, old.at, old.tool_use_id, old.source, old.body) is not
        (new.event_id, new.session_id, new.turn_id, new.kind, new.at, new.tool_use_id, new.source, new.body) begin
    delete from checksums where id = new.seq * 16 + 1;
    insert into checksum_queue values (new.seq * 16 + 1) on conflict do nothing;
end;

drop trigger events_seal_gone;
create trigger events_checksum_deleted after delete on events begin
    delete from checksums where id = old.seq * 16 + 1;
    delete from checksum_queue where id = old.seq * 16 + 1;
end;

drop trigger user_prompts_seal_added;
create trigger user_prompts_checksum_added after insert on user_prompts begin
    delete from checksums where id = new.id * 16 + 2;
    insert into checksum_queue values (new.id * 16 + 2) on conflict do nothing;
end;

drop trigger user_prompts_seal_broken;
create trigger user_prompts_checksum_outdated after update of
    session_id, turn_id, prompt_number, text, created_at on user_prompts
    when (old.session_id, old.turn_id, old.prompt_number, old.text, old.created_at) is not (new.session_id,
        new.turn_id, new.prompt_number, new.text, new.created_at) begin
    delete from checksums where id = new.id * 16 + 2;
    insert into checksum_queue values (new.id * 16 + 2) on conflict do nothing;
end;

drop trigger user_prompts_seal_gone;
create trigger user_prompts_checksum_deleted after delete on user_prompts begin
    delete from checksums where id = old.id * 16 + 2;
    delete from checksum_queue where id = old.id * 16 + 2;
end;

drop trigger session_summaries_seal_added;
create trigger session_summaries_checksum_added after insert on session_summaries begin
    delete from checksums where id = new.id * 16 + 3;
    insert into checksum_queue values (new.id * 16 + 3) on conflict do nothing;
end;

drop trigger session_summaries_seal_gone;
create trigger session_summaries_checksum_deleted after delete on session_summaries begin
    delete from checksums where id = old.id * 16 + 3;
    delete from checksum_queue where id = old.id * 16 + 3;
end;

drop trigger observations_seal_added;
create trigger observations_checksum_added after insert on observations begin
    delete from checksums where id = new.id * 16 + 4;
    insert into checksum_queue values (new.id * 16 + 4) on conflict do nothing;
end;

drop trigger observations_seal_gone;
create trigger observations_checksum_deleted after delete on observations begin
    delete from checksums where id = old.id * 16 + 4;
    delete from checksum_queue where id = old.id * 16 + 4;
end;

drop trigger sdk_sessions_seal_added;
create trigger sdk_sessions_checksum_added after insert on sdk_sessions begin
    delete from checksums where id = new.id * 16 + 5;
    insert into checksum_queue values (new.id * 16 + 5) on conflict do nothing;
end;

drop trigger sdk_sessions_seal_broken;
create trigger sdk_sessions_checksum_outdated after update of
    host, content_session_id, project_id, first_prompt, title, subtitle, cwd, transcript_path, started_at on sdk_sessions
    when (old.host, old.content_session_id, old.project_id, old.first_prompt, old.title, old.subtitle, old.cwd,
        old.transcript_path, old.started_at) is not (new.host, new.content_session_id, new.project_id,
        new.first_prompt, new.title, new.subtitle, new.cwd, new.transcript_path, new.started_at) begin
    delete from checksums where id = new.id * 16 + 5;
    insert into checksum_queue values (new.id * 16 + 5) on conflict do nothing;
end;

drop trigger sdk_sessions_seal_gone;
create trigger sdk_sessions_checksum_deleted after delete on sdk_sessions begin
    delete from checksums where id = old.id * 16 + 5;
    delete from checksum_queue where id = old.id * 16 + 5;
end;

drop trigger turns_seal_added;
create trigger turns_checksum_added after insert on turns begin
    delete from checksums where id = new.id * 16 + 6;
    insert into checksum_queue values (new.id * 16 + 6) on conflict do nothing;
end;

drop trigger turns_seal_broken;
create trigger turns_checksum_outdated after update of
    session_id, number, prompt_id, private, opened_at on turns
    when (old.session_id, old.number, old.prompt_id, old.private, old.opened_at) is not (new.session_id, new.number,
        new.prompt_id, new.private, new.opened_at) begin
    delete from checksums where id = new.id * 16 + 6;
    insert into checksum_queue values (new.id * 16 + 6) on conflict do nothing;
end;

drop trigger turns_seal_gone;
create trigger turns_checksum_deleted after delete on turns begin
    delete from checksums where id = old.id * 16 + 6;
    delete from checksum_queue where id = old.id * 16 + 6;
end;

drop trigger projects_seal_added;
create trigger projects_checksum_added after insert on projects begin
    delete from checksums where id = new.id * 16 + 7;
    insert into checksum_queue values (new.id * 16 + 7) on conflict do nothing;
end;

drop trigger projects_seal_broken;
create trigger projects_checksum_outdated after update of
    name, root, created_at on projects
    when (old.name, old.root, old.created_at) is not (new.name, new.root, new.created_at) begin
    delete from checksums where id = new.id * 16 + 7;
    insert into checksum_queue values (new.id * 16 + 7) on conflict do nothing;
end;

drop trigger projects_seal_gone;
create trigger projects_checksum_deleted after delete on projects begin
    delete from checksums where id = old.id * 16 + 7;
    delete from checksum_queue where id = old.id * 16 + 7;
end;

drop trigger attic_seal_added;
create trigger deleted_observations_checksum_added after insert on deleted_observations begin
    delete from checksums where id = new.observation_id * 16 + 8;
    insert into checksum_queue values (new.observation_id * 16 + 8) on conflict do nothing;
end;

drop trigger attic_seal_broken;
create trigger deleted_observations_checksum_outdated after update of
    content, merged_into_id, at on deleted_observations
    when (old.content, old.merged_into_id, old.at) is not (new.content, new.merged_into_id, new.at) begin
    delete from checksums where id = new.observation_id * 16 + 8;
    insert into checksum_queue values (new.observation_id * 16 + 8) on conflict do nothing;
end;

drop trigger attic_seal_gone;
create trigger deleted_observations_checksum_deleted after delete on deleted_observations begin
    delete from checksums where id = old.observation_id * 16 + 8;
    delete from checksum_queue where id = old.observation_id * 16 + 8;
end;

drop trigger passages_seal_added;
create trigger passages_checksum_added after insert on passages begin
    delete from checksums where id = new.id * 16 + 9;
    insert into checksum_queue values (new.id * 16 + 9) on conflict do nothing;
end;

drop trigger passages_seal_broken;
create trigger passages_checksum_outdated after update of
    document_id, title, body, hints, around on passages
    when (old.document_id, old.title, old.body, old.hints, old.around) is not (new.document_id, new.title, new.body,
        new.hints, new.around) begin
    delete from checksums where id = new.id * 16 + 9;
    insert into checksum_queue values (new.id * 16 + 9) on conflict do nothing;
end;

drop trigger passages_seal_gone;
create trigger passages_checksum_deleted after delete on passages begin
    delete from checksums where id = old.id * 16 + 9;
    delete from checksum_queue where id = old.id * 16 + 9;
end;

drop trigger vectors_seal_added;
create trigger vectors_checksum_added after insert on vectors begin
    delete from checksums where id = new.document_id * 16 + 10;
    insert into checksum_queue values (new.document_id * 16 + 10) on conflict do nothing;
end;

drop trigger vectors_seal_broken;
create trigger vectors_checksum_outdated after update of
    model, part, hash, vector on vectors
    when (old.model, old.part, old.hash, old.vector) is not (new.model, new.part, new.hash, new.vector) begin
    delete from checksums where id = new.document_id * 16 + 10;
    insert into checksum_queue values (new.document_id * 16 + 10) on conflict do nothing;
end;

drop trigger vectors_seal_gone;
create trigger vectors_checksum_deleted after delete on vectors begin
    delete from checksums where id = old.document_id * 16 + 10;
    insert into checksum_queue select old.document_id * 16 + 10
     where exists (select 1 from vectors where document_id = old.document_id) on conflict do nothing;
end;

drop index tombstones_by_forgetting;
create index tombstones_by_deletion on tombstones (deletion_id);
drop index put_away_by_forgetting;
create index deleted_rows_by_deletion on deleted_rows (deletion_id);
drop index repositories_by_made;
create index repositories_by_creation_id on repositories (creation_id) where creation_id != '';
drop trigger observations_seal_broken;
create trigger observations_checksum_outdated after update of
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
    delete from checksums where id = new.id * 16 + 4;
    insert into checksum_queue values (new.id * 16 + 4) on conflict do nothing;
end;

drop trigger session_summaries_seal_broken;
create trigger session_summaries_checksum_outdated after update of
    session_id, project_id, turn_id, prompt_number, request, investigated, learned, completed, next_steps,
    notes, files_read, files_edited, closing, closing_trust, outcome, provider, trust, verdict, created_at,
    updated_at on session_summaries
    when (old.session_id, old.project_id, old.turn_id, old.prompt_number, old.request, old.investigated,
        old.learned, old.completed, old.next_steps, old.notes, old.files_read, old.files_edited, old.closing,
        old.closing_trust, old.outcome, old.provider, old.trust, old.verdict, old.created_at, old.updated_at)
        is not (new.session_id, new.project_id, new.turn_id, new.prompt_number, new.request, new.investigated,
        new.learned, new.completed, new.next_steps, new.notes, new.files_read, new.files_edited, new.closing,
        new.closing_trust, new.outcome, new.provider, new.trust, new.verdict, new.created_at, new.updated_at) begin
    delete from checksums where id = new.id * 16 + 3;
    insert into checksum_queue values (new.id * 16 + 3) on conflict do nothing;
end;
