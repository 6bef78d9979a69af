-- Sources from outside that a person trusts in a project: `gh`, `linear (MCP)`, a host. What rests on nothing else from
-- outside is told without being approved one by one.
create table trusted_sources (
    project_id  integer not null references projects (id),
    source      text not null,
    at          integer not null,                -- when a person said so
    primary key (project_id, source)
) strict, without rowid;
