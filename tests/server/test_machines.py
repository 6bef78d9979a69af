"""Two machines with real workers and the real server between them: what one remembered, the other finds, and PostgreSQL
learns nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from claude_mem.storage.postgres import export
from claude_mem.sync.keys import phrase_of
from tests.support.lab import Lab
from tests.support.machines import SECRET_WORD, found, machine, mem, save, status, sync
from tests.support.postgres import NodeProcess, Postgres, running_node
from tests.support.team import Team


@dataclass
class Place:
    """A node that tests may stop, with a member who has the machines."""

    team: Team
    member: UUID
    node: NodeProcess
    postgres: Postgres

    def code(self) -> str:
        return self.team.code(self.member)

    def codes_used(self) -> int:
        with psycopg.connect(self.postgres.dsn("postgres")) as conn:
            row = conn.execute(
                "select count(*) from claude_mem.enrolment_codes where org_id = %s and used_at is not null",
                (self.team.org_id,),
            ).fetchone()
        assert row
        return int(row[0])

    def create(self, lab: Lab) -> tuple[str, str]:
        """Create the space and return the address to join and its phrase."""
        arguments = ("space", "create", "mine", "--at", self.node.url, "--machine", "laptop", "--json")
        made = json.loads(mem(lab, *arguments, stdin=f"{self.code()}\n").stdout)
        sync(lab)
        return f"{self.node.url}#{made['id']}", made["phrase"]


@pytest.fixture
def place(postgres: Postgres) -> Iterator[Place]:
    with running_node(postgres.dsn("app")) as node:
        team = Team.create(node.url, postgres.dsn("operator"))
        yield Place(team, team.add_member("ada"), node, postgres)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Lab]:
    with closing(machine(tmp_path, "laptop")) as lab:
        lab.start()
        yield lab


@pytest.fixture
def desktop(tmp_path: Path) -> Iterator[Lab]:
    with closing(machine(tmp_path, "desktop")) as lab:
        lab.start()
        yield lab


def join(lab: Lab, address: str, *lines: str, ok: bool = True, name: str = "desktop") -> str:
    done = mem(lab, "space", "join", address, "--machine", name, stdin="".join(f"{line}\n" for line in lines), ok=ok)
    assert ok or done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_two_machines_share_a_memory_and_the_database_has_none_of_its_words(
    laptop: Lab, desktop: Lab, place: Place
) -> None:
    save(laptop, f"Deploys need the {SECRET_WORD}", f"Without the {SECRET_WORD} the deploy fails.")
    address, phrase = place.create(laptop)
    join(desktop, address, place.code(), phrase)
    assert found(desktop, SECRET_WORD) == [f"Deploys need the {SECRET_WORD}"]

    place.node.stop()
    save(desktop, f"The {SECRET_WORD} is in the drawer", "It was put there.")
    assert "does not answer" in desktop.mem("space", "sync", ok=False).stderr
    assert status(desktop)["problems"] == []
    place.node.start()
    sync(desktop)
    seen = sync(laptop)
    assert len(found(laptop, SECRET_WORD)) == 2
    assert [each["here"] for each in seen["machines"]] == [each["there"] for each in seen["machines"]]

    with psycopg.connect(place.postgres.dsn("postgres"), autocommit=True) as conn:
        conn.execute("checkpoint")  # tables and write-ahead log are then in their files
    files = [path for path in place.postgres.data.rglob("*") if path.is_file()]
    stored = b"".join(path.read_bytes() for path in files)
    assert seen["device"].encode() in stored  # the search finds what is there
    for word in (SECRET_WORD, "deploy fails", "in the drawer", "shop.git", phrase):
        assert (word, word.encode() in stored) == (word, False)


def test_a_mistyped_phrase_does_not_spend_the_code(laptop: Lab, desktop: Lab, place: Place) -> None:
    save(laptop, f"About {SECRET_WORD}", "One.")
    address, phrase = place.create(laptop)
    code, words = place.code(), phrase.split()
    swapped = " ".join([*words[:-1], "zoo" if words[-1] != "zoo" else "zone"])
    assert "checksum" in join(desktop, address, code, swapped, ok=False)
    assert place.codes_used() == 1
    # A phrase of another space is only found out with the manifest, for which the code is needed.
    text = join(desktop, address, code, phrase_of(b"another space's key is this one."), ok=False)
    assert "the machine 'laptop' has the right one" in text
    assert place.codes_used() == 2
    join(desktop, address, phrase)  # no code is asked for
    assert found(desktop, SECRET_WORD) == [f"About {SECRET_WORD}"]
    assert sorted(path.suffix for path in (desktop.data / "spaces").iterdir() if path.is_file()) == [".key"]
    assert place.codes_used() == 2


def test_a_wrong_code_and_a_used_one_are_refused_with_the_reason(laptop: Lab, desktop: Lab, place: Place) -> None:
    used = place.code()
    done = mem(laptop, "space", "create", "mine", "--at", place.node.url, "--json", stdin=f"{used}\n")
    made = json.loads(done.stdout)
    for code in (used, "no-code"):
        text = join(desktop, f"{place.node.url}#{made['id']}", code, made["phrase"], ok=False)
        assert "the code is unknown, expired or used" in text
        assert "ask for a new code" in text
    assert list((desktop.data / "spaces").glob("*.key")) == []


def test_a_revoked_machine_is_refused(laptop: Lab, desktop: Lab, place: Place) -> None:
    address, phrase = place.create(laptop)
    join(desktop, address, place.code(), phrase)
    lost = next(each["device"] for each in sync(laptop)["machines"] if not each["own"])
    laptop.mem("space", "revoke", lost, "--yes")
    save(laptop, f"After the loss: {SECRET_WORD}", "It stays with the others.")
    sync(laptop)
    seen = sync(desktop, ok=False)
    assert [each["code"] for each in seen["problems"]] == ["Revoked"]
    assert found(desktop, SECRET_WORD) == []
    with psycopg.connect(place.postgres.dsn("postgres")) as conn:
        row = conn.execute(
            "select revoked_at is not null from claude_mem.devices where device = %s", (lost,)
        ).fetchone()
    assert row == (True,)


def test_a_machine_that_continues_under_a_new_id_gets_a_token_for_it(
    laptop: Lab, desktop: Lab, place: Place, tmp_path: Path
) -> None:
    address, phrase = place.create(laptop)
    join(desktop, address, place.code(), phrase)
    laptop.close()
    old = (laptop.data / "claude-mem.db").read_bytes()
    laptop.start()
    save(laptop, f"Lost with the database: {SECRET_WORD}", "One.")
    device = sync(laptop)["device"]
    laptop.close()
    for path in laptop.data.glob("claude-mem.db*"):
        path.unlink()
    (laptop.data / "claude-mem.db").write_bytes(old)
    laptop.start()
    save(laptop, f"Written after the restore: {SECRET_WORD}", "Two.")
    seen = sync(laptop)
    assert seen["device"] != device
    assert [note["code"] for note in seen["notes"]] == ["TwoWriters"]
    sync(desktop)
    for lab in (laptop, desktop):
        assert len(found(lab, SECRET_WORD)) == 2
    assert sync(laptop)["problems"] == []


def test_entries_that_were_erased_with_their_member_do_not_stop_the_others(
    laptop: Lab, desktop: Lab, place: Place, tmp_path: Path
) -> None:
    save(laptop, f"From the laptop: {SECRET_WORD}", "One.")
    address, phrase = place.create(laptop)
    bob = place.team.add_member("bob")
    _open_to(place, address.partition("#")[2], bob)
    join(desktop, address, place.team.code(bob), phrase)
    save(desktop, f"From the desktop: {SECRET_WORD}", "Two.")
    sync(desktop)
    place.team.run(export.erase_member, bob)
    save(laptop, f"Later: {SECRET_WORD}", "Three.")
    seen = sync(laptop)
    assert [note["code"] for note in seen["notes"]] == ["Erased"]
    with closing(machine(tmp_path, "tablet")) as tablet:
        tablet.start()
        join(tablet, address, place.code(), phrase, name="tablet")
        assert sorted(found(tablet, SECRET_WORD)) == [f"From the laptop: {SECRET_WORD}", f"Later: {SECRET_WORD}"]
        assert status(tablet)["problems"] == []


def _open_to(place: Place, space: str, member: UUID) -> None:
    """Make the space one of a team, as clients can't yet, and admit a member."""
    with psycopg.connect(place.postgres.dsn("postgres")) as conn:
        conn.execute("update claude_mem.spaces set kind = 'team' where space_id = %s", (UUID(space),))
        conn.execute(
            "insert into claude_mem.space_members values (%s, %s, %s)", (place.team.org_id, UUID(space), member)
        )
