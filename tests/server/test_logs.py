"""Logs over HTTP: gapless, append-only, written by their device alone; a repeated request changes nothing."""

from __future__ import annotations

import random
import signal
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from claude_mem.domain import frames
from claude_mem.system.failpoints import SERVER_FAILPOINTS
from tests.support import waiting
from tests.support.postgres import NodeProcess, Postgres, running_node
from tests.support.team import Machine, Team

ENTRIES = [f"entry {n}".encode() for n in range(1, 21)]


def test_what_was_appended_is_read_in_pages(team: Team) -> None:
    ada = team.machine()
    space = ada.create_space()
    assert ada.heads(space) == {}
    assert ada.append(space, 0, ENTRIES[:12]).status_code == 204
    assert ada.append(space, 12, ENTRIES[12:]).status_code == 204
    assert ada.heads(space) == {ada.device: 20}
    assert ada.read(space, ada.device) == ENTRIES
    assert ada.read(space, ada.device, after=5, limit=3) == ENTRIES[5:8]
    assert ada.read(space, ada.device, after=20) == []


def test_a_repeated_request_changes_nothing(team: Team) -> None:
    ada = team.machine()
    space = ada.create_space()
    for after, until in ((0, 3), (0, 3), (0, 8), (2, 5), (8, 8 + 1), (0, 9)):
        assert ada.append(space, after, ENTRIES[after:until]).status_code == 204
    assert ada.read(space, ada.device) == ENTRIES[:9]


def test_a_gap_and_another_content_are_refused_with_the_head(team: Team) -> None:
    ada = team.machine()
    space = ada.create_space()
    ada.append(space, 0, ENTRIES[:4])
    for after, bodies in ((5, [b"x"]), (3, [b"x"]), (2, [ENTRIES[2], b"x", b"y"]), (0, [b"x"] * 9)):
        answer = ada.append(space, after, bodies)
        assert (answer.status_code, answer.json()["head"]) == (409, 4)
    assert ada.read(space, ada.device) == ENTRIES[:4]


def test_an_answer_has_at_most_four_megabytes_but_always_an_entry(team: Team) -> None:
    ada = team.machine()
    space = ada.create_space()
    large = [bytes([n]) * (1 << 20) for n in range(1, 8)]
    assert ada.append(space, 0, large).status_code == 204
    pages, after = [], 0
    while page := ada.read(space, ada.device, after=after):
        assert sum(len(body) + 4 for body in page) <= 4 << 20
        pages += page
        after += len(page)
    assert pages == large


def test_writers_that_race_leave_one_gapless_log(team: Team) -> None:
    """The same device from many threads, each with a request that overlaps with others."""
    ada = team.machine()
    space = ada.create_space()
    entries = [str(n).encode() for n in range(1, 201)]

    def write(seed: int) -> set[int]:
        chance = random.Random(seed)
        statuses = set()
        for _ in range(15):
            head = ada.heads(space).get(ada.device, 0)
            after = max(0, head - chance.randrange(5))
            statuses.add(ada.append(space, after, entries[after : after + chance.randrange(1, 12)]).status_code)
        return statuses

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(write, range(8))) == {204}
    head = ada.heads(space)[ada.device]
    assert ada.read(space, ada.device) == entries[:head]


def test_rivals_with_other_contents_cannot_both_win(team: Team) -> None:
    """A copied data directory: two machines with one token."""
    ada = team.machine()
    space = ada.create_space()

    def write(name: int) -> list[int]:
        wins = []
        for index in range(30):
            body = f"{name} {index}".encode()
            if ada.append(space, index, [body]).status_code == 204:
                wins.append(index)
        return wins

    with ThreadPoolExecutor(4) as pool:
        wins = list(pool.map(write, range(4)))
    stored = ada.read(space, ada.device)
    assert sorted(index for each in wins for index in each) == list(range(len(stored)))
    for name, indices in enumerate(wins):
        assert all(stored[index] == f"{name} {index}".encode() for index in indices)


@pytest.mark.parametrize("place", SERVER_FAILPOINTS)
def test_a_node_killed_before_it_answers_loses_and_doubles_nothing(postgres: Postgres, team: Team, place: str) -> None:
    """The client repeats its request at the next node, as it would behind a load balancer."""
    ada = team.machine()
    space = ada.create_space()
    after = 0
    for size in (1, 5, 7):
        bodies = ENTRIES[after : after + size]
        with running_node(postgres.dsn("app"), CLAUDE_MEM_FAILPOINT=place) as node:
            with pytest.raises(httpx2.HTTPError):
                ada.append(space, after, bodies, url=node.url)
            assert node.process
            assert node.process.wait(waiting.SECONDS) == -signal.SIGKILL
        assert ada.heads(space).get(ada.device, 0) == (after + size if place == "team.committed" else after)
        assert ada.append(space, after, bodies).status_code == 204
        after += size
    assert ada.read(space, ada.device) == ENTRIES[:after]


def _has_reached(machine: Machine, space: str, head: int, writer: Future[int]) -> bool:
    return machine.heads(space).get(machine.device, 0) >= head or writer.done()


def test_kills_at_any_moment_lose_and_double_nothing(postgres: Postgres, team: Team) -> None:
    ada = team.machine()
    space = ada.create_space()
    entries = [f"{n}".encode() * 50 for n in range(400)]
    chance = random.Random(19)

    def write(node: NodeProcess, after: int) -> int:
        """Append until the node is gone; return how many entries were acknowledged."""
        while after < len(entries):
            bodies = entries[after : after + 4]
            try:
                if ada.append(space, after, bodies, url=node.url).status_code != 204:
                    return after
            except httpx2.HTTPError:
                return after
            after += len(bodies)
        return after

    acknowledged = 0
    for _ in range(4):
        with running_node(postgres.dsn("app")) as node, ThreadPoolExecutor(1) as pool:
            target = acknowledged + chance.randrange(8, 60)
            writer = pool.submit(write, node, acknowledged)
            waiting.wait_for(partial(_has_reached, ada, space, target, writer))
            node.stop(signal.SIGKILL)
            acknowledged = writer.result()
        stored = ada.read(space, ada.device)
        assert len(stored) >= acknowledged
        assert stored == entries[: len(stored)]
    with running_node(postgres.dsn("app")) as node:
        assert write(node, acknowledged) == len(entries)
    assert ada.read(space, ada.device) == entries


# --- who may -----------------------------------------------------------------------------------------------------------


def test_only_the_device_itself_appends(team: Team) -> None:
    member = team.add_member("ada")
    laptop, desktop = team.enrol(member), team.enrol(member)
    space = laptop.create_space()
    assert laptop.append(space, 0, [b"mine"]).status_code == 204
    assert desktop.append(space, 0, [b"not mine"], device=laptop.device).status_code == 403
    assert desktop.append(space, 0, [b"mine too"]).status_code == 204
    assert desktop.read(space, laptop.device) == [b"mine"]


def test_nobody_sees_a_space_without_belonging_to_it(team: Team, postgres: Postgres) -> None:
    ada, bob = team.machine("ada"), team.machine("bob", "maintainer")
    eve = Team.create(team.url, postgres.dsn("operator"), "Rival").machine("eve", "maintainer")
    space = ada.create_space()
    ada.append(space, 0, [b"secret"])
    ada.call("PUT", f"/spaces/{space}/manifest", content=b"sealed", headers={"If-None-Match": "*"})
    for other in (bob, eve):
        paths = ("manifest", "heads", f"logs/{ada.device}?after=0")
        assert {other.call("GET", f"/spaces/{space}/{path}").status_code for path in paths} == {404}
        assert other.append(space, 0, [b"poison"]).status_code == 404
        answer = other.call("PUT", f"/spaces/{space}/manifest", content=b"x", headers={"If-None-Match": "*"})
        assert answer.status_code == 404
        assert other.call("GET", "/spaces").json() == {"spaces": []}
    assert ada.heads(space) == {ada.device: 1}


def test_the_same_space_id_in_two_organisations_is_two_spaces(team: Team, postgres: Postgres) -> None:
    ada = team.machine()
    eve = Team.create(team.url, postgres.dsn("operator"), "Rival").machine("eve")
    space = ada.create_space()
    ada.append(space, 0, [b"secret"])
    assert eve.call("POST", "/spaces", json={"space": space, "kind": "personal"}).status_code == 201
    assert eve.heads(space) == {}
    assert eve.read(space, ada.device) == []


def test_a_team_space_has_the_members_that_its_owner_admits(team: Team) -> None:
    ada, bob, carl = team.machine("ada"), team.machine("bob"), team.machine("carl", "reader")
    space = ada.create_space("team")
    ada.append(space, 0, [b"shared"])
    assert bob.call("GET", f"/spaces/{space}/heads").status_code == 404
    assert bob.call("PUT", f"/spaces/{space}/members/{bob.member_id.hex}").status_code == 404
    for member in (bob, carl):
        assert ada.call("PUT", f"/spaces/{space}/members/{member.member_id.hex}").status_code == 204
        assert member.read(space, ada.device) == [b"shared"]
    assert bob.call("PUT", f"/spaces/{space}/members/{bob.member_id.hex}").status_code == 403
    assert bob.append(space, 0, [b"bob's"]).status_code == 204
    assert carl.append(space, 0, [b"carl's"]).status_code == 403
    assert ada.call("DELETE", f"/spaces/{space}/members/{bob.member_id.hex}").status_code == 204
    assert bob.call("GET", f"/spaces/{space}/heads").status_code == 404


def test_a_reader_writes_only_to_an_own_personal_space(team: Team) -> None:
    carl = team.machine("carl", "reader")
    assert carl.call("POST", "/spaces", json={"space": "a" * 32, "kind": "team"}).status_code == 403
    space = carl.create_space()
    assert carl.append(space, 0, [b"mine"]).status_code == 204


# --- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"\0\0\0", 400),
        (b"\0\0\0\5abcd", 400),
        (b"\0\0\0\0", 400),
        (b"\xff\xff\xff\xffabc", 413),
        (frames.LENGTH.pack((1 << 20) + 1) + b"a" * ((1 << 20) + 1), 413),
        (b"\0" * ((8 << 20) + 1), 413),
        (b"\0\0\0\1a" * 10_001, 413),
        (b"GET / HTTP/1.1\r\n\r\n", 413),
    ],
    ids=[
        "empty",
        "short head",
        "truncated",
        "empty entry",
        "absurd length",
        "large entry",
        "large body",
        "many",
        "HTTP",
    ],
)
def test_a_malformed_body_is_refused_and_nothing_stored(team: Team, raw: bytes, status: int) -> None:
    ada = team.machine()
    space = ada.create_space()
    answer = ada.call("POST", f"/spaces/{space}/logs/{ada.device}?after=0", content=raw)
    assert answer.status_code == status, answer.text
    assert ada.heads(space) == {}


@pytest.mark.parametrize(
    "after", ["", "?after=", "?after=-1", "?after=x", "?after=1e3", "?after=" + "9" * 30, "?after=٣"]
)
def test_a_malformed_index_is_refused(team: Team, after: str) -> None:
    ada = team.machine()
    space = ada.create_space()
    answer = ada.call("POST", f"/spaces/{space}/logs/{ada.device}{after}", content=b"\0\0\0\1a")
    assert answer.status_code == 400


@pytest.mark.parametrize("device", ["x", "A" * 16, "0" * 15, "0" * 17, "..%2f" * 4])
def test_a_malformed_device_is_refused(team: Team, device: str) -> None:
    ada = team.machine()
    space = ada.create_space()
    assert ada.call("GET", f"/spaces/{space}/logs/{device}?after=0").status_code in (400, 404)
    assert ada.append(space, 0, [b"x"], device=device).status_code in (400, 404)


def _raw(node: NodeProcess, request: bytes, *, cut: bool = False) -> bytes:
    with socket.create_connection(("127.0.0.1", node.port), timeout=waiting.SECONDS) as connection:
        connection.sendall(request)
        if cut:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def _head(machine: Machine, space: str, *lines: str) -> bytes:
    start = f"POST /v1/spaces/{space}/logs/{machine.device}?after=0 HTTP/1.1"
    return "\r\n".join(
        [start, "Host: x", "Connection: close", f"Authorization: Bearer {machine.token}", *lines, "", ""]
    ).encode()


def test_a_body_that_is_cut_off_stores_nothing(team: Team, node: NodeProcess) -> None:
    ada = team.machine()
    space = ada.create_space()
    whole = frames.encode(ENTRIES)
    _raw(node, _head(ada, space, f"Content-Length: {len(whole)}") + whole[:-1], cut=True)
    assert ada.heads(space) == {}


def test_a_body_of_unknown_length_is_refused(team: Team, node: NodeProcess) -> None:
    ada = team.machine()
    space = ada.create_space()
    answer = _raw(node, _head(ada, space, "Transfer-Encoding: chunked") + b"5\r\n\0\0\0\1a\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 411 ")


def test_requests_of_web_pages_are_refused(team: Team) -> None:
    assert team.machine().call("GET", "/spaces", headers={"Origin": "https://evil.example"}).status_code == 403


def test_unknown_routes_and_methods_are_json(team: Team) -> None:
    ada = team.machine()
    assert ada.call("GET", "/nothing").json()["error"] == "no_route"
    assert ada.call("PATCH", "/spaces").json()["error"] == "method"
