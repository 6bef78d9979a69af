"""Counters of a node in Prometheus' text format. No label names an organisation, a person or a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Key = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """What this process has counted since it started."""

    def __init__(self) -> None:
        self.counts: Counter[Key] = Counter()
        self.seconds: dict[str, list[int]] = {}
        self.sums: Counter[str] = Counter()

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        self.counts[name, tuple(sorted(labels.items()))] += amount

    def observe(self, route: str, seconds: float) -> None:
        """Record how long a request took."""
        buckets = self.seconds.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[next((at for at, limit in enumerate(BUCKETS) if seconds <= limit), len(BUCKETS))] += 1
        self.sums[route] += seconds  # type: ignore[assignment]

    def render(self, pool: Mapping[str, int]) -> str:
        """Return all metrics as text."""
        return "\n".join([*self._counters(), *self._histogram(), *_gauges(pool)]) + "\n"

    def _counters(self) -> Iterator[str]:
        typed = set()
        for (name, labels), amount in sorted(self.counts.items()):
            if name not in typed:
                yield f"# TYPE claude_mem_{name}_total counter"
                typed.add(name)
            yield f"claude_mem_{name}_total{_labels(dict(labels))} {amount}"

    def _histogram(self) -> Iterator[str]:
        name = "claude_mem_request_seconds"
        if self.seconds:
            yield f"# TYPE {name} histogram"
        for route, buckets in sorted(self.seconds.items()):
            total = 0
            for limit, amount in zip((*BUCKETS, "+Inf"), buckets, strict=True):
                total += amount
                yield f"{name}_bucket{_labels({'route': route, 'le': str(limit)})} {total}"
            yield f"{name}_sum{_labels({'route': route})} {self.sums[route]:.6f}"
            yield f"{name}_count{_labels({'route': route})} {total}"


def _gauges(pool: Mapping[str, int]) -> Iterator[str]:
    for name, amount in sorted(pool.items()):
        yield f"# TYPE claude_mem_{name} gauge"
        yield f"claude_mem_{name} {amount}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
