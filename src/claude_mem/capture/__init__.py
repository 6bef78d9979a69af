"""Spool file to event rows to turns; transcripts and back-fill."""
