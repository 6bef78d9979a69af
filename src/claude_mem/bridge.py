"""stdio ↔ `/mcp`, for clients that want to start a program: `<python> -I -S bridge.py [data directory]`.

One JSON-RPC message a line goes in and is posted to the worker; the worker's answer goes out as a line. It knows
nothing of the tools and needs nothing beyond the interpreter: 20 ms and 10 MB a session instead of 500 ms and 65 MB. If
no worker runs, it starts one. Whatever comes in, it goes on until its input ends.

What is the same every time (who we are, which tools there are) is asked once and kept in a file: a client waits for it
before it begins, and must not wait for a worker that is slow, hung or gone.
"""

import _socket
import json
import sys
import time

if __name__ == "__main__":  # under `-I -S` the interpreter knows no packages; ours is the folder this file lies in
    sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])

import posix

from claude_mem import __version__, hook

START_SECONDS = 10.0
ANSWER_SECONDS = 60.0
SAME_SECONDS = 2.0  # for what is the same every time, and not known yet
SAME = ("initialize", "tools/list", "server/discover", "prompts/list", "resources/list")
KEPT = "mcp-answers.json"
LAUNCHER = "claude-mem-hook"  # as in `process.py`, which would cost too much here
AGAIN_SECONDS = 3  # a worker that is just starting is left alone so long
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603


class Unanswered(Exception):
    """The worker had the message and ended, or hung: whether it did what it was asked, nobody knows."""


class Bridge:
    def __init__(self, home: str) -> None:
        self.home = home
        self.version = ""
        self.installed = _is_there(f"{home}/{LAUNCHER}")
        self.of = ""  # the version of the worker that answered last
        folder = posix.environ.get(b"CLAUDE_PROJECT_DIR") or posix.getcwdb()
        self.folder = "".join(chr(byte) if 32 < byte < 127 and byte != 37 else f"%{byte:02X}" for byte in folder)

    def answer(self, line: bytes) -> "dict[str, object] | None":
        """The answer to one line; None if it needs none."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "that line is not JSON")
        if not isinstance(message, dict):
            return _error(None, INVALID_REQUEST, "a line must be one JSON-RPC message")
        asked = message.get("id") if "method" in message else None
        if asked is None and str(message.get("method", "")).startswith("notifications/"):
            return None  # the worker keeps no account of who is connected
        kept = self._kept(message)
        if kept is not None:
            return {"jsonrpc": "2.0", "id": asked, **kept} if asked is not None else None
        try:
            status, body = self.exchange(
                line.strip(), SAME_SECONDS if message.get("method") in SAME else ANSWER_SECONDS
            )
            answer = json.loads(body or b"null")
            if isinstance(answer, dict) and "jsonrpc" in answer:
                self._keep(message, answer)
                answer["id"] = asked  # who asked must hear it, even of a message that the worker could not read
            else:
                answer = _error(asked, INTERNAL_ERROR, f"HTTP {status}: {answer}")
        except (OSError, ValueError, KeyError, TypeError, Unanswered) as problem:
            text = f"claude-mem's worker does not answer ({problem or type(problem).__name__})"
            answer = _error(asked, INTERNAL_ERROR, f"{text}. Run `claude-mem doctor`: it says why.")
        return answer if asked is not None else None

    def _kept(self, message: "dict[str, object]") -> "dict[str, object] | None":
        """What the worker of this very version answered before."""
        if message.get("method") not in SAME:
            return None
        try:
            with open(f"{self.home}/{KEPT}", "rb") as file:  # noqa: PTH123
                kept = json.loads(file.read())
            answer = kept["answers"].get(_key(message)) if kept["of"] == _stamp() else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return self._agreed(message, answer) if isinstance(answer, dict) else None

    def _agreed(self, message: "dict[str, object]", answer: "dict[str, object]") -> "dict[str, object]":
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            self.version = str(result.get("protocolVersion", ""))
        return answer

    def _keep(self, message: "dict[str, object]", answer: "dict[str, object]") -> None:
        error = answer.get("error")
        passing = isinstance(error, dict) and error.get("code") != METHOD_NOT_FOUND  # tomorrow it may be well
        if message.get("method") not in SAME or passing or self.of != __version__:
            return
        self._agreed(message, answer)
        path, said = f"{self.home}/{KEPT}", {name: answer[name] for name in ("result", "error") if name in answer}
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                before = json.loads(file.read())
            answers = before["answers"] if before["of"] == _stamp() else {}
        except (OSError, ValueError, KeyError, TypeError):
            answers = {}
        answers[_key(message)] = said
        try:
            temp = f"{path}.{posix.getpid()}"
            fd = posix.open(temp, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW, 0o600)
            with open(fd, "wb") as file:  # noqa: PTH123
                file.write(json.dumps({"of": _stamp(), "answers": answers}).encode("ascii"))
            posix.rename(temp, path)
        except OSError:
            pass  # a full disk: then the worker is asked again

    def exchange(self, body: bytes, seconds: float) -> "tuple[int, bytes]":
        """Post it; if there is no worker, start one and wait for it. Once it has the message, it is not sent again."""
        deadline = time.monotonic() + min(START_SECONDS, seconds * 2)
        while True:
            try:
                channel, head = self._connect(seconds)
                break
            except (OSError, ValueError, KeyError):  # none, or its file is gone or not whole
                if self.installed and not _is_there(f"{self.home}/{LAUNCHER}"):
                    raise Unanswered("claude-mem was uninstalled") from None
                _bury()
                if time.monotonic() > deadline:
                    raise
                hook.start_worker(self.home, pause=AGAIN_SECONDS)
                time.sleep(0.05)
        try:
            return _post(channel, b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        finally:
            channel.close()

    def _connect(self, seconds: float) -> "tuple[_socket.socket, bytes]":
        with open(self.home + "/worker.json", "rb") as file:  # noqa: PTH123 -- pathlib would cost more than all the rest
            if posix.fstat(file.fileno()).st_uid != posix.geteuid():
                raise ValueError("worker.json belongs to another user")  # it would lead to their port
            worker = json.loads(file.read())
        self.of = str(worker.get("version"))
        # Is it there? Only its pipe tells: after a crash its file may name a port that is someone else's by now.
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
        raise Unanswered(f"it went away in the middle: {error}") from error
    head, _, body = reply.partition(b"\r\n\r\n")
    status = head[9:12]
    if not status.isdigit():
        raise Unanswered("it went away in the middle")
    return int(status), body


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _bury() -> None:
    """A worker that we started and that has ended."""
    try:
        while posix.waitpid(-1, posix.WNOHANG)[0]:
            pass
    except OSError:
        pass  # there is none


def _key(message: "dict[str, object]") -> str:
    """An answer depends on what the client is, nothing else: which version it speaks, which page it wants."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    return f"{message.get('method')} {params.get('protocolVersion', '')} {params.get('cursor', '')}"


def _stamp() -> str:
    """Of the program that would answer: another version may have other tools."""
    tools = __file__.rpartition("/")[0] + "/worker/tools.py"
    return f"{__version__} {posix.stat(tools).st_mtime_ns}"


def _error(asked: object, code: int, text: str) -> "dict[str, object]":
    return {"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": text}}


def main(argv: "list[str]") -> None:
    if posix.environ.get(b"CLAUDE_MEM_INTERNAL"):
        posix._exit(0)  # the agent works for us: it has no memory, and starts no worker
    bridge = Bridge(hook.data_dir(argv[1] if len(argv) > 1 else ""))
    try:
        while line := sys.stdin.buffer.readline():
            _bury()
            if line.strip() and (answer := bridge.answer(line)) is not None:
                sys.stdout.buffer.write(json.dumps(answer).encode("ascii") + b"\n")
                sys.stdout.buffer.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the client is gone
    posix._exit(0)


if __name__ == "__main__":
    main(sys.argv)
