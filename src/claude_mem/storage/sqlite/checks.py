"""What rooms can ask about the integrity of the database: a table of functions, each implemented in the module it names."""

from __future__ import annotations

from claude_mem.storage.sqlite import checksums, integrity, self_check
from claude_mem.storage.sqlite.binding import BoundFunctions, bound


class IntegrityChecks(BoundFunctions):
    """Checksums, the word index and the self-check."""

    # checksums
    has_queued_checksums = bound(checksums.has_queued_checksums)
    store_checksums = bound(checksums.store_checksums)

    # file and word index
    count_free_bytes = bound(integrity.count_free_bytes)
    is_index_intact = bound(integrity.is_index_intact)

    # self-check
    check_full_text_index = bound(self_check.check_full_text_index)
    find_altered_observations = bound(self_check.find_altered_observations)
    get_audit_head = bound(self_check.get_audit_head)
    run_quick_checks = bound(self_check.run_quick_checks)
    run_thorough_checks = bound(self_check.run_thorough_checks)
    set_audit_head = bound(self_check.set_audit_head)
