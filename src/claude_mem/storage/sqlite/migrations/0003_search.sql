-- What can be found: one row for each observation, summary and prompt, and one for each turn as a whole. All of it is
-- derived from the tables it names and may be made again at any time.
create table documents (
    id          integer primary key autoincrement,
    kind        text not null check (kind in ('observation', 'summary', 'prompt', 'turn')),
    row_id      integer not null,           -- in the table of its kind
    project_id  integer not null,
    session_id  integer,
    turn_id     integer,                    -- NULL: saved by hand
    created_at  integer not null,
    unique (kind, row_id)
) strict;
create index documents_by_project on documents (project_id, created_at);
create index documents_by_turn on documents (turn_id);
create index documents_by_session on documents (session_id);

-- The words of each, as they are indexed. A long text is several passages: BM25 and the models both expect texts of
-- about the same length. The narrow rows above are joined often, these are read for a few.
create table passages (
    id           integer primary key,       -- 1000 × document + number of the passage: both can be told from it
    document_id  integer not null references documents (id) on delete cascade,
    title        text not null,
    body         text not null,
    hints        text not null,             -- the date, names taken apart, what tools were given; weighs half
    around       text not null              -- what was said just before and after; weighs little
) strict;
create index passages_by_document on passages (document_id);

create virtual table words using fts5 (
    title, body, hints, around,
    content = 'passages', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
insert into words (words, rank) values ('secure-delete', 1);   -- a forgotten word leaves the index at once

create trigger passages_added after insert on passages begin
    insert into words (rowid, title, body, hints, around) values (new.id, new.title, new.body, new.hints, new.around);
end;
create trigger passages_removed after delete on passages begin
    insert into words (words, rowid, title, body, hints, around)
    values ('delete', old.id, old.title, old.body, old.hints, old.around);
end;
create trigger passages_changed after update on passages begin
    insert into words (words, rowid, title, body, hints, around)
    values ('delete', old.id, old.title, old.body, old.hints, old.around);
    insert into words (rowid, title, body, hints, around) values (new.id, new.title, new.body, new.hints, new.around);
end;

-- What a document can be found by besides its words: exact things that code work leaves.
create table signals (
    document_id  integer not null references documents (id) on delete cascade,
    kind         text not null check (kind in ('edited', 'read', 'name', 'error', 'command', 'commit', 'branch')),
    value        text not null,
    times        integer not null default 1,
    primary key (document_id, kind, value)
) strict, without rowid;
create index signals_by_value on signals (kind, value);

-- The meaning of a passage: 384 signed bytes and the factor that makes them numbers.
create table vectors (
    document_id  integer not null references documents (id) on delete cascade,
    model        text not null,             -- vectors of different models can't be compared
    part         integer not null,          -- the passage's number
    hash         text not null,             -- of the text it was made of
    vector       blob not null,
    primary key (document_id, model, part)
) strict, without rowid;

-- A vector goes with the words it was made of, and the copy in memory has to hear of it.
create table vectors_gone (document_id integer primary key) strict;
create trigger passages_reworded after update of title, body on passages
    when (old.title, old.body) is not (new.title, new.body) begin
    delete from vectors where document_id = old.document_id;
end;
create trigger passages_dropped after delete on passages begin
    delete from vectors where document_id = old.document_id;
end;
create trigger vectors_removed after delete on vectors begin
    insert into vectors_gone values (old.document_id) on conflict do nothing;
end;

-- Rows whose documents have to be made again. Triggers put them here, so no way of writing can be forgotten. (`on conflict
-- do nothing`, not `or ignore`: the statement that fires a trigger would replace the latter by its own policy.)
create table stale (
    kind    text not null,
    row_id  integer not null,
    primary key (kind, row_id)
) strict, without rowid;

create trigger observations_added after insert on observations begin
    insert into stale values ('observation', new.id) on conflict do nothing;
end;
create trigger observations_changed after update on observations begin
    delete from documents where kind = 'observation' and row_id = new.id and new.forgotten;
    insert into stale values ('observation', new.id) on conflict do nothing;
end;
create trigger observations_removed after delete on observations begin
    delete from documents where kind = 'observation' and row_id = old.id;
    delete from stale where kind = 'observation' and row_id = old.id;
end;

create trigger summaries_added after insert on session_summaries begin
    insert into stale values ('summary', new.id) on conflict do nothing;
end;
create trigger summaries_changed after update on session_summaries begin
    insert into stale values ('summary', new.id) on conflict do nothing;
end;
create trigger summaries_removed after delete on session_summaries begin
    delete from documents where kind = 'summary' and row_id = old.id;
    delete from stale where kind = 'summary' and row_id = old.id;
end;

create trigger prompts_added after insert on user_prompts begin
    insert into stale values ('prompt', new.id) on conflict do nothing;
    insert into stale values ('turn', new.turn_id) on conflict do nothing;
end;
create trigger prompts_changed after update on user_prompts begin
    insert into stale values ('prompt', new.id) on conflict do nothing;
    insert into stale values ('turn', new.turn_id) on conflict do nothing;
end;
create trigger prompts_removed after delete on user_prompts begin
    delete from documents where kind = 'prompt' and row_id = old.id;
    delete from stale where kind = 'prompt' and row_id = old.id;
end;

create trigger events_added after insert on events when new.turn_id is not null begin
    insert into stale values ('turn', new.turn_id) on conflict do nothing;
end;
create trigger turns_closed after update of closed_at, digested_at on turns begin
    insert into stale values ('turn', new.id) on conflict do nothing;
end;
create trigger turns_hidden after update of private on turns when new.private begin
    delete from documents where turn_id = new.id;
end;
create trigger turns_removed after delete on turns begin
    delete from documents where turn_id = old.id;
    delete from stale where kind = 'turn' and row_id = old.id;
end;

-- What a document says about its neighbours goes with the neighbour. Of turns these are the ones before and after and
-- the turn's own observations; of what is saved by hand, whatever was saved within ten minutes.
create trigger documents_removed after delete on documents begin
    update passages set around = ''
     where around != '' and document_id in (
        select d.id from turns t join turns near using (session_id) join documents d on d.turn_id = near.id
         where t.id = old.turn_id and near.number between t.number - 1 and t.number + 1 and old.kind in ('prompt', 'turn')
        union all
        select id from documents
         where old.turn_id is null and turn_id is null and project_id = old.project_id
           and created_at between old.created_at - 600000 and old.created_at + 600000);
    insert into stale
        select d.kind, d.row_id from turns t join turns near using (session_id) join documents d on d.turn_id = near.id
         where t.id = old.turn_id and near.number between t.number - 1 and t.number + 1 and old.kind in ('prompt', 'turn')
           and d.id != old.id
        union all
        select kind, row_id from documents
         where old.turn_id is null and turn_id is null and project_id = old.project_id
           and created_at between old.created_at - 600000 and old.created_at + 600000
        on conflict do nothing;
end;

-- What is there already becomes findable when the worker next looks.
insert into stale select 'observation', id from observations where not forgotten;
insert into stale select 'summary', id from session_summaries;
insert into stale select 'prompt', id from user_prompts;
insert into stale select 'turn', id from turns where not private;
