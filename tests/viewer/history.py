"""Two weeks of work in two small projects by three agents, told to a real worker in each agent's own words."""

from __future__ import annotations

import time
from typing import Any

from claude_mem.client import Client
from demo import story
from demo.story import Changed, Ran, Session, Turn
from tests.support.lab import Lab
from tests.support.waiting import wait_for

SESSIONS = (
    Session("totals", "shop", "claude", 13, (
        Turn("An empty basket crashes, please fix it", (
            Ran("pytest -q", "E   KeyError: 'total'\n1 failed, 3 passed", failed=True),
            Changed("shop/basket.py", "def total(items):\n    return items['total']\n",
                    "def total(items):\n    return sum(item.price for item in items)\n"),
            Ran("pytest -q", "4 passed"),
        ), "Fixed: `total` read a key that an empty basket does not have. It now adds up the prices."),
        Turn("Good. Commit it", (
            Ran("git commit -qam 'Add up the prices of a basket'", "[main 4f1c2ab] Add up the prices of a basket"),
        ), "Committed as 4f1c2ab. Next: the same for discounts."),
    )),
    Session("tax", "shop", "codex", 6, (
        Turn("Prices are shown without tax. Why?", (
            Ran("rg -n tax shop", "shop/price.py:12: TAX = 0"),
            Changed("shop/price.py", "TAX = 0\n", "TAX = 0.19\n"),
            Ran("pytest -q", "9 passed"),
        ), "The rate was 0, a leftover from the first version. It is 19 % now, because all our customers are in one country."),
    )),
    Session("tiles", "atlas", "gemini", 5, (
        Turn("Maps load slowly, find out why", (
            Ran("python bench/tiles.py", "tile 0/0/0 took 812 ms"),
            Changed("atlas/tiles.py", "def tile(z, x, y):\n    return draw(z, x, y)\n",
                    "@lru_cache(maxsize=4096)\ndef tile(z, x, y):\n    return draw(z, x, y)\n"),
            Ran("python bench/tiles.py", "tile 0/0/0 took 3 ms"),
        ), "Every tile was drawn again for each request. They are kept now: 812 ms became 3 ms."),
        Turn("Commit", (Ran("git commit -qam 'Keep drawn tiles'", "[main 9d0e7c1] Keep drawn tiles"),), "Done: 9d0e7c1."),
    )),
    Session("border", "atlas", "claude", 2, (
        Turn("The border of Chile is drawn twice", (
            Ran("pytest tests/test_borders.py -q", "E   AssertionError: 2 != 1\n1 failed", failed=True),
            Changed("atlas/borders.py", "lines = outer + inner\n", "lines = list(dict.fromkeys(outer + inner))\n"),
            Ran("pytest tests/test_borders.py -q", "11 passed"),
            Ran("git commit -qam 'Draw each border once'", "[main 77ab310] Draw each border once"),
        ), "Shared borders came from both countries. We decided to keep the first and drop the rest."),
    )),
    Session("checkout", "shop", "claude", 1, (
        Turn("Add a field for a voucher at the checkout", (
            Changed("shop/checkout.py", "fields = [name, street]\n", "fields = [name, street, voucher]\n"),
            Changed("tests/test_checkout.py", "", "def test_a_voucher_lowers_the_price():\n    assert True\n"),
            Ran("pytest -q", "10 passed"),
        ), "There is a voucher field now. Still open: vouchers that have expired."),
        Turn("And let it refuse vouchers that have expired", (
            Ran("pytest -q", "E   TypeError: can't compare offset-naive and offset-aware datetimes", failed=True),
            Changed("shop/voucher.py", "return until > datetime.now()\n", "return until > datetime.now(UTC)\n"),
            Ran("pytest -q", "12 passed"),
        ), "Expired vouchers are refused; times are compared in UTC everywhere."),
    )),
    Session("labels", "atlas", "codex", 0.02, (
        Turn("City names overlap at zoom 4", (
            Changed("atlas/labels.py", "GAP = 0\n", "GAP = 6\n"),
            Ran("pytest -q", "31 passed"),
        ), "Labels keep six pixels from each other."),
        Turn("Now the same for rivers", (Ran("rg -n river atlas", "atlas/rivers.py:3: def river(line):"),)),
    )),
)  # fmt: skip


def tell(lab: Lab) -> Client:
    """A running worker that knows it all, with one memory a person wrote and the newest three pinned."""
    for session in SESSIONS:
        _spool(lab, session)
    lab.raw_spool(b"no header here")  # one to be set aside
    client = lab.start()
    settled(client)
    client.post(
        "/api/memory/save", {"text": "Deploy on Tuesdays only: the bank is closed on Mondays.", "project": "shop"}
    )
    for rule in ("We use npm here.", "Always use pnpm instead of npm."):
        client.post("/api/memory/save", {"text": rule, "type": "rule", "project": "atlas"})
    for item in client.get("/api/observations", limit=3)["items"]:
        client.post(f"/api/observation/{item['id']}/pin")
    return client


def settled(client: Client) -> dict[str, Any]:
    """Wait until nothing waits any more."""

    def idle() -> dict[str, Any]:
        found: dict[str, Any] = client.get("/api/health")
        return found if found["captured"] and not found["queued"] else {}

    return wait_for(idle, lambda: f"still queued: {client.get('/api/health')}")


def _spool(lab: Lab, session: Session) -> None:
    root = lab.folder / session.project
    (root / ".git").mkdir(parents=True, exist_ok=True)
    for at, record in story.records(session, root, now=int(time.time() * 1000)):
        lab.raw_spool(record, at=at)
