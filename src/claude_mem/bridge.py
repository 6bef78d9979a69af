"""stdio ↔ `/mcp`, for clients that want to start a program: `<python> -I -S bridge.py [data directory]`.

One JSON-RPC message a line goes in and is posted to the worker; the worker's answer goes out as a line. It knows
nothing of the tools, keeps nothing but the version that was agreed on, and needs nothing beyond the interpreter: 20 ms
and 10 MB a session instead of 500 ms and 65 MB. If no worker runs, it starts one. Whatever comes in, it goes on until
its input ends.
"""

import _socket
import json
import sys
import time

if __name__ == "__main__":  # under `-I -S` the interpreter knows no packages; ours is the folder this file lies in
    sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])

import posix

from claude_mem import hook

START_SECONDS = 10.0
ANSWER_SECONDS = 60.0
AGAIN_SECONDS = 3  # a worker that is just starting is left alone so long
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603


class Unanswered(Exception):
    """The worker had the message and ended, or hung: whether it did what it was asked, nobody knows."""


class Bridge:
    def __init__(self, home: str) -> None:
        self.home = home
        self.version = ""
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
        try:
            status, body = self.exchange(line.strip())
            answer = json.loads(body or b"null")
            if isinstance(answer, dict) and "jsonrpc" in answer:
                self._remember(message, answer)
                answer["id"] = asked  # who asked must hear it, even of a message that the worker could not read
            else:
                answer = _error(asked, INTERNAL_ERROR, f"HTTP {status}: {answer}")
        except (OSError, ValueError, KeyError, TypeError, Unanswered) as problem:
            text = f"claude-mem's worker does not answer ({problem or type(problem).__name__})"
            answer = _error(asked, INTERNAL_ERROR, f"{text}. Run `claude-mem doctor`: it says why.")
        return answer if asked is not None else None

    def _remember(self, message: "dict[str, object]", answer: "dict[str, object]") -> None:
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            self.version = str(result.get("protocolVersion", ""))

    def exchange(self, body: bytes) -> "tuple[int, bytes]":
        """Post it; if there is no worker, start one and wait for it. Once it has the message, it is not sent again."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                channel, head = self._connect()
                break
            except (OSError, ValueError, KeyError):  # none, or its file is gone or not whole
                if time.monotonic() > deadline:
                    raise
                hook.start_worker(self.home, pause=AGAIN_SECONDS)
                time.sleep(0.05)
        try:
            return _post(channel, b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        finally:
            channel.close()

    def _connect(self) -> "tuple[_socket.socket, bytes]":
        with open(self.home + "/worker.json", "rb") as file:  # noqa: PTH123 -- pathlib would cost more than all the rest
            worker = json.loads(file.read())
        channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            channel.settimeout(ANSWER_SECONDS)
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


def _error(asked: object, code: int, text: str) -> "dict[str, object]":
    return {"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": text}}


def main(argv: "list[str]") -> None:
    bridge = Bridge(hook.data_dir(argv[1] if len(argv) > 1 else ""))
    try:
        while line := sys.stdin.buffer.readline():
            if line.strip() and (answer := bridge.answer(line)) is not None:
                sys.stdout.buffer.write(json.dumps(answer).encode("ascii") + b"\n")
                sys.stdout.buffer.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the client is gone
    posix._exit(0)


if __name__ == "__main__":
    main(sys.argv)
