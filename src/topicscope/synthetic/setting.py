"""The mathematical set-up of the paper (Knowl 6), validated."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from topicscope.errors import InputError

Weighting = Literal["document", "token"]


@dataclass(frozen=True, kw_only=False)
class Setting:
    """T disjoint topics of v words; a document activates τ of them; masked-language-model corruption.

    | field | symbol | allowed |
    | --- | --- | --- |
    | num_topics | T | >= 1 |
    | words_per_topic | v | >= 1 |
    | topics_per_document | τ | 1 <= τ <= T |
    | p_mask | p_m: share of positions selected | 0 < p_m < 1 |
    | p_correct | p_c: share of selected positions left as they are | >= 0, p_c + p_r < 1 |
    | p_random | p_r: share of selected positions replaced by a uniform word | >= 0 |
    | document_length | N, None for an infinite document | >= 1 |
    | weighting | how selected positions are weighted | "document" or "token" |

    With "document" weighting each document divides by its own number of selected positions; with "token" every
    selected position counts the same.

    Raises:
        InputError: a value outside its range; the message names the field, the value and the range.
    """

    num_topics: int
    words_per_topic: int
    topics_per_document: int
    p_mask: float
    p_correct: float
    p_random: float
    document_length: int | None = None
    weighting: Weighting = "document"

    def __post_init__(self) -> None:
        for name in ("num_topics", "words_per_topic", "topics_per_document"):
            self._require(_is_whole(getattr(self, name)) and getattr(self, name) >= 1, name, "a whole number >= 1")
        self._require(
            self.topics_per_document <= self.num_topics,
            "topics_per_document",
            f"between 1 and num_topics = {self.num_topics}",
        )
        self._require(_is_finite(self.p_mask) and 0 < self.p_mask < 1, "p_mask", "0 < p_mask < 1")
        for name in ("p_correct", "p_random"):
            value = getattr(self, name)
            self._require(_is_finite(value) and 0 <= value < 1, name, f"0 <= {name} < 1")
        if not self.p_correct + self.p_random < 1:
            raise InputError(
                "impossible setting: p_correct + p_random",
                received=self.p_correct + self.p_random,
                expected="p_correct + p_random < 1 (the rest becomes [MASK])",
            )
        length = self.document_length
        self._require(
            length is None or (_is_whole(length) and length >= 1),
            "document_length",
            "a whole number >= 1, or None for an infinite document",
        )
        self._require(self.weighting in ("document", "token"), "weighting", '"document" or "token"')

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InputError(f"impossible setting: {name}", received=getattr(self, name), expected=expected)

    @property
    def vocabulary_size(self) -> int:
        """V = T v, the number of words; [MASK] is not one of them."""
        return self.num_topics * self.words_per_topic

    @property
    def p_mask_token(self) -> float:
        """p_0 = 1 - p_c - p_r, the share of selected positions that become [MASK]."""
        return 1.0 - self.p_correct - self.p_random

    @property
    def a(self) -> float:
        """a = 1 - (1 - p_c) p_m, the share of positions that show their own word on purpose."""
        return 1.0 - (1.0 - self.p_correct) * self.p_mask

    @property
    def r(self) -> float:
        """r = p_m p_r, the share of positions that show a random word."""
        return self.p_mask * self.p_random

    @property
    def m(self) -> float:
        """m = p_m p_0, the share of positions that show [MASK]; a + r + m = 1."""
        return self.p_mask * self.p_mask_token

    @property
    def kappa(self) -> float:
        """κ = (T - τ) / (τ T (T - 1)), with E θθᵀ = κ I + ((1/T - κ)/T) 1 1ᵀ; 0 at T = 1."""
        T, tau = self.num_topics, self.topics_per_document
        return 0.0 if T == 1 else (T - tau) / (tau * T * (T - 1))

    def as_dict(self) -> dict[str, int | float | str | None]:
        """The fields by name, for records."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
