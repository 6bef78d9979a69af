"""MCP over stdio, for clients that start a program: `<python> -I -S bridge.py [data directory]`.

The bridge posts each JSON-RPC message on stdin (one per line) to the worker's `/mcp` route and writes the answer to
stdout as one line. It does not know the tools and uses only what is built into the interpreter: a session costs 20 ms
and 10 MB instead of 500 ms and 65 MB. If no worker runs, the bridge starts one. It runs until stdin ends, whatever the
input is.

Answers that never change within a version (server info, list of tools) are cached in a file: a client waits for them
before it starts, and must not wait for a worker that is slow, hung or not running.
"""

import _socket
import json
import sys
import time

if __name__ == "__main__":  # under `-I -S` the directory that contains the package is not on `sys.path`
    sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])

import posix

from claude_mem import __version__, hook

START_SECONDS = 10.0
ANSWER_SECONDS = 60.0
CACHED_METHOD_SECONDS = 2.0  # time limit for requests whose answers are cached
CACHED_METHODS = ("initialize", "tools/list", "server/discover", "prompts/list", "resources/list")
CACHE_FILE = "mcp-answers.json"
LAUNCHER = "claude-mem-hook"  # same as in `process.py`, which takes too long to import here
START_PAUSE_SECONDS = 3  # minimum time between two attempts to start a worker
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603


class WorkerDidNotAnswer(Exception):
    """The worker received the message but did not answer. Whether it carried out the request is unknown."""


class Bridge:
    def __init__(self, home: str) -> None:
        self.home = home
        self.version = ""
        self.installed = _exists(f"{home}/{LAUNCHER}")
        self.worker_version = ""  # the version of the worker that answered last
        folder = posix.environ.get(b"CLAUDE_PROJECT_DIR") or posix.getcwdb()
        self.folder = "".join(chr(byte) if 32 < byte < 127 and byte != 37 else f"%{byte:02X}" for byte in folder)

    def answer(self, line: bytes) -> "dict[str, object] | None":
        """Return the answer to one line, or None if the message needs no answer."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "the line is not valid JSON")
        if not isinstance(message, dict):
            return _error(None, INVALID_REQUEST, "a line must be one JSON-RPC message")
        request_id = message.get("id") if "method" in message else None
        if request_id is None and str(message.get("method", "")).startswith("notifications/"):
            return None  # the worker does not track connected clients
        cached = self._cached_answer(message)
        if cached is not None:
            return {"jsonrpc": "2.0", "id": request_id, **cached} if request_id is not None else None
        try:
            status, body = self.exchange(
                line.strip(), CACHED_METHOD_SECONDS if message.get("method") in CACHED_METHODS else ANSWER_SECONDS
            )
            answer = json.loads(body or b"null")
            if isinstance(answer, dict) and "jsonrpc" in answer:
                self._cache_answer(message, answer)
                answer["id"] = request_id  # the worker omits the id of a message that it could not read
            else:
                answer = _error(request_id, INTERNAL_ERROR, f"HTTP {status}: {answer}")
        except (OSError, ValueError, KeyError, TypeError, WorkerDidNotAnswer) as problem:
            text = f"the claude-mem worker does not answer ({problem or type(problem).__name__})"
            answer = _error(request_id, INTERNAL_ERROR, f"{text}. Run `claude-mem doctor` to find out why.")
        return answer if request_id is not None else None

    def _cached_answer(self, message: "dict[str, object]") -> "dict[str, object] | None":
        """Return the cached answer of a worker of this version, if there is one."""
        if message.get("method") not in CACHED_METHODS:
            return None
        try:
            with open(f"{self.home}/{CACHE_FILE}", "rb") as file:  # noqa: PTH123
                cache = json.loads(file.read())
            answer = cache["answers"].get(_cache_key(message)) if cache["of"] == _cache_version() else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if not isinstance(answer, dict):
            return None
        self._note_protocol_version(message, answer)
        return answer

    def _note_protocol_version(self, message: "dict[str, object]", answer: "dict[str, object]") -> None:
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            self.version = str(result.get("protocolVersion", ""))

    def _cache_answer(self, message: "dict[str, object]", answer: "dict[str, object]") -> None:
        error = answer.get("error")
        is_temporary = isinstance(error, dict) and error.get("code") != METHOD_NOT_FOUND  # must not be cached
        if message.get("method") not in CACHED_METHODS or is_temporary or self.worker_version != __version__:
            return
        self._note_protocol_version(message, answer)
        path, stored_answer = (
            f"{self.home}/{CACHE_FILE}",
            {name: answer[name] for name in ("result", "error") if name in answer},
        )
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                cache = json.loads(file.read())
            answers = cache["answers"] if cache["of"] == _cache_version() else {}
        except (OSError, ValueError, KeyError, TypeError):
            answers = {}
        answers[_cache_key(message)] = stored_answer
        try:
            temp = f"{path}.{posix.getpid()}"
            fd = posix.open(temp, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW, 0o600)
            with open(fd, "wb") as file:  # noqa: PTH123
                file.write(json.dumps({"of": _cache_version(), "answers": answers}).encode("ascii"))
            posix.rename(temp, path)
        except OSError:
            pass  # for example a full disk: the worker is asked again next time

    def exchange(self, body: bytes, seconds: float) -> "tuple[int, bytes]":
        """Post a message to the worker; start a worker if none runs. A message that was sent is never sent again."""
        deadline = time.monotonic() + min(START_SECONDS, seconds * 2)
        while True:
            try:
                channel, head = self._connect(seconds)
                break
            except (OSError, ValueError, KeyError):  # no worker, or `worker.json` is missing or incomplete
                if self.installed and not _exists(f"{self.home}/{LAUNCHER}"):
                    raise WorkerDidNotAnswer("claude-mem was uninstalled") from None
                _reap_children()
                if time.monotonic() > deadline:
                    raise
                hook.start_worker(self.home, pause=START_PAUSE_SECONDS)
                time.sleep(0.05)
        try:
            return _post(channel, b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        finally:
            channel.close()

    def _connect(self, seconds: float) -> "tuple[_socket.socket, bytes]":
        with open(self.home + "/worker.json", "rb") as file:  # noqa: PTH123 -- importing pathlib would take longer than everything else
            if posix.fstat(file.fileno()).st_uid != posix.geteuid():
                raise ValueError("worker.json belongs to another user")  # it would lead to that user's port
            worker = json.loads(file.read())
        self.worker_version = str(worker.get("version"))
        # Only the pipe shows that the worker runs: after a crash, the port in its file may belong to another program.
        posix.close(posix.open(self.home + "/worker.fifo", posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC))
        channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            channel.settimeout(seconds)
            channel.connect(("127.0.0.1", worker["port"]))
        except BaseException:
            channel.close()
            raise
        lines = [
            "POST /mcp HTTP/1.0",
            f"Host: 127.0.0.1:{worker['port']}",
            f"Authorization: Bearer {worker['token']}",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"X-Claude-Mem-Folder: {self.folder}",
        ]
        if self.version:
            lines.append(f"MCP-Protocol-Version: {self.version}")
        return channel, "\r\n".join(lines).encode("ascii")


def _post(channel: "_socket.socket", request: bytes) -> "tuple[int, bytes]":
    reply = b""
    try:
        channel.sendall(request)
        while chunk := channel.recv(1 << 16):
            reply += chunk
    except OSError as error:
        raise WorkerDidNotAnswer(f"it closed the connection before answering: {error}") from error
    head, _, body = reply.partition(b"\r\n\r\n")
    status = head[9:12]
    if not status.isdigit():
        raise WorkerDidNotAnswer("it closed the connection before answering")
    return int(status), body


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _reap_children() -> None:
    """Reap workers that this process started and that have exited."""
    try:
        while posix.waitpid(-1, posix.WNOHANG)[0]:
            pass
    except OSError:
        pass  # no child processes


def _cache_key(message: "dict[str, object]") -> str:
    """Return the cache key: answers depend only on the method, the protocol version and the requested page."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    return f"{message.get('method')} {params.get('protocolVersion', '')} {params.get('cursor', '')}"


def _cache_version() -> str:
    """Identify the program that would answer: another version may have other tools."""
    tools = __file__.rpartition("/")[0] + "/worker/mcp.py"
    return f"{__version__} {posix.stat(tools).st_mtime_ns}"


def _error(request_id: object, code: int, text: str) -> "dict[str, object]":
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def main(argv: "list[str]") -> None:
    if posix.environ.get(b"CLAUDE_MEM_INTERNAL"):
        posix._exit(0)  # the agent was started by claude-mem itself: it gets no memory and starts no worker
    bridge = Bridge(hook.data_dir(argv[1] if len(argv) > 1 else ""))
    try:
        while line := sys.stdin.buffer.readline():
            _reap_children()
            if line.strip() and (answer := bridge.answer(line)) is not None:
                sys.stdout.buffer.write(json.dumps(answer).encode("ascii") + b"\n")
                sys.stdout.buffer.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the client has exited
    posix._exit(0)


if __name__ == "__main__":
    main(sys.argv)
