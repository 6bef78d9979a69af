-- A person's own machines, or a team, with whom memory is exchanged. Without one, none of these tables has a row and none
-- of these triggers does anything. The keys of a space are never in the database.
create table spaces (
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

create table space_devices (
    space_id  text not null,
    device    text not null,
    head      integer not null,            -- the index of its last entry
    primary key (space_id, device)
) strict, without rowid;

-- One entry of a device's log. It never changes, but its text is dropped when the memory no longer holds it.
create table space_log (
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

create index space_log_by_item on space_log (space_id, item_hash);
create index space_log_by_state on space_log (space_id, state, id);

-- The hashes of entries that a later entry replaces.
create table space_replaced (
    space_id  text not null,
    hash      text not null,
    primary key (space_id, hash)
) strict, without rowid;

-- An item that the logs are about, and the row that has it here.
create table space_items (
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

create index space_items_by_row on space_items (kind, row_id) where row_id is not null;

-- Rows that changed and are to be collected.
create table space_changes (
    seq      integer primary key autoincrement,
    kind     text not null,
    row_id   integer not null,
    changed  integer not null default 1,   -- 0: collected again without a change
    unique (kind, row_id)
) strict;

create trigger space_changes_noted after insert on space_changes when new.changed begin
    update space_log set body = x''
     where body != x'' and content != 'tombstone' and (space_id, item_hash) in
           (select space_id, item_hash from space_items where kind = new.kind and row_id = new.row_id);
    update space_items set dirty = 1 where kind = new.kind and row_id = new.row_id;
end;

create trigger space_log_unchanged before update on space_log
 when (old.id, old.space_id, old.device, old.idx, old.hash) is not (new.id, new.space_id, new.device, new.idx, new.hash)
   or (new.body != old.body and new.body != x'') begin
    select raise(abort, 'an entry of a log never changes');
end;

-- Entries go when the space is left. Until the transport has them, this machine's own may move to another log.
create trigger space_log_kept before delete on space_log
 when exists (select 1 from spaces s where s.id = old.space_id and not (s.device = old.device and old.idx > s.published)) begin
    select raise(abort, 'an entry of a log is never removed');
end;

create trigger projects_shared after insert on projects when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'project' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('project', new.id);
end;

create trigger projects_shared_again after update of name, root on projects
 when exists (select 1 from spaces) and (old.name, old.root)
     is not (new.name, new.root) begin
    delete from space_changes where kind = 'project' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('project', new.id);
end;

create trigger project_aliases_shared after insert on project_aliases when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'project' and row_id = new.project_id;
    insert into space_changes (kind, row_id) values ('project', new.project_id);
end;

create trigger project_aliases_unshared after delete on project_aliases when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'project' and row_id = old.project_id;
    insert into space_changes (kind, row_id) values ('project', old.project_id);
end;

create trigger sessions_shared after insert on sdk_sessions when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'session' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('session', new.id);
end;

create trigger sessions_shared_again after update of project_id, title, subtitle, first_prompt, status, cwd,
    ended_at, forgotten on sdk_sessions
 when exists (select 1 from spaces) and (old.project_id, old.title, old.subtitle, old.first_prompt, old.status,
     old.cwd, old.ended_at, old.forgotten)
     is not (new.project_id, new.title, new.subtitle, new.first_prompt, new.status, new.cwd, new.ended_at,
       new.forgotten) begin
    delete from space_changes where kind = 'session' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('session', new.id);
end;

create trigger sessions_unshared after delete on sdk_sessions when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'session' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('session', old.id);
end;

create trigger prompts_shared after insert on user_prompts when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'prompt' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('prompt', new.id);
end;

create trigger prompts_shared_again after update of text on user_prompts
 when exists (select 1 from spaces) and (old.text)
     is not (new.text) begin
    delete from space_changes where kind = 'prompt' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('prompt', new.id);
end;

create trigger prompts_unshared after delete on user_prompts when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'prompt' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('prompt', old.id);
end;

create trigger observations_shared after insert on observations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('observation', new.id);
end;

create trigger observations_shared_again after update of project_id, key, type, title, subtitle, narrative, facts,
    concepts, files_read, files_modified, commit_id, trust, verdict, pinned, forgotten on observations
 when exists (select 1 from spaces) and (old.project_id, old.key, old.type, old.title, old.subtitle, old.narrative,
     old.facts, old.concepts, old.files_read, old.files_modified, old.commit_id, old.trust, old.verdict, old.pinned,
     old.forgotten)
     is not (new.project_id, new.key, new.type, new.title, new.subtitle, new.narrative, new.facts, new.concepts,
       new.files_read, new.files_modified, new.commit_id, new.trust, new.verdict, new.pinned, new.forgotten) begin
    delete from space_changes where kind = 'observation' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('observation', new.id);
end;

create trigger observations_unshared after delete on observations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('observation', old.id);
end;

create trigger summaries_shared after insert on session_summaries when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'summary' and row_id = new.id;
    insert into space_changes (kind, row_id) values ('summary', new.id);
end;

create trigger summaries_shared_again after update of project_id, request, investigated, learned, completed,
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

create trigger summaries_unshared after delete on session_summaries when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'summary' and row_id = old.id;
    insert into space_changes (kind, row_id) values ('summary', old.id);
end;

create trigger confirmations_shared after insert on confirmations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = new.observation_id;
    insert into space_changes (kind, row_id) values ('observation', new.observation_id);
end;

create trigger confirmations_unshared after delete on confirmations when exists (select 1 from spaces) begin
    delete from space_changes where kind = 'observation' and row_id = old.observation_id;
    insert into space_changes (kind, row_id) values ('observation', old.observation_id);
end;
