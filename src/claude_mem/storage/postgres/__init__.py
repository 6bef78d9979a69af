"""PostgreSQL: what a team server stores. Every key begins with the organisation, and row-level security is forced."""
