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

-- One more trigger. A check is no part of the stored rows, so only the text of the table's definition changes.
pragma writable_schema = on;
update sqlite_schema set sql = replace(sql, '''failure'')', '''failure'', ''command'')')
 where type = 'table' and name = 'injections';
pragma writable_schema = reset;
