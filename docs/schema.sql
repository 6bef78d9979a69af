-- Printed from a migrated database, for reading only. The schema is defined in src/claude_mem/storage/sqlite/migrations.

CREATE TABLE projects (
    id          integer primary key autoincrement,
    name        text not null,
    root        text not null,
    created_at  integer not null
) strict;

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE project_aliases (
    identity    text primary key,
    project_id  integer not null references projects (id) on delete cascade
) strict, without rowid;

CREATE TABLE project_dirs (
    dir         text primary key,
    project_id  integer not null references projects (id) on delete cascade
) strict, without rowid;

CREATE TABLE sdk_sessions (
    id                  integer primary key autoincrement,
    host                text not null,
    content_session_id  text not null,
    memory_session_id   text,               -- the compressor's own session; NULL until one has been captured
    project_id          integer not null references projects (id),
    first_prompt        text,
    prompt_counter      integer not null default 0,
    title               text,
    subtitle            text,
    status              text not null default 'initialized'
                        check (status in ('initialized', 'active', 'completed', 'failed', 'interrupted')),
    cwd                 text not null default '',     -- the folder it was started in
    transcript_path     text not null default '',
    transcript_offset   integer not null default 0,   -- bytes of the transcript that have been taken in
    host_pid            integer,            -- the agent's process; if it is gone, so is its turn
    newest_injected_id       integer not null default 0,   -- the newest observation this session has been told
    started_at          integer not null,
    last_event_at       integer not null,
    ended_at            integer, first_purged_at integer, forgotten integer not null default 0, branches text not null default '[]',
    unique (host, content_session_id)
) strict;

CREATE INDEX sdk_sessions_by_project on sdk_sessions (project_id, last_event_at);

CREATE INDEX sdk_sessions_by_status on sdk_sessions (status, last_event_at);

CREATE TABLE turns (
    id           integer primary key autoincrement,
    session_id   integer not null references sdk_sessions (id) on delete cascade,
    number       integer not null,
    prompt_id    text,                      -- the host's id of the prompt, where it gives one
    private      integer not null default 0,   -- the whole prompt was private: nothing of this turn is kept
    opened_at    integer not null,
    last_at      integer not null,
    closed_at    integer,
    closed_by    text,        -- stop, prompt, session_start, session_end, silence, host_gone, deleted or backfill
    digested_at  integer, events_purged integer not null default 0, writer integer not null default 0,
    unique (session_id, number)
) strict;

CREATE UNIQUE INDEX turns_by_prompt on turns (session_id, prompt_id) where prompt_id is not null;

CREATE INDEX turns_open on turns (last_at) where closed_at is null;

CREATE INDEX turns_undigested on turns (session_id) where closed_at is not null and digested_at is null;

CREATE TABLE user_prompts (
    id             integer primary key autoincrement,
    session_id     integer not null references sdk_sessions (id) on delete cascade,
    turn_id        integer not null unique references turns (id) on delete cascade,
    prompt_number  integer not null,
    text           text not null,
    created_at     integer not null
) strict;

CREATE TABLE receipts (
    event_id  text primary key,
    outcome   text not null check (outcome in ('stored', 'filtered', 'set_aside')),
    rule      text not null default '',     -- which rule filtered it, or why it was set aside
    at        integer not null
) strict, without rowid;

CREATE INDEX receipts_by_outcome on receipts (outcome, rule);

CREATE TABLE events (
    seq          integer primary key autoincrement,
    event_id     text not null unique,
    session_id   integer not null references sdk_sessions (id) on delete cascade,
    turn_id      integer references turns (id) on delete cascade,
    kind         text not null,
    at           integer not null,
    tool_use_id  text,
    source       text not null,             -- hook | transcript | api
    body         text not null
, origin text not null default '') strict;

CREATE UNIQUE INDEX events_by_tool_use on events (session_id, tool_use_id) where tool_use_id is not null;

CREATE INDEX events_any_tool_use on events (tool_use_id) where tool_use_id is not null;

CREATE INDEX events_by_session on events (session_id);

CREATE INDEX events_by_turn on events (turn_id, at, seq);

CREATE TABLE jobs (
    id          integer primary key autoincrement,
    kind        text not null,
    subject     text not null,
    due_at      integer not null,
    attempts    integer not null default 0,
    dead        integer not null default 0,
    error       text,
    created_at  integer not null,
    unique (kind, subject)
) strict;

CREATE INDEX jobs_due on jobs (due_at, id) where not dead;

CREATE TABLE observations (
    id                 integer primary key autoincrement,
    session_id         integer references sdk_sessions (id) on delete cascade,   -- NULL: saved by hand
    project_id         integer not null references projects (id),
    turn_id            integer references turns (id) on delete cascade,
    prompt_number      integer,
    key                text not null,
    type               text not null,
    title              text,
    subtitle           text,
    narrative          text,
    facts              text not null default '[]',
    sources            text not null default '[]',   -- for each fact, the events (seq) it was taken from
    concepts           text not null default '[]',
    files_read         text not null default '[]',
    files_modified     text not null default '[]',
    memory_session_id  text,
    provider           text not null,
    model              text,
    tokens             integer,             -- what reading it costs
    trust              text not null default 'agent',
    commit_id          text,
    hash               text not null,       -- of the content, to notice damage
    forgotten          integer not null default 0,   -- content erased; the row stays so that it does not come back
    created_at         integer not null,    -- when the work was done
    updated_at         integer not null
, pinned integer not null default 0, verdict text not null default '' check (verdict in ('', 'approved', 'wrong')), why text not null default '', superseded_by integer references observations (id) on delete set null) strict;

CREATE UNIQUE INDEX observations_by_key on observations (turn_id, key) where turn_id is not null;

CREATE INDEX observations_by_project on observations (project_id, created_at desc) where not forgotten;

CREATE INDEX observations_by_session on observations (session_id);

CREATE TABLE session_summaries (
    id                 integer primary key autoincrement,
    session_id         integer not null references sdk_sessions (id) on delete cascade,
    project_id         integer not null references projects (id),
    turn_id            integer not null unique references turns (id) on delete cascade,
    prompt_number      integer not null,
    request            text,
    investigated       text,
    learned            text,
    completed          text,
    next_steps         text,
    notes              text,
    files_read         text not null default '[]',
    files_edited       text not null default '[]',
    memory_session_id  text,
    provider           text not null,
    created_at         integer not null,
    updated_at         integer not null
, trust text not null default 'agent', verdict text not null default '' check (verdict in ('', 'approved', 'wrong')), why text not null default '', closing text not null default '', closing_trust text not null default 'agent', outcome text not null default ''
    check (outcome in ('', 'done', 'partly', 'failed', 'abandoned', 'answered', 'proposed'))) strict;

CREATE INDEX session_summaries_by_project on session_summaries (project_id, created_at desc);

CREATE TABLE ledger (
    id                 integer primary key autoincrement,
    at                 integer not null,
    ended_at           integer,
    purpose            text not null,       -- refine | compress (asked for by a person)
    session_id         integer references sdk_sessions (id) on delete set null,
    turn_id            integer references turns (id) on delete set null,
    project_id         integer references projects (id) on delete set null,
    provider           text not null,
    model              text not null,
    input_tokens       integer not null,    -- those below included
    cached_tokens      integer not null default 0,
    written_tokens     integer not null default 0,
    output_tokens      integer not null,
    cost               integer not null,    -- millionths of a dollar
    verdict            text,
    message            text,                -- what went wrong, in the provider's words
    memory_session_id  text
) strict;

CREATE INDEX ledger_by_time on ledger (at);

CREATE INDEX ledger_by_turn on ledger (turn_id);

CREATE INDEX ledger_by_session on ledger (session_id);

CREATE TABLE memory_sessions (
    id          text primary key,
    session_id  integer not null references sdk_sessions (id) on delete cascade,
    provider    text not null,
    runtime     text not null,
    created_at  integer not null
) strict, without rowid;

CREATE INDEX memory_sessions_by_session on memory_sessions (session_id, created_at);

CREATE TABLE breakers (
    provider  text primary key,
    failures  integer not null default 0,   -- in a row
    until     integer not null default 0,
    verdict   text not null,
    message   text not null default '',
    settings  text not null default ''      -- what it was set up with: with other settings it is tried at once
) strict, without rowid;

CREATE TABLE notices (
    key      text primary key,
    text     text not null,
    at       integer not null,
    shown_at  integer
) strict, without rowid;

CREATE TABLE documents (
    id          integer primary key autoincrement,
    kind        text not null check (kind in ('observation', 'summary', 'prompt', 'turn')),
    row_id      integer not null,           -- in the table of its kind
    project_id  integer not null,
    session_id  integer,
    turn_id     integer,                    -- NULL: saved by hand
    created_at  integer not null, trust text not null default '',
    unique (kind, row_id)
) strict;

CREATE INDEX documents_by_project on documents (project_id, created_at);

CREATE INDEX documents_by_turn on documents (turn_id);

CREATE INDEX documents_by_session on documents (session_id);

CREATE TABLE passages (
    id           integer primary key,       -- 1000 × document + number of the passage: both can be told from it
    document_id  integer not null references documents (id) on delete cascade,
    title        text not null,
    body         text not null,
    hints        text not null,             -- the date, names taken apart, what tools were given; weighs half
    around       text not null              -- what was said just before and after; weighs little
) strict;

CREATE INDEX passages_by_document on passages (document_id);

CREATE VIRTUAL TABLE words using fts5 (
    title, body, hints, around,
    content = 'passages', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TABLE 'words_data'(id INTEGER PRIMARY KEY, block BLOB);

CREATE TABLE 'words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID;

CREATE TABLE 'words_docsize'(id INTEGER PRIMARY KEY, sz BLOB);

CREATE TABLE 'words_config'(k PRIMARY KEY, v) WITHOUT ROWID;

CREATE TRIGGER passages_added after insert on passages begin
    insert into words (rowid, title, body, hints, around) values (new.id, new.title, new.body, new.hints, new.around);
end;

CREATE TRIGGER passages_removed after delete on passages begin
    insert into words (words, rowid, title, body, hints, around)
    values ('delete', old.id, old.title, old.body, old.hints, old.around);
end;

CREATE TRIGGER passages_changed after update on passages begin
    insert into words (words, rowid, title, body, hints, around)
    values ('delete', old.id, old.title, old.body, old.hints, old.around);
    insert into words (rowid, title, body, hints, around) values (new.id, new.title, new.body, new.hints, new.around);
end;

CREATE TABLE signals (
    document_id  integer not null references documents (id) on delete cascade,
    kind         text not null check (kind in ('edited', 'read', 'name', 'error', 'command', 'commit', 'branch')),
    value        text not null,
    times        integer not null default 1,
    primary key (document_id, kind, value)
) strict, without rowid;

CREATE INDEX signals_by_value on signals (kind, value);

CREATE TABLE vectors (
    document_id  integer not null references documents (id) on delete cascade,
    model        text not null,             -- vectors of different models can't be compared
    part         integer not null,          -- the passage's number
    hash         text not null,             -- of the text it was made of
    vector       blob not null,
    primary key (document_id, model, part)
) strict, without rowid;

CREATE TABLE "deleted_vectors" (document_id integer primary key) strict;

CREATE TRIGGER passages_reworded after update of title, body on passages
    when (old.title, old.body) is not (new.title, new.body) begin
    delete from vectors where document_id = old.document_id;
end;

CREATE TRIGGER passages_dropped after delete on passages begin
    delete from vectors where document_id = old.document_id;
end;

CREATE TRIGGER vectors_removed after delete on vectors begin
    insert into "deleted_vectors" values (old.document_id) on conflict do nothing;
end;

CREATE TABLE "index_queue" (
    kind    text not null,
    row_id  integer not null,
    primary key (kind, row_id)
) strict, without rowid;

CREATE TRIGGER observations_added after insert on observations begin
    insert into "index_queue" values ('observation', new.id) on conflict do nothing;
end;

CREATE TRIGGER observations_removed after delete on observations begin
    delete from documents where kind = 'observation' and row_id = old.id;
    delete from "index_queue" where kind = 'observation' and row_id = old.id;
end;

CREATE TRIGGER summaries_added after insert on session_summaries begin
    insert into "index_queue" values ('summary', new.id) on conflict do nothing;
end;

CREATE TRIGGER summaries_removed after delete on session_summaries begin
    delete from documents where kind = 'summary' and row_id = old.id;
    delete from "index_queue" where kind = 'summary' and row_id = old.id;
end;

CREATE TRIGGER prompts_added after insert on user_prompts begin
    insert into "index_queue" values ('prompt', new.id) on conflict do nothing;
    insert into "index_queue" values ('turn', new.turn_id) on conflict do nothing;
end;

CREATE TRIGGER prompts_changed after update on user_prompts begin
    insert into "index_queue" values ('prompt', new.id) on conflict do nothing;
    insert into "index_queue" values ('turn', new.turn_id) on conflict do nothing;
end;

CREATE TRIGGER prompts_removed after delete on user_prompts begin
    delete from documents where kind = 'prompt' and row_id = old.id;
    delete from "index_queue" where kind = 'prompt' and row_id = old.id;
end;

CREATE TRIGGER events_added after insert on events when new.turn_id is not null begin
    insert into "index_queue" values ('turn', new.turn_id) on conflict do nothing;
end;

CREATE TRIGGER turns_closed after update of closed_at, digested_at on turns begin
    insert into "index_queue" values ('turn', new.id) on conflict do nothing;
end;

CREATE TRIGGER turns_hidden after update of private on turns when new.private begin
    delete from documents where turn_id = new.id;
end;

CREATE TRIGGER turns_removed after delete on turns begin
    delete from documents where turn_id = old.id;
    delete from "index_queue" where kind = 'turn' and row_id = old.id;
end;

CREATE TRIGGER documents_removed after delete on documents begin
    update passages set around = ''
     where around != '' and document_id in (
        select d.id from turns t join turns near using (session_id) join documents d on d.turn_id = near.id
         where t.id = old.turn_id and near.number between t.number - 1 and t.number + 1 and old.kind in ('prompt', 'turn')
        union all
        select id from documents
         where old.turn_id is null and turn_id is null and project_id = old.project_id
           and created_at between old.created_at - 600000 and old.created_at + 600000);
    insert into "index_queue"
        select d.kind, d.row_id from turns t join turns near using (session_id) join documents d on d.turn_id = near.id
         where t.id = old.turn_id and near.number between t.number - 1 and t.number + 1 and old.kind in ('prompt', 'turn')
           and d.id != old.id
        union all
        select kind, row_id from documents
         where old.turn_id is null and turn_id is null and project_id = old.project_id
           and created_at between old.created_at - 600000 and old.created_at + 600000
        on conflict do nothing;
end;

CREATE TABLE "injected_items" (
    host                text not null,
    content_session_id  text not null,
    item                text not null,
    trigger              text not null,     -- start | prompt | file | failure
    at                  integer not null,
    primary key (host, content_session_id, item)
) strict, without rowid;

CREATE INDEX observations_pinned on observations (project_id) where pinned;

CREATE INDEX observations_by_time on observations (created_at) where not forgotten;

CREATE INDEX session_summaries_by_time on session_summaries (created_at);

CREATE INDEX user_prompts_by_time on user_prompts (created_at);

CREATE TABLE imports (
    id          integer primary key autoincrement,
    path        text not null,
    file_signature        text not null,              -- the file as it was: its size and time
    source      text not null check (source in ('export', 'older')),
    project     text not null default '',   -- only what belongs to this one
    untrusted   integer not null default 0, -- someone else's: found when searched for, never told unasked
    dry_run     integer not null default 0, -- counted, and nothing kept
    position    text not null default '',   -- where the next batch begins, as its reader writes it
    done        integer not null default 0, -- of `total`, in the reader's own measure
    total       integer not null default 0,
    counts      text not null default '{}', -- what became of the records, by outcome and kind
    notes       text not null default '[]', -- the first things that were wrong, in words
    error       text,
    started_at  integer not null,
    ended_at    integer
) strict;

CREATE INDEX observations_by_own_key on observations (key) where turn_id is null;

CREATE TABLE backfills (
    id            integer primary key autoincrement,
    requested_at      integer not null,
    sessions      integer not null,
    turns         integer not null,
    events        integer not null,
    observations  integer not null
) strict;

CREATE TABLE backfill_files (
    id           integer primary key autoincrement,
    backfill_id  integer not null references backfills (id),
    path         text not null unique,
    host         text not null default '',
    size         integer not null,
    changed_at   integer not null,          -- nanoseconds, as the file system says
    state        text not null check (state in ('waiting', 'read', 'skipped')),
    problem      text not null default '',  -- why it was skipped; or what was wrong with one that was read
    bad_lines    integer not null default 0,
    session_id   integer references sdk_sessions (id) on delete set null,
    opened_session       integer not null default 0,   -- the session was not known before: it is this file's to close
    parts        integer not null default 0,   -- how many have been read
    agent        text not null default '',  -- the subagent whose file is read now; '': the session's own
    cursor         text not null default '',  -- where to go on in it, in its reader's words
    offset       integer not null default 0    -- about how far that is, in bytes
) strict;

CREATE INDEX backfill_files_by_backfill on backfill_files (backfill_id, state);

CREATE INDEX backfill_files_waiting on backfill_files (session_id) where state = 'waiting';

CREATE TRIGGER observations_changed after update on observations begin
    delete from documents where kind = 'observation' and row_id = new.id and (new.forgotten or new.verdict = 'wrong');
    insert into "index_queue" values ('observation', new.id) on conflict do nothing;
end;

CREATE TRIGGER summaries_changed after update on session_summaries begin
    delete from documents where kind = 'summary' and row_id = new.id and new.verdict = 'wrong';
    insert into "index_queue" values ('summary', new.id) on conflict do nothing;
end;

CREATE TABLE "deleted_observations" (
    observation_id  integer primary key references observations (id) on delete cascade,
    content         text not null,
    merged_into_id         integer references observations (id) on delete set null,   -- the one it was merged into
    at              integer not null
) strict;

CREATE TABLE history (
    id              integer primary key autoincrement,
    observation_id  integer not null references observations (id) on delete cascade,
    at              integer not null,
    what            text not null check (what in ('edited', 'pinned', 'unpinned', 'merged', 'wrong', 'right', 'approved',
                                                  'forgotten', 'restored')),
    before          text,
    by              text not null,          -- user | agent
    undone          integer not null default 0
) strict;

CREATE INDEX history_by_observation on history (observation_id, id);

CREATE INDEX sdk_sessions_by_time on sdk_sessions (last_event_at desc, id desc);

CREATE INDEX sdk_sessions_by_host on sdk_sessions (host, last_event_at desc);

CREATE TABLE known_files (
    project_id  integer not null,
    path        text not null,
    edited      integer not null,
    read        integer not null,
    newest_at   integer not null,           -- when the work of the newest of them was done
    primary key (project_id, path)
) strict, without rowid;

CREATE TRIGGER signals_added after insert on signals when new.kind in ('edited', 'read') begin
    insert into known_files
        select project_id, new.value, new.kind = 'edited', new.kind = 'read', created_at
          from documents where id = new.document_id and kind = 'observation'
        on conflict do update set edited = edited + excluded.edited, read = read + excluded.read,
               newest_at = max(newest_at, excluded.newest_at);
end;

CREATE TRIGGER signals_removed after delete on signals when old.kind in ('edited', 'read') begin
    update known_files set edited = edited - (old.kind = 'edited'), read = read - (old.kind = 'read')
     where path = old.value
       and project_id = (select project_id from documents where id = old.document_id and kind = 'observation');
    delete from known_files
     where path = old.value and edited = 0 and read = 0
       and project_id = (select project_id from documents where id = old.document_id);
    update known_files set newest_at = coalesce((
            select max(d.created_at) from signals f join documents d on d.id = f.document_id
             where f.kind in ('edited', 'read') and f.value = old.value and d.kind = 'observation'
               and d.project_id = known_files.project_id), 0)
     where path = old.value
       and (project_id, newest_at) =
           (select project_id, created_at from documents where id = old.document_id and kind = 'observation');
end;

CREATE TRIGGER documents_leave before delete on documents begin
    delete from signals where document_id = old.id;
end;

CREATE INDEX observations_by_type on observations (type, created_at desc) where not forgotten;

CREATE TABLE "checksums" (
    id   integer primary key,
    sum  integer not null
) strict;

CREATE TABLE "checksum_queue" (id integer primary key) strict;

CREATE TABLE checks (
    name  text primary key,             -- start | full | backup | drill:NAME | …
    at    integer not null,
    ok    integer not null,
    text  text not null default ''
) strict, without rowid;

CREATE TABLE "purged_counts" (
    outcome  text not null check (outcome in ('stored', 'filtered', 'set_aside')),
    rule     text not null default '',
    n        integer not null,
    primary key (outcome, rule)
) strict, without rowid;

CREATE TABLE "purged_event_hashes" (hash integer primary key) strict;

CREATE INDEX receipts_by_time on receipts (at) where outcome != 'stored';

CREATE TABLE "deletions" (
    id        integer primary key autoincrement,
    at        integer not null,
    erased    integer not null default 0,   -- for good, and in every file
    counts    text not null default '{}',
    done_at   integer,                      -- NULL: under way, or broken off; the next start of the worker goes on
    undone_at integer
) strict;

CREATE TABLE tombstones (
    keyed_hash           text not null,
    deletion_id  integer not null,
    since          integer not null,
    until          integer not null,
    primary key (keyed_hash, deletion_id)
) strict, without rowid;

CREATE TABLE audit_head (
    id    integer primary key check (id = 1),
    n     integer not null,
    hash  text not null
) strict;

CREATE TABLE "deleted_rows" (
    deletion_id  integer not null references "deletions" (id),
    kind           text not null,
    row_id         integer not null,
    session_id     integer,
    project_id     integer,
    at             integer not null,            -- when it happened
    content        text not null,
    primary key (kind, row_id, deletion_id)
) strict, without rowid;

CREATE TABLE repositories (
    git_dir      text primary key,
    project_id   integer not null references projects (id) on delete cascade,
    creation_id         text not null,      -- the folder's inode, and when git made it
    root_commit  text not null       -- the commit that its history began with; copies have the same
, remote text not null default '') strict, without rowid;

CREATE INDEX repositories_by_project on repositories (project_id);

CREATE INDEX repositories_by_root_commit on repositories (root_commit) where root_commit != '';

CREATE TABLE trusted_sources (
    project_id  integer not null references projects (id),
    source      text not null,
    at          integer not null,                -- when a person said so
    primary key (project_id, source)
) strict, without rowid;

CREATE INDEX observations_superseded on observations (superseded_by) where superseded_by is not null;

CREATE INDEX observations_rules on observations (project_id, created_at) where type = 'rule';

CREATE INDEX turns_to_rewrite on turns (writer, id)
 where digested_at is not null and not private;

CREATE INDEX repositories_by_remote on repositories (remote) where remote != '';

CREATE INDEX observations_to_approve on observations (created_at, id, project_id, trust, verdict, forgotten)
    where not forgotten and verdict = '' and trust not in ('user', 'agent', 'repo', 'tool');

CREATE INDEX session_summaries_to_approve on session_summaries (created_at, id, project_id, trust, verdict)
    where verdict = '' and trust not in ('user', 'agent', 'repo', 'tool');

CREATE INDEX deleted_observations_by_time on deleted_observations (at);

CREATE INDEX deleted_observations_by_target on deleted_observations (merged_into_id) where merged_into_id is not null;

CREATE INDEX history_to_expire on history (at) where before is not null;

CREATE INDEX turns_to_purge on turns (digested_at) where digested_at is not null and not events_purged;

CREATE TRIGGER events_checksum_added after insert on events begin
    delete from checksums where id = new.seq * 16 + 1;
    insert into checksum_queue values (new.seq * 16 + 1) on conflict do nothing;
end;

CREATE TRIGGER events_checksum_outdated after update of
    event_id, session_id, turn_id, kind, at, tool_use_id, source, body on events
    when (old.event_id, old.session_id, old.turn_id, old.kind, old.at, old.tool_use_id, old.source, old.body) is not
        (new.event_id, new.session_id, new.turn_id, new.kind, new.at, new.tool_use_id, new.source, new.body) begin
    delete from checksums where id = new.seq * 16 + 1;
    insert into checksum_queue values (new.seq * 16 + 1) on conflict do nothing;
end;

CREATE TRIGGER events_checksum_deleted after delete on events begin
    delete from checksums where id = old.seq * 16 + 1;
    delete from checksum_queue where id = old.seq * 16 + 1;
end;

CREATE TRIGGER user_prompts_checksum_added after insert on user_prompts begin
    delete from checksums where id = new.id * 16 + 2;
    insert into checksum_queue values (new.id * 16 + 2) on conflict do nothing;
end;

CREATE TRIGGER user_prompts_checksum_outdated after update of
    session_id, turn_id, prompt_number, text, created_at on user_prompts
    when (old.session_id, old.turn_id, old.prompt_number, old.text, old.created_at) is not (new.session_id,
        new.turn_id, new.prompt_number, new.text, new.created_at) begin
    delete from checksums where id = new.id * 16 + 2;
    insert into checksum_queue values (new.id * 16 + 2) on conflict do nothing;
end;

CREATE TRIGGER user_prompts_checksum_deleted after delete on user_prompts begin
    delete from checksums where id = old.id * 16 + 2;
    delete from checksum_queue where id = old.id * 16 + 2;
end;

CREATE TRIGGER session_summaries_checksum_added after insert on session_summaries begin
    delete from checksums where id = new.id * 16 + 3;
    insert into checksum_queue values (new.id * 16 + 3) on conflict do nothing;
end;

CREATE TRIGGER session_summaries_checksum_deleted after delete on session_summaries begin
    delete from checksums where id = old.id * 16 + 3;
    delete from checksum_queue where id = old.id * 16 + 3;
end;

CREATE TRIGGER observations_checksum_added after insert on observations begin
    delete from checksums where id = new.id * 16 + 4;
    insert into checksum_queue values (new.id * 16 + 4) on conflict do nothing;
end;

CREATE TRIGGER observations_checksum_deleted after delete on observations begin
    delete from checksums where id = old.id * 16 + 4;
    delete from checksum_queue where id = old.id * 16 + 4;
end;

CREATE TRIGGER sdk_sessions_checksum_added after insert on sdk_sessions begin
    delete from checksums where id = new.id * 16 + 5;
    insert into checksum_queue values (new.id * 16 + 5) on conflict do nothing;
end;

CREATE TRIGGER sdk_sessions_checksum_outdated after update of
    host, content_session_id, project_id, first_prompt, title, subtitle, cwd, transcript_path, started_at on sdk_sessions
    when (old.host, old.content_session_id, old.project_id, old.first_prompt, old.title, old.subtitle, old.cwd,
        old.transcript_path, old.started_at) is not (new.host, new.content_session_id, new.project_id,
        new.first_prompt, new.title, new.subtitle, new.cwd, new.transcript_path, new.started_at) begin
    delete from checksums where id = new.id * 16 + 5;
    insert into checksum_queue values (new.id * 16 + 5) on conflict do nothing;
end;

CREATE TRIGGER sdk_sessions_checksum_deleted after delete on sdk_sessions begin
    delete from checksums where id = old.id * 16 + 5;
    delete from checksum_queue where id = old.id * 16 + 5;
end;

CREATE TRIGGER turns_checksum_added after insert on turns begin
    delete from checksums where id = new.id * 16 + 6;
    insert into checksum_queue values (new.id * 16 + 6) on conflict do nothing;
end;

CREATE TRIGGER turns_checksum_outdated after update of
    session_id, number, prompt_id, private, opened_at on turns
    when (old.session_id, old.number, old.prompt_id, old.private, old.opened_at) is not (new.session_id, new.number,
        new.prompt_id, new.private, new.opened_at) begin
    delete from checksums where id = new.id * 16 + 6;
    insert into checksum_queue values (new.id * 16 + 6) on conflict do nothing;
end;

CREATE TRIGGER turns_checksum_deleted after delete on turns begin
    delete from checksums where id = old.id * 16 + 6;
    delete from checksum_queue where id = old.id * 16 + 6;
end;

CREATE TRIGGER projects_checksum_added after insert on projects begin
    delete from checksums where id = new.id * 16 + 7;
    insert into checksum_queue values (new.id * 16 + 7) on conflict do nothing;
end;

CREATE TRIGGER projects_checksum_outdated after update of
    name, root, created_at on projects
    when (old.name, old.root, old.created_at) is not (new.name, new.root, new.created_at) begin
    delete from checksums where id = new.id * 16 + 7;
    insert into checksum_queue values (new.id * 16 + 7) on conflict do nothing;
end;

CREATE TRIGGER projects_checksum_deleted after delete on projects begin
    delete from checksums where id = old.id * 16 + 7;
    delete from checksum_queue where id = old.id * 16 + 7;
end;

CREATE TRIGGER deleted_observations_checksum_added after insert on deleted_observations begin
    delete from checksums where id = new.observation_id * 16 + 8;
    insert into checksum_queue values (new.observation_id * 16 + 8) on conflict do nothing;
end;

CREATE TRIGGER deleted_observations_checksum_outdated after update of
    content, merged_into_id, at on deleted_observations
    when (old.content, old.merged_into_id, old.at) is not (new.content, new.merged_into_id, new.at) begin
    delete from checksums where id = new.observation_id * 16 + 8;
    insert into checksum_queue values (new.observation_id * 16 + 8) on conflict do nothing;
end;

CREATE TRIGGER deleted_observations_checksum_deleted after delete on deleted_observations begin
    delete from checksums where id = old.observation_id * 16 + 8;
    delete from checksum_queue where id = old.observation_id * 16 + 8;
end;

CREATE TRIGGER passages_checksum_added after insert on passages begin
    delete from checksums where id = new.id * 16 + 9;
    insert into checksum_queue values (new.id * 16 + 9) on conflict do nothing;
end;

CREATE TRIGGER passages_checksum_outdated after update of
    document_id, title, body, hints, around on passages
    when (old.document_id, old.title, old.body, old.hints, old.around) is not (new.document_id, new.title, new.body,
        new.hints, new.around) begin
    delete from checksums where id = new.id * 16 + 9;
    insert into checksum_queue values (new.id * 16 + 9) on conflict do nothing;
end;

CREATE TRIGGER passages_checksum_deleted after delete on passages begin
    delete from checksums where id = old.id * 16 + 9;
    delete from checksum_queue where id = old.id * 16 + 9;
end;

CREATE TRIGGER vectors_checksum_added after insert on vectors begin
    delete from checksums where id = new.document_id * 16 + 10;
    insert into checksum_queue values (new.document_id * 16 + 10) on conflict do nothing;
end;

CREATE TRIGGER vectors_checksum_outdated after update of
    model, part, hash, vector on vectors
    when (old.model, old.part, old.hash, old.vector) is not (new.model, new.part, new.hash, new.vector) begin
    delete from checksums where id = new.document_id * 16 + 10;
    insert into checksum_queue values (new.document_id * 16 + 10) on conflict do nothing;
end;

CREATE TRIGGER vectors_checksum_deleted after delete on vectors begin
    delete from checksums where id = old.document_id * 16 + 10;
    insert into checksum_queue select old.document_id * 16 + 10
     where exists (select 1 from vectors where document_id = old.document_id) on conflict do nothing;
end;

CREATE INDEX tombstones_by_deletion on tombstones (deletion_id);

CREATE INDEX deleted_rows_by_deletion on deleted_rows (deletion_id);

CREATE INDEX repositories_by_creation_id on repositories (creation_id) where creation_id != '';

CREATE TRIGGER observations_checksum_outdated after update of
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

CREATE TRIGGER session_summaries_checksum_outdated after update of
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

CREATE TABLE outcomes (
    observation_id  integer primary key references observations (id) on delete cascade,
    outcome         text not null check (outcome in ('tried', 'committed', 'landed', 'dropped', 'reverted', 'failed')),
    head            text not null default '',  -- commit and branch of the work tree when the turn ended, if known
    branch          text not null default '',
    commit_id       text not null default '',  -- the commit that has the lines, or that took them back
    judged_at       integer not null           -- when the outcome last changed
) strict;

CREATE TABLE calls (
    document_id  integer not null references documents (id) on delete cascade,
    key          text not null,               -- the words that name the call: `gh pr diff`, `gh pr diff --stat`
    worked       integer not null default 0,  -- how often it worked, failed by a mistake, was refused by the user
    failed       integer not null default 0,
    refused      integer not null default 0,
    kind         text not null default '' check (kind in ('', 'program', 'word', 'option', 'path')), -- what was mistaken
    reason       text not null default '',    -- the line that reported the mistake
    instead      text not null default '',    -- the call that worked after it
    counts_as    text not null default '',    -- the key of that call
    words        text not null default '',    -- what the user said when refusing
    primary key (document_id, key)
) strict, without rowid;

CREATE INDEX calls_by_key on calls (key);

CREATE INDEX calls_failed on calls (key) where failed > 0 or refused > 0;

CREATE TABLE "injections" (
    id                  integer primary key autoincrement,
    host                text not null,
    content_session_id  text not null,
    trigger             text not null check (trigger in ('start', 'prompt', 'file', 'failure', 'command')),
    about               text not null default '',   -- the file, at that moment
    at                  integer not null,
    tokens              integer not null,
    names               text not null default '[]'
, holdout real not null default 0, held_out integer not null default 0) strict;

CREATE INDEX injections_by_session on injections (host, content_session_id, at);

CREATE TRIGGER injections_session_deleted after delete on sdk_sessions begin
    delete from injections where host = old.host and content_session_id = old.content_session_id;
end;

CREATE TRIGGER injections_private_refused before insert on injections begin
    select raise(ignore) where exists (
        select 1 from sdk_sessions s
         where s.host = new.host and s.content_session_id = new.content_session_id
           and (select t.private from turns t where t.session_id = s.id and t.opened_at <= new.at
                 order by t.opened_at desc, t.number desc limit 1));
end;

CREATE TRIGGER injections_turn_made_private after update of private on turns when new.private begin
    delete from injections
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;

CREATE TRIGGER injections_turn_opened_private after insert on turns when new.private begin
    delete from injections
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;

CREATE TABLE "anchors" (
    id              integer primary key,
    observation_id  integer not null references observations (id) on delete cascade,
    path            text not null,             -- relative to the work tree; of a command its key, as in `calls`
    kind            text not null check (kind in ('edit', 'read', 'removal', 'command')),
    lines           blob not null,             -- hashes of its telling lines, eight bytes each
    blob_id         text not null default '',  -- git's id of the file as the turn left it, if that is known
    committed       integer not null default 0, -- the lines that some commit has had, as a bit set: bit 0 is the first line
    landed          integer not null default 0, phrases blob not null default x'', -- the lines that a commit of the default branch has had
    unique (observation_id, path)
) strict;

CREATE INDEX anchors_by_path on anchors (path);

CREATE TABLE sightings (
    anchor_id  integer not null references anchors (id) on delete cascade,
    root       text not null,             -- of the work tree
    stamp      text not null,             -- modification time and size of the file that was read; empty: no such file
    present    integer not null,          -- the lines that were there, as a bit set
    moved_to   text not null default '',
    commit_id  text not null default '', phrases integer not null default -1,  -- HEAD at that time
    primary key (anchor_id, root)
) strict, without rowid;

CREATE TRIGGER observations_anchors_forgotten after update of forgotten on observations when new.forgotten begin
    delete from anchors where observation_id = new.id;
    delete from outcomes where observation_id = new.id;
end;

CREATE TRIGGER observations_title_changed after update of title on observations when new.title is not old.title begin
    delete from anchors where observation_id = new.id and kind = 'command';
end;

CREATE TABLE confirmations (
    observation_id  integer primary key references observations (id) on delete cascade,
    at              integer not null,
    fingerprint     text not null,  -- of the state of its code that the person saw
    superseded_by   integer         -- the observation that had superseded it, and does not any more
) strict;

CREATE TABLE validity_changes (
    id              integer primary key autoincrement,
    observation_id  integer not null references observations (id) on delete cascade,
    at              integer not null,
    validity        text not null,
    superseded_by   integer,
    head            text not null default '',  -- the commit of the work tree at that time
    commit_id       text not null default '',  -- the commit that has the work, or that took it back
    latest          integer not null default 1
) strict;

CREATE INDEX validity_changes_by_observation on validity_changes (observation_id, id);

CREATE UNIQUE INDEX validity_changes_latest on validity_changes (observation_id) where latest;

CREATE TABLE validity_queue (
    observation_id  integer primary key,
    head            text not null default ''
) strict;

CREATE TRIGGER anchors_added after insert on anchors begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;

CREATE TRIGGER anchors_removed after delete on anchors begin
    insert or ignore into validity_queue (observation_id) values (old.observation_id);
end;

CREATE TRIGGER anchors_committed after update of committed, landed on anchors begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;

CREATE TRIGGER sightings_added after insert on sightings begin
    insert into validity_queue select observation_id, new.commit_id from anchors where id = new.anchor_id
        on conflict do update set head = excluded.head where excluded.head != '';
end;

CREATE TRIGGER sightings_changed after update on sightings begin
    insert into validity_queue select observation_id, new.commit_id from anchors where id = new.anchor_id
        on conflict do update set head = excluded.head where excluded.head != '';
end;

CREATE TRIGGER outcomes_added after insert on outcomes begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;

CREATE TRIGGER outcomes_changed after update of outcome on outcomes begin
    insert or ignore into validity_queue (observation_id) values (new.observation_id);
end;

CREATE TRIGGER observations_superseded after update of superseded_by on observations
 when new.superseded_by is not old.superseded_by begin
    insert or ignore into validity_queue (observation_id) values (new.id);
end;

CREATE TRIGGER observations_validity_forgotten after update of forgotten on observations when new.forgotten begin
    delete from confirmations where observation_id = new.id;
    delete from validity_changes where observation_id = new.id;
end;

CREATE TABLE uses (
    id            integer primary key,
    injection_id  integer not null references injections (id) on delete cascade,
    turn_id       integer not null references turns (id) on delete cascade,
    item          text not null,     -- its name in `injections.names`
    use           text not null check (use in ('none', 'opened', 'edited', 'ran', 'fetched', 'quoted', 'avoided',
                                               'repeated', 'contradicted')),
    at            integer not null,  -- of the event that shows it; of `none`, the end of the turn
    unique (injection_id, item, turn_id, use)
) strict;

CREATE INDEX uses_by_item on uses (item, injection_id, use);

CREATE INDEX uses_by_turn on uses (turn_id);

CREATE INDEX injections_held_out on injections (id) where held_out;

CREATE TABLE turn_reading (
    turn_id                  integer primary key references turns (id) on delete cascade,
    characters               integer not null,  -- of files, that tools returned
    again_characters         integer not null,  -- of these, of files new to the session that an earlier session had read
    calls_before_edit        integer,           -- tool calls before the first edit of a file; null: there was none
    characters_before_edit   integer
) strict;

CREATE TRIGGER injections_uses_deleted after delete on injections begin
    delete from uses where injection_id = old.id;
end;

CREATE TRIGGER turns_uses_deleted after delete on turns begin
    delete from uses where turn_id = old.id;
    delete from turn_reading where turn_id = old.id;
end;

CREATE TRIGGER turns_uses_private after update of private on turns when new.private begin
    delete from uses where turn_id = new.id;
    delete from turn_reading where turn_id = new.id;
end;

CREATE TRIGGER observations_uses_forgotten after update of forgotten on observations when new.forgotten begin
    delete from uses where item in ('o' || new.id, 'rule:' || new.id, 'repeated:' || new.id);
end;

CREATE TRIGGER observations_uses_deleted after delete on observations begin
    delete from uses where item in ('o' || old.id, 'rule:' || old.id, 'repeated:' || old.id);
end;

CREATE TRIGGER summaries_uses_deleted after delete on session_summaries begin
    delete from uses where item = 's' || old.id;
end;

CREATE TRIGGER sessions_branches_forgotten after update of forgotten on sdk_sessions when new.forgotten > 0 begin
    update sdk_sessions set branches = '[]' where id = new.id;
end;

CREATE TRIGGER observations_kept before update of superseded_by on observations
 when new.superseded_by is not null and old.superseded_by is null begin
    select raise(ignore) where exists (
        select 1 from confirmations c join observations n on n.id = new.superseded_by
         where c.observation_id = new.id and (c.superseded_by = n.id or n.created_at <= c.at));
end;

CREATE TABLE spaces (
    id          text primary key,
    name        text not null unique,
    kind        text not null check (kind in ('personal', 'team')),
    device      text not null,             -- this machine's id in the space
    transport   text not null,
    projects    text not null default '[]',  -- the identities of those that are shared; empty: all
    epoch       integer not null default 0,  -- the number of the key
    created_at  integer not null,
    published   integer not null default 0,  -- the last of this machine's entries that the transport has
    collected   integer not null default 0,  -- the last change (space_changes.seq) that was collected
    held_back   text not null default '[]'   -- the projects (id) whose rows were not collected
) strict, without rowid;

CREATE TABLE space_devices (
    space_id  text not null,
    device    text not null,
    head      integer not null,            -- the index of its last entry
    primary key (space_id, device)
) strict, without rowid;

CREATE TABLE space_log (
    id         integer primary key,
    space_id   text not null,
    device     text not null,
    idx        integer not null,
    body       blob not null,              -- empty: dropped
    hash       text not null,              -- of the body as it was
    item_hash  text not null default '',   -- the item it is about; '': not looked at yet, or not usable
    version    integer not null default 0,
    at         integer not null default 0,
    content    text not null default '',   -- hash of the record; `tombstone`: it has none, and never will
    state      text not null check (state in ('own', 'new', 'applied', 'conflict', 'later', 'held', 'refused')),
    reason     text not null default '',   -- why it was refused or held
    unique (space_id, device, idx)
) strict;

CREATE INDEX space_log_by_item on space_log (space_id, item_hash);

CREATE INDEX space_log_by_state on space_log (space_id, state, id);

CREATE TABLE space_replaced (
    space_id  text not null,
    hash      text not null,
    primary key (space_id, hash)
) strict, without rowid;

CREATE TABLE space_items (
    space_id     text not null,
    item_hash    text not null,            -- keyed hash of its name
    kind         text not null default '',
    row_id       integer,
    state        text not null check (state in ('live', 'withdrawn', 'deleted')),
    version      integer not null,         -- of the newest entry, with its time and its place
    at           integer not null,
    device       text not null,
    idx          integer not null,
    generation   integer not null default 0,
    dirty        integer not null default 0, -- the row changed since; the text of its entries has been dropped
    erased       integer not null default 0, -- the deletion can't be undone
    marks        text not null default '[]', -- keyed hashes that a tombstone of this machine would have
    session_mark text not null default '',   -- and that of its session
    made_at      integer not null default 0, -- when the row was made, which the period of a tombstone must cover
    deletion_id  integer,                  -- the deletion here that another machine asked for
    primary key (space_id, item_hash)
) strict, without rowid;

CREATE INDEX space_items_by_row on space_items (kind, row_id) where row_id is not null;

CREATE TABLE space_changes (
    seq      integer primary key autoincrement,
    kind     text not null,
    row_id   integer not null,
    changed  integer not null default 1,   -- 0: collected again without a change
    unique (kind, row_id)
) strict;

CREATE TRIGGER space_changes_noted after insert on space_changes when new.changed begin
    update space_log set body = x''
     where body != x'' and content != 'tombstone' and (space_id, item_hash) in
           (select space_id, item_hash from space_items where kind = new.kind and row_id = new.row_id);
    update space_items set dirty = 1 where kind = new.kind and row_id = new.row_id;
end;

CREATE TRIGGER space_log_unchanged before update on space_log
 when (old.id, old.space_id, old.device, old.idx, old.hash) is not (new.id, new.space_id, new.device, new.idx, new.hash)
   or (new.body != old.body and new.body != x'') begin
    select raise(abort, 'an entry of a log never changes');
end;

CREATE TRIGGER space_log_kept before delete on space_log
 when exists (select 1 from spaces s where s.id = old.space_id and not (s.device = old.device and old.idx > s.published)) begin
    select raise(abort, 'an entry of a log is never removed');
end;

CREATE TRIGGER projects_shared after insert on projects when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'project' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('project', new.id);
end;

CREATE TRIGGER projects_shared_again after update of name, root on projects
 when exists (select 1 from spaces) and (old.name, old.root)
     is not (new.name, new.root) begin
    delete from space_changes where kind = 'project' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('project', new.id);
end;

CREATE TRIGGER project_aliases_shared after insert on project_aliases when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'project' and row_id = new.project_id;
    insert into space_changes (kind, row_id) values ('project', new.project_id);
end;

CREATE TRIGGER project_aliases_unshared after delete on project_aliases when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'project' and row_id = old.project_id;
    insert into space_changes (kind, row_id) values ('project', old.project_id);
end;

CREATE TRIGGER sessions_shared after insert on sdk_sessions when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'session' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('session', new.id);
end;

CREATE TRIGGER sessions_shared_again after update of project_id, title, subtitle, first_prompt, status, cwd,
    ended_at, forgotten on sdk_sessions
 when exists (select 1 from spaces) and (old.project_id, old.title, old.subtitle, old.first_prompt, old.status,
     old.cwd, old.ended_at, old.forgotten)
     is not (new.project_id, new.title, new.subtitle, new.first_prompt, new.status, new.cwd, new.ended_at,
       new.forgotten) begin
    delete from space_changes where kind = 'session' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('session', new.id);
end;

CREATE TRIGGER sessions_unshared after delete on sdk_sessions when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'session' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('session', old.id);
end;

CREATE TRIGGER prompts_shared after insert on user_prompts when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'prompt' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('prompt', new.id);
end;

CREATE TRIGGER prompts_shared_again after update of text on user_prompts
 when exists (select 1 from spaces) and (old.text)
     is not (new.text) begin
    delete from space_changes where kind = 'prompt' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('prompt', new.id);
end;

CREATE TRIGGER prompts_unshared after delete on user_prompts when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'prompt' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('prompt', old.id);
end;

CREATE TRIGGER observations_shared after insert on observations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('observation', new.id);
end;

CREATE TRIGGER observations_shared_again after update of project_id, key, type, title, subtitle, narrative, facts,
    concepts, files_read, files_modified, commit_id, trust, verdict, pinned, forgotten on observations
 when exists (select 1 from spaces) and (old.project_id, old.key, old.type, old.title, old.subtitle, old.narrative,
     old.facts, old.concepts, old.files_read, old.files_modified, old.commit_id, old.trust, old.verdict, old.pinned,
     old.forgotten)
     is not (new.project_id, new.key, new.type, new.title, new.subtitle, new.narrative, new.facts, new.concepts,
       new.files_read, new.files_modified, new.commit_id, new.trust, new.verdict, new.pinned, new.forgotten) begin
    delete from space_changes where kind = 'observation' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('observation', new.id);
end;

CREATE TRIGGER observations_unshared after delete on observations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('observation', old.id);
end;

CREATE TRIGGER summaries_shared after insert on session_summaries when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'summary' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('summary', new.id);
end;

CREATE TRIGGER summaries_shared_again after update of project_id, request, investigated, learned, completed,
    next_steps, notes, files_read, files_edited, closing, closing_trust, outcome, trust, verdict on
    session_summaries
 when exists (select 1 from spaces) and (old.project_id, old.request, old.investigated, old.learned, old.completed,
     old.next_steps, old.notes, old.files_read, old.files_edited, old.closing, old.closing_trust, old.outcome,
     old.trust, old.verdict)
     is not (new.project_id, new.request, new.investigated, new.learned, new.completed, new.next_steps, new.notes,
       new.files_read, new.files_edited, new.closing, new.closing_trust, new.outcome, new.trust, new.verdict) begin
    delete from space_changes where kind = 'summary' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('summary', new.id);
end;

CREATE TRIGGER summaries_unshared after delete on session_summaries when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'summary' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('summary', old.id);
end;

CREATE TRIGGER confirmations_shared after insert on confirmations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = new.observation_id;
    insert into space_changes (kind, row_id) values ('observation', new.observation_id);
end;

CREATE TRIGGER confirmations_unshared after delete on confirmations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = old.observation_id;
    insert into space_changes (kind, row_id) values ('observation', old.observation_id);
end;
