-- The three roles of a team server. Run this once as a database administrator, in the server's own database; running it
-- again changes nothing. Logins are given afterwards, for example with `\password claude_mem_app`.
--
--   claude_mem_owner     owns the tables and runs `claude-mem-server migrate`
--   claude_mem_app       the nodes (`claude-mem-server serve`); owns nothing
--   claude_mem_operator  the commands of an administrator (`org`, `member`, `code`, `export`, …); owns nothing
--
-- None of them is a superuser or has BYPASSRLS, so that row-level security applies to all three.
do $$
declare
  role text;
begin
  foreach role in array array['claude_mem_owner', 'claude_mem_app', 'claude_mem_operator'] loop
    if not exists (select from pg_roles where rolname = role) then
      execute format('create role %I', role);
    end if;
    execute format(
      'alter role %I login nosuperuser nobypassrls nocreatedb nocreaterole noreplication noinherit', role
    );
    -- `pg_temp` last: nobody can put a temporary table in front of ours.
    execute format('alter role %I set search_path = claude_mem, pg_temp', role);
  end loop;
  execute format('revoke create, temporary on database %I from public', current_database());
  execute format('grant create on database %I to claude_mem_owner', current_database());
end $$;
-- An acknowledged entry survives a power cut of the database server; a hung request does not hold locks.
alter role claude_mem_app set synchronous_commit = on;
alter role claude_mem_app set statement_timeout = '15s';
alter role claude_mem_app set lock_timeout = '5s';
alter role claude_mem_app set idle_in_transaction_session_timeout = '30s';
alter role claude_mem_operator set synchronous_commit = on;
alter role claude_mem_operator set idle_in_transaction_session_timeout = '5min';
-- A migration that waits for a lock would make every later query wait behind it.
alter role claude_mem_owner set lock_timeout = '5s';
