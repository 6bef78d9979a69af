-- What a session has been told already, and when: a memory is told once. By the host's own id, since a session may be
-- told something before its first event is taken in. `what` is an observation (`o12`), a summary (`s5`) or a file.
create table told (
    host                text not null,
    content_session_id  text not null,
    what                text not null,
    moment              text not null,     -- start | prompt | file | failure
    at                  integer not null,
    primary key (host, content_session_id, what)
) strict, without rowid;

-- Pinned ones are told first, at every start of a session.
alter table observations add column pinned integer not null default 0;
create index observations_pinned on observations (project_id) where pinned;

-- What happened around a moment is looked up by time.
create index observations_by_time on observations (created_at) where not forgotten;
create index session_summaries_by_time on session_summaries (created_at);
create index user_prompts_by_time on user_prompts (created_at);
