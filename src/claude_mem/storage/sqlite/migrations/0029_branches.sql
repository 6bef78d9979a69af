-- The branches on which a session worked: the next session on a branch mostly continues in the same files.
alter table sdk_sessions add column branches text not null default '[]';

-- A forgotten session keeps its row without content.
create trigger sessions_branches_forgotten after update of forgotten on sdk_sessions when new.forgotten > 0 begin
    update sdk_sessions set branches = '[]' where id = new.id;
end;
