"""What this machine saw and still has to do: events, turns, jobs, receipts, injections."""
