"""The two ids of a session, in the seven groups that its design asks for.

`content_session_id` is the host's, `memory_session_id` the compressor's own. Rows hang on neither: on the immutable number.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.digest.models.base import Reply, Request, SessionCallback, Usage, Verdict
from claude_mem.digest.models.fake import FakeModel
from claude_mem.domain import ids
from claude_mem.storage.sqlite.memory import sessions
from tests.agents.client.model_server import ModelServer, Text
from tests.models.test_claude import BINARY, NO_CLIENT, NO_SDK
from tests.support.refining import GOOD, Place, place

Story = Callable[[Place], Coroutine[Any, Any, None]]


ANSWER = Reply(verdict=Verdict.OK, text=GOOD, usage=Usage(input_tokens=500, output_tokens=100))


class Sdk(FakeModel):
    """Like the Agent SDK: each question that resumes nothing opens a session, and tells its id at once."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies or (ANSWER,), provider="claude")
        self.opened = 0

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
        self.opened += not resume
        self.session = resume or f"sdk-{self.opened}"
        return await super().ask(request, resume=resume, on_session=on_session)


def run(folder: Path, story: Story, *models: Any, resume: bool = True) -> None:
    async def main() -> None:
        async with place(folder, *models, settings={"claude_resume": str(resume).lower()}) as here:
            await story(here)

    asyncio.run(main())


async def memory(here: Place, session: str = "s1") -> str | None:
    (row,) = await here.rows("select memory_session_id from sdk_sessions where content_session_id = ?", session)
    found: str | None = row["memory_session_id"]
    return found


async def turn(here: Place, session: str = "s1", **more: str) -> None:
    here.turn(session, **more)
    await here.digest()
    await here.refine()


# --- 1. detection by NULL --------------------------------------------------------------------------------------------


def test_1_until_a_model_has_told_its_session_there_is_none(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        assert await memory(here) is None
        assert await here.db.read(sessions.find_memory_session, 1) is None
        assert (await here.observations())[0]["memory_session_id"] is None, "a draft has no such author"
        await here.refine()
        assert await memory(here) == "sdk-1"

    run(tmp_path, story, Sdk())


def test_1_a_failure_before_the_session_was_told_captures_nothing(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        await turn(here)
        assert await memory(here) is None
        assert await here.rows("select * from memory_sessions") == []

    run(tmp_path, story, FakeModel(Reply(verdict=Verdict.AUTH), provider="claude"))


# --- 2. storage under real ids ---------------------------------------------------------------------------------------


def test_2_what_a_model_wrote_names_the_session_it_was_written_in(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        await turn(here)
        rows = await here.rows(
            "select o.memory_session_id as o, y.memory_session_id as y, m.session_id from observations o"
            " join session_summaries y using (turn_id) join memory_sessions m on m.id = o.memory_session_id"
        )
        assert rows == [{"o": "sdk-1", "y": "sdk-1", "session_id": 1}]
        assert (await here.ledger())[0]["memory_session_id"] == "sdk-1"

    run(tmp_path, story, Sdk())


def test_2_the_id_is_stored_before_the_answer_is_there(tmp_path: Path) -> None:
    seen: list[str | None] = []

    class Dying(Sdk):
        async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
            await on_session("sdk-early")
            seen.append(await memory(here))
            raise RuntimeError("the child was killed")

    here: Place

    async def story(place: Place) -> None:
        nonlocal here
        here = place
        here.turn()
        await here.digest()
        await here.hurry()
        await here.service.refine_runner.step()
        assert seen == ["sdk-early"]
        assert await memory(here) == "sdk-early"

    run(tmp_path, story, Dying())


# --- 3. resume safety ------------------------------------------------------------------------------------------------


def test_3_the_hosts_id_is_never_resumed(tmp_path: Path) -> None:
    model = Sdk()

    async def story(here: Place) -> None:
        for _ in range(4):
            await turn(here)
        assert "s1" not in model.resumed
        assert set(model.resumed) == {"", "sdk-1"}

    run(tmp_path, story, model)


def test_3_the_first_prompt_starts_anew(tmp_path: Path) -> None:
    model = Sdk()

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        capture: dict[str, Any] = {"provider": "claude", "runtime": here.service.refiner.runtime, "now": ids.now_ms()}
        await here.db.write(sessions.record_memory_session, 1, "sdk-from-somewhere", **capture)
        await here.refine()
        assert model.resumed == [""]

    run(tmp_path, story, model)


def test_3_another_life_of_the_worker_starts_anew(tmp_path: Path) -> None:
    model = Sdk()

    async def first(here: Place) -> None:
        await turn(here)

    async def second(here: Place) -> None:
        await turn(here)
        assert model.resumed == ["", ""]
        assert await memory(here) == "sdk-2"

    run(tmp_path, first, model)
    run(tmp_path, second, model)


def test_3_after_a_failure_that_the_conversation_may_have_caused_it_starts_anew(tmp_path: Path) -> None:
    model = Sdk(ANSWER, Reply(verdict=Verdict.TOO_LONG), ANSWER)

    async def story(here: Place) -> None:
        await turn(here)
        await turn(here)
        assert model.resumed == ["", "sdk-1", ""]
        await turn(here)
        assert model.resumed[-1] == "sdk-2", "and goes on with the new one"

    run(tmp_path, story, model)


def test_3_a_session_that_the_client_no_longer_knows_starts_anew(tmp_path: Path) -> None:
    gone = Reply(verdict=Verdict.PERMANENT, message="resume: No conversation found")
    model = Sdk(ANSWER, gone, ANSWER)

    async def story(here: Place) -> None:
        await turn(here)
        await turn(here)
        assert model.resumed == ["", "sdk-1", ""], "the same turn, once more"

    run(tmp_path, story, model)


def test_3_a_conversation_too_long_for_the_cap_is_not_read_again(tmp_path: Path) -> None:
    model = Sdk()

    async def story(here: Place) -> None:
        await turn(here)
        await here.db.write(lambda conn: conn.execute("update ledger set input_tokens = 5000"))
        await turn(here)
        assert model.resumed == ["", ""]

    run(tmp_path, story, model)


def test_3_by_default_nothing_is_resumed(tmp_path: Path) -> None:
    model = Sdk()

    async def story(here: Place) -> None:
        for _ in range(3):
            await turn(here)
        assert model.resumed == ["", "", ""]

    run(tmp_path, story, model, resume=False)


# --- 4. no cross-contamination ---------------------------------------------------------------------------------------


def test_4_each_session_goes_on_with_its_own(tmp_path: Path) -> None:
    model = Sdk()

    async def story(here: Place) -> None:
        for session in ("s1", "s2", "s1", "s2"):
            await turn(here, session)
        assert model.resumed == ["", "", "sdk-1", "sdk-2"]
        found = {(row["content_session_id"], row["memory_session_id"]) for row in await here.observations()}
        assert found == {("s1", "sdk-1"), ("s2", "sdk-2")}

    run(tmp_path, story, model)


def test_4_an_id_that_belongs_to_a_session_can_not_be_taken_by_another(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        await turn(here, "s1")
        await turn(here, "s2")
        capture: dict[str, Any] = {"provider": "claude", "runtime": "x", "now": ids.now_ms()}
        await here.db.write(sessions.record_memory_session, 2, "sdk-1", **capture)
        assert (await memory(here, "s1"), await memory(here, "s2")) == ("sdk-1", "sdk-2")

    run(tmp_path, story, Sdk())


# --- 5. referential integrity and cascade ----------------------------------------------------------------------------


def test_5_a_new_memory_session_moves_no_row(tmp_path: Path) -> None:
    """The old system keyed its rows by this id: a restart re-parented history."""

    async def story(here: Place) -> None:
        await turn(here, prompt="One")
        await turn(here, prompt="Two")
        rows = await here.rows("select session_id, prompt_number, memory_session_id from observations order by id")
        assert [tuple(row.values()) for row in rows] == [(1, 1, "sdk-1"), (1, 2, "sdk-2")]

    run(tmp_path, story, Sdk(), resume=False)


def test_5_a_session_that_goes_takes_everything_with_it_but_the_ledger(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        await turn(here, "s1")
        await turn(here, "s2")
        await here.db.write(lambda conn: conn.execute("delete from sdk_sessions where content_session_id = 's1'"))
        for table in ("observations", "session_summaries", "memory_sessions", "turns", "events"):
            (row,) = await here.rows(f"select count(*) as n, min(session_id) as first from {table}")
            assert row["n"] > 0
            assert row["first"] == 2, table
        assert [row["session_id"] for row in await here.ledger()] == [None, 2], "what was spent stays spent"
        assert await here.rows("pragma foreign_key_check") == []

    run(tmp_path, story, Sdk())


def test_5_a_memory_session_of_no_session_is_refused(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        with pytest.raises(apsw.ConstraintError):
            await here.db.write(sessions.record_memory_session, 99, "sdk-x", provider="claude", runtime="x", now=0)

    run(tmp_path, story, Sdk())


# --- 6. lifecycle: create, capture, resume ---------------------------------------------------------------------------


def test_6_from_the_first_prompt_to_the_third(tmp_path: Path) -> None:
    model = Sdk()

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        assert await memory(here) is None
        await here.refine()
        assert await memory(here) == "sdk-1"
        await turn(here)
        await turn(here)
        assert model.resumed == ["", "sdk-1", "sdk-1"]
        assert await memory(here) == "sdk-1"

    run(tmp_path, story, model)


@pytest.mark.client
def test_6_the_same_with_the_real_sdk_and_its_real_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if NO_SDK or NO_CLIENT:
        pytest.skip(NO_SDK or NO_CLIENT)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with ModelServer() as server:
        server.play("Now write down", [Text(GOOD)])
        (tmp_path / "claude.env").write_text(f"ANTHROPIC_BASE_URL={server.url}\nANTHROPIC_API_KEY=dummy\n")
        settings = {
            "provider": "claude",
            "claude_path": str(BINARY),
            "claude_env_file": str(tmp_path / "claude.env"),
            "claude_resume": "true",
        }

        async def main() -> None:
            async with place(tmp_path, chain=False, settings=settings) as here:
                await turn(here, prompt="One")
                first = await memory(here)
                assert first
                assert first != "s1"
                await turn(here, prompt="Two")
                assert await memory(here) == first
                rows = [row["memory_session_id"] for row in await here.observations()]
                assert rows == [first, first]
                assert [row["verdict"] for row in await here.ledger()] == ["ok", "ok"]
                assert [row["provider"] for row in await here.observations()] == ["claude", "claude"]

        asyncio.run(main())
        one, two = server.requests
        assert one.session == two.session, "it went on"
        assert two.text.count("Now write down") == 2, "with what was said before"
        assert list((tmp_path / "home").rglob("*.jsonl")) == [], "its transcripts are gone with the worker"


# --- 7. edge cases ---------------------------------------------------------------------------------------------------


def test_7_the_same_id_told_twice_is_one(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        await turn(here)
        again: dict[str, Any] = {"provider": "claude", "runtime": "x", "now": ids.now_ms()}
        await here.db.write(sessions.record_memory_session, 1, "sdk-1", **again)
        assert len(await here.rows("select * from memory_sessions")) == 1

    run(tmp_path, story, Sdk())


@pytest.mark.parametrize("odd", ["s1", "x" * 4000, "a'; drop table events; --", "\u202e\n"])
def test_7_an_odd_id_is_only_a_name(tmp_path: Path, odd: str) -> None:
    model = FakeModel(GOOD, provider="claude", session=odd)

    async def story(here: Place) -> None:
        await turn(here)
        assert await memory(here) == odd
        assert json.loads(json.dumps(await here.observations()))[0]["memory_session_id"] == odd

    run(tmp_path, story, model)


def test_7_two_providers_in_one_session_keep_their_own(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        await turn(here, prompt="One")
        here.service.chain.fixed_models = [FakeModel(GOOD, provider="openai")]
        await turn(here, prompt="Two")
        third = Sdk()
        third.opened = 1
        here.service.chain.fixed_models = [third]
        await turn(here, prompt="Three")
        assert third.resumed == [""], "what another provider said is not a session to resume"
        rows = await here.rows("select provider from memory_sessions order by created_at, id")
        assert sorted(row["provider"] for row in rows) == ["claude", "claude", "openai"]

    run(tmp_path, story, Sdk())
