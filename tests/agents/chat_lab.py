"""One laboratory and one list of cases for the agents that speak Chat Completions.

Each agent says how it is started and what it calls its tools; what is expected of claude-mem is the same for all, and
stands in `Cases`.
"""

import http.client
import json
import random
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st

from claude_mem.system import process
from tests.agents.client.harness import ROOT, Client, Lab
from tests.agents.client.model_server import LONG_ANSWER, LONG_REMARK, REMARK, Json, Reply
from tests.support.waiting import SECONDS, wait_for

from .chat_server import ChatServer, Hold, Request, Text, Tool

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
AGENTS = ROOT / "build" / "agents"
SUBJECT = "Charge the flux capacitor before the jump"
FILE = "capacitor.py"
CHECK = "sh check.sh"
ERROR = "CoilError: coil 7 is magnetised"
LAST_WORDS = f"{FILE} is written, checked and committed."
TRIES = 3  # a hook waits 150 ms for memory and goes on without it, so a busy machine may need more than one
DONE = (Text(LAST_WORDS),)


def find_agent(name: str, program: str) -> tuple[Path | None, str]:
    """The agent's program, or the reason why there is none to test with."""
    path = AGENTS / name / "node_modules" / program
    return (path, "") if path.is_file() else (None, f"no {name} under {AGENTS}: run `make agents` to fetch it")


def version(name: str) -> str:
    """The one that `make agents` fetches."""
    lines = (Path(__file__).parent / "versions.txt").read_text().splitlines()
    return next(line.rpartition("@")[2] for line in lines if line.startswith(f"{name} "))


@dataclass(frozen=True, slots=True)
class Ended:
    """One life of an agent."""

    stdout: str
    stderr: str
    returncode: int


@dataclass
class ChatLab(Lab):
    """The parts that differ from agent to agent are the ones that raise here."""

    host: ClassVar[str]
    server: ChatServer

    def command(self, prompt: str, *, resume: str = "") -> list[str]:
        raise NotImplementedError

    def write(self, path: Path, content: str) -> Tool:
        raise NotImplementedError

    def bash(self, command: str) -> Tool:
        raise NotImplementedError

    def read(self, path: Path) -> Tool:
        raise NotImplementedError

    def edit(self, path: Path, old: str, new: str) -> Tool:
        raise NotImplementedError

    def search(self, query: str) -> Tool:
        """A call of our own tool, as the agent names it to its model."""
        raise NotImplementedError

    @property
    def env(self) -> dict[str, str]:
        node = Path(shutil.which("node") or "/usr/bin/node").parent
        git = Path(shutil.which("git") or "/usr/bin/git").parent
        return {
            "HOME": str(self.home),
            "PATH": f"{node}:{git}:/usr/bin:/bin",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "CLAUDE_MEM_DATA_DIR": str(self.data),
            "CLAUDE_MEM_WORKER_PORT": str(self.port),
        }

    def start(self, prompt: str, *, resume: str = "") -> Client:
        errors = self.root / f"agent-{len(self.clients)}.stderr"
        client = Client(self.command(prompt, resume=resume), env=self.env, cwd=self.project, errors=errors)
        client.hang_up()
        self.clients.append(client)
        return client

    def say(self, prompt: str, *, resume: str = "") -> Ended:
        """One prompt from start to end, in a process of its own. It has to end well."""
        done = subprocess.run(
            self.command(prompt, resume=resume),
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        ended = Ended(done.stdout, done.stderr, done.returncode)
        assert ended.returncode == 0, ended
        self.assert_undisturbed(ended)
        return ended

    def assert_undisturbed(self, ended: Ended) -> None:
        """Nothing on the screen tells that we are there."""
        for text in (ended.stdout, ended.stderr):
            assert "claude-mem-hook" not in text, ended
            assert "hook" not in text.lower(), ended

    # --- the model's side ------------------------------------------------------------------------

    def asked(self, marker: str) -> list[Request]:
        """The requests of a play. What is asked aside, a title say, is not among them."""
        return [request for request in self.server.requests if request.marker == marker]

    # --- claude-mem's side -----------------------------------------------------------------------

    def post(self, path: str, body: Json) -> Any:
        worker = self.worker()
        connection = http.client.HTTPConnection("127.0.0.1", worker["port"], timeout=SECONDS)
        try:
            head = {"Authorization": f"Bearer {worker['token']}", "Content-Type": "application/json"}
            connection.request("POST", path, body=json.dumps(body), headers=head)
            response = connection.getresponse()
            said = response.read()
        finally:
            connection.close()
        assert response.status == 200, f"POST {path} -> {response.status}: {said[:500]!r}"
        return json.loads(said)

    def hook(self, command: str, host: str, fields: Mapping[str, Any]) -> Json:
        """The hook as another agent would run it."""
        done = subprocess.run(
            [self.data / "claude-mem-hook", command, host],
            input=json.dumps(fields),
            env=self.env,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def rows(self, path: str) -> list[Json]:
        found = self.api(f"{path}?limit=100")["items"]
        assert isinstance(found, list)
        return found

    def sessions(self) -> list[Json]:
        """This host's sessions, whole, oldest first; an id with two rows would be a session torn in two."""
        found = [row for row in self.rows("/api/sessions") if row["host"] == self.host]
        ids = [row["content_session_id"] for row in found]
        assert len(ids) == len(set(ids)), ids
        whole = [self.api(f"/api/session/{row['id']}") for row in sorted(found, key=lambda row: int(row["id"]))]
        bodies = self.bodies()
        for event in (event for session in whole for event in session["events"]):
            event["body"] = bodies[event["event_id"]]
        return whole

    def bodies(self) -> dict[str, Json]:
        """What was stored of each event; only looked at, the worker has the database."""
        conn = sqlite3.connect(f"file:{self.data / 'claude-mem.db'}?mode=ro", uri=True)
        try:
            return {name: json.loads(body) for name, body in conn.execute("select event_id, body from events")}
        finally:
            conn.close()

    def home_files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    def close(self) -> None:
        """Some agents leave helpers behind for a moment."""
        for client in self.clients:
            client.kill()  # those that a failed test has left
        try:
            wait_for(lambda: all("claude_mem" in text for text in self.processes().values()))
        finally:
            super().close()


@contextmanager
def open_chat_lab(kind: type[ChatLab], root: Path, *, binary: Path) -> Iterator[ChatLab]:
    """A lab with its model, claude-mem put into the agent. Whatever a test did, at its end the books must balance."""
    with ChatServer() as server:
        lab = kind(root=root, server=server, binary=binary)
        lab.prepare()
        try:
            yield lab
            if (lab.data / "claude-mem-hook").exists():
                assert_balanced(lab.wait_digested())
        finally:
            lab.close()


def assert_balanced(status: Json) -> None:
    """Nothing lost, nothing twice: each captured event is in exactly one place."""
    assert status["captured"] == sum(status[name] for name in ("stored", "queued", "set_aside", "filtered")), status
    assert status["set_aside"] == 0, status


def work(lab: ChatLab, *, last: Reply = DONE) -> list[Reply]:
    """A small job: write a file, run a check that fails, mend it, see the same check pass, commit."""
    (lab.project / "check.sh").write_text("test -f charged || { echo 'ChargeError: not charged'; exit 3; }\n")
    return [
        [Text("First the module."), lab.write(lab.project / FILE, "def charge():\n    return 1.21\n")],
        [lab.bash(CHECK)],
        [lab.bash("touch charged")],
        [lab.bash(CHECK)],
        [lab.bash(f"git add --all && git commit --message '{SUBJECT}'")],
        last,
    ]


def do_work(lab: ChatLab) -> Json:
    """A whole session that did the job, digested."""
    lab.server.play("JOB-ONE", *work(lab))
    lab.say("JOB-ONE: build the capacitor and commit it")
    lab.wait_digested()
    return lab.sessions()[0]


def tools(session: Json) -> list[tuple[str, bool]]:
    """Which tools a session used, and which of them failed."""
    return [(event["body"]["name"], bool(event["body"].get("failed"))) for event in events(session, "tool")]


def events(session: Json, kind: str) -> list[Json]:
    return [event for event in session["events"] if event["kind"] == kind]


def last_words(session: Json) -> list[str]:
    """Of each turn. Some agents tell that they stop, and their transcript what they said."""
    return [event["body"]["message"] for event in events(session, "stop") if event["body"]["message"]]


def known(request: Request, text: str) -> int:
    """In how many of the contexts that we gave does this text stand?"""
    return sum(text in context for context in request.contexts)


def files_with(lab: ChatLab, *canaries: str) -> list[str]:
    files = [path for path in lab.data.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(canary.encode() in path.read_bytes() for canary in canaries)]


def note(n: int) -> str:
    """One of many that have nothing in common."""
    chosen = random.Random(n)
    return " ".join(
        "".join(chosen.choices("bdfgklmnprst", k=1)[0] + chosen.choices("aeiou", k=1)[0] for _ in range(3))
        for _ in range(9)
    )


def tries(tool: Tool) -> list[Reply]:
    """The same call again, then the end."""
    return [*([tool] for _ in range(TRIES - 1)), [Text("I see.")]]


class Cases:
    """What every one of these agents is to have of us. The fixture `lab` is the agent's own."""

    ends_sessions: ClassVar[bool] = True  # does it tell when one is over?
    hears_of_failures: ClassVar[bool] = True  # does it take text after a shell command that failed?
    known_when_resumed: ClassVar[tuple[int, ...]] = (
        1,
    )  # how often a resumed session is shown what it was told at a prompt before

    def test_what_a_session_did_is_kept_and_the_next_one_knows(self, lab: ChatLab) -> None:
        session = do_work(lab)
        assert tools(session) == [
            ("Write", False), ("Bash", True), ("Bash", False), ("Bash", False), ("Bash", False),
        ]  # fmt: skip
        assert [prompt["text"] for prompt in session["prompts"]] == ["JOB-ONE: build the capacitor and commit it"]
        assert last_words(session) == [LAST_WORDS]
        assert [turn["closed_by"] for turn in session["turns"]] == ["stop"]
        assert session["status"] == ("completed" if self.ends_sessions else "active")
        assert any(FILE in str(row["files_modified"]) for row in session["observations"]), session["observations"]
        assert "ChargeError" in json.dumps(session["observations"])  # and what came of it
        # The next one, in this agent and in another.
        lab.server.play("JOB-ASK", [lab.read(lab.project / FILE)], [Text("I know.")])
        lab.say("JOB-ASK: what was done here?")
        first, second = lab.asked("JOB-ASK")
        assert (known(first, SUBJECT), known(second, SUBJECT)) == (1, 1)
        fields = {"hook_event_name": "SessionStart", "source": "startup", "cwd": str(lab.project)}
        answer = lab.hook("context", "claude", {**fields, "session_id": "elsewhere"})
        assert SUBJECT in answer["hookSpecificOutput"]["additionalContext"]
        # Nothing of what we told it is taken for what someone said.
        lab.wait_digested()
        assert [prompt["text"] for prompt in lab.sessions()[1]["prompts"]] == ["JOB-ASK: what was done here?"]

    def test_the_last_message_is_kept_as_it_was_however_it_was_streamed(self, lab: ChatLab) -> None:
        lab.server.play(
            "JOB-LONG",
            [Text(REMARK), lab.read(lab.project / "README.md")],
            [Text(LONG_REMARK), lab.write(lab.project / FILE, "def charge():\n    return 1.21\n")],
            [lab.bash("echo checked")],
            [Text(LONG_ANSWER)],
        )
        lab.say("JOB-LONG: charge the capacitor with all its decimals")
        lab.wait_digested()
        (session,) = lab.sessions()
        assert last_words(session) == [LONG_ANSWER]

    def test_a_resumed_session_stays_one(self, lab: ChatLab) -> None:
        first = do_work(lab)
        lab.server.play("JOB-TWO", [lab.bash("echo two")], [Text("Two is done.")])
        lab.say("JOB-TWO: now the second thing", resume=first["content_session_id"])
        lab.wait_digested()
        (session,) = lab.sessions()
        assert session["content_session_id"] == first["content_session_id"]
        assert session["prompt_counter"] == 2
        assert len(tools(session)) == 6
        ids = Counter(event["tool_use_id"] for event in events(session, "tool") if event["tool_use_id"])
        assert set(ids.values()) <= {1}
        assert last_words(session) == [LAST_WORDS, "Two is done."]
        assert all(known(request, "# ") <= 2 for request in lab.asked("JOB-TWO"))

    def test_a_prompt_is_shown_what_is_remembered_about_it_and_only_once(self, lab: ChatLab) -> None:
        """The memory is too old to be in what a session is told at its start."""
        lesson = "The warp coil must be degaussed before each jump"
        lab.mem("start")
        for text in (lesson, *map(note, range(80))):
            lab.post("/api/memory/save", {"text": text, "cwd": str(lab.project)})
        lab.wait_digested()
        lab.server.play("JOB-COIL", [lab.bash("echo coil")], [Text("Degauss it.")])
        for _ in range(TRIES):
            lab.say("JOB-COIL: what must be done with the warp coil before each jump?")
            *_, first, second = lab.asked("JOB-COIL")
            if known(first, lesson):
                break
        assert (known(first, lesson), known(second, lesson)) == (1, 1)
        lab.wait_digested()
        *_, session = lab.sessions()
        lab.server.play("JOB-WHY", [Text("As I said.")])
        lab.say(
            "JOB-WHY: and why must the warp coil be degaussed before each jump?", resume=session["content_session_id"]
        )
        (again,) = lab.asked("JOB-WHY")
        assert known(again, lesson) in self.known_when_resumed
        lab.wait_digested()
        assert [row["text"].partition(":")[0] for row in lab.sessions()[-1]["prompts"]] == ["JOB-COIL", "JOB-WHY"]

    def test_what_is_known_about_a_file_and_an_error_is_told(self, lab: ChatLab) -> None:
        (lab.project / "jump.sh").write_text(f"test -f degaussed || {{ echo '{ERROR}'; exit 3; }}\n")
        (lab.project / "warp.py").write_text("COIL = 7\n")
        lab.server.play(
            "JOB-COIL",
            [lab.bash("sh jump.sh")],
            [lab.read(lab.project / "warp.py")],
            [lab.edit(lab.project / "warp.py", "COIL = 7", "COIL = degauss(7)"), lab.bash("touch degaussed")],
            [lab.bash("sh jump.sh")],
            [Text("The coil must be degaussed. `warp.py` does it now.")],
        )
        # Two sessions from before the work, so that their start can't have told them; each is told a thing once.
        then = Hold("until then")
        lab.server.play(
            "JOB-READ", [then, lab.read(lab.project / "warp.py")], *tries(lab.read(lab.project / "warp.py"))
        )
        lab.server.play("JOB-FAIL", [then, lab.bash("sh jump.sh")], *tries(lab.bash("sh jump.sh")))
        waiting = [lab.start("JOB-READ: look"), lab.start("JOB-FAIL: try")]
        wait_for(lambda: bool(lab.asked("JOB-READ") and lab.asked("JOB-FAIL")), "nobody asks")
        lab.say("JOB-COIL: make the jump work")
        lab.wait_digested()
        (lab.project / "degaussed").unlink()
        lab.server.release("until then")
        assert [agent.finish().returncode for agent in waiting] == [0, 0]
        assert known(lab.asked("JOB-READ")[-1], "known about warp.py") == 1
        assert known(lab.asked("JOB-FAIL")[-1], "this error was met before") == int(self.hears_of_failures)

    def test_a_worker_killed_in_the_middle_disturbs_nobody_and_loses_nothing(self, lab: ChatLab) -> None:
        lab.server.play("JOB-ONE", *work(lab, last=[Hold("last"), Text(LAST_WORDS)]))
        agent = lab.start("JOB-ONE: build the capacitor and commit it")
        lab.server.wait_held("last")
        lab.wait_worker()
        lab.kill_worker()
        lab.server.release("last")
        ended = agent.finish()
        assert ended.returncode == 0, ended.stderr
        assert "hook" not in ended.stderr.lower()
        wait_for(lambda: process.running_worker(lab.data) is not None, "no hook started a worker again")
        lab.wait_digested()
        (session,) = lab.sessions()
        assert len(tools(session)) == 5
        assert last_words(session) == [LAST_WORDS]

    def test_nothing_of_a_private_turn_is_kept(self, lab: ChatLab) -> None:
        lab.server.play("JOB-SECRET", [lab.bash("echo CANARY-TOOL")], [Text("CANARY-ANSWER")])
        lab.say("<private>JOB-SECRET: about the CANARY-PROMPT</private>")
        assert lab.server.seen("CANARY-PROMPT")  # the model does get it
        lab.wait_digested()
        assert files_with(lab, "CANARY", "JOB-SECRET") == []
        lab.server.play("JOB-HALF", [Text("Said openly.")])
        lab.say("JOB-HALF: this is open <private>and CANARY-HALF is not</private>")
        lab.wait_digested()
        assert [row["text"].strip() for row in lab.rows("/api/prompts")] == ["JOB-HALF: this is open"]
        assert files_with(lab, "CANARY") == []

    def test_the_model_can_search_with_our_tools(self, lab: ChatLab) -> None:
        lab.mem("start")
        lab.post("/api/memory/save", {"text": SUBJECT, "cwd": str(lab.project)})
        lab.server.play("JOB-FIND", [lab.search("flux capacitor")], [Text("Found.")])
        lab.say("JOB-FIND: look it up")
        last = lab.asked("JOB-FIND")[-1]
        results = [str(message["content"]) for message in last.body["messages"] if message["role"] == "tool"]
        assert SUBJECT in results[-1], results

    def test_what_was_put_in_is_taken_out_again(self, lab: ChatLab) -> None:
        lab.mem("uninstall", "--yes")
        before = lab.home_files()
        lab.mem("install", "--yes", "--host", lab.host)
        assert lab.home_files() != before
        lab.server.play("JOB-HI", [Text("Hello.")])
        lab.say("JOB-HI: hello")
        lab.wait_digested()
        assert len(lab.sessions()) == 1
        lab.mem("uninstall", "--yes")
        after = lab.home_files()
        assert {name: after.get(name) for name in before} == before
        assert [name for name, content in after.items() if b"claude-mem-hook" in content and name not in before] == []
        lab.say("JOB-HI: hello again")  # without us, as before
