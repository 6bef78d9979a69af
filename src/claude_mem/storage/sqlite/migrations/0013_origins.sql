-- Where an event comes from: user, agent, repo, tool, external, import or team. Empty in rows from before: then it follows
-- from the body, whenever that is read.
alter table events add column origin text not null default '';

-- Why something is held: the source from outside that it rests on, or the rule by which its words were found suspicious.
alter table observations add column why text not null default '';
alter table session_summaries add column why text not null default '';
