-- What the agent said at the end of the turn, word for word, and how the work ended.
alter table session_summaries add column closing text not null default '';
alter table session_summaries add column closing_trust text not null default 'agent';   -- the lowest of what it rests on
alter table session_summaries add column outcome text not null default ''
    check (outcome in ('', 'done', 'partly', 'failed', 'abandoned', 'answered', 'proposed'));

-- A later rule on the same subject: the earlier one is kept, but no longer shown unasked.
alter table observations add column superseded_by integer references observations (id) on delete set null;

-- The version of the writer that last digested the turn. 0: up to 0.1.0; such turns are digested again in the background.
alter table turns add column writer integer not null default 0;

-- A session's start names rules of any age: finding the few must not mean reading everything.
create index observations_rules on observations (project_id, created_at) where type = 'rule';
