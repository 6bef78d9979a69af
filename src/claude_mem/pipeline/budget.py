"""May this request be sent? Asked and booked in one transaction, so that no cap is overrun by more than one request,
whoever is killed when.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from claude_mem.config import Config
from claude_mem.store import ledger
from claude_mem.store.database import Connection


@dataclass(frozen=True, slots=True)
class Refused:
    """Over a cap: why, for people, and when it is worth asking again."""

    why: str
    until: int
    key: str  # it is told once a month, not each day


def reserve(conn: Connection, entry: ledger.Entry, config: Config, *, now: int) -> int | Refused:
    """Book the most the request may cost. The number of the booking, or why there is none."""
    today, month = day_start(now), month_start(now)
    tokens = ledger.spent(conn, since=ms(today)).tokens + entry.input_tokens + entry.output_tokens
    if tokens > config.daily_tokens:
        why = f"another request would exceed today's {config.daily_tokens:,} tokens (`daily_tokens`)"
        return Refused(why, ms(next_day(today)), f"daily:{month:%Y-%m}")
    cost = ledger.spent(conn, since=ms(month)).cost + entry.cost
    if entry.cost and cost > config.monthly_cost * 1_000_000:
        why = f"another request would exceed this month's ${config.monthly_cost:g} (`monthly_cost`)"
        return Refused(why, ms(next_month(month)), f"monthly:{month:%Y-%m}")
    return ledger.open_(conn, entry, now=now)


def day_start(now: int) -> datetime:
    """By the clock on the wall, which has no zone: where clocks are changed, midnight may have another offset."""
    return datetime.fromtimestamp(now / 1000).replace(hour=0, minute=0, second=0, microsecond=0)


def month_start(now: int) -> datetime:
    return day_start(now).replace(day=1)


def next_day(day: datetime) -> datetime:
    return day + timedelta(days=1)


def next_month(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
