"""Tokens, codes, roles, revocation, manifests, and what the logs of a node tell."""

from __future__ import annotations

import json
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import httpx2
import psycopg
import pytest

from claude_mem.server import routes, tokens
from claude_mem.server.json_log import JsonFormatter
from claude_mem.storage.postgres import audit, people
from claude_mem.storage.postgres.engine import TeamTransaction
from tests.support import waiting
from tests.support.postgres import NodeProcess, Postgres, running_node
from tests.support.team import STRANGE, Machine, Team, enrol

NONE = {"If-None-Match": "*"}


# --- tokens ------------------------------------------------------------------------------------------------------------


def test_a_token_that_is_missing_forged_or_foreign_is_refused(team: Team, postgres: Postgres) -> None:
    ada = team.machine()
    eve = Team.create(team.url, postgres.dsn("operator"), "Rival").machine("eve")
    secret = ada.token.rpartition("_")[2]
    forged = [
        "x", STRANGE, ada.token[:-1], ada.token + "A", ada.token.upper(),
        ada.token[:-1] + ("A" if ada.token[-1] != "A" else "B"),
        f"cmt_{eve.org_id.hex}_{ada.device}_{secret}",
        f"cmt_{ada.org_id.hex}_{eve.device}_{secret}",
        f"cmt_{ada.org_id.hex}_{ada.device}_{eve.token.rpartition('_')[2]}",
    ]  # fmt: skip
    for token in forged:
        answer = Machine(team.url, ada.org_id, ada.member_id, ada.device, token).call("GET", "/spaces")
        assert answer.status_code == 401, token
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert httpx2.get(f"{team.url}/v1/spaces").status_code == 401
    assert httpx2.get(f"{team.url}/v1/spaces", headers={"Authorization": f"Basic {ada.token}"}).status_code == 401
    assert ada.call("GET", "/spaces").status_code == 200


def test_every_route_but_a_few_needs_a_token(team: Team) -> None:
    for method, template, _ in routes.AUTHENTICATED:
        path = template.format(space="0" * 32, device="0" * 16, member="0" * 32)
        assert httpx2.request(method, f"{team.url}{path}").status_code == 401, path


def test_the_database_has_no_token_and_no_code(team: Team, postgres: Postgres) -> None:
    ada = team.machine()
    code = team.code(ada.member_id)
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        rows = conn.execute(
            "select d::text from claude_mem.devices d union select c::text from claude_mem.enrolment_codes c"
        )
        text = "\n".join(row for (row,) in rows)
    assert ada.token.rpartition("_")[2] not in text
    assert code.rpartition("_")[2] not in text
    assert tokens.hash_secret(ada.token).hex() in text


def test_a_device_that_was_revoked_is_refused_on_every_node_at_once(team: Team, postgres: Postgres) -> None:
    member = team.add_member("ada")
    laptop, lost = team.enrol(member), team.enrol(member)
    space = laptop.create_space()
    with running_node(postgres.dsn("app")) as other:
        assert lost.call("GET", "/spaces", url=other.url).status_code == 200
        assert laptop.call("DELETE", f"/devices/{lost.device}").status_code == 204
        assert lost.call("GET", "/spaces", url=other.url).status_code == 401
        assert lost.append(space, 0, [b"x"]).status_code == 401
    assert laptop.call("DELETE", f"/devices/{lost.device}").status_code == 204
    assert enrol(team.url, team.code(member), lost.device).status_code == 409
    lines = [line.action for line in _audit(team)]
    assert lines.count("device.revoke") == 1


def test_a_device_revoked_while_it_writes_stops_writing(team: Team) -> None:
    member = team.add_member("ada")
    laptop, lost = team.enrol(member), team.enrol(member)
    space = laptop.create_space()
    written: list[int] = []
    begun = threading.Event()

    def write() -> None:
        while lost.append(space, len(written), [b"x"]).status_code == 204:
            written.append(1)
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        assert begun.wait(waiting.SECONDS)
        laptop.call("DELETE", f"/devices/{lost.device}")
        writer.result(waiting.SECONDS)
    assert laptop.heads(space)[lost.device] == len(written)


def test_a_member_who_leaves_is_refused_and_what_was_shared_stays(team: Team) -> None:
    ada, bob = team.machine("ada"), team.machine("bob")
    space = ada.create_space("team")
    ada.call("PUT", f"/spaces/{space}/members/{bob.member_id.hex}")
    bob.append(space, 0, [b"why"])
    code = team.code(bob.member_id)
    team.run(people.remove_member, bob.member_id)
    assert bob.call("GET", "/spaces").status_code == 401
    assert enrol(team.url, code).status_code == 404
    assert ada.read(space, bob.device) == [b"why"]
    assert team.enrol(team.add_member("bob")).call("GET", f"/spaces/{space}/heads").status_code == 404


def test_a_role_holds_from_the_next_request(team: Team) -> None:
    bob = team.machine("bob")
    space = bob.create_space("team")
    assert bob.append(space, 0, [b"1"]).status_code == 204
    team.run(people.set_role, bob.member_id, "reader")
    assert bob.append(space, 1, [b"2"]).status_code == 403
    team.run(people.set_role, bob.member_id, "writer")
    assert bob.append(space, 1, [b"2"]).status_code == 204


def test_only_maintainers_revoke_and_list_devices_of_others(team: Team) -> None:
    ada, bob, max_ = team.machine("ada"), team.machine("bob"), team.machine("max", "maintainer")
    assert bob.call("DELETE", f"/devices/{ada.device}").status_code == 404
    assert [each["device"] for each in bob.call("GET", "/devices").json()["devices"]] == [bob.device]
    assert len(max_.call("GET", "/devices").json()["devices"]) == 3
    assert max_.call("DELETE", f"/devices/{ada.device}").status_code == 204
    assert ada.call("GET", "/spaces").status_code == 401


# --- codes -------------------------------------------------------------------------------------------------------------


def test_a_code_enrols_one_device_once(team: Team) -> None:
    code = team.code(team.add_member("ada"))
    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(lambda _: enrol(team.url, code).status_code, range(6)))
    assert statuses == [201, 404, 404, 404, 404, 404]


def test_an_expired_or_forged_code_is_refused(team: Team) -> None:
    member = team.add_member("ada")
    forged = f"cme_{team.org_id.hex}_" + "A" * 22
    for code in (team.code(member, seconds=0), forged, "", "x" * 10_000, "cme_", STRANGE):
        assert enrol(team.url, code).status_code == 404


def test_a_device_of_another_member_cannot_be_taken_over(team: Team) -> None:
    ada = team.machine("ada")
    answer = enrol(team.url, team.code(team.add_member("eve")), ada.device)
    assert answer.status_code == 409
    assert ada.call("GET", "/spaces").status_code == 200


def test_a_device_enrols_again_with_a_new_token(team: Team) -> None:
    ada = team.machine("ada")
    code = ada.call("POST", "/codes").json()["code"]
    answer = enrol(team.url, code, ada.device)
    assert answer.status_code == 201
    assert ada.call("GET", "/spaces").status_code == 401
    ada.token = answer.json()["token"]
    assert ada.call("GET", "/spaces").status_code == 200


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", "null", '{"code": 1}', '{"code": "x"}', '{"code":"x","device":"' + "g" * 16 + '"}', "\x00" * 99],
)
def test_a_malformed_enrolment_is_refused(team: Team, body: str) -> None:
    answer = httpx2.post(f"{team.url}/v1/devices", content=body.encode())
    assert answer.status_code == 400, answer.text


# --- manifests ---------------------------------------------------------------------------------------------------------


def test_a_manifest_changes_only_from_what_was_read(team: Team) -> None:
    member = team.add_member("ada")
    laptop, desktop = team.enrol(member), team.enrol(member)
    path = f"/spaces/{laptop.create_space()}/manifest"
    assert laptop.call("GET", path).json()["error"] == "no_manifest"
    first = laptop.call("PUT", path, content=b"one", headers=NONE)
    assert first.status_code == 204
    assert desktop.call("PUT", path, content=b"other", headers=NONE).status_code == 412
    answer = desktop.call("GET", path)
    assert (answer.content, answer.headers["ETag"]) == (b"one", first.headers["ETag"])
    tag = {"If-Match": answer.headers["ETag"]}
    assert desktop.call("PUT", path, content=b"two", headers=tag).status_code == 204
    assert laptop.call("PUT", path, content=b"three", headers=tag).status_code == 412
    # The same again, as after a lost answer.
    assert desktop.call("PUT", path, content=b"two", headers=tag).status_code == 204
    assert laptop.call("GET", path).content == b"two"


def test_writers_of_a_manifest_that_race_lose_no_change(team: Team) -> None:
    ada = team.machine()
    path = f"/spaces/{ada.create_space()}/manifest"
    ada.call("PUT", path, content=b"[]", headers=NONE)

    def add(number: int) -> None:
        while True:
            answer = ada.call("GET", path)
            body = json.dumps([*answer.json(), number]).encode()
            if ada.call("PUT", path, content=body, headers={"If-Match": answer.headers["ETag"]}).status_code == 204:
                return

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(add, range(20)))
    assert sorted(ada.call("GET", path).json()) == list(range(20))


@pytest.mark.parametrize("headers", [{}, {"If-None-Match": "x"}, {"If-Match": "x", "If-None-Match": "*"}])
def test_a_manifest_without_a_condition_is_refused(team: Team, headers: dict[str, str]) -> None:
    ada = team.machine()
    path = f"/spaces/{ada.create_space()}/manifest"
    assert ada.call("PUT", path, content=b"x", headers=headers).status_code == 428


def test_an_oversized_manifest_is_refused(team: Team) -> None:
    ada = team.machine()
    path = f"/spaces/{ada.create_space()}/manifest"
    assert ada.call("PUT", path, content=b"x" * ((1 << 20) + 1), headers=NONE).status_code == 413
    assert ada.call("PUT", path, content=b"", headers=NONE).status_code == 400


# --- spaces, fairness, logs --------------------------------------------------------------------------------------------


def test_creating_a_space_again_changes_nothing_and_a_foreign_one_is_taken(team: Team) -> None:
    ada, bob = team.machine("ada"), team.machine("bob")
    space = ada.create_space()
    body = {"space": space, "kind": "personal"}
    assert ada.call("POST", "/spaces", json=body).status_code == 200
    assert ada.call("POST", "/spaces", json={**body, "kind": "team"}).status_code == 409
    assert bob.call("POST", "/spaces", json=body).status_code == 409
    assert ada.call("POST", "/spaces", json={"space": "x", "kind": "team"}).status_code == 400
    assert ada.call("GET", "/spaces").json()["spaces"] == [{"space": space, "kind": "personal", "is_owner": True}]
    assert ada.call("PUT", f"/spaces/{space}/members/{bob.member_id.hex}").status_code == 403


def test_an_organisation_that_asks_too_much_does_not_keep_another_waiting(postgres: Postgres, team: Team) -> None:
    """The noisy organisation's only turn is taken by a request that waits for a lock; another one is answered."""
    noisy = team.machine("noisy")
    quiet = Team.create(team.url, postgres.dsn("operator"), "Quiet").machine("quiet")
    space = noisy.create_space()
    noisy.append(space, 0, [b"1"])
    with (
        running_node(
            postgres.dsn("app"),
            CLAUDE_MEM_SERVER_REQUESTS_PER_ORGANISATION="1",
            CLAUDE_MEM_SERVER_WAITING_PER_ORGANISATION="1",
        ) as node,
        ThreadPoolExecutor(2) as pool,
    ):
        with psycopg.connect(postgres.dsn("postgres")) as blocker:
            blocker.execute("select * from claude_mem.log_heads where device = %s for update", (noisy.device,))
            waiting_ones = [pool.submit(_append_when_allowed, noisy, space, node) for _ in range(2)]
            refused = waiting.wait_for(lambda: _refused(noisy, node))
            assert refused.headers["Retry-After"]
            assert quiet.call("GET", "/spaces", url=node.url).status_code == 200
        assert [each.result() for each in waiting_ones] == [204, 204]
        assert noisy.call("GET", "/spaces", url=node.url).status_code == 200
        assert 'refused_total{reason="organisation"}' in httpx2.get(f"{node.url}/metrics").text


def _append_when_allowed(machine: Machine, space: str, node: NodeProcess) -> int:
    """The status of an append that is repeated while it is refused: a probe of `_refused` may have its place."""

    def appended() -> int:
        status = machine.append(space, 1, [b"2"], url=node.url).status_code
        return 0 if status == 429 else status

    return waiting.wait_for(appended)


def _refused(machine: Machine, node: NodeProcess) -> httpx2.Response | None:
    """The answer of a request if it is refused at once, or None if it would wait."""
    try:
        answer = machine.call("GET", "/spaces", url=node.url, timeout=2)
    except httpx2.HTTPError:
        return None
    return answer if answer.status_code == 429 else None


def test_the_logs_and_metrics_of_a_node_contain_no_body_and_no_token(postgres: Postgres, team: Team) -> None:
    canary = b"canary-body-0123456789"
    with running_node(postgres.dsn("app")) as node:
        ada = Team(node.url, team.operator, team.org_id).machine("ada")
        space = ada.create_space()
        ada.append(space, 0, [canary])
        ada.append(space, 9, [canary])
        ada.call("PUT", f"/spaces/{space}/manifest", content=canary, headers=NONE)
        enrol(node.url, "canary-body-0123456789")
        ada.call("POST", "/spaces", content=canary)
        metrics = httpx2.get(f"{node.url}/metrics").text
        node.stop()
        log = json.dumps(node.log)
    assert canary.decode() not in log + metrics
    assert ada.token.rpartition("_")[2] not in log + metrics
    assert ada.device in log
    assert ada.device not in metrics
    assert team.org_id.hex not in metrics
    assert "claude_mem_entries_appended_total 1" in metrics
    assert all(line["message"] != "not JSON" for line in node.log)


def test_the_message_of_an_error_is_not_logged() -> None:
    """PostgreSQL quotes the row that it refuses."""
    try:
        raise ValueError("Failing row contains (canary)")
    except ValueError:
        record = logging.LogRecord("node", logging.ERROR, "", 0, "request failed", (), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["error"]) == ("request failed", "ValueError")
    assert "test_the_message" in line["trace"][-1]
    assert "canary" not in str(line)


def test_metrics_can_need_a_token(postgres: Postgres) -> None:
    with running_node(postgres.dsn("app"), CLAUDE_MEM_SERVER_METRICS_TOKEN="s3cret") as node:
        assert httpx2.get(f"{node.url}/metrics").status_code == 401
        answer = httpx2.get(f"{node.url}/metrics", headers={"Authorization": "Bearer s3cret"})
        assert "claude_mem_pool_size" in answer.text


def _audit(team: Team) -> list[audit.AuditLine]:
    async def read(tx: TeamTransaction) -> list[audit.AuditLine]:
        return [line async for line in audit.lines(tx)]

    return team.run(read)


def test_ids_in_paths_are_checked(team: Team) -> None:
    ada = team.machine()
    for space in ("x", "0" * 31, "G" * 32, str(UUID(int=5))):
        assert ada.call("GET", f"/spaces/{space}/heads").status_code == 404
