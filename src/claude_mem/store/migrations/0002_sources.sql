-- For each fact of an observation, the events it was taken from (their `seq`); in the order of `facts`.
alter table observations add column sources text not null default '[]';
