-- phase: expand
-- Organisations, their people and machines, spaces with their manifests and logs, and the audit chain.

create function current_org() returns uuid
language sql stable parallel safe
return nullif(current_setting('claude_mem.org_id', true), '')::uuid;

comment on function current_org is
  'The organisation of this transaction, set with set_config(''claude_mem.org_id'', …, true); null if none was set.';

-- Force row-level security on a table: only rows of the transaction's organisation are visible and writable, for the
-- table's owner too. Every new table must be given to this procedure; a test fails for one that was not.
create procedure protect(name regclass) language plpgsql as $$
begin
  execute format('alter table %s enable row level security', name);
  execute format('alter table %s force row level security', name);
  execute format(
    'create policy tenant on %s using (org_id = (select current_org())) with check (org_id = (select current_org()))',
    name
  );
end $$;

create table organisations (
  org_id uuid primary key,
  name text not null check (name <> '' and length(name) <= 200),
  created_at timestamptz not null default now()
);
comment on table organisations is 'A tenant. Nothing is shared between two organisations.';

create table members (
  org_id uuid not null references organisations,
  member_id uuid not null,
  name text not null check (name <> '' and length(name) <= 200),
  role text not null check (role in ('reader', 'writer', 'maintainer')),
  created_at timestamptz not null default now(),
  removed_at timestamptz,
  primary key (org_id, member_id)
);
create unique index members_by_name on members (org_id, name) where removed_at is null;
comment on table members is 'A person in an organisation. `removed_at`: none of the person''s devices is accepted any more.';

create table devices (
  org_id uuid not null,
  device text not null check (device ~ '^[0-9a-f]{16}$'),
  member_id uuid not null,
  name text not null check (length(name) <= 200),
  token_hash bytea,
  created_at timestamptz not null default now(),
  revoked_at timestamptz,
  primary key (org_id, device),
  foreign key (org_id, member_id) references members
);
create index devices_of_member on devices (org_id, member_id);
comment on table devices is 'One data directory of a member. `token_hash`: SHA-256 of its token; the token itself is not stored.';

create table enrolment_codes (
  org_id uuid not null,
  code_hash bytea not null,
  member_id uuid not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at timestamptz,
  primary key (org_id, code_hash),
  foreign key (org_id, member_id) references members
);
comment on table enrolment_codes is 'A code with which one device of this member may enrol, once and within minutes.';

create table spaces (
  org_id uuid not null references organisations,
  space_id uuid not null,
  kind text not null check (kind in ('personal', 'team')),
  owner_id uuid not null,
  created_at timestamptz not null default now(),
  primary key (org_id, space_id),
  foreign key (org_id, owner_id) references members
);
comment on table spaces is 'A person''s own machines, or a team. The server has neither its name nor its keys.';

create table space_members (
  org_id uuid not null,
  space_id uuid not null,
  member_id uuid not null,
  primary key (org_id, space_id, member_id),
  foreign key (org_id, space_id) references spaces,
  foreign key (org_id, member_id) references members
);
comment on table space_members is 'Who sees a space. A personal space has exactly one row.';

create table manifests (
  org_id uuid not null,
  space_id uuid not null,
  etag text not null,
  body bytea not null check (octet_length(body) between 1 and 1048576),
  written_by text not null,
  written_at timestamptz not null default now(),
  primary key (org_id, space_id),
  foreign key (org_id, space_id) references spaces
);
alter table manifests alter column body set storage external;
comment on table manifests is 'The sealed list of a space''s devices and keys. `etag`: derived from the body.';

create table log_heads (
  org_id uuid not null,
  space_id uuid not null,
  device text not null,
  head bigint not null check (head >= 0),
  primary key (org_id, space_id, device),
  foreign key (org_id, space_id) references spaces,
  foreign key (org_id, device) references devices
);
comment on table log_heads is 'Index of the last entry of a log. The row is locked while entries are appended.';

create table log_entries (
  org_id uuid not null,
  space_id uuid not null,
  device text not null,
  idx bigint not null check (idx >= 1),
  body bytea not null check (octet_length(body) <= 1048576),
  received_at timestamptz not null default now(),
  primary key (org_id, space_id, device, idx)
) partition by hash (org_id);
-- Sealed bodies do not compress.
alter table log_entries alter column body set storage external;
comment on table log_entries is 'A sealed entry: opaque bytes. An empty body: erased together with its member.';

do $$
begin
  for part in 0..15 loop
    execute format(
      'create table log_entries_%s partition of log_entries for values with (modulus 16, remainder %s)',
      lpad(part::text, 2, '0'), part
    );
    execute format('alter table log_entries_%s alter column body set storage external', lpad(part::text, 2, '0'));
    call protect(format('log_entries_%s', lpad(part::text, 2, '0'))::regclass);
  end loop;
end $$;

create table audit_heads (
  org_id uuid primary key references organisations,
  n bigint not null,
  hash text not null
);
comment on table audit_heads is 'Number and hash of the last line of an organisation''s audit chain.';

create table audit (
  org_id uuid not null references organisations,
  n bigint not null check (n >= 1),
  at bigint not null,
  actor text not null,
  action text not null,
  subject text not null,
  facts text not null,
  previous_hash text not null,
  hash text not null,
  primary key (org_id, n)
);
comment on table audit is 'Who did what, by id, without content. Each line has the hash of the previous line. `facts`: JSON.';

call protect('organisations');
call protect('members');
call protect('devices');
call protect('enrolment_codes');
call protect('spaces');
call protect('space_members');
call protect('manifests');
call protect('log_heads');
call protect('log_entries');
call protect('audit_heads');
call protect('audit');

-- An administrator may list the organisations while no organisation is set, and nothing else.
create policy operator_lists on organisations for select to claude_mem_operator
  using ((select current_org()) is null);

grant select on organisations, members to claude_mem_app;
grant select, insert on devices to claude_mem_app;
grant update (name, token_hash, revoked_at) on devices to claude_mem_app;
grant select, insert, delete on enrolment_codes to claude_mem_app;
grant update (used_at) on enrolment_codes to claude_mem_app;
grant select, insert on spaces to claude_mem_app;
grant select, insert, delete on space_members to claude_mem_app;
grant select, insert on manifests to claude_mem_app;
grant update (etag, body, written_by, written_at) on manifests to claude_mem_app;
grant select, insert on log_heads to claude_mem_app;
grant update (head) on log_heads to claude_mem_app;
grant select, insert on log_entries, audit to claude_mem_app;
grant select, insert on audit_heads to claude_mem_app;
grant update (n, hash) on audit_heads to claude_mem_app;

grant select, insert on organisations, audit to claude_mem_operator;
grant select, insert, update on members, devices, audit_heads to claude_mem_operator;
grant select, insert, delete on enrolment_codes, space_members to claude_mem_operator;
grant select, delete on spaces, manifests, log_heads to claude_mem_operator;
grant select, delete on log_entries to claude_mem_operator;
grant update (body) on log_entries to claude_mem_operator;
