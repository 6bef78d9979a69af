"""The hook: a guest in another program.

The host runs it, through `launch.py`, at every event and waits for it. So on the capture path it imports
nothing that the interpreter has not loaded anyway (`import json` alone would double its cost): it reads stdin,
writes one file into the spool, nudges the worker without waiting for it, answers, and exits 0. Whatever goes
wrong, it exits 0 with a valid answer. Only rarer paths import more: a payload with a privacy tag in it, and the
moments at which memory may speak (a session's start, a prompt, a file about to be read, a failed command), which have
to ask the worker and wait for it a moment at most.

A spool file is a few `key value` lines, an empty line, and the payload as it came. Its name is the event's id.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys
import time

COMMANDS = ("context", "new", "save", "fail", "file", "summary", "cleanup", "compact")
ONLY_ASKS = "file"  # nothing has happened yet, so there is nothing to keep
# The moments at which memory may speak, and whom to ask what it says.
ASKS = {
    "context": "/api/context/inject",
    "new": "/api/context/prompt",
    "fail": "/api/context/failure",
    "file": "/api/context/file",
}
ANSWER = b'{"continue": true, "suppressOutput": true}'
# What Claude Code is answered before it compacts becomes part of its instructions; other hosts drop an answer that has
# words in it which they do not know.
PLAIN_ANSWER = b"{}"

# Present in a checkout, absent from the wheel (pyproject.toml): where it is missing, failpoints do nothing.
CHECKOUT_MARKER = "checkout"
# SIGKILL points of the kill test; see failpoints.py.
POINTS = ("hook.read", "hook.scanned", "hook.temp", "hook.synced", "hook.renamed", "hook.nudged")

MAX_PAYLOAD = 8 << 20
GIANT_KEPT = 64 << 10
MAX_LOOKS = 1000  # of the quick search for tags; beyond it, the scanner is quicker
READ_SECONDS = 1.5  # a pipe that is never closed must not hold the user up
WORK_SECONDS = 3.0  # together less than the 5 s after which the host would kill us
ASK_SECONDS = 0.15  # with a hung worker a session start still stays well under 300 ms
START_PAUSE_SECONDS = 10  # a worker that can't start is not tried again at every event
WAITING_SECONDS = 600  # an event that has waited so long is a reason to tell the person
TELL_SECONDS = 86_400  # the same trouble is told once a day
SPAWNED_AT = b"CLAUDE_MEM_SPAWNED_AT"  # tells a worker when it was asked for: on a busy machine that may be long ago
STOPPED = "worker.stopped"  # touched when someone stops the worker
DAMAGED = ".damaged-"  # in the name of what stood in the place of a file of ours
WARNED = "worker.warned"  # touched when the person was told; the worker removes it when it has started

# A worker started from a hook inherits the agent's environment, keys and all. It gets what it needs and no more.
_KEEP_ENV = (b"PATH", b"HOME", b"USER", b"LOGNAME", b"LANG", b"TZ", b"TMPDIR", b"SSL_CERT_FILE", b"CLAUDE_CONFIG_DIR")
_KEEP_ENV_PREFIXES = (b"LC_", b"XDG_")
_OURS = b"CLAUDE_MEM_"
# That environment may be a project's, and one worker serves them all. So of our own variables a hook passes on these;
# where data goes, what is run, what is spent and what is kept or kept safe, `config.toml` alone says.
HARMLESS = (
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
    b"CLAUDE_MEM_LOG_LEVEL",
    b"CLAUDE_MEM_EMBEDDING_MODEL",
)

# What a host says by its environment. An agent that is started by another one inherits that one's: it does not count.
_SAYS = {
    "claude": ((b"project_dir", b"CLAUDE_PROJECT_DIR"), (b"pid", b"CLAUDE_PID")),
    "gemini": ((b"project_dir", b"GEMINI_PROJECT_DIR"),),
    "cursor": ((b"project_dir", b"CURSOR_PROJECT_DIR"),),
}
# Hosts that say where they work by running us there.
_RUN_IN_PROJECT = ("windsurf",)
# Who takes no text at a moment need not wait for it.
_DEAF = {"cursor": ("new", "fail"), "windsurf": ("new",)}

_FORGETFUL = ("qwen", "copilot", "opencode")  # a session that they resume has lost what it was told at its start


class Expired(Exception):
    """The alarm rang."""


def main(argv: "list[str]", given: "tuple[bytes, bool] | None" = None) -> None:
    """Never returns, never raises, always exits 0 with an answer on stdout. `given`: what `read_stdin` has returned, if
    the caller has read it already."""
    host = _host(argv)
    answer = ANSWER if host == "claude" and argv[1:2] != ["compact"] else PLAIN_ANSWER
    try:
        if argv[1] in COMMANDS and not posix.environ.get(b"CLAUDE_MEM_INTERNAL"):
            answer = _capture(argv, host, given) or answer
    except BaseException:
        pass  # a guest does not complain; `doctor` finds out why
    try:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        while answer:
            answer = answer[posix.write(1, answer) :]
    except BaseException:
        pass  # nobody is listening
    posix._exit(0)


def _host(argv: "list[str]") -> str:
    """Which agent runs us. One plugin serves two of them, and only Codex names it without a prefix."""
    host = argv[3] if len(argv) > 3 and argv[3] else "claude"
    if host == "plugin":
        return "codex" if posix.environ.get(b"PLUGIN_ROOT") else "claude"
    return host


def _capture(argv: "list[str]", host: str, given: "tuple[bytes, bool] | None") -> bytes:
    """Keep the event. The answer, if it is a special one."""
    payload, whole = given or read_stdin()
    _point(b"hook.read")
    if not payload.strip():
        return b""  # no event at all, so there is nothing to keep and nothing to count
    _signal.setitimer(_signal.ITIMER_REAL, WORK_SECONDS)
    home = data_dir(argv[2] if len(argv) > 2 else "")
    record = _record(argv[1], host, payload, whole)
    _point(b"hook.scanned")
    try:
        if argv[1] == ONLY_ASKS:
            _check_owner(home)
        else:
            _keep(home, record)
    except OSError:
        _miss(home)
        if argv[1] != "context":
            raise
        return _warned(host, _readable_start(home, host, record, payload), _unwritable(home))
    if argv[1] == "context":
        return _start_session(home, host, record, payload)
    alive, _ = _nudged(home)
    asks = alive and argv[1] in ASKS and argv[1] not in _DEAF.get(host, ())
    return _asked(home, argv[1], record) if asks else b""


def _expire(*_: object) -> None:
    raise Expired


def armed_failpoint() -> bytes:
    """The point at which a test wants this process killed. Only a checkout has the marker file; the wheel leaves it
    out, so that no project's environment can kill an installed hook or worker."""
    point = posix.environ.get(b"CLAUDE_MEM_FAILPOINT", b"")
    try:
        if point:
            posix.stat(__file__.rpartition("/")[0] + "/" + CHECKOUT_MARKER)
    except OSError:
        return b""
    return point


def _point(name: bytes) -> None:
    if name == _FAILPOINT:
        posix.kill(posix.getpid(), 9)


_FAILPOINT = armed_failpoint()


# --- reading ---------------------------------------------------------------------------------------------------------


def read_stdin() -> "tuple[bytes, bool]":
    """Everything on stdin, and whether it is whole. Waits no longer than `READ_SECONDS`.

    Of a giant only the beginning is kept. What came after might be the inside of a private part whose tag is in the
    middle that had to go; and the transcript has it anyway.
    """
    chunks: list[bytes] = []
    size = 0
    _signal.signal(_signal.SIGALRM, _expire)
    _signal.setitimer(_signal.ITIMER_REAL, READ_SECONDS)
    try:
        while chunk := posix.read(0, 1 << 20):
            size += len(chunk)
            if size <= MAX_PAYLOAD:
                chunks.append(chunk)
        _signal.setitimer(_signal.ITIMER_REAL, 0)  # in here: an alarm after the last byte must not cost the event
    except (Expired, OSError):  # too late, or stdin is closed or broken
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        return b"".join(chunks), False
    return (b"".join(chunks), True) if size <= MAX_PAYLOAD else (b"".join(chunks)[:GIANT_KEPT], False)


def _record(command: str, host: str, payload: bytes, whole: bool) -> bytes:
    """The spool file's bytes, without what the user marked as private."""
    env = posix.environ
    lines = [b"command " + command.encode(), b"host " + host.encode()]
    for key, name in _SAYS.get(host, ()):
        if value := env.get(name):
            lines.append(_line(key, value))
    if host in _RUN_IN_PROJECT:
        lines.append(_line(b"project_dir", _here()))
    if not whole:
        lines.append(b"cut yes")
    if has_tag(payload):
        payload, marks = _without_private(payload, host)
        lines += marks
    return b"\n".join(lines) + b"\n\n" + payload


def _here() -> bytes:
    try:
        return posix.getcwdb()
    except OSError:
        return b""  # someone has removed it


def _line(key: bytes, value: bytes) -> bytes:
    return key + b" " + value.replace(b"%", b"%25").replace(b"\n", b"%0A")


# --- privacy ---------------------------------------------------------------------------------------------------------


# Letters that are taken for those of `private`, as `privacy.LOOKALIKES` has them; those of whole alphabets are rarer.
LOOKALIKES = {
    "p": "ṔṕṖṗƤƥРрΡρ",
    "r": "ŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟгГ",
    "i": "ÌÍÎÏìíîïĨĩĪīĬĭĮįİǏǐȈȉȊȋḬḭḮḯỈỉỊịІіЇїΙιΪϊΊί",
    "v": "ṼṽṾṿѴѵνΝ",
    "a": "ÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặАаӐӑӒӓΑαΆά",
    "t": "ŢţŤťȚțṪṫṬṭṮṯṰṱẗТтΤτ",
    "e": "ÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệЕеЁёЀѐΕεΈέ",
}
_ASCII = bytes(range(128))
_ODD_ALPHABETS = (
    b"\xf0\x9d", b"\xe2\x92", b"\xe2\x93", b"\\ud835", b"\\u24", b"\\uff2", b"\\uff3", b"\\uff4", b"\\uff5",
)  # fmt: skip
_WIDE_LETTERS = ((b"\xef\xbc", b"\xa1", b"\xba"), (b"\xef\xbd", b"\x81", b"\x9a"))  # from the first to the last
_ESCAPE = b"\\u"

# What has no width, as UTF-8 and as JSON escapes: it may stand within a name.
_UNSEEN = (
    b"\xe2\x80\x8b", b"\xe2\x80\x8c", b"\xe2\x80\x8d", b"\xe2\x80\x8e", b"\xe2\x80\x8f", b"\xe2\x81", b"\xef\xbb\xbf",
    b"\xc2\xad", b"\\u200", b"\\u206", b"\\ufeff", b"\\u00ad",
)  # fmt: skip


def has_tag(payload: bytes) -> bool:
    """Might a privacy tag be in this JSON text? A quick look; `privacy.strip` decides."""
    text = payload.lower()
    if text.find(_ESCAPE) >= 0 or not text.isascii():
        if any(text.find(sign) >= 0 for sign in _ODD_ALPHABETS) or _has_wide_letters(text):
            return True
        text = _without_colours(_with_plain_letters(text))
    # Nobody escapes plain letters in JSON, but if someone does, a tag could hide behind it.
    if any(text.find(escape) >= 0 for escape in (b"\\u002d", b"\\u004", b"\\u005", b"\\u006", b"\\u007")):
        return True
    if any(text.find(sign) >= 0 for sign in _UNSEEN):
        return True
    # The same for the signs around a name: `\\u003c`, and `\\u0026lt;` or `\\u00253c`, as some programs write them.
    escaped = text.find(b"\\u002") >= 0 or text.find(b"\\u003") >= 0
    for name in (b"private", b"claude-mem-context"):
        found, looks = text.find(name), 0
        while found >= 0:
            if escaped or looks == MAX_LOOKS or _opens(text[max(0, found - 800) : found]):
                return True
            found, looks = text.find(name, found + 1), looks + 1
    return False


def _has_wide_letters(text: bytes) -> bool:
    """Letters of full width; their signs and figures are common in Chinese and Japanese."""
    for sign, first, last in _WIDE_LETTERS:
        found, looks = text.find(sign), 0
        while found >= 0:
            if looks == MAX_LOOKS or first <= text[found + 2 : found + 3] <= last:
                return True
            found, looks = text.find(sign, found + 3), looks + 1
    return False


def _with_plain_letters(text: bytes) -> bytes:
    """The same with lookalikes as the letters they are taken for, and without marks above letters."""
    if not text.isascii():
        others = set(text.translate(None, _ASCII).decode("utf-8", "ignore"))
        plain = {ord(other): letter for other in others if (letter := _plain_letter(other)) is not None}
        text = text.decode("utf-8", "replace").translate(plain).encode("utf-8", "replace") if plain else text
    first, *parts = text.split(_ESCAPE)
    codes = {part[:4] for part in parts}
    escaped = {code: letter.encode() for code in codes if (letter := _plain_letter(_character(code))) is not None}
    if escaped:
        text = first + b"".join(escaped.get(part[:4], _ESCAPE + part[:4]) + part[4:] for part in parts)
    return text


def _plain_letter(other: str) -> "str | None":
    """The letter that a character is taken for; nothing for a mark above one; None for all others."""
    if "\u0300" <= other <= "\u036f":
        return ""
    return next((letter for letter, others in LOOKALIKES.items() if other in others), None)


def _character(code: bytes) -> str:
    try:
        return chr(int(code, 16))
    except ValueError:
        return "?"


def _without_colours(text: bytes) -> bytes:
    """The same without the escapes by which a terminal is told colours, as `grep --color` prints them."""
    first, *parts = text.replace(b"\x1b[", b"\\u001b[").replace(b"\\\\u001b[", b"\\u001b[").split(b"\\u001b[")
    kept = [first]
    for part in parts:
        rest = part.lstrip(b"0123456789;:")
        kept.append(rest[1:] if rest[:1] in (b"m", b"k") else b"\\u001b[" + part)
    return b"".join(kept)


def _opens(before: bytes) -> bool:
    """Does this text end in `<`, in any of its spellings, with nothing but space or a slash after it?"""
    start = -1
    for sign in (b"<", b"&lt;", b"60;", b"3c;", b"003c", b"x3c", b"%3c", b"\xef\xbc\x9c", b"uff1c"):
        if (found := before.rfind(sign)) >= 0:
            start = max(start, found + len(sign))
    if start < 0:
        return False
    between = before[start:].replace(b"%2f", b"/")
    while (at := between.find(b"\\u")) >= 0:
        between = between[:at] + between[at + 6 :]
    for escape in (b"\\n", b"\\t", b"\\r", b"\\f", b"\\v", b"\\"):
        between = between.replace(escape, b" ")
    return not any(byte < 128 and chr(byte).isalnum() for byte in between)


def _without_private(payload: bytes, host: str) -> "tuple[bytes, list[bytes]]":
    """The payload without hidden parts. What can't be read as JSON can't be cut safely: it is withheld altogether."""
    try:
        import json

        _find_ourselves()
        from claude_mem import privacy

        fields = json.loads(payload.decode("utf-8", "replace"))
        if host == "gemini" and isinstance(fields, dict) and isinstance(fields.get("prompt"), str):
            fields["prompt"] = privacy.said(fields["prompt"])  # else it would never be wholly private
        private = isinstance(fields, dict) and any(map(privacy.hides_all, _prompts(fields)))
        stripped = privacy.strip_fields(fields) if isinstance(fields, dict) else privacy.strip_all(fields)
        marks = [b"private yes"] if private else []
        marks += [b"stripped yes"] if stripped != fields else []
        return json.dumps(stripped).encode("ascii"), marks
    except Exception:
        return b"", [b"withheld yes"]


def _prompts(fields: "dict[str, object]") -> "list[str]":
    about = fields.get("tool_info")  # where Windsurf has it
    return [str(fields.get("prompt", "")), str(about.get("user_prompt", "")) if isinstance(about, dict) else ""]


def _find_ourselves() -> None:
    """Under `-I -S` the interpreter knows no packages; ours is the folder this file lies in."""
    source = __file__.rpartition("/")[0].rpartition("/")[0]
    if source and source not in sys.path:
        sys.path.insert(0, source)


# --- keeping ---------------------------------------------------------------------------------------------------------


def data_dir(given: str = "") -> str:
    """What the installer wrote into the command, then `CLAUDE_MEM_DATA_DIR`, then `~/.claude-mem`. The variable is last
    where a launcher runs us: an agent's environment may be a project's, and the folder decides which settings count."""
    if given:
        return given
    if named := posix.environ.get(b"CLAUDE_MEM_DATA_DIR"):
        path = named.decode("utf-8", "surrogateescape")
        return path if path.startswith("/") else posix.getcwd() + "/" + path
    return home_dir() + "/.claude-mem"


def home_dir() -> str:
    if home := posix.environ.get(b"HOME"):
        return home.decode("utf-8", "surrogateescape")
    import pwd

    return pwd.getpwuid(posix.getuid()).pw_dir


def _keep(home: str, record: bytes) -> None:
    """Write, sync, rename: the event is either wholly in the spool or not at all."""
    name = "%016x-%s" % (time.time_ns(), posix.urandom(4).hex())  # noqa: UP031 -- measured: no slower, no import
    temp = home + "/spool/." + name
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
    try:
        _check_owner(home)
        fd = posix.open(temp, flags, 0o600)
    except (FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, NotADirectoryError):
            _put_away(home + "/spool")
        make_private(home)
        make_private(home + "/spool")
        fd = posix.open(temp, flags, 0o600)
    try:
        left = memoryview(record)
        while left:
            left = left[posix.write(fd, left) :]
        _point(b"hook.temp")
        posix.fsync(fd)
        posix.close(fd)
    except (OSError, Expired):
        posix.unlink(temp)  # on a full disk half a file would only take room
        raise
    _point(b"hook.synced")
    posix.rename(temp, home + "/spool/" + name)
    folder = posix.open(home + "/spool", posix.O_RDONLY | posix.O_CLOEXEC)
    posix.fsync(folder)  # the name too must survive a power cut
    posix.close(folder)
    _point(b"hook.renamed")


def _put_away(path: str) -> None:
    """Rename what stands in the place of a file of ours: a folder, a link, a pipe. The worker keeps it elsewhere."""
    _check_mine(path, posix.lstat(path))
    posix.rename(path, "%s%s%016x" % (path, DAMAGED, time.time_ns()))  # noqa: UP031 -- as above


def _miss(home: str) -> None:
    """Count what can't be kept: one byte more in a file that the worker has made, which fits even on a full disk."""
    try:
        fd = posix.open(home + "/missed", posix.O_WRONLY | posix.O_APPEND | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        posix.write(fd, b".")
        posix.close(fd)
    except OSError:
        pass


def _check_owner(home: str) -> None:
    """Nothing of this user's belongs in someone else's folder, nor where a link of theirs leads."""
    _check_mine(home, posix.stat(home))
    _check_mine(home, posix.lstat(home + "/spool"))
    posix.stat(home + "/spool/")  # a folder, or a worker would only be started to die


def _check_mine(path: str, found: "posix.stat_result") -> None:
    if found.st_uid != posix.geteuid():
        raise PermissionError(path)


def make_private(path: str) -> None:
    """A folder that only its owner can enter, and the folders above it if they are missing."""
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        make_private(path.rpartition("/")[0])
        posix.mkdir(path, 0o700)


# --- the worker ------------------------------------------------------------------------------------------------------


def nudge(home: str) -> bool:
    """Wake the worker, or start one. True if one was there to be woken."""
    if wake(home):
        return True
    start_worker(home)
    return False


def _nudged(home: str) -> "tuple[bool, str]":
    """Was a worker there to be woken, and what kept another from being started?"""
    alive, problem = False, ""
    try:
        alive = nudge(home)
    except OSError as error:
        problem = f"{error.filename or home}: {error.strerror}"
    _point(b"hook.nudged")
    return alive, problem


def wake(home: str) -> bool:
    """Wake the worker; False if there is none. Never waits: opening a pipe that no one reads fails at once."""
    try:
        fd = posix.open(home + "/worker.fifo", posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError:
        return False
    try:
        if posix.fstat(fd).st_mode & 0o170000 != 0o010000:
            return False  # a file in the pipe's place: anyone can open that
        posix.write(fd, b"\n")
    except BlockingIOError:
        pass  # it has nudges enough
    finally:
        posix.close(fd)
    return True


def start_worker(
    home: str,
    *,
    pause: float = START_PAUSE_SECONDS,
    asked: bool = False,
    settings: "dict[bytes, bytes] | None" = None,
) -> int:
    """Start a worker that outlives us, unless one was started moments ago; its process id, or 0. If two race, the lock
    decides. A person who has asked for it may set everything by the environment; `settings` are those of the worker
    that it replaces."""
    if problem := program_problem(interpreter()):
        raise PermissionError(1, problem, interpreter())
    make_private(home)
    stamp = home + "/worker.starting"
    try:
        if 0 <= time.time() - posix.stat(stamp).st_mtime < pause:
            return 0
    except OSError:
        pass  # there is none, or what is there is put away
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW
    _stamp(stamp, flags)
    words = _new_log(home + "/logs")
    _shut_inherited()
    keep = {k: v for k, v in posix.environ.items() if _is_kept(k) or (asked and k.startswith(_OURS))}
    keep.update(settings or {})
    keep[b"CLAUDE_MEM_DATA_DIR"] = home.encode("utf-8", "surrogateescape")
    keep[SPAWNED_AT] = b"%f" % time.time()
    # -E -P: neither the agent's PYTHONPATH nor a package in the project's folder may stand in for ours.
    program = interpreter()
    command = [program, "-E", "-P", "-m", "claude_mem", "serve"]
    return posix.posix_spawn(
        program,
        command,
        keep,
        file_actions=[
            (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 2, words, flags, 0o600),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP],
    )


def interpreter() -> str:
    """The Python that runs this process, by the path it was started by. `sys.executable` is whatever PYTHONEXECUTABLE
    names, even under `-I`."""
    if not posix.environ.get(b"PYTHONEXECUTABLE"):
        return sys.executable
    started = sys.orig_argv[0]
    return started if started.startswith("/") else sys._base_executable  # type: ignore[attr-defined]


def program_problem(path: str) -> str:
    """Why a program must not be run: someone else than this user and root may change it. "" if nobody else may."""
    try:
        found, folder = posix.stat(path), posix.stat(path.rpartition("/")[0] or "/")
        if posix.lstat(path).st_uid not in (0, posix.geteuid()) or found.st_uid not in (0, posix.geteuid()):
            return "it belongs to another user"
    except OSError as error:
        return error.strerror or "it can't be looked at"
    if found.st_mode & 0o002 or (folder.st_mode & 0o002 and not folder.st_mode & 0o1000):
        return "anyone may change it"
    if found.st_mode & 0o020 and found.st_gid != found.st_uid:  # where each user has a group alone, that is no one else
        return "its group may change it"
    return ""


def _stamp(path: str, flags: int) -> None:
    """Note that a worker is being started now."""
    try:
        fd = posix.open(path, flags | posix.O_CLOEXEC | posix.O_NONBLOCK, 0o600)
    except OSError:
        _put_away(path)
        fd = posix.open(path, flags | posix.O_CLOEXEC, 0o600)
    posix.close(fd)
    posix.utime(path)


def _new_log(folder: str) -> str:
    """Make room for a worker's last words, in a file of its own. Return the file's path."""
    make_private(folder)
    path = folder + "/start.log"
    try:
        posix.unlink(path)  # whatever it was
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        _put_away(folder)
        make_private(folder)
    except (IsADirectoryError, PermissionError):
        _put_away(path)
    return path


def installed_version() -> str:
    """The version of the package that this file belongs to, as it is on disk now; "" while it can't be read."""
    try:
        with open(__file__.rpartition("/")[0] + "/__init__.py", "rb") as file:
            text = file.read(10_000)
    except OSError:
        return ""  # an upgrade is about to write it
    version, quote, _ = (b"\n" + text).partition(b'\n__version__ = "')[2].partition(b'"')
    return version.decode("ascii", "replace") if quote else ""


def _replace_outdated(home: str, version: object) -> None:
    """Start a worker of the installed version if the one that runs is of another: the new one sees to the old one.
    Only if agents are told to run this very installation; a second one leaves the first one's worker alone."""
    if installed_version() in ("", version):
        return
    try:
        program = __file__.rpartition("/")[0] + "/launch.py"
        with open(home + "/claude-mem-hook", "rb") as file:
            launcher = file.read(100_000).decode("utf-8", "surrogateescape")
        if program.replace("'", "'\"'\"'") in launcher:  # as a shell needs it quoted
            start_worker(home)
    except OSError:
        pass  # it is tried again at the next session or prompt


def _is_kept(name: bytes) -> bool:
    return name in _KEEP_ENV or name in HARMLESS or name.startswith(_KEEP_ENV_PREFIXES)


def _shut_inherited() -> None:
    """What the host left open must not stay open in the worker: someone may be waiting for its end."""
    for name in posix.listdir("/dev/fd"):
        try:
            if int(name) > 2:
                posix.set_inheritable(int(name), False)
        except OSError:
            pass  # the listing's own


# --- the moments at which memory may speak ---------------------------------------------------------------------------


def _start_session(home: str, host: str, record: bytes, payload: bytes) -> bytes:
    """What a session is told at its start, and what the person is told if the worker can't start."""
    problem = start_problem(home)  # first: whoever starts a worker begins a new log
    alive, refused = _nudged(home)
    problem = refused or problem
    answer = (_asked(home, "context", record) if alive else b"") or _left_on_disk(home, host, payload)
    warning = _waiting_warning(home, problem) if problem and not alive else ""
    return _warned(host, answer, warning) if warning else answer


def start_problem(home: str) -> str:
    """Why the worker that was started last has ended, or never began; "" if nothing speaks of that."""
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


def _unfinished_start(home: str, words: str) -> str:
    """The last words of a worker that never began its work: it would have removed the stamp of its start. One that
    said nothing may just have been switched off with the machine, unless events had waited long when it was started."""
    path = home + "/worker.starting"
    try:
        about = posix.lstat(path)
    except OSError:
        return ""
    if about.st_mode & 0o170000 != 0o100000:
        return path + " is not a file"
    if words:
        return "" if words.startswith(("error: ", "hint: ", "a worker is running")) else words
    oldest, _ = _waiting(home)
    tried_in_vain = oldest and about.st_mtime - oldest > WAITING_SECONDS
    ended = time.time() - about.st_mtime > START_PAUSE_SECONDS
    return "it ended without saying why" if tried_in_vain and ended else ""


def _waiting(home: str) -> "tuple[float, int]":
    """Since when the oldest event in the spool has waited, and how many there are."""
    try:
        names = sorted(name for name in posix.listdir(home + "/spool") if name[:1] != ".")
        if not names:
            return 0.0, 0
        written = posix.lstat(home + "/spool/" + names[0]).st_mtime
        return min(written, int(names[0][:16], 16) / 1e9), len(names)
    except (OSError, ValueError):
        return 0.0, 0


def _waiting_warning(home: str, problem: str) -> str:
    """The words for the person if events have waited too long, once a day."""
    oldest, count = _waiting(home)
    if not count or time.time() - oldest < WAITING_SECONDS or not _is_news(home + "/" + WARNED):
        return ""
    since = time.strftime("%d %b at %H:%M", time.localtime(oldest))
    events = "1 event is" if count == 1 else f"{count:,} events are"
    return (
        f"claude-mem: the worker has not been able to start since {since}: {problem[:200].rstrip('. ')};"
        f" {events} waiting, none is lost. Run `claude-mem doctor`."
    )


def _is_news(stamp: str) -> bool:
    """Was the person not told today? Touches the stamp; if that can't be done, better told twice than never."""
    try:
        if 0 <= time.time() - posix.lstat(stamp).st_mtime < TELL_SECONDS:
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


def _asked(home: str, command: str, record: bytes) -> bytes:
    """The worker's answer, if it comes in time."""
    try:
        return _ask(home, ASKS[command], record)
    except Exception:
        return b""  # dead, hung, or not itself
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, WORK_SECONDS)


def _ask(home: str, path: str, record: bytes) -> bytes:
    import _socket
    import json

    with open(home + "/worker.json", "rb") as file:
        _check_mine(home, posix.fstat(file.fileno()))  # else it leads to someone else's port
        worker = json.loads(file.read())
    _replace_outdated(home, worker.get("version"))
    where = "127.0.0.1:%d" % worker["port"]  # noqa: UP031
    head = (
        f"POST {path} HTTP/1.0\r\nHost: {where}\r\nAuthorization: Bearer {worker['token']}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(record)}\r\n\r\n"
    )
    _signal.setitimer(_signal.ITIMER_REAL, ASK_SECONDS)  # one deadline for all of it
    channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    channel.connect(("127.0.0.1", worker["port"]))
    channel.sendall(head.encode() + record)
    reply = b""
    while chunk := channel.recv(1 << 16):
        reply += chunk
    status, _, rest = reply.partition(b"\r\n")
    body = rest.partition(b"\r\n\r\n")[2]
    return body if b" 200 " in status + b" " and body.startswith(b"{") else b""


def _left_on_disk(home: str, host: str, payload: bytes) -> bytes:
    """The worker keeps each folder's start context ready, so that a session start needs no living worker."""
    import json

    try:
        fields = json.loads(payload)
        if fields.get("source", "startup") not in ("startup", "clear", "compact", "new") and host not in _FORGETFUL:
            return b""  # what is new to a resumed session, only the worker knows
        said = dict(_SAYS.get(host, ())).get(b"project_dir", b"")
        folder = posix.environ.get(said, b"").decode("utf-8", "surrogateescape") or fields["cwd"]
        with open(home + "/starts/" + start_name(folder), "rb") as file:
            answer = file.read()
        if not isinstance(json.loads(answer), dict):
            return b""
        return answer if host == "claude" else _translated(host, answer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""


def _translated(host: str, answer: bytes) -> bytes:
    _find_ourselves()
    from claude_mem import answers

    return answers.translated(host, answer)


def start_name(folder: str) -> str:
    """The file that holds a folder's start context."""
    import hashlib

    return hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:32] + ".json"


def _readable_start(home: str, host: str, record: bytes, payload: bytes) -> bytes:
    """The start text where nothing can be written: from a worker that lives, or as the last one left it."""
    try:
        _check_mine(home, posix.stat(home))
    except OSError:
        return b""  # there is none, or it is someone else's and so is what it says
    return (_asked(home, "context", record) if wake(home) else b"") or _left_on_disk(home, host, payload)


def _unwritable(home: str) -> str:
    return f"claude-mem cannot write to {home}: nothing is being remembered. `claude-mem doctor` says why."


def _warned(host: str, answer: bytes, text: str) -> bytes:
    """The answer with a warning for the person: a session's start is the one moment when they can be told."""
    _find_ourselves()
    from claude_mem import answers

    return answers.with_warning(host, answer, text)


if __name__ == "__main__":
    main(sys.argv)
