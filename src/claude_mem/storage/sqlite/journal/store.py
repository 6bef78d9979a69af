"""What rooms can ask of the journal: a table of functions, each implemented in the module it names.

The journal says what this machine saw and still has to do. It is in SQLite whatever the store of the memory.
"""

from __future__ import annotations

from claude_mem.storage.sqlite.binding import BoundFunctions, bound
from claude_mem.storage.sqlite.journal import (
    accounting,
    backfills,
    events,
    imports,
    injections,
    job_details,
    jobs,
    ledger,
    notices,
    reprocessing,
    retention,
    turns,
    uses,
)
from claude_mem.storage.sqlite.memory import browse, calls, sessions, stories, trusted_sources


class Journal(BoundFunctions):
    """Events, turns, jobs, costs, injections and notices of this machine."""

    # accounting
    count_all_rows = bound(accounting.count_all_rows)
    count_event_account = bound(accounting.count_event_account)
    get_content_state = bound(accounting.get_content_state)

    # back-fills
    cancel_unread_transcripts = bound(backfills.cancel_unread_transcripts)
    count_bad_lines = bound(backfills.count_bad_lines)
    enqueue_next_part = bound(backfills.enqueue_next_part)
    enqueue_transcripts = bound(backfills.enqueue_transcripts)
    find_backfill_file = bound(backfills.find_backfill_file)
    finish_backfill_file = bound(backfills.finish_backfill_file)
    get_backfill_progress = bound(backfills.get_backfill_progress)
    list_unchanged_transcripts = bound(backfills.list_unchanged_transcripts)
    list_unrefined_turns = bound(backfills.list_unrefined_turns)
    record_backfill_problem = bound(backfills.record_backfill_problem)
    set_backfill_session = bound(backfills.set_backfill_session)

    # events and receipts
    add_event = bound(events.add_event)
    add_receipt = bound(events.add_receipt)
    find_first_live_event_at = bound(events.find_first_live_event_at)
    find_receipt = bound(events.find_receipt)
    get_newest_seq = bound(events.get_newest_seq)
    get_receipt_rules = bound(events.get_receipt_rules)
    has_closing_message = bound(events.has_closing_message)
    has_event_of_kind = bound(events.has_event_of_kind)
    has_external_read = bound(events.has_external_read)
    has_receipt = bound(events.has_receipt)
    is_message_from_transcript = bound(events.is_message_from_transcript)
    is_tool_call_in_session = bound(events.is_tool_call_in_session)
    is_tool_call_stored = bound(events.is_tool_call_stored)
    list_live_stops = bound(events.list_live_stops)
    list_session_events = bound(events.list_session_events)
    load_times = bound(events.load_times)
    mark_event_filtered = bound(events.mark_event_filtered)
    mark_tool_call_failed = bound(events.mark_tool_call_failed)
    replace_stop_message = bound(events.replace_stop_message)

    # imports
    advance_import = bound(imports.advance_import)
    create_import = bound(imports.create_import)
    fail_import = bound(imports.fail_import)
    find_import_error = bound(imports.find_import_error)
    get_import = bound(imports.get_import)

    # injections
    add_injection_record = bound(injections.add_injection_record)
    clear_injected_items = bound(injections.clear_injected_items)
    list_injected_items = bound(injections.list_injected_items)
    list_session_injections = bound(injections.list_session_injections)
    record_injected_items = bound(injections.record_injected_items)

    # uses of what was injected
    count_reading = bound(uses.count_reading)
    count_use_totals = bound(uses.count_use_totals)
    count_uses = bound(uses.count_uses)
    list_judgeable_sessions = bound(uses.list_judgeable_sessions)
    list_known_paths = bound(uses.list_known_paths)
    list_moments = bound(uses.list_moments)
    list_session_uses = bound(uses.list_session_uses)
    list_start_moments = bound(uses.list_start_moments)
    list_trigger_totals = bound(uses.list_trigger_totals)
    list_use_totals = bound(uses.list_use_totals)
    list_uses_by_trigger = bound(uses.list_uses_by_trigger)
    load_session_items = bound(uses.load_session_items)
    load_shown_items = bound(uses.load_shown_items)
    record_reading = bound(uses.record_reading)
    replace_uses = bound(uses.replace_uses)

    # job details
    count_jobs_by_state = bound(job_details.count_jobs_by_state)
    drop_dead_job = bound(job_details.drop_dead_job)
    list_described_jobs = bound(job_details.list_described_jobs)
    retry_dead_job = bound(job_details.retry_dead_job)

    # jobs
    claim_job = bound(jobs.claim_job)
    count_jobs = bound(jobs.count_jobs)
    count_urgent_jobs = bound(jobs.count_urgent_jobs)
    enqueue_job = bound(jobs.enqueue_job)
    enqueue_job_again = bound(jobs.enqueue_job_again)
    enqueue_render = bound(jobs.enqueue_render)
    finish_job = bound(jobs.finish_job)
    get_next_due_time = bound(jobs.get_next_due_time)
    is_job_waiting = bound(jobs.is_job_waiting)
    list_jobs = bound(jobs.list_jobs)
    release_all_leases = bound(jobs.release_all_leases)
    release_failed_job = bound(jobs.release_failed_job)
    retry_dead_jobs = bound(jobs.retry_dead_jobs)
    shift_job_due_times = bound(jobs.shift_job_due_times)
    unclaim_job = bound(jobs.unclaim_job)

    # ledger and circuit breakers
    close_ledger_entry = bound(ledger.close_ledger_entry)
    count_session_tokens = bound(ledger.count_session_tokens)
    get_breaker = bound(ledger.get_breaker)
    get_refine_attempts = bound(ledger.get_refine_attempts)
    get_spending_since = bound(ledger.get_spending_since)
    list_breakers = bound(ledger.list_breakers)
    list_daily_usage = bound(ledger.list_daily_usage)
    list_ledger_entries = bound(ledger.list_ledger_entries)
    open_ledger_entry = bound(ledger.open_ledger_entry)
    record_actual_usage = bound(ledger.record_actual_usage)
    reset_breaker = bound(ledger.reset_breaker)
    save_breaker = bound(ledger.save_breaker)
    set_entry_memory_session = bound(ledger.set_entry_memory_session)
    shift_breaker_times = bound(ledger.shift_breaker_times)
    summarize_ledger = bound(ledger.summarize_ledger)

    # notices and checks
    add_notice = bound(notices.add_notice)
    clear_notices = bound(notices.clear_notices)
    delete_check = bound(notices.delete_check)
    find_check = bound(notices.find_check)
    get_greeted_at = bound(notices.get_greeted_at)
    list_drills = bound(notices.list_drills)
    list_proven_backups = bound(notices.list_proven_backups)
    list_unshown_notices = bound(notices.list_unshown_notices)
    mark_greeted = bound(notices.mark_greeted)
    mark_notices_shown = bound(notices.mark_notices_shown)
    record_check = bound(notices.record_check)

    # reprocessing
    add_closing_message = bound(reprocessing.add_closing_message)
    count_outdated_turns = bound(reprocessing.count_outdated_turns)
    count_reprocessable_turns = bound(reprocessing.count_reprocessable_turns)
    enqueue_next_outdated_turns = bound(reprocessing.enqueue_next_outdated_turns)
    enqueue_reprocessing = bound(reprocessing.enqueue_reprocessing)
    find_transcript_source = bound(reprocessing.find_transcript_source)
    get_reprocess_progress = bound(reprocessing.get_reprocess_progress)
    get_turn_owner = bound(reprocessing.get_turn_owner)
    has_outdated_turns = bound(reprocessing.has_outdated_turns)
    is_turn_without_events = bound(reprocessing.is_turn_without_events)
    list_transcript_sources = bound(reprocessing.list_transcript_sources)
    mark_turn_reprocessed = bound(reprocessing.mark_turn_reprocessed)
    reuse_observation_rows = bound(reprocessing.reuse_observation_rows)

    # retention
    compact_receipts = bound(retention.compact_receipts)
    drop_old_dead_letters = bound(retention.drop_old_dead_letters)
    purge_loose_events = bound(retention.purge_loose_events)
    purge_turn_events = bound(retention.purge_turn_events)

    # sessions on this machine
    find_memory_session = bound(sessions.find_memory_session)
    interrupt_idle_sessions = bound(sessions.interrupt_idle_sessions)
    list_resumable_memory_sessions = bound(sessions.list_resumable_memory_sessions)
    list_unfinished_sessions = bound(sessions.list_unfinished_sessions)
    record_informed_up_to = bound(sessions.record_informed_up_to)
    record_memory_session = bound(sessions.record_memory_session)
    set_transcript_offset = bound(sessions.set_transcript_offset)

    # turns
    clamp_to_last_event = bound(turns.clamp_to_last_event)
    close_open_turns = bound(turns.close_open_turns)
    close_turn = bound(turns.close_turn)
    find_latest_turn = bound(turns.find_latest_turn)
    find_turn_at = bound(turns.find_turn_at)
    find_turn_by_prompt = bound(turns.find_turn_by_prompt)
    find_turn_by_text = bound(turns.find_turn_by_text)
    has_all_loaded_events = bound(turns.has_all_loaded_events)
    has_later_turn = bound(turns.has_later_turn)
    has_more_old_turns = bound(turns.has_more_old_turns)
    is_prompt_known = bound(turns.is_prompt_known)
    is_turn_current = bound(turns.is_turn_current)
    is_turn_imported = bound(turns.is_turn_imported)
    is_turn_live = bound(turns.is_turn_live)
    is_turn_public = bound(turns.is_turn_public)
    list_silent_turns = bound(turns.list_silent_turns)
    list_turns = bound(turns.list_turns)
    list_undigested_turns = bound(turns.list_undigested_turns)
    load_turn = bound(turns.load_turn)
    load_turn_from_transcript = bound(turns.load_turn_from_transcript)
    make_turn_private = bound(turns.make_turn_private)
    mark_turn_digested = bound(turns.mark_turn_digested)
    mark_turn_extended = bound(turns.mark_turn_extended)
    open_turn = bound(turns.open_turn)
    set_prompt_id = bound(turns.set_prompt_id)
    touch_turn = bound(turns.touch_turn)

    # activity
    count_jobs_by_kind = bound(browse.count_jobs_by_kind)
    count_set_aside_events = bound(browse.count_set_aside_events)
    describe_running_jobs = bound(browse.describe_running_jobs)
    get_backfill_activity = bound(browse.get_backfill_activity)
    list_active_sessions = bound(browse.list_active_sessions)
    list_retrying_jobs = bound(browse.list_retrying_jobs)

    # calls of commands
    count_worked_calls = bound(calls.count_worked)
    list_call_histories = bound(calls.list_histories)
    list_recurring_calls = bound(calls.list_recurring_keys)
    replace_call_records = bound(calls.replace_records)

    # session stories
    count_turn_events = bound(stories.count_turn_events)
    find_turns_running = bound(stories.find_turns_running)
    get_story_header = bound(stories.get_story_header)
    list_raw_events = bound(stories.list_raw_events)
    list_story_outline = bound(stories.list_story_outline)
    list_story_turns = bound(stories.list_story_turns)
    load_named_items = bound(stories.load_named_items)
    load_turn_evidence = bound(stories.load_turn_evidence)
    load_turn_observations = bound(stories.load_turn_observations)
    load_turn_prompts = bound(stories.load_turn_prompts)
    load_turn_summaries = bound(stories.load_turn_summaries)
    load_turn_usage = bound(stories.load_turn_usage)

    # trusted sources
    add_trusted_source = bound(trusted_sources.add_trusted_source)
    list_approvable_items = bound(trusted_sources.list_approvable_items)
    list_pending_sources = bound(trusted_sources.list_pending_sources)
    list_trusted_sources = bound(trusted_sources.list_trusted_sources)
    remove_trusted_source = bound(trusted_sources.remove_trusted_source)
