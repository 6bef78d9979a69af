"""The hook: the program that an agent runs, through `launch.py`, at every event.

The agent waits for the hook. So the capture path imports nothing that the interpreter has not already loaded
(`import json` alone would double its cost): it reads stdin, writes one file into the spool, wakes the worker without
waiting for it, answers, and exits 0. Whatever goes wrong, it exits 0 with a valid answer. Only less frequent paths
import more: a payload that may contain a privacy tag, and the triggers at which context may be injected (session
start, prompt, file about to be read, failed command), which ask the worker and wait for it for a fraction of a second.

A spool file consists of `key value` lines, an empty line, and the unmodified payload. Its name is the event's id.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys
import time

COMMANDS = ("context", "new", "save", "fail", "file", "summary", "cleanup", "compact")
CONTEXT_ONLY_COMMAND = "file"  # runs before the tool call: nothing has happened yet, so there is no event to store
# The commands at which context may be injected, and the worker's route for each.
CONTEXT_ROUTES = {
    "context": "/api/context/inject",
    "new": "/api/context/prompt",
    "fail": "/api/context/failure",
    "file": "/api/context/file",
}
EMPTY_ANSWER = b'{"continue": true, "suppressOutput": true}'
# Claude Code adds the answer to a `compact` event to its instructions, and other agents reject an answer with fields
# they do not know. Both get an empty object.
PLAIN_EMPTY_ANSWER = b"{}"

# This file exists in a checkout but not in the wheel (pyproject.toml). Without it, failpoints do nothing.
CHECKOUT_MARKER = "checkout"
# SIGKILL points of the kill test; see failpoints.py.
FAILPOINTS = ("hook.read", "hook.scanned", "hook.temp", "hook.synced", "hook.renamed", "hook.nudged")

MAX_PAYLOAD_BYTES = 8 << 20
OVERSIZED_KEEP_BYTES = 64 << 10
MAX_TAG_TRIES = 1000  # matches the quick search for tags examines; beyond that, the full scanner is faster
READ_SECONDS = 1.5  # a pipe that is never closed must not block the user
WORK_SECONDS = 3.0  # with READ_SECONDS less than the 5 s after which the agent kills the hook
ASK_SECONDS = 0.15  # with a hung worker a session start still stays well under 300 ms
START_PAUSE_SECONDS = 10  # minimum time between two attempts to start a worker
BACKLOG_SECONDS = 600  # the user is warned when an event has waited this long
WARNING_INTERVAL_SECONDS = 86_400  # the warning is repeated once a day
SPAWNED_AT = b"CLAUDE_MEM_SPAWNED_AT"  # when this worker was requested; on a busy machine it may start much later
STOP_STAMP = "worker.stopped"  # touched when the user stops the worker
DISPLACED_MARKER = ".damaged-"  # part of the new name of anything that occupied the path of one of our files
WARNING_STAMP = "worker.warned"  # touched when the user was warned; a worker removes it once it has started

# The environment of an agent contains API keys. A worker started by a hook gets only the variables it needs.
_KEEP_ENV = (b"PATH", b"HOME", b"USER", b"LOGNAME", b"LANG", b"TZ", b"TMPDIR", b"SSL_CERT_FILE", b"CLAUDE_CONFIG_DIR")
_KEEP_ENV_PREFIXES = (b"LC_", b"XDG_")
_ENV_PREFIX = b"CLAUDE_MEM_"
# The environment may be set by a project, and one worker serves all projects. So a hook passes on only these of our own
# variables. Settings that decide where data is sent, which program is run, what may be spent, and what is stored or
# redacted are read from `config.toml` only.
INHERITABLE_ENV = (
    b"CLAUDE_MEM_DATA_DIR",
    b"CLAUDE_MEM_WORKER_PORT",
    b"CLAUDE_MEM_CONTEXT_TOKENS",
    b"CLAUDE_MEM_CONTEXT_OBSERVATIONS",
    b"CLAUDE_MEM_EVENT_CHARS",
    b"CLAUDE_MEM_SILENCE_MINUTES",
    b"CLAUDE_MEM_SESSION_HOURS",
    b"CLAUDE_MEM_VERBOSITY",
    b"CLAUDE_MEM_MODE",
    b"CLAUDE_MEM_GREETING",
    b"CLAUDE_MEM_COMMAND_HINTS",
    b"CLAUDE_MEM_LOG_LEVEL",
    b"CLAUDE_MEM_EMBEDDING_MODEL",
)

# Environment variables in which an agent passes information, listed per agent: an agent that was started by another
# agent also inherits the variables of that one, and they must be ignored.
_HOST_ENV_VARS = {
    "claude": ((b"project_dir", b"CLAUDE_PROJECT_DIR"), (b"pid", b"CLAUDE_PID")),
    "gemini": ((b"project_dir", b"GEMINI_PROJECT_DIR"),),
    "cursor": ((b"project_dir", b"CURSOR_PROJECT_DIR"),),
}
# Agents that run the hook in the project's directory instead of naming it.
_RUN_IN_PROJECT = ("windsurf",)
# Commands at which an agent ignores injected context, so that the hook need not ask the worker.
_NO_CONTEXT_AT = {"cursor": ("new", "fail"), "windsurf": ("new",)}

_LOSES_CONTEXT_ON_RESUME = ("qwen", "copilot", "opencode")  # a resumed session has lost the brief


class TimeLimitExceeded(Exception):
    """Raised by the alarm signal when a time limit is exceeded."""


def main(argv: "list[str]", stdin: "tuple[bytes, bool] | None" = None) -> None:
    """Run one hook command. Never returns or raises: always exits 0 with an answer on stdout.

    `stdin` is the result of `read_stdin`, if the caller has already read it.
    """
    host = _host(argv)
    answer = EMPTY_ANSWER if host == "claude" and argv[1:2] != ["compact"] else PLAIN_EMPTY_ANSWER
    try:
        if argv[1] in COMMANDS and not posix.environ.get(b"CLAUDE_MEM_INTERNAL"):
            answer = _capture(argv, host, stdin) or answer
    except BaseException:
        pass  # the agent must not see a failure; `claude-mem doctor` reports the cause
    try:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        while answer:
            answer = answer[posix.write(1, answer) :]
    except BaseException:
        pass  # stdout is closed
    posix._exit(0)


def _host(argv: "list[str]") -> str:
    """Return the agent that runs the hook. Claude Code and Codex share one plugin; only Codex sets `PLUGIN_ROOT`."""
    host = argv[3] if len(argv) > 3 and argv[3] else "claude"
    if host == "plugin":
        return "codex" if posix.environ.get(b"PLUGIN_ROOT") else "claude"
    return host


def _capture(argv: "list[str]", host: str, stdin: "tuple[bytes, bool] | None") -> bytes:
    """Write the event to the spool. Return the answer, or b"" for the default answer."""
    payload, complete = stdin or read_stdin()
    _failpoint(b"hook.read")
    if not payload.strip():
        return b""  # not an event: nothing to store and nothing to count
    _signal.setitimer(_signal.ITIMER_REAL, WORK_SECONDS)
    home = data_dir(argv[2] if len(argv) > 2 else "")
    record = _record(argv[1], host, payload, complete)
    _failpoint(b"hook.scanned")
    try:
        if argv[1] == CONTEXT_ONLY_COMMAND:
            _check_data_dir(home)
        else:
            _write_event(home, record)
    except OSError:
        _count_dropped_event(home)
        if argv[1] != "context":
            raise
        warning = f"claude-mem cannot write to {home}: nothing is being remembered. Run `claude-mem doctor`."
        return _add_warning(host, _brief_without_spool(home, host, record, payload), warning)
    if argv[1] == "context":
        return _start_session(home, host, record, payload)
    alive, _ = _try_nudge(home)
    asks = alive and argv[1] in CONTEXT_ROUTES and argv[1] not in _NO_CONTEXT_AT.get(host, ())
    return _ask_worker(home, argv[1], record) if asks else b""


def _expire(*_: object) -> None:
    raise TimeLimitExceeded


def armed_failpoint() -> bytes:
    """Return the failpoint at which a test wants this process killed, or b"".

    Failpoints work only where the marker file exists. The wheel does not contain it, so that no project's environment
    can kill an installed hook or worker.
    """
    point = posix.environ.get(b"CLAUDE_MEM_FAILPOINT", b"")
    try:
        if point:
            posix.stat(__file__.rpartition("/")[0] + "/" + CHECKOUT_MARKER)
    except OSError:
        return b""
    return point


def _failpoint(name: bytes) -> None:
    if name == _FAILPOINT:
        posix.kill(posix.getpid(), 9)


_FAILPOINT = armed_failpoint()


# --- reading ---------------------------------------------------------------------------------------------------------


def read_stdin() -> "tuple[bytes, bool]":
    """Return everything on stdin, and whether it is complete. Waits no longer than `READ_SECONDS`.

    Only the beginning of an oversized payload is kept: its end might be inside a private block whose opening tag was
    in the dropped middle. The transcript has the full text anyway.
    """
    chunks: list[bytes] = []
    size = 0
    _signal.signal(_signal.SIGALRM, _expire)
    _signal.setitimer(_signal.ITIMER_REAL, READ_SECONDS)
    try:
        while chunk := posix.read(0, 1 << 20):
            size += len(chunk)
            if size <= MAX_PAYLOAD_BYTES:
                chunks.append(chunk)
        _signal.setitimer(_signal.ITIMER_REAL, 0)  # inside `try`: an alarm after the last byte must not lose the event
    except (TimeLimitExceeded, OSError):  # timed out, or stdin is closed or broken
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        return b"".join(chunks), False
    return (b"".join(chunks), True) if size <= MAX_PAYLOAD_BYTES else (b"".join(chunks)[:OVERSIZED_KEEP_BYTES], False)


def _record(command: str, host: str, payload: bytes, complete: bool) -> bytes:
    """Return the content of the spool file, without text that the user marked as private."""
    env = posix.environ
    lines = [b"command " + command.encode(), b"host " + host.encode()]
    for key, name in _HOST_ENV_VARS.get(host, ()):
        if value := env.get(name):
            lines.append(_line(key, value))
    if host in _RUN_IN_PROJECT:
        lines.append(_line(b"project_dir", _working_dir()))
    if not complete:
        lines.append(b"cut yes")
    if may_contain_private_tag(payload):
        payload, marks = _without_private(payload, host)
        lines += marks
    return b"\n".join(lines) + b"\n\n" + payload


def _working_dir() -> bytes:
    try:
        return posix.getcwdb()
    except OSError:
        return b""  # the directory was removed


def _line(key: bytes, value: bytes) -> bytes:
    return key + b" " + value.replace(b"%", b"%25").replace(b"\n", b"%0A")


# --- privacy ---------------------------------------------------------------------------------------------------------


# Letters that look like those of `private`, as in `privacy.LOOKALIKES`. Complete alphabets of lookalikes, which are
# less common, are recognized by `_ODD_ALPHABETS` and `_WIDE_LETTERS`.
LOOKALIKES = {
    "p": "ṔṕṖṗƤƥРрΡρᴘᵖₚℙϱⲢⲣᑭᏢꓑⱣᵽꝐꝑꝒꝓꝔꝕ",
    "r": "ŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟгГʀᴦᵣʳℝℛℜⲅꭇꭈᖇᏒꓣɌɍⱤɽꞦꞧ",
    "i": "ÌÍÎÏìíîïĨĩĪīĬĭĮįİǏǐȈȉȊȋḬḭḮḯỈỉỊịІіЇїΙιΪϊΊίıɪɩⁱᵢℹℐℑⅰⅠӀӏᎥꓲⲒⲓƗɨꞮ",
    "v": "ṼṽṾṿѴѵνΝᴠᵛᵥⅴⅤⱽᐯᏙꓦꝞꝟƲʋ∨",
    "a": "ÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặАаӐӑӒӓΑαΆάᴀᵃₐɑªᎪꓮꭺⲀⲁȺⱥ⍺",
    "t": "ŢţŤťȚțṪṫṬṭṮṯṰṱẗТтΤτᴛᵗₜᎢꓔⲦⲧŦŧȾⱦƬƭƮʈ",
    "e": "ÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệЕеЁёЀѐΕεΈέᴇᵉₑℯℇℰ℮ҽᎬꓰⲈⲉɆɇƐɛ",
}
_ASCII = bytes(range(128))
_ODD_ALPHABETS = (
    b"\xf0\x9d", b"\xe2\x92", b"\xe2\x93", b"\xf0\x9f\x84", b"\xf0\x9f\x85", b"\xf0\x9f\x87\xb5",
)  # fmt: skip
_ODD_ESCAPES = (b"\\ud835", b"\\u24", b"\\uff2", b"\\uff3", b"\\uff4", b"\\uff5")
_SQUARED_ESCAPE = b"\\ud83c\\udd"  # squared and negative letters, but also flags
_WIDE_LETTERS = ((b"\xef\xbc", b"\xa1", b"\xba"), (b"\xef\xbd", b"\x81", b"\x9a"))  # prefix, first and last
_ESCAPE = b"\\u"

# Characters that a reader does not see, as in `tags.INVISIBLE`, by their first and last code points.
INVISIBLE = (
    (0x00, 0x08), (0x0E, 0x1A), (0x1C, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x300, 0x36F), (0x61C, 0x61C),
    (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F),
    (0x2800, 0x2800), (0x3164, 0x3164), (0xD800, 0xDFFF), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0),
    (0xFFF9, 0xFFFD), (0xE0000, 0xE0FFF),
)  # fmt: skip
_BACKSLASH = b"\\\\"  # as JSON writes it
_MARK = b"\x01\x01"  # stands for a backslash; JSON has no control characters
_SPACES = b" \t\n\r\f\v\x7f"
_SPACE_ESCAPES = (b"\\n", b"\\t", b"\\r", b"\\f")
_WRITTEN_ESC = (b"\\\\u001b", b"\\\\x1b", b"\\\\033", b"\\\\33", b"\\\\e[", b"\\\\e(", b"\\\\e]")
_NAMES = (b"private", b"claude-mem-context")


def may_contain_private_tag(payload: bytes) -> bool:
    """Return whether this JSON text may contain a privacy tag. A fast pre-check; `privacy.strip` decides."""
    text = payload.lower()
    if text.find(_ESCAPE) >= 0 or not text.isascii():
        if _has_odd_letters(text):
            return True
        text = _with_plain_letters(text)
    text = _without_unseen(text)
    # JSON writers do not escape plain letters, but if one does, the escapes could hide a tag.
    if any(text.find(escape) >= 0 for escape in (b"\\u002d", b"\\u004", b"\\u005", b"\\u006", b"\\u007")):
        return True
    # The brackets around a tag name may be escaped: `\\u003c`, or `\\u0026lt;` or `\\u00253c`, as some programs do.
    escaped = text.find(b"\\u002") >= 0 or text.find(b"\\u003") >= 0
    for name in _NAMES:
        position, tries = text.find(name), 0
        while position >= 0:
            if escaped or tries == MAX_TAG_TRIES or _ends_with_open_bracket(text[max(0, position - 800) : position]):
                return True
            position, tries = text.find(name, position + 1), tries + 1
    return _may_split_a_tag(text)


def _without_unseen(text: bytes) -> bytes:
    """Remove what may interrupt the name of a tag: terminal escape sequences, overstruck letters, white space."""
    for written in _WRITTEN_ESC if text.find(b"\\\\") >= 0 else ():
        if text.find(written) >= 0:
            text = text.replace(written, b"\\u001b" + written[3:] if written[2:3] == b"e" else b"\\u001b")
    if text.find(b"\\u001b") >= 0:
        first, *parts = text.replace(b"\\u001b\\\\", b"\\u0007").split(b"\\u001b")
        text = first + b"".join(map(_after_sequence, parts))
    text = text.replace(_BACKSLASH, _MARK)  # the `n` of `\\\\n` is a letter
    if text.find(b"\\b") >= 0:
        *overstruck, last = text.split(b"\\b")
        text = b"".join(part if part[-1:] in (b"<", b";") else part[:-1] for part in overstruck) + last
    text = text.translate(None, _SPACES)
    for escape in _SPACE_ESCAPES:
        text = text.replace(escape, b"")
    return text.replace(_MARK, _BACKSLASH)


def _after_sequence(part: bytes) -> bytes:
    """Return what follows a terminal escape sequence, of which `part` lacks the first character.

    A tag that begins within the sequence is kept.
    """
    if part[:1] == b"[":
        rest = part[1:].lstrip(b"0123456789:;=>?").lstrip(b" !\"#$'()*+,-./")
        return rest if rest[:1] in (b"<", b"&", b"%", b"\\") else rest[1:]
    if part[:1] in (b"(", b")", b"*", b"+"):
        return part[2:]
    if part[:1] == b"]":
        title, bell, rest = part.partition(b"\\u0007")
        return rest if bell and title.find(b"<") < 0 else part
    return b"\\u001b" + part


def _may_split_a_tag(text: bytes) -> bool:
    """Return whether a string of this JSON text may end within a tag that a later string continues."""
    for sign, spelling in _SPLIT_SIGNS:
        text = text.replace(spelling, sign)
    for sign in (*_CODES_AFTER, b"u001b"):
        position, tries = text.find(sign), 0
        while position >= 0 and (end := text.find(b'"', position)) >= 0:
            if tries == 10 * MAX_TAG_TRIES or _may_end_in_tag(text[max(position, end - 800) : end]):
                return True
            position, tries = text.find(sign, end), tries + 1
    return False


# Signs with which `<`, a slash or an invisible character in a tag begins, and the letters and digits that follow them,
# without zeros.
_CODES_AFTER = {
    b"<": (b"",),
    b"&": (b"lt", b"6", b"x3c"),
    b"%": (b"3c", b"2f"),
    _BACKSLASH: (b"", b"u3c", b"uff1c", b"x3c", b"u2f", b"u1b"),
}
_SPLIT_SIGNS = (
    (b"<", b"\\u003c"), (b"<", b"\\uff1c"), (b"<", b"\xef\xbc\x9c"), (b"&", b"\\u0026"), (b"%", b"\\u0025"),
)  # fmt: skip


def _may_end_in_tag(end: bytes) -> bool:
    """Return whether a string ends in `<`, in any spelling, or in the beginning of `<`, of a slash or of a tag name."""
    if (len(end) - len(end.rstrip(b"\\"))) % 2:
        return False  # the string goes on: its next character is an escaped quote
    if end[-40:].find(b"u001b") >= 0:
        return True  # within the escape of a colour: the complete ones were removed
    start, sign = max((end.rfind(sign), sign) for sign in _CODES_AFTER)
    if start < 0:
        return False
    rest = end[start + len(sign) :]
    while (escape_start := rest.find(b"\\u")) >= 0:
        rest = rest[:escape_start] + rest[escape_start + 6 :]
    for escape in (b"\\n", b"\\t", b"\\r", b"\\f", b"\\v"):
        rest = rest.replace(escape, b" ")
    letters = bytes(byte for byte in rest if byte < 128 and chr(byte).isalnum())
    letters = letters if sign == b"<" else letters.replace(b"0", b"")  # `&#00060;`
    names = (b"private", b"claudememcontext")
    return any((code + name).startswith(letters) for code in _CODES_AFTER[sign] for name in names)


def _has_odd_letters(text: bytes) -> bool:
    """Return whether the text contains letters of a complete alphabet of lookalikes."""
    if not text.isascii() and (any(text.find(sign) >= 0 for sign in _ODD_ALPHABETS) or _has_wide_letters(text)):
        return True
    if text.find(_ESCAPE) < 0:
        return False
    _, *squared = text.split(_SQUARED_ESCAPE)
    return any(part[:1] < b"e" or part == b"f5" for part in squared) or any(
        text.find(sign) >= 0 for sign in _ODD_ESCAPES
    )


def _has_wide_letters(text: bytes) -> bool:
    """Return whether the text contains full-width letters.

    Full-width punctuation and digits do not count: they are common in Chinese and Japanese.
    """
    for sign, first, last in _WIDE_LETTERS:
        position, tries = text.find(sign), 0
        while position >= 0:
            if tries == MAX_TAG_TRIES or first <= text[position + 2 : position + 3] <= last:
                return True
            position, tries = text.find(sign, position + 3), tries + 1
    return False


def _with_plain_letters(text: bytes) -> bytes:
    """Replace lookalikes by the letters they resemble and remove combining marks."""
    if not text.isascii():
        characters = set(text.translate(None, _ASCII).decode("utf-8", "replace"))
        plain = {ord(character): letter for character in characters if (letter := _plain_letter(character)) is not None}
        text = text.decode("utf-8", "replace").translate(plain).encode("utf-8", "replace") if plain else text
    first, *parts = text.split(_ESCAPE)
    codes = {part[:4] for part in parts}
    escaped = {code: letter.encode() for code in codes if (letter := _plain_letter(_character(code))) is not None}
    if escaped:
        text = first + b"".join(escaped.get(part[:4], _ESCAPE + part[:4]) + part[4:] for part in parts)
    return text


def _plain_letter(character: str) -> "str | None":
    """Return the letter that a character resembles, "" for one that a reader does not see, None for all others."""
    code = ord(character)
    if any(first <= code <= last for first, last in INVISIBLE):
        return "\\u001b[" if code == 0x9B else "\\b" if code == 0x08 else "\\u0007" if code == 0x07 else ""
    return next((letter for letter, lookalikes in LOOKALIKES.items() if character in lookalikes), None)


def _character(code: bytes) -> str:
    try:
        return chr(int(code, 16))
    except ValueError:
        return "?"


_BRACKETS = (
    b"<", b"&lt", b";lt", b"60", b"3c", b"074", b"\\\\74", b"uff1c", b"ufe64", b"u2039", b"u276e", b"u276c", b"u27e8",
    b"u2329", b"u3008", *(sign.encode() for sign in "\uff1c\ufe64\u2039\u276e\u276c\u27e8\u2329\u3008"),
)  # fmt: skip
_SLASHES = (b"sol", b"47", b"x2f", b"2f", b"057", b"57")


def _ends_with_open_bracket(before: bytes) -> bool:
    """Return whether the text ends in `<`, in any spelling, followed at most by a slash."""
    start = -1
    for sign in _BRACKETS:
        if (position := before.rfind(sign)) >= 0:
            start = max(start, position + len(sign))
    if start < 0:
        return False
    between = before[start:]
    while (escape_start := between.find(b"\\u")) >= 0:
        between = between[:escape_start] + between[escape_start + 6 :]
    letters = bytes(byte for byte in between if byte < 128 and chr(byte).isalnum())
    return not letters or letters.lstrip(b"0") in _SLASHES


def _without_private(payload: bytes, host: str) -> "tuple[bytes, list[bytes]]":
    """Return the payload without private text, and header lines that say what was removed.

    A payload that is not valid JSON cannot be cut safely and is withheld as a whole.
    """
    try:
        import json

        _add_package_to_path()
        from claude_mem.privacy import tags

        fields = json.loads(payload.decode("utf-8", "replace"))
        if host == "gemini" and isinstance(fields, dict) and isinstance(fields.get("prompt"), str):
            # Gemini adds text around the prompt; with it, no prompt would count as entirely private.
            fields["prompt"] = tags.strip_gemini_additions(fields["prompt"])
        private = isinstance(fields, dict) and any(map(tags.is_entirely_private, _prompts(fields)))
        stripped = tags.strip_private_fields(fields) if isinstance(fields, dict) else tags.strip_private_json(fields)
        marks = [b"private yes"] if private else []
        marks += [b"stripped yes"] if stripped != fields else []
        return json.dumps(stripped).encode("ascii"), marks
    except Exception:
        return b"", [b"withheld yes"]


def _prompts(fields: "dict[str, object]") -> "list[str]":
    tool_info = fields.get("tool_info")  # Windsurf puts the prompt here
    return [str(fields.get("prompt", "")), str(tool_info.get("user_prompt", "")) if isinstance(tool_info, dict) else ""]


def _add_package_to_path() -> None:
    """Make `claude_mem` importable: under `-I -S`, the directory that contains the package is not on `sys.path`."""
    source = __file__.rpartition("/")[0].rpartition("/")[0]
    if source and source not in sys.path:
        sys.path.insert(0, source)


# --- the spool -------------------------------------------------------------------------------------------------------


def data_dir(override: str = "") -> str:
    """Return the data directory: `override`, else `CLAUDE_MEM_DATA_DIR`, else `~/.claude-mem`.

    The launcher passes `override`, as written by the installer, so that the variable has no effect there: a project
    may set an agent's environment, and the data directory decides which settings apply.
    """
    if override:
        return override
    if from_env := posix.environ.get(b"CLAUDE_MEM_DATA_DIR"):
        path = from_env.decode("utf-8", "surrogateescape")
        return path if path.startswith("/") else posix.getcwd() + "/" + path
    return home_dir() + "/.claude-mem"


def home_dir() -> str:
    if home := posix.environ.get(b"HOME"):
        return home.decode("utf-8", "surrogateescape")
    import pwd

    return pwd.getpwuid(posix.getuid()).pw_dir


def _write_event(home: str, record: bytes) -> None:
    """Write, sync and rename the file, so that the event is in the spool either completely or not at all."""
    name = "%016x-%s" % (time.time_ns(), posix.urandom(4).hex())  # noqa: UP031 -- measured: no slower, no import
    temp = home + "/spool/." + name
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
    try:
        _check_data_dir(home)
        fd = posix.open(temp, flags, 0o600)
    except (FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, NotADirectoryError):
            _move_out_of_the_way(home + "/spool")
        make_private_dir(home)
        make_private_dir(home + "/spool")
        fd = posix.open(temp, flags, 0o600)
    try:
        unwritten = memoryview(record)
        while unwritten:
            unwritten = unwritten[posix.write(fd, unwritten) :]
        _failpoint(b"hook.temp")
        posix.fsync(fd)
        posix.close(fd)
    except (OSError, TimeLimitExceeded):
        posix.unlink(temp)  # on a full disk, a partial file would only take up space
        raise
    _failpoint(b"hook.synced")
    posix.rename(temp, home + "/spool/" + name)
    folder = posix.open(home + "/spool", posix.O_RDONLY | posix.O_CLOEXEC)
    posix.fsync(folder)  # the rename, too, must survive a power failure
    posix.close(folder)
    _failpoint(b"hook.renamed")


def _move_out_of_the_way(path: str) -> None:
    """Rename a directory, link or pipe that occupies the path of one of our files. The worker moves it elsewhere."""
    _check_owner_is_user(path, posix.lstat(path))
    posix.rename(path, "%s%s%016x" % (path, DISPLACED_MARKER, time.time_ns()))  # noqa: UP031 -- as above


def _count_dropped_event(home: str) -> None:
    """Count an event that could not be stored.

    Appends one byte to a file that the worker has created; that succeeds even on a full disk.
    """
    try:
        fd = posix.open(home + "/missed", posix.O_WRONLY | posix.O_APPEND | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        posix.write(fd, b".")
        posix.close(fd)
    except OSError:
        pass


def _check_data_dir(home: str) -> None:
    """Raise unless the data directory and its spool belong to this user: no data may be written into another user's
    directory or through another user's link."""
    _check_owner_is_user(home, posix.stat(home))
    _check_owner_is_user(home, posix.lstat(home + "/spool"))
    posix.stat(home + "/spool/")  # fails unless it is a directory, without which a worker could not run


def _check_owner_is_user(path: str, status: "posix.stat_result") -> None:
    if status.st_uid != posix.geteuid():
        raise PermissionError(path)


def make_private_dir(path: str) -> None:
    """Create a directory that only its owner can enter, and its missing parents."""
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        make_private_dir(path.rpartition("/")[0])
        posix.mkdir(path, 0o700)


# --- the worker ------------------------------------------------------------------------------------------------------


def wake_or_start_worker(home: str) -> bool:
    """Wake the worker, or start one. Return True if a worker was running."""
    if wake_worker(home):
        return True
    start_worker(home)
    return False


def _try_nudge(home: str) -> "tuple[bool, str]":
    """Wake or start the worker. Return whether one was running, and why none could be started."""
    alive, problem = False, ""
    try:
        alive = wake_or_start_worker(home)
    except OSError as error:
        problem = f"{error.filename or home}: {error.strerror}"
    _failpoint(b"hook.nudged")
    return alive, problem


def wake_worker(home: str) -> bool:
    """Wake the worker; return False if none runs. Never waits: opening a pipe without a reader fails immediately."""
    try:
        fd = posix.open(home + "/worker.fifo", posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError:
        return False
    try:
        if posix.fstat(fd).st_mode & 0o170000 != 0o010000:
            return False  # a regular file in place of the pipe: opening it proves nothing
        posix.write(fd, b"\n")
    except BlockingIOError:
        pass  # the pipe is full: enough wake-ups are pending
    finally:
        posix.close(fd)
    return True


def start_worker(
    home: str,
    *,
    pause: float = START_PAUSE_SECONDS,
    by_user: bool = False,
    settings: "dict[bytes, bytes] | None" = None,
) -> int:
    """Start a detached worker, unless one was started within the last `pause` seconds. Return its process id, or 0.

    If two workers are started at once, the lock decides which one stays. With `by_user` the worker inherits all
    `CLAUDE_MEM_*` variables. `settings` are the variables of the worker that the new one replaces.
    """
    if problem := program_problem(interpreter()):
        raise PermissionError(1, problem, interpreter())
    make_private_dir(home)
    stamp = home + "/worker.starting"
    try:
        if 0 <= time.time() - posix.stat(stamp).st_mtime < pause:
            return 0
    except OSError:
        pass  # no stamp, or not a file: `_touch_start_stamp` moves that out of the way
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW
    _touch_start_stamp(stamp, flags)
    start_log = _prepare_start_log(home + "/logs")
    _close_inherited_files_on_exec()
    env = {k: v for k, v in posix.environ.items() if _is_inherited(k) or (by_user and k.startswith(_ENV_PREFIX))}
    env.update(settings or {})
    env[b"CLAUDE_MEM_DATA_DIR"] = home.encode("utf-8", "surrogateescape")
    env[SPAWNED_AT] = b"%f" % time.time()
    # -E -P: neither the agent's PYTHONPATH nor a package in the project's directory may shadow ours.
    program = interpreter()
    command = [program, "-E", "-P", "-m", "claude_mem", "serve"]
    return posix.posix_spawn(
        program,
        command,
        env,
        file_actions=[
            (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 2, start_log, flags, 0o600),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP],
    )


def interpreter() -> str:
    """Return the path by which the running Python was started.

    `sys.executable` cannot be used when PYTHONEXECUTABLE is set: it follows that variable, even under `-I`.
    """
    if not posix.environ.get(b"PYTHONEXECUTABLE"):
        return sys.executable
    started = sys.orig_argv[0]
    return started if started.startswith("/") else sys._base_executable  # type: ignore[attr-defined]


def program_problem(path: str) -> str:
    """Return why a program must not be run, or "" if only this user and root can change it."""
    try:
        status, folder = posix.stat(path), posix.stat(path.rpartition("/")[0] or "/")
        if posix.lstat(path).st_uid not in (0, posix.geteuid()) or status.st_uid not in (0, posix.geteuid()):
            return "it belongs to another user"
        if folder.st_uid not in (0, posix.geteuid()):
            return "its directory belongs to another user"
    except OSError as error:
        return error.strerror or "it cannot be examined"
    if status.st_mode & 0o002 or (folder.st_mode & 0o002 and not folder.st_mode & 0o1000):
        return "anyone can change it"
    if status.st_mode & 0o020 and status.st_gid != status.st_uid:  # equal ids: the user's private group, without others
        return "its group can change it"
    return ""


def _touch_start_stamp(path: str, flags: int) -> None:
    """Record that a worker is being started now."""
    try:
        fd = posix.open(path, flags | posix.O_CLOEXEC | posix.O_NONBLOCK, 0o600)
    except OSError:
        _move_out_of_the_way(path)
        fd = posix.open(path, flags | posix.O_CLOEXEC, 0o600)
    posix.close(fd)
    posix.utime(path)


def _prepare_start_log(folder: str) -> str:
    """Remove the previous start log and return the path for the new one, which receives the worker's stderr."""
    make_private_dir(folder)
    path = folder + "/start.log"
    try:
        posix.unlink(path)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        _move_out_of_the_way(folder)
        make_private_dir(folder)
    except (IsADirectoryError, PermissionError):
        _move_out_of_the_way(path)
    return path


def installed_version() -> str:
    """Return the version of this package as it is on disk now, or "" if it cannot be read."""
    try:
        with open(__file__.rpartition("/")[0] + "/__init__.py", "rb") as file:
            text = file.read(10_000)
    except OSError:
        return ""  # an upgrade is in progress
    version, quote, _ = (b"\n" + text).partition(b'\n__version__ = "')[2].partition(b'"')
    return version.decode("ascii", "replace") if quote else ""


def _replace_outdated(home: str, version: object) -> None:
    """Start a worker of the installed version if the running one has another version; the new worker stops the old one.

    Does so only if the launcher runs this installation: a second installation must not replace the first one's worker.
    """
    if installed_version() in ("", version):
        return
    try:
        program = __file__.rpartition("/")[0] + "/launch.py"
        with open(home + "/claude-mem-hook", "rb") as file:
            launcher = file.read(100_000).decode("utf-8", "surrogateescape")
        if program.replace("'", "'\"'\"'") in launcher:  # quoted for the shell
            start_worker(home)
    except OSError:
        pass  # retried at the next session start or prompt


def _is_inherited(name: bytes) -> bool:
    return name in _KEEP_ENV or name in INHERITABLE_ENV or name.startswith(_KEEP_ENV_PREFIXES)


def _close_inherited_files_on_exec() -> None:
    """Keep files that the agent left open from staying open in the worker: a reader may wait for their end."""
    for name in posix.listdir("/dev/fd"):
        try:
            if int(name) > 2:
                posix.set_inheritable(int(name), False)
        except OSError:
            pass  # the descriptor of the listing itself, closed by now


# --- injecting context -----------------------------------------------------------------------------------------------


def _start_session(home: str, host: str, record: bytes, payload: bytes) -> bytes:
    """Return the brief, with a warning for the user if the worker cannot start."""
    problem = last_start_problem(home)  # must come first: starting a worker begins a new log
    alive, refused = _try_nudge(home)
    problem = refused or problem
    answer = (_ask_worker(home, "context", record) if alive else b"") or _stored_brief(home, host, payload)
    warning = _backlog_warning(home, problem) if problem and not alive else ""
    return _add_warning(host, answer, warning) if warning else answer


def last_start_problem(home: str) -> str:
    """Return why the last worker exited or did not start, or "" if nothing indicates a failure."""
    try:
        with open(home + "/logs/start.log", "rb") as file:
            lines = file.read(1 << 16).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        lines = []
    except OSError as error:
        return f"{home}/logs/start.log: {error.strerror}"
    lines = [line.strip() for line in lines if line.strip()]
    fatal = [line for line in lines if line.startswith("error: ") and not line.endswith("; using the default")]
    if fatal:
        return fatal[-1][len("error: ") :]
    if any(line.startswith("Traceback") for line in lines):
        return lines[-1]
    return _unfinished_start(home, lines[-1] if lines else "")


def _unfinished_start(home: str, last_line: str) -> str:
    """Return why the last worker did not complete its start, or "".

    A worker removes the start stamp once it is running. A worker that left the stamp and logged nothing may just have
    been ended by a shutdown of the machine; it counts as failed only if events had been waiting for long when it was
    started.
    """
    path = home + "/worker.starting"
    try:
        status = posix.lstat(path)
    except OSError:
        return ""
    if status.st_mode & 0o170000 != 0o100000:
        return path + " is not a file"
    if last_line:
        return "" if last_line.startswith(("error: ", "hint: ", "a worker is running")) else last_line
    oldest, _ = _backlog(home)
    tried_in_vain = oldest and status.st_mtime - oldest > BACKLOG_SECONDS
    ended = time.time() - status.st_mtime > START_PAUSE_SECONDS
    return "it exited without an error message" if tried_in_vain and ended else ""


def _backlog(home: str) -> "tuple[float, int]":
    """Return the time of the oldest event in the spool, and the number of events."""
    try:
        names = sorted(name for name in posix.listdir(home + "/spool") if name[:1] != ".")
        if not names:
            return 0.0, 0
        written = posix.lstat(home + "/spool/" + names[0]).st_mtime
        return min(written, int(names[0][:16], 16) / 1e9), len(names)
    except (OSError, ValueError):
        return 0.0, 0


def _backlog_warning(home: str, problem: str) -> str:
    """Return a warning for the user if events have waited too long; at most once a day."""
    oldest, count = _backlog(home)
    if not count or time.time() - oldest < BACKLOG_SECONDS or not _is_warning_due(home + "/" + WARNING_STAMP):
        return ""
    since = time.strftime("%d %b at %H:%M", time.localtime(oldest))
    events = "1 event is" if count == 1 else f"{count:,} events are"
    return (
        f"claude-mem: the worker has not been able to start since {since}: {problem[:200].rstrip('. ')};"
        f" {events} waiting, none is lost. Run `claude-mem doctor`."
    )


def _is_warning_due(stamp: str) -> bool:
    """Return whether the user has not been warned within a day, and touch the stamp.

    If the stamp cannot be written, the answer is still True: warning twice is better than never.
    """
    try:
        if 0 <= time.time() - posix.lstat(stamp).st_mtime < WARNING_INTERVAL_SECONDS:
            return False
    except OSError:
        pass
    try:
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
        posix.close(posix.open(stamp, flags, 0o600))
        posix.utime(stamp, follow_symlinks=False)
    except OSError:
        pass
    return True


def _ask_worker(home: str, command: str, record: bytes) -> bytes:
    """Return the worker's answer, or b"" if there is none in time."""
    try:
        return _request_context(home, CONTEXT_ROUTES[command], record)
    except Exception:
        return b""  # the worker is dead or hung, or another program has its port
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, WORK_SECONDS)


def _request_context(home: str, path: str, record: bytes) -> bytes:
    import _socket
    import json

    with open(home + "/worker.json", "rb") as file:
        _check_owner_is_user(home, posix.fstat(file.fileno()))  # another user's file would lead to that user's port
        worker = json.loads(file.read(1 << 16))
    _replace_outdated(home, worker.get("version"))
    address = "127.0.0.1:%d" % worker["port"]  # noqa: UP031
    head = (
        f"POST {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {worker['token']}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(record)}\r\n\r\n"
    )
    _signal.setitimer(_signal.ITIMER_REAL, ASK_SECONDS)  # one deadline for the whole exchange
    channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    channel.connect(("127.0.0.1", worker["port"]))
    channel.sendall(head.encode() + record)
    reply = b""
    while chunk := channel.recv(1 << 16):
        reply += chunk
    status, _, rest = reply.partition(b"\r\n")
    body = rest.partition(b"\r\n\r\n")[2]
    return body if b" 200 " in status + b" " and body.startswith(b"{") else b""


def _stored_brief(home: str, host: str, payload: bytes) -> bytes:
    """Return the brief that the worker stored on disk for this directory, so that no running worker is needed."""
    import json

    try:
        fields = json.loads(payload)
        if (
            fields.get("source", "startup") not in ("startup", "clear", "compact", "new")
            and host not in _LOSES_CONTEXT_ON_RESUME
        ):
            return b""  # only the worker knows what is new to a resumed session
        variable = dict(_HOST_ENV_VARS.get(host, ())).get(b"project_dir", b"")
        folder = posix.environ.get(variable, b"").decode("utf-8", "surrogateescape") or fields["cwd"]
        with open(home + "/starts/" + brief_filename(folder), "rb") as file:
            answer = file.read(1 << 20)
        if not isinstance(json.loads(answer), dict):
            return b""
        if host == "claude":
            return answer
        _add_package_to_path()
        from claude_mem import answers

        return answers.translate_answer(host, answer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""


def brief_filename(folder: str) -> str:
    """Return the name of the file that holds the brief for a directory."""
    import hashlib

    return hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:32] + ".json"


def _brief_without_spool(home: str, host: str, record: bytes, payload: bytes) -> bytes:
    """Return the brief when the data directory cannot be written: from a running worker, or as stored on disk."""
    try:
        _check_owner_is_user(home, posix.stat(home))
    except OSError:
        return b""  # it does not exist, or belongs to another user and cannot be trusted
    return (_ask_worker(home, "context", record) if wake_worker(home) else b"") or _stored_brief(home, host, payload)


def _add_warning(host: str, answer: bytes, text: str) -> bytes:
    """Add a warning for the user to the answer. Only the answer at session start can reach the user."""
    _add_package_to_path()
    from claude_mem import answers

    return answers.add_warning(host, answer, text)


if __name__ == "__main__":
    main(sys.argv)
