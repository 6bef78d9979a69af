-- Each time that memory spoke to a session: what people may look up later, whereas `told` is for not saying it twice.
-- Names only (`o12`, `s5`, `file:src/a.py`), never the text: what is forgotten is forgotten here as well.
create table tellings (
    id                  integer primary key autoincrement,
    host                text not null,
    content_session_id  text not null,
    moment              text not null check (moment in ('start', 'prompt', 'file', 'failure')),
    about               text not null default '',   -- the file, at that moment
    at                  integer not null,
    tokens              integer not null,
    names               text not null default '[]'
) strict;
create index tellings_by_session on tellings (host, content_session_id, at);

-- They go with their session, and nothing is kept of a turn that is private: not even which file it was told about. It
-- may turn out to be so later, or a telling may be noted later.
create trigger tellings_gone after delete on sdk_sessions begin
    delete from tellings where host = old.host and content_session_id = old.content_session_id;
end;
create trigger tellings_in_private before insert on tellings begin
    select raise(ignore) where exists (
        select 1 from sdk_sessions s
         where s.host = new.host and s.content_session_id = new.content_session_id
           and (select t.private from turns t where t.session_id = s.id and t.opened_at <= new.at
                 order by t.opened_at desc, t.number desc limit 1));
end;
create trigger tellings_made_private after update of private on turns when new.private begin
    delete from tellings
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;
create trigger tellings_opened_private after insert on turns when new.private begin
    delete from tellings
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;

-- Which tool calls fetched something from memory: the few among many.
create index events_recalling on events (session_id)
    where kind = 'tool' and (instr(body, 'get_observations') or instr(body, 'claude-mem show'));

-- Sessions, the one that was last at work first.
create index sdk_sessions_by_time on sdk_sessions (last_event_at desc, id desc);
create index sdk_sessions_by_host on sdk_sessions (host, last_event_at desc);
