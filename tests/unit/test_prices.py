"""What a request cost, by a table that anyone can correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from claude_mem.digest.models.base import Usage
from claude_mem.digest.models.chain import Prices, read_prices
from claude_mem.domain.errors import InvalidSetting


def cost(model: str, folder: Path, usage: Usage) -> int:
    return Prices(folder).find(model).cost(usage)


@pytest.mark.parametrize(
    ("model", "usage", "millionths"),
    [
        ("claude-haiku-4-5", Usage(input_tokens=1_000_000, output_tokens=1_000_000), 6_000_000),
        ("claude-haiku-4-5-20251001", Usage(input_tokens=1_000_000, cached_tokens=1_000_000), 100_000),
        ("claude-haiku-4-5", Usage(input_tokens=1_000_000, written_tokens=1_000_000), 1_250_000),
        ("anthropic/claude-haiku-4-5", Usage(input_tokens=1_000_000), 1_000_000),
        ("openai/gpt-5-mini", Usage(output_tokens=1_000_000), 2_000_000),
        ("mistral/mistral-small:free", Usage(input_tokens=1_000_000), 0),
        ("nobody-knows-it", Usage(input_tokens=1_000_000, output_tokens=1_000_000), 90_000_000),
        ("nobody-knows-it", Usage(input_tokens=1_000_000, cost=0.25), 250_000),
        ("claude-haiku-4-5", Usage(input_tokens=1), 1),
    ],
)
def test_what_it_costs(tmp_path: Path, model: str, usage: Usage, millionths: int) -> None:
    assert cost(model, tmp_path, usage) == millionths


def test_ones_own_prices_come_first(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[[price]]\nmodels = "claude-*"\ninput = 2\noutput = 3\n')
    assert cost("claude-haiku-4-5", tmp_path, Usage(input_tokens=1_000_000, cached_tokens=500_000)) == 2_000_000
    assert cost("gpt-5-mini", tmp_path, Usage(output_tokens=1_000_000)) == 2_000_000


@pytest.mark.parametrize(
    "text", ["price = 3", "[[price]]\nmodels = 'x'", "[[", "[[price]]\nmodels='x'\ninput=-1\noutput=1"]
)
def test_a_broken_table_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(InvalidSetting, match=r"prices\.toml"):
        read_prices(tmp_path / "prices.toml")
    prices = Prices(tmp_path)
    assert "prices.toml" in str(prices.problem)
    assert prices.find("claude-haiku-4-5").input == 1.0, "ours are used"
