-- A git folder as it was last seen. Tells a repository that was moved here, or that took another's place, from the one
-- that was here before. `made` and `root_commit` are '' where git's files do not say.
create table repositories (
    git_dir      text primary key,
    project_id   integer not null references projects (id) on delete cascade,
    made         text not null,      -- the folder's inode, and when git made it
    root_commit  text not null       -- the commit that its history began with; copies have the same
) strict, without rowid;
create index repositories_by_project on repositories (project_id);
create index repositories_by_made on repositories (made) where made != '';
create index repositories_by_root_commit on repositories (root_commit) where root_commit != '';
