"""Checks a request against the spending caps and books it, in one transaction.

So a cap is never exceeded by more than one request, even if a process is killed at any point.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from claude_mem.config import Config
from claude_mem.store import ledger
from claude_mem.store.database import Connection


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that would exceed a cap: the reason, for display, and when to try again."""

    reason: str
    until: int
    key: str  # of the notice, which is shown once a month, not every day


def reserve(conn: Connection, entry: ledger.Entry, config: Config, *, now: int) -> int | Refused:
    """Book the maximum cost of the request. Returns the id of the ledger entry, or the refusal."""
    today, month = day_start(now), month_start(now)
    tokens = ledger.spent(conn, since=ms(today)).tokens + entry.input_tokens + entry.output_tokens
    if tokens > config.daily_tokens:
        reason = f"another request would exceed today's {config.daily_tokens:,} tokens (`daily_tokens`)"
        return Refused(reason, ms(next_day(today)), f"daily:{month:%Y-%m}")
    cost = ledger.spent(conn, since=ms(month)).cost + entry.cost
    if entry.cost and cost > config.monthly_cost * 1_000_000:
        reason = f"another request would exceed this month's ${config.monthly_cost:g} (`monthly_cost`)"
        return Refused(reason, ms(next_month(month)), f"monthly:{month:%Y-%m}")
    return ledger.open_(conn, entry, now=now)


def day_start(now: int) -> datetime:
    """Return local midnight as a naive datetime: with daylight saving, its UTC offset may differ from the present
    one."""
    return datetime.fromtimestamp(now / 1000).replace(hour=0, minute=0, second=0, microsecond=0)


def month_start(now: int) -> datetime:
    return day_start(now).replace(day=1)


def next_day(day: datetime) -> datetime:
    return day + timedelta(days=1)


def next_month(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
