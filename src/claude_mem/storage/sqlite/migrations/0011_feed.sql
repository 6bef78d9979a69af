-- A rare type is found among many observations without looking at each.
create index observations_by_type on observations (type, created_at desc) where not forgotten;
