-- Whose word a summary is, as of an observation: what came from outside is found when searched for, never told unasked.
alter table session_summaries add column trust text not null default 'agent';
