"""What rooms can ask about deleting: a table of functions, each implemented in the module it names."""

from __future__ import annotations

from claude_mem.storage.sqlite.binding import BoundFunctions, bound
from claude_mem.storage.sqlite.deletion import deletions, redaction, scopes, tombstones


class Deletions(BoundFunctions):
    """Deletions, tombstones and redaction, in the memory and the journal."""

    # deletions
    begin_deletion = bound(deletions.begin_deletion)
    build_tombstone_revocations = bound(deletions.build_tombstone_revocations)
    build_tombstones = bound(deletions.build_tombstones)
    delete_batch = bound(deletions.delete_batch)
    delete_empty_projects = bound(deletions.delete_empty_projects)
    enqueue_redigest = bound(deletions.enqueue_redigest)
    erase_expired_rows = bound(deletions.erase_expired_rows)
    erase_mentions = bound(deletions.erase_mentions)
    find_affected_projects = bound(deletions.find_affected_projects)
    find_remaining_rows = bound(deletions.find_remaining_rows)
    find_sessions_to_retitle = bound(deletions.find_sessions_to_retitle)
    find_tombstoned_rows = bound(deletions.find_tombstoned_rows)
    find_undone_deletions = bound(deletions.find_undone_deletions)
    find_unfinished_deletions = bound(deletions.find_unfinished_deletions)
    finish_deletion = bound(deletions.finish_deletion)
    forget_observation = bound(deletions.forget_observation)
    get_restorable_rows = bound(deletions.get_restorable_rows)
    is_expiry_due = bound(deletions.is_expiry_due)
    iterate_affected_texts = bound(deletions.iterate_affected_texts)
    record_missing_deletion = bound(deletions.record_missing_deletion)
    restore_deletion = bound(deletions.restore_deletion)
    retitle_sessions = bound(deletions.retitle_sessions)
    undo_observation_change = bound(deletions.undo_observation_change)

    # redaction
    text_tables = redaction.TEXT_TABLES
    count_text_rows = bound(redaction.count_text_rows)
    redact_batch = bound(redaction.redact_batch)

    # scopes
    find_affected_rows = bound(scopes.find_affected_rows)
    resolve_deletion_scope = bound(scopes.resolve_deletion_scope)
    summarize_affected_rows = bound(scopes.summarize_affected_rows)

    # tombstones
    complete_tombstone_file = bound(tombstones.complete_tombstone_file)
    find_missing_tombstones = bound(tombstones.find_missing_tombstones)
    insert_match_all_tombstone = bound(tombstones.insert_match_all_tombstone)
    insert_tombstones = bound(tombstones.insert_tombstones)
    is_event_tombstoned = bound(tombstones.is_event_tombstoned)
