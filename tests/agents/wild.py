"""Payloads as no agent should send them: the right names with anything behind them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40)
_values: st.SearchStrategy[Any] = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


def payloads(
    names: Sequence[str], events: Sequence[str], *, event_name: str = "hook_event_name"
) -> st.SearchStrategy[Any]:
    """Objects with these names, also one within another, and one of these events (or nonsense)."""
    keys = st.sampled_from(names) | st.text(max_size=8)
    inside = _values | st.dictionaries(keys, _values | st.sampled_from(events), max_size=6)
    fields = st.dictionaries(keys, inside, max_size=10)
    event = st.sampled_from(events) | _values
    return st.builds(lambda found, name: {**found, event_name: name}, fields, event)
