"""What rooms can ask about spaces: a table of functions, each implemented in the module it names."""

from __future__ import annotations

from claude_mem.storage.sqlite.binding import BoundFunctions, bound
from claude_mem.storage.sqlite.spaces import logs


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
    heads = bound(logs.heads)
    list_conflicts = bound(logs.list_conflicts)
    list_emptied = bound(logs.list_emptied)
    mark_published = bound(logs.mark_published)
    read_log = bound(logs.read_log)
