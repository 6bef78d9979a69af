"""What rooms can ask about spaces: a table of functions, each implemented in the module it names."""

from __future__ import annotations

from claude_mem.storage.sqlite.binding import BoundFunctions, bound
from claude_mem.storage.sqlite.spaces import items, logs, records


class SqliteSpaces(BoundFunctions):
    """Implements `storage.spaces.SpaceStore`."""

    # spaces
    create_space = bound(logs.create_space)
    get_space = bound(logs.get_space)
    leave_space = bound(logs.leave_space)
    list_spaces = bound(logs.list_spaces)
    select_projects = bound(logs.select_projects)
    set_epoch = bound(logs.set_epoch)
    set_transport = bound(logs.set_transport)

    # logs
    append_foreign = bound(logs.append_foreign)
    append_own = bound(logs.append_own)
    confirm_published = bound(logs.confirm_published)
    count_logs = bound(logs.count_logs)
    count_refused = bound(logs.count_refused)
    find_difference = bound(logs.find_difference)
    heads = bound(logs.heads)
    list_conflicts = bound(logs.list_conflicts)
    list_emptied = bound(logs.list_emptied)
    mark_published = bound(logs.mark_published)
    read_log = bound(logs.read_log)

    # items
    undo_deletion = bound(items.undo_deletion)
    list_live_items = bound(items.list_live_items)
    list_doomed = bound(items.list_doomed)
    has_row = bound(items.has_row)
    append_entry = bound(items.append_entry)
    bind_row = bound(items.bind_row)
    drop_bodies = bound(items.drop_bodies)
    drop_body = bound(items.drop_body)
    find_item = bound(items.find_item)
    find_own_deletion = bound(items.find_own_deletion)
    finish_changes = bound(items.finish_changes)
    get_held_back = bound(items.get_held_back)
    get_item = bound(items.get_item)
    get_marks = bound(items.get_marks)
    is_current = bound(items.is_current)
    list_pending = bound(items.list_pending)
    note_entry = bound(items.note_entry)
    read_changes = bound(items.read_changes)
    set_deletion = bound(items.set_deletion)
    set_held_back = bound(items.set_held_back)
    set_item = bound(items.set_item)
    set_state = bound(items.set_state)
    settle_conflicts = bound(items.settle_conflicts)
    unbind_row = bound(items.unbind_row)
    is_forgotten = bound(items.is_forgotten)

    # records
    find_deletion = bound(records.find_deletion)
    find_project_id = bound(records.find_project_id)
    add_record = bound(records.add_record)
    find_row = bound(records.find_row)
    remove_row = bound(records.remove_row)
    replace_record = bound(records.replace_record)
