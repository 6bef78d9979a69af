"""`claude-mem-server`: the server of a team. It stores the sealed logs of spaces and knows who may read them.

Nodes are stateless: everything is in PostgreSQL, and any number of nodes may run behind a load balancer.
"""
