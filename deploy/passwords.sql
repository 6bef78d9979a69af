-- Passwords of the roles, from the environment of psql, so that no command line shows them.
\getenv owner OWNER_PASSWORD
\getenv app APP_PASSWORD
\getenv operator OPERATOR_PASSWORD
alter role claude_mem_owner password :'owner';
alter role claude_mem_app password :'app';
alter role claude_mem_operator password :'operator';
