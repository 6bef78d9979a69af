-- The remote that a repository names. Others may name the same: it joins nothing, but a merge is offered.
alter table repositories add column remote text not null default '';
create index repositories_by_remote on repositories (remote) where remote != '';
