"""Sums over whole documents that shards and chunks add up to: moments of every part, and pairs of words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from topicscope.probing.attention import PartSums, WordPairs
from topicscope.probing.statistics.moments import PartMoments


@dataclass
class DocumentSums:
    """Moments and word pairs per part of the model over `documents` documents.

    They are additive, but not to the last bit: equal bits need equal documents added in one order.
    """

    documents: int = 0
    moments: dict[str, PartMoments] = field(default_factory=dict)
    word_pairs: dict[str, WordPairs] = field(default_factory=dict)

    def add(self, sums: Sequence[PartSums], documents: int) -> None:
        """Count so many whole documents in."""
        if not documents:
            return
        for part in sums:
            self._add_moments(part.part.name, PartMoments.of(part))
        self.documents += documents

    def add_word_pairs(self, sums: Iterable[PartSums]) -> None:
        """Count their word pairs in; these do not tell documents apart, so that any part of one may be added."""
        for part in sums:
            self.word_pairs.setdefault(part.part.name, WordPairs()).merge(part.word_pairs)

    def merge(self, other: "DocumentSums") -> None:
        """Count in all that another has."""
        for name, moments in other.moments.items():
            self._add_moments(name, moments)
        for name, pairs in other.word_pairs.items():
            self.word_pairs.setdefault(name, WordPairs()).merge(pairs)
        self.documents += other.documents

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """For storage in an npz file."""
        arrays = {f"{prefix}/documents": np.array(self.documents)}
        for name, moments in self.moments.items():
            arrays |= moments.arrays(f"{prefix}/moments/{name}")
        for name, pairs in self.word_pairs.items():
            arrays |= pairs.arrays(f"{prefix}/word_pairs/{name}")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str, parts: Iterable[str]) -> "DocumentSums":
        """The inverse of `arrays`, for a model with these parts."""
        found = cls(int(arrays[f"{prefix}/documents"]))
        for name in parts:
            if f"{prefix}/moments/{name}/documents" in arrays:
                found.moments[name] = PartMoments.from_arrays(arrays, f"{prefix}/moments/{name}")
            if f"{prefix}/word_pairs/{name}/key" in arrays:
                found.word_pairs[name] = WordPairs.from_arrays(arrays, f"{prefix}/word_pairs/{name}")
        return found

    def _add_moments(self, name: str, moments: PartMoments) -> None:
        self.moments[name] = self.moments[name] + moments if name in self.moments else moments
