-- A session that goes on after it was forgotten may be forgotten again: of the same row, each forgetting keeps its own.
create table put_away_new (
    forgetting_id  integer not null references forgettings (id),
    kind           text not null,
    row_id         integer not null,
    session_id     integer,
    project_id     integer,
    at             integer not null,            -- when it happened
    content        text not null,
    primary key (kind, row_id, forgetting_id)
) strict, without rowid;
insert into put_away_new select * from put_away;
drop table put_away;
alter table put_away_new rename to put_away;
create index put_away_by_forgetting on put_away (forgetting_id);
