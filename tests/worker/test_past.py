"""What came from elsewhere and what is read back later are one past: nothing twice, and the better words stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from claude_mem.agents.canonical import parse_timestamp
from claude_mem.domain.text import local_time
from claude_mem.recall import documents
from claude_mem.worker.app import Service
from tests.support.moving import Home
from tests.support.olderdb import OlderDb
from tests.worker.test_backfill import Old

CLOCK = 1_700_000_000_000
PROMPTS = ("Add a voucher field to the basket", "Where are totals rounded, and why there?")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "data")


def older(tmp_path: Path, prompts: tuple[str, ...], *, observations: bool = True) -> Path:
    """Two turns of the session `old-1`, as the older system kept them; "" for a prompt that it did not keep."""
    db = OlderDb(tmp_path / "older" / "claude-mem.db", wal=False)
    db.session("old-1", project="shop", at=CLOCK)
    for number, prompt in enumerate(prompts):
        at = CLOCK + number * 300_000
        if prompt:
            db.add(
                "user_prompts", content_session_id="old-1", prompt_number=number + 1, prompt_text=prompt,
                created_at="", created_at_epoch=at,
            )  # fmt: skip
        common = {"memory_session_id": "m-old-1", "project": "shop", "prompt_number": number + 1, "created_at": ""}
        if observations:
            db.add("observations", **common, type="change", title=f"Older {number}", created_at_epoch=at + 60_000)
        db.add("session_summaries", **common, request="r", completed=f"Older {number}", created_at_epoch=at + 90_000)
    return db.close()


def transcript(tmp_path: Path, change: Callable[[str], str] = str) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir(exist_ok=True)
    found = Old(tmp_path / "old.jsonl", "old-1", folder)
    for number, prompt in enumerate(PROMPTS):
        found.clock = CLOCK / 1000 + number * 300
        found.prompt(change(prompt), f"p{number}")
        found.call(f"c{number}", "Write", prompt=f"p{number}", file_path=str(folder / f"voucher{number}.py"))
        found.say(("Vouchers are a module of their own now.", "Totals are rounded at the end, in one place.")[number])
    return found.path


def read_back(home: Home, path: Path) -> None:
    async def inside(service: Service) -> None:
        await service.backfill([path])
        await service.run_until_idle()

    home.work(inside)


def turns(home: Home) -> int:
    return int(home.rows("select count(*) from turns")[0][0])


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (PROMPTS, str),
        (PROMPTS, lambda prompt: f"{prompt}\n"),
        (("x " * 5_000, PROMPTS[1]), lambda prompt: "x " * 5_000 if "voucher" in prompt else prompt),
        (("", ""), str),
    ],
    ids=["the same", "white space", "long", "not kept"],
)
def test_imported_and_then_read_back_is_remembered_once(
    home: Home, tmp_path: Path, kept: tuple[str, ...], said: Callable[[str], str]
) -> None:
    home.bring(older(tmp_path, kept))
    read_back(home, transcript(tmp_path, said))
    assert turns(home) == 2
    assert home.rows("select title from observations order by id") == [("Older 0",), ("Older 1",)]


def test_an_imported_summary_stays_where_only_memories_are_made_anew(home: Home, tmp_path: Path) -> None:
    home.bring(older(tmp_path, PROMPTS, observations=False))
    read_back(home, transcript(tmp_path))
    assert home.rows("select completed from session_summaries order by id") == [("Older 0",), ("Older 1",)]
    assert home.rows("select count(*) from observations where provider = 'local'")[0][0] > 0


def test_what_a_model_has_made_is_not_replaced_by_a_draft(home: Home, tmp_path: Path) -> None:
    path = transcript(tmp_path)
    read_back(home, path)

    async def refined(service: Service) -> None:
        sql = "update observations set provider = 'anthropic', title = 'In better words', key = 'model:' || id"
        await service.db.write(lambda conn: conn.execute(sql))

    home.work(refined)
    with path.open("a") as file:
        more = Old(tmp_path / "more.jsonl", "old-1", tmp_path / "shop")
        more.clock = CLOCK / 1000 + 310
        more.call("late", "Write", prompt="p1", file_path=str(tmp_path / "shop" / "late.py"))
        file.write(more.path.read_text())
    read_back(home, path)
    assert {title for (title,) in home.rows("select title from observations")} == {"In better words"}


@pytest.mark.parametrize(
    "odd", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "3000-01-01", "1969-01-01", 7, None]
)
def test_a_time_that_is_none_of_ours_is_no_time(odd: object) -> None:
    assert parse_timestamp(odd) == 0


@pytest.mark.parametrize("odd", [-62_135_596_800_000, 253_402_300_799_999, 10**18, -1])
def test_a_row_may_say_any_time(odd: int) -> None:
    assert 1970 <= local_time(odd).year <= 2100
    assert documents.format_day(odd)
