-- How far a turn's own text may be trusted, if not far enough to be told unasked; else empty. It is kept with the text,
-- since both outlive the events that they were made of. Only of turns: other documents have a row that says it.
alter table documents add column trust text not null default '';

-- Of turns whose events are past keeping, what was made of them still tells it. The others are looked at again.
update documents set trust = coalesce(
    (select o.trust from observations o
      where o.turn_id = documents.turn_id and o.trust not in ('user', 'agent', 'repo', 'tool')
      order by o.trust = 'suspect' desc limit 1),
    (select y.trust from session_summaries y
      where y.turn_id = documents.turn_id and y.trust not in ('user', 'agent', 'repo', 'tool') limit 1),
    (select 'external' from events e where e.turn_id = documents.turn_id and e.origin = 'external' limit 1),
    ''
) where kind = 'turn';
insert into stale select distinct 'turn', turn_id from events where turn_id is not null on conflict do nothing;
