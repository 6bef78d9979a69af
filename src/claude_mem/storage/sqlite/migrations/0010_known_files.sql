-- The files a project's observations speak of, and of each how many changed or only read it: to show a tree of files
-- without reading every observation. Derived from `signals` and kept by triggers; a merge of two projects adds them up.
create table known_files (
    project_id  integer not null,
    path        text not null,
    edited      integer not null,
    read        integer not null,
    newest_at   integer not null,           -- when the work of the newest of them was done
    primary key (project_id, path)
) strict, without rowid;

create trigger signals_added after insert on signals when new.kind in ('edited', 'read') begin
    insert into known_files
        select project_id, new.value, new.kind = 'edited', new.kind = 'read', created_at
          from documents where id = new.document_id and kind = 'observation'
        on conflict do update set edited = edited + excluded.edited, read = read + excluded.read,
               newest_at = max(newest_at, excluded.newest_at);
end;
create trigger signals_removed after delete on signals when old.kind in ('edited', 'read') begin
    update known_files set edited = edited - (old.kind = 'edited'), read = read - (old.kind = 'read')
     where path = old.value
       and project_id = (select project_id from documents where id = old.document_id and kind = 'observation');
    delete from known_files
     where path = old.value and edited = 0 and read = 0
       and project_id = (select project_id from documents where id = old.document_id);
    update known_files set newest_at = coalesce((
            select max(d.created_at) from signals f join documents d on d.id = f.document_id
             where f.kind in ('edited', 'read') and f.value = old.value and d.kind = 'observation'
               and d.project_id = known_files.project_id), 0)
     where path = old.value
       and (project_id, newest_at) =
           (select project_id, created_at from documents where id = old.document_id and kind = 'observation');
end;

-- While its document is still there to tell whose a signal was.
create trigger documents_leave before delete on documents begin
    delete from signals where document_id = old.id;
end;

insert into known_files
    select d.project_id, f.value, sum(f.kind = 'edited'), sum(f.kind = 'read'), max(d.created_at)
      from signals f join documents d on d.id = f.document_id
     where f.kind in ('edited', 'read') and d.kind = 'observation' group by 1, 2;
