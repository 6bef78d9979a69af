-- A repository, as far as we know it. `root` is where it was last seen.
create table projects (
    id          integer primary key autoincrement,
    name        text not null,
    root        text not null,
    created_at  integer not null
) strict;

-- Everything by which a project may be recognised: its git folder, its remote, a name someone gave it.
create table project_aliases (
    identity    text primary key,
    project_id  integer not null references projects (id) on delete cascade
) strict, without rowid;

-- Folders in which sessions were started. Each has its start context ready on disk.
create table project_dirs (
    dir         text primary key,
    project_id  integer not null references projects (id) on delete cascade
) strict, without rowid;

-- One conversation of a host. `content_session_id` is the host's own id and never invented; `id` is what everything points to.
create table sdk_sessions (
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
    informed_upto       integer not null default 0,   -- the newest observation this session has been told
    started_at          integer not null,
    last_event_at       integer not null,
    ended_at            integer,
    unique (host, content_session_id)
) strict;
create index sdk_sessions_by_project on sdk_sessions (project_id, last_event_at);
create index sdk_sessions_by_status on sdk_sessions (status, last_event_at);

-- A prompt and what followed up to the stop. Closed and not digested: a job is owed for it.
create table turns (
    id           integer primary key autoincrement,
    session_id   integer not null references sdk_sessions (id) on delete cascade,
    number       integer not null,
    prompt_id    text,                      -- the host's id of the prompt, where it gives one
    private      integer not null default 0,   -- the whole prompt was private: nothing of this turn is kept
    opened_at    integer not null,
    last_at      integer not null,
    closed_at    integer,
    closed_by    text,        -- stop, prompt, session_start, session_end, silence, host_gone, deleted or backfill
    digested_at  integer,
    unique (session_id, number)
) strict;
create unique index turns_by_prompt on turns (session_id, prompt_id) where prompt_id is not null;
create index turns_open on turns (last_at) where closed_at is null;
create index turns_undigested on turns (session_id) where closed_at is not null and digested_at is null;

-- What the user said, without its private parts.
create table user_prompts (
    id             integer primary key autoincrement,
    session_id     integer not null references sdk_sessions (id) on delete cascade,
    turn_id        integer not null unique references turns (id) on delete cascade,
    prompt_number  integer not null,
    text           text not null,
    created_at     integer not null
) strict;

-- One row for every event that was ever handed over, and what became of it. With the spool this is the whole account:
-- captured = receipts + files in the spool.
create table receipts (
    event_id  text primary key,
    outcome   text not null check (outcome in ('stored', 'filtered', 'set_aside')),
    rule      text not null default '',     -- which rule filtered it, or why it was set aside
    at        integer not null
) strict, without rowid;
create index receipts_by_outcome on receipts (outcome, rule);

-- What happened, redacted and clipped. The truth from which observations are made.
create table events (
    seq          integer primary key autoincrement,
    event_id     text not null unique,
    session_id   integer not null references sdk_sessions (id) on delete cascade,
    turn_id      integer references turns (id) on delete cascade,
    kind         text not null,
    at           integer not null,
    tool_use_id  text,
    source       text not null,             -- hook | transcript | api
    body         text not null
) strict;
create unique index events_by_tool_use on events (session_id, tool_use_id) where tool_use_id is not null;
create index events_any_tool_use on events (tool_use_id) where tool_use_id is not null;
create index events_by_session on events (session_id);
create index events_by_turn on events (turn_id, at, seq);

-- Work owed. `due_at` is schedule, lease and back-off in one; `attempts` tells an old claim from a new one.
create table jobs (
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
create index jobs_due on jobs (due_at, id) where not dead;

-- What is worth remembering. `key` names its evidence within the turn: digesting again updates, never doubles.
create table observations (
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
) strict;
create unique index observations_by_key on observations (turn_id, key) where turn_id is not null;
create index observations_by_project on observations (project_id, created_at desc) where not forgotten;
create index observations_by_session on observations (session_id);

-- What a turn did.
create table session_summaries (
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
) strict;
create index session_summaries_by_project on session_summaries (project_id, created_at desc);
