"""An embedding whose meanings a test can predict."""

from __future__ import annotations

import hashlib
import math
import re
from array import array
from collections.abc import Sequence

MEANS = {"automobile": "car", "vehicle": "car", "login": "auth", "signin": "auth"}


class FakeEmbedder:
    """Words that mean the same have the same direction; everything is decided by a hash."""

    name, dimensions, scale, batch = "fake", 256, (0.2, 0.8), 8

    def embed(self, given: Sequence[str]) -> list[array[float]]:
        return [self._embed_one(text) for text in given]

    def _embed_one(self, text: str) -> array[float]:
        found = [0.0] * self.dimensions
        for word in re.findall(r"\w+", text.lower()):
            at = int(hashlib.blake2b(MEANS.get(word, word).encode(), digest_size=4).hexdigest(), 16)
            found[at % self.dimensions] += 1
        norm = math.sqrt(sum(value * value for value in found)) or 1.0
        return array("f", [value / norm for value in found])

    def embed_query(self, question: str) -> array[float]:
        (vector,) = self.embed([question])
        return vector
