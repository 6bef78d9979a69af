-- What a row said when it was last looked at, as one number: SQLite itself notices few flipped bits. `id` is 16 × the
-- row's number + the number of its kind (store/seals.py). A row that changes loses its seal and waits for a new one;
-- triggers see to it, so no way of writing can be forgotten.
create table seals (
    id   integer primary key,
    sum  integer not null
) strict;
create table unsealed (id integer primary key) strict;

-- What was looked at, when, and what was found: the last check of each kind, the drill of each backup.
create table checks (
    name  text primary key,             -- start | full | backup | drill:NAME | …
    at    integer not null,
    ok    integer not null,
    text  text not null default ''
) strict, without rowid;

-- Events that are past keeping: how many there were, by what became of them, and marks by which each is known should a
-- file bring it again. Each mark is the hash of an event's id or of a tool call.
create table tally (
    outcome  text not null check (outcome in ('stored', 'filtered', 'set_aside')),
    rule     text not null default '',
    n        integer not null,
    primary key (outcome, rule)
) strict, without rowid;
create table seen (mark integer primary key) strict;

alter table turns add column events_gone integer not null default 0;   -- so many of its events are past keeping
alter table sdk_sessions add column heard_at integer;   -- of those, the first that a hook or a client told
create index turns_to_fade on turns (digested_at) where digested_at is not null and not events_gone;
create index receipts_by_time on receipts (at) where outcome != 'stored';

create trigger events_seal_added after insert on events begin
    delete from seals where id = new.seq * 16 + 1;
    insert into unsealed values (new.seq * 16 + 1) on conflict do nothing;
end;
create trigger events_seal_broken after update of
    event_id, session_id, turn_id, kind, at, tool_use_id, source, body on events
    when (old.event_id, old.session_id, old.turn_id, old.kind, old.at, old.tool_use_id, old.source, old.body) is not
        (new.event_id, new.session_id, new.turn_id, new.kind, new.at, new.tool_use_id, new.source, new.body) begin
    delete from seals where id = new.seq * 16 + 1;
    insert into unsealed values (new.seq * 16 + 1) on conflict do nothing;
end;
create trigger events_seal_gone after delete on events begin
    delete from seals where id = old.seq * 16 + 1;
    delete from unsealed where id = old.seq * 16 + 1;
end;

create trigger user_prompts_seal_added after insert on user_prompts begin
    delete from seals where id = new.id * 16 + 2;
    insert into unsealed values (new.id * 16 + 2) on conflict do nothing;
end;
create trigger user_prompts_seal_broken after update of
    session_id, turn_id, prompt_number, text, created_at on user_prompts
    when (old.session_id, old.turn_id, old.prompt_number, old.text, old.created_at) is not (new.session_id,
        new.turn_id, new.prompt_number, new.text, new.created_at) begin
    delete from seals where id = new.id * 16 + 2;
    insert into unsealed values (new.id * 16 + 2) on conflict do nothing;
end;
create trigger user_prompts_seal_gone after delete on user_prompts begin
    delete from seals where id = old.id * 16 + 2;
    delete from unsealed where id = old.id * 16 + 2;
end;

create trigger session_summaries_seal_added after insert on session_summaries begin
    delete from seals where id = new.id * 16 + 3;
    insert into unsealed values (new.id * 16 + 3) on conflict do nothing;
end;
create trigger session_summaries_seal_broken after update of
    session_id, project_id, turn_id, prompt_number, request, investigated, learned, completed, next_steps, notes,
    files_read, files_edited, provider, trust, verdict, created_at on session_summaries
    when (old.session_id, old.project_id, old.turn_id, old.prompt_number, old.request, old.investigated, old.learned,
        old.completed, old.next_steps, old.notes, old.files_read, old.files_edited, old.provider, old.trust,
        old.verdict, old.created_at) is not (new.session_id, new.project_id, new.turn_id, new.prompt_number,
        new.request, new.investigated, new.learned, new.completed, new.next_steps, new.notes, new.files_read,
        new.files_edited, new.provider, new.trust, new.verdict, new.created_at) begin
    delete from seals where id = new.id * 16 + 3;
    insert into unsealed values (new.id * 16 + 3) on conflict do nothing;
end;
create trigger session_summaries_seal_gone after delete on session_summaries begin
    delete from seals where id = old.id * 16 + 3;
    delete from unsealed where id = old.id * 16 + 3;
end;

create trigger observations_seal_added after insert on observations begin
    delete from seals where id = new.id * 16 + 4;
    insert into unsealed values (new.id * 16 + 4) on conflict do nothing;
end;
create trigger observations_seal_broken after update of
    session_id, project_id, turn_id, prompt_number, key, type, title, subtitle, narrative, facts, sources, concepts,
    files_read, files_modified, provider, model, tokens, trust, commit_id, hash, forgotten, pinned, verdict,
    created_at on observations
    when (old.session_id, old.project_id, old.turn_id, old.prompt_number, old.key, old.type, old.title, old.subtitle,
        old.narrative, old.facts, old.sources, old.concepts, old.files_read, old.files_modified, old.provider,
        old.model, old.tokens, old.trust, old.commit_id, old.hash, old.forgotten, old.pinned, old.verdict,
        old.created_at) is not (new.session_id, new.project_id, new.turn_id, new.prompt_number, new.key, new.type,
        new.title, new.subtitle, new.narrative, new.facts, new.sources, new.concepts, new.files_read,
        new.files_modified, new.provider, new.model, new.tokens, new.trust, new.commit_id, new.hash, new.forgotten,
        new.pinned, new.verdict, new.created_at) begin
    delete from seals where id = new.id * 16 + 4;
    insert into unsealed values (new.id * 16 + 4) on conflict do nothing;
end;
create trigger observations_seal_gone after delete on observations begin
    delete from seals where id = old.id * 16 + 4;
    delete from unsealed where id = old.id * 16 + 4;
end;

create trigger sdk_sessions_seal_added after insert on sdk_sessions begin
    delete from seals where id = new.id * 16 + 5;
    insert into unsealed values (new.id * 16 + 5) on conflict do nothing;
end;
create trigger sdk_sessions_seal_broken after update of
    host, content_session_id, project_id, first_prompt, title, subtitle, cwd, transcript_path, started_at on sdk_sessions
    when (old.host, old.content_session_id, old.project_id, old.first_prompt, old.title, old.subtitle, old.cwd,
        old.transcript_path, old.started_at) is not (new.host, new.content_session_id, new.project_id,
        new.first_prompt, new.title, new.subtitle, new.cwd, new.transcript_path, new.started_at) begin
    delete from seals where id = new.id * 16 + 5;
    insert into unsealed values (new.id * 16 + 5) on conflict do nothing;
end;
create trigger sdk_sessions_seal_gone after delete on sdk_sessions begin
    delete from seals where id = old.id * 16 + 5;
    delete from unsealed where id = old.id * 16 + 5;
end;

create trigger turns_seal_added after insert on turns begin
    delete from seals where id = new.id * 16 + 6;
    insert into unsealed values (new.id * 16 + 6) on conflict do nothing;
end;
create trigger turns_seal_broken after update of
    session_id, number, prompt_id, private, opened_at on turns
    when (old.session_id, old.number, old.prompt_id, old.private, old.opened_at) is not (new.session_id, new.number,
        new.prompt_id, new.private, new.opened_at) begin
    delete from seals where id = new.id * 16 + 6;
    insert into unsealed values (new.id * 16 + 6) on conflict do nothing;
end;
create trigger turns_seal_gone after delete on turns begin
    delete from seals where id = old.id * 16 + 6;
    delete from unsealed where id = old.id * 16 + 6;
end;

create trigger projects_seal_added after insert on projects begin
    delete from seals where id = new.id * 16 + 7;
    insert into unsealed values (new.id * 16 + 7) on conflict do nothing;
end;
create trigger projects_seal_broken after update of
    name, root, created_at on projects
    when (old.name, old.root, old.created_at) is not (new.name, new.root, new.created_at) begin
    delete from seals where id = new.id * 16 + 7;
    insert into unsealed values (new.id * 16 + 7) on conflict do nothing;
end;
create trigger projects_seal_gone after delete on projects begin
    delete from seals where id = old.id * 16 + 7;
    delete from unsealed where id = old.id * 16 + 7;
end;

create trigger attic_seal_added after insert on attic begin
    delete from seals where id = new.observation_id * 16 + 8;
    insert into unsealed values (new.observation_id * 16 + 8) on conflict do nothing;
end;
create trigger attic_seal_broken after update of
    content, into_id, at on attic
    when (old.content, old.into_id, old.at) is not (new.content, new.into_id, new.at) begin
    delete from seals where id = new.observation_id * 16 + 8;
    insert into unsealed values (new.observation_id * 16 + 8) on conflict do nothing;
end;
create trigger attic_seal_gone after delete on attic begin
    delete from seals where id = old.observation_id * 16 + 8;
    delete from unsealed where id = old.observation_id * 16 + 8;
end;

create trigger passages_seal_added after insert on passages begin
    delete from seals where id = new.id * 16 + 9;
    insert into unsealed values (new.id * 16 + 9) on conflict do nothing;
end;
create trigger passages_seal_broken after update of
    document_id, title, body, hints, around on passages
    when (old.document_id, old.title, old.body, old.hints, old.around) is not (new.document_id, new.title, new.body,
        new.hints, new.around) begin
    delete from seals where id = new.id * 16 + 9;
    insert into unsealed values (new.id * 16 + 9) on conflict do nothing;
end;
create trigger passages_seal_gone after delete on passages begin
    delete from seals where id = old.id * 16 + 9;
    delete from unsealed where id = old.id * 16 + 9;
end;

create trigger vectors_seal_added after insert on vectors begin
    delete from seals where id = new.document_id * 16 + 10;
    insert into unsealed values (new.document_id * 16 + 10) on conflict do nothing;
end;
create trigger vectors_seal_broken after update of
    model, part, hash, vector on vectors
    when (old.model, old.part, old.hash, old.vector) is not (new.model, new.part, new.hash, new.vector) begin
    delete from seals where id = new.document_id * 16 + 10;
    insert into unsealed values (new.document_id * 16 + 10) on conflict do nothing;
end;
create trigger vectors_seal_gone after delete on vectors begin
    delete from seals where id = old.document_id * 16 + 10;
    insert into unsealed select old.document_id * 16 + 10
     where exists (select 1 from vectors where document_id = old.document_id) on conflict do nothing;
end;

-- What is there already gets its seal when the worker has nothing else to do.
insert into unsealed select seq * 16 + 1 from events;
insert into unsealed select id * 16 + 2 from user_prompts;
insert into unsealed select id * 16 + 3 from session_summaries;
insert into unsealed select id * 16 + 4 from observations;
insert into unsealed select id * 16 + 5 from sdk_sessions;
insert into unsealed select id * 16 + 6 from turns;
insert into unsealed select id * 16 + 7 from projects;
insert into unsealed select observation_id * 16 + 8 from attic;
insert into unsealed select id * 16 + 9 from passages;
insert into unsealed select distinct document_id * 16 + 10 from vectors;
