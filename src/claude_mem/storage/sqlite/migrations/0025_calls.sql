-- How the commands of a turn went, call by call (`digest/calls.py`). Derived from its events together with the turn's
-- document, and deleted with it.
create table calls (
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
create index calls_by_key on calls (key);
create index calls_failed on calls (key) where failed > 0 or refused > 0;

-- Turns that were indexed before are indexed again, so that their calls are recorded.
insert or ignore into index_queue select 'turn', row_id from documents where kind = 'turn';

-- One more trigger: a check can only be changed by making the table again, and what belongs to it.
drop trigger injections_session_deleted;
drop trigger injections_turn_made_private;
drop trigger injections_turn_opened_private;
create table injections_now (
    id                  integer primary key autoincrement,
    host                text not null,
    content_session_id  text not null,
    trigger             text not null check (trigger in ('start', 'prompt', 'file', 'failure', 'command')),
    about               text not null default '',   -- the file, at that moment
    at                  integer not null,
    tokens              integer not null,
    names               text not null default '[]'
) strict;
insert into injections_now select id, host, content_session_id, trigger, about, at, tokens, names from injections;
insert into sqlite_sequence select 'injections_now', 0
 where not exists (select 1 from sqlite_sequence where name = 'injections_now');
update sqlite_sequence set seq = coalesce((select seq from sqlite_sequence where name = 'injections'), 0)
 where name = 'injections_now';  -- numbers of deleted rows are not used again
drop table injections;
alter table injections_now rename to injections;
create index injections_by_session on injections (host, content_session_id, at);
create trigger injections_session_deleted after delete on sdk_sessions begin
    delete from injections where host = old.host and content_session_id = old.content_session_id;
end;

create trigger injections_private_refused before insert on injections begin
    select raise(ignore) where exists (
        select 1 from sdk_sessions s
         where s.host = new.host and s.content_session_id = new.content_session_id
           and (select t.private from turns t where t.session_id = s.id and t.opened_at <= new.at
                 order by t.opened_at desc, t.number desc limit 1));
end;

create trigger injections_turn_made_private after update of private on turns when new.private begin
    delete from injections
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;

create trigger injections_turn_opened_private after insert on turns when new.private begin
    delete from injections
     where (host, content_session_id) = (select host, content_session_id from sdk_sessions where id = new.session_id)
       and at >= new.opened_at
       and at < coalesce((select min(opened_at) from turns where session_id = new.session_id
                           and opened_at > new.opened_at), 9e18);
end;
