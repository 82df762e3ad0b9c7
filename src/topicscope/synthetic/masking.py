"""The mathematical set-up of the paper and its masked-language-model corruption (Knowl 6), validated."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal

import numpy as np

from topicscope.errors import InputError
from topicscope.records import Headers, read_npz, write_npz
from topicscope.synthetic.documents import Documents, bernoulli

Weighting = Literal["document", "token"]

_FIELDS = ("input_ids", "labels", "selected", "attendable")


@dataclass(frozen=True)
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
        number, whole = int | float, "a whole number >= 1"
        rules: tuple[tuple[str, type | UnionType, Callable[[Any], bool], str], ...] = (
            ("num_topics", int, lambda T: T >= 1, whole),
            ("words_per_topic", int, lambda v: v >= 1, whole),
            ("topics_per_document", int, lambda tau: tau >= 1, whole),
            (
                "topics_per_document",
                int,
                lambda tau: tau <= self.num_topics,
                f"between 1 and num_topics = {self.num_topics}",
            ),
            ("p_mask", number, lambda p: 0 < p < 1, "0 < p_mask < 1"),
            ("p_correct", number, lambda p: 0 <= p < 1, "0 <= p_correct < 1"),
            ("p_random", number, lambda p: 0 <= p < 1, "0 <= p_random < 1"),
            (
                "document_length",
                int | None,
                lambda N: N is None or N >= 1,
                f"{whole}, or None for an infinite document",
            ),
            ("weighting", str, lambda weighting: weighting in ("document", "token"), '"document" or "token"'),
        )
        for name, kind, holds, expected in rules:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind) or not holds(value):
                raise InputError(f"impossible setting: {name}", received=value, expected=expected)
        if not self.p_correct + self.p_random < 1:
            raise InputError(
                "impossible setting: p_correct + p_random",
                received=self.p_correct + self.p_random,
                expected="p_correct + p_random < 1 (the rest becomes [MASK])",
            )

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
        return asdict(self)


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """Documents as a model sees them. All arrays are [document position].

    input_ids int64: the shown token ids.      labels int64: the original ids, at every position.
    selected bool: positions that are predicted, M.      attendable bool: keys that may be attended.
    Two masks, never one: by default every real position is attended, selected ones too.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    selected: np.ndarray
    attendable: np.ndarray
    vocabulary_size: int

    def __len__(self) -> int:
        return len(self.input_ids)

    def rows(self, index: np.ndarray | slice) -> "MaskedBatch":
        """The documents at `index`."""
        return replace(self, **{name: getattr(self, name)[index] for name in _FIELDS})

    def position_weights(self, weighting: Weighting) -> np.ndarray:
        """Weight of each position in the data loss, float64 [document position]; sums to 1 (0 if nothing is selected).

        "document": 1/(n |M_d|) with n the number of documents that have a selected position. "token": 1/Σ_d |M_d|.
        """
        per_document = self.selected.sum(axis=1, keepdims=True)
        if weighting == "token":
            return np.asarray(self.selected / np.maximum(per_document.sum(), 1.0))
        documents = max(np.count_nonzero(per_document), 1)
        return np.asarray(self.selected / (np.maximum(per_document, 1.0) * documents))

    def save(self, path: Path | str) -> None:
        """Write as npz, so that a set of documents and masks can be used again."""
        arrays = {name: getattr(self, name) for name in _FIELDS}
        write_npz(Path(path), {**arrays, "vocabulary_size": np.asarray(self.vocabulary_size)})

    @classmethod
    def load(cls, path: Path | str) -> "MaskedBatch":
        """Read what `save` wrote.

        Raises:
            InputError: an array is missing or of another type or shape, a token id lies outside the vocabulary, a
                selected position is no word, or nothing is selected.
        """
        path = Path(path)
        arrays = read_npz(path, lambda headers: _parts_of(headers, path))
        size = int(arrays["vocabulary_size"])
        ids, labels = (arrays[name].astype(np.int64) for name in _FIELDS[:2])
        selected, attendable = (arrays[name] for name in _FIELDS[2:])
        if ids.size and (min(ids.min(), labels.min()) < 0 or max(ids.max(), labels.max()) > size + 3):
            raise InputError(
                "token ids outside the vocabulary",
                received=f"{min(ids.min(), labels.min())} to {max(ids.max(), labels.max())}",
                expected=f"0 to {size + 3}: [MASK], {size} words, START, END, PAD",
                where=path,
            )
        if ((labels[selected] < 1) | (labels[selected] > size)).any() or (ids[selected | attendable] > size + 2).any():
            raise InputError(
                "a selected position is no word, or padding is selected or attended",
                expected=f"labels from 1 to {size} where selected; PAD ({size + 3}) neither selected nor attended",
                where=path,
            )
        if not selected.any():
            raise InputError("nothing is selected in a masked set", expected="at least one position", where=path)
        return cls(ids, labels, selected, attendable, size)


def _parts_of(headers: Headers, path: Path) -> list[str]:
    """The arrays of a masked set, if their types and shapes fit each other."""
    missing = [name for name in (*_FIELDS, "vocabulary_size") if name not in headers]
    if missing:
        raise InputError("not a set of masked documents", received=sorted(headers), expected=missing, where=path)
    kinds = {**dict.fromkeys(_FIELDS[:2], "iu"), **dict.fromkeys(_FIELDS[2:], "b"), "vocabulary_size": "iu"}
    wrong = [f"{name}: {headers[name].dtype}" for name, kind in kinds.items() if headers[name].dtype.kind not in kind]
    if wrong or headers["vocabulary_size"].ndim:
        raise InputError(
            "arrays of a masked set have the wrong type",
            received=", ".join(wrong) or "several vocabulary sizes",
            expected="integers (input_ids, labels, one vocabulary_size) and booleans (selected, attendable)",
            where=path,
        )
    shapes = {name: headers[name].shape for name in _FIELDS}
    if len(set(shapes.values())) != 1 or len(shapes["input_ids"]) != 2:
        raise InputError(
            "arrays of a masked set differ in shape", received=shapes, expected="[document position]", where=path
        )
    return list(kinds)


@dataclass(frozen=True, eq=False)
class Corruption:
    """What masking did to flat documents. at int64 [selected]: which tokens were selected.

    document, shown, labels int64 [selected]: the document of each, its id now and before. owner int64 [token].
    """

    at: np.ndarray
    document: np.ndarray
    shown: np.ndarray
    labels: np.ndarray
    owner: np.ndarray


@dataclass(frozen=True)
class Masking:
    """Each position is selected with p_mask; then it stays (p_correct), becomes a uniform *word* (p_random), or [MASK].

    weighting: with "document" a document divides by its own |M|, so its mask is drawn given |M| >= 1, exactly and
        without trying again; with "token" it is left as drawn, and a document with nothing selected weighs nothing.
    specials: START before and END after each document (ids V+1, V+2): attended, never selected, never a replacement.
    hide_selected: selected positions are not attended, as in the paper's released code (the paper's text attends all).

    Raises:
        InputError: impossible rates (as `Setting`).
    """

    p_mask: float
    p_correct: float
    p_random: float
    weighting: Weighting = "document"
    specials: bool = False
    hide_selected: bool = False

    def __post_init__(self) -> None:
        Setting(1, 1, 1, self.p_mask, self.p_correct, self.p_random, weighting=self.weighting)

    def num_tokens(self, vocabulary_size: int) -> int:
        """D: [MASK] and the words, and START and END if there are any."""
        return vocabulary_size + (3 if self.specials else 1)

    def apply(self, rng: np.random.Generator, documents: Documents) -> MaskedBatch:
        """Corrupt documents once and lay them out in random order."""
        return self.lay_out(rng, documents, self.corrupt(rng, documents))

    def corrupt(self, rng: np.random.Generator, documents: Documents) -> Corruption:
        """What is selected, and what it shows instead."""
        owner = documents.owner()
        at = self._select(rng, documents, owner)
        fate = rng.random(len(at))
        labels = documents.words[at]
        shown = labels * (fate < self.p_correct)
        replaced = np.flatnonzero((fate >= self.p_correct) & (fate < self.p_correct + self.p_random))
        shown[replaced] = rng.integers(1, documents.vocabulary_size + 1, len(replaced))
        return Corruption(at, owner[at], shown, labels, owner)

    def lay_out(self, rng: np.random.Generator, documents: Documents, corruption: Corruption) -> MaskedBatch:
        """Corrupted documents as a table, each in a random order drawn from `rng`."""
        size, owner, edge = documents.vocabulary_size, corruption.owner, int(self.specials)
        shown = documents.words.copy()
        shown[corruption.at] = corruption.shown
        chosen = np.zeros(len(shown), dtype=bool)
        chosen[corruption.at] = True
        order = np.argsort(owner + rng.random(len(owner)))
        starts = np.cumsum(documents.lengths) - documents.lengths
        column = np.arange(len(owner)) - starts[owner] + edge
        table = (len(documents), int(documents.lengths.max(initial=0)) + 2 * edge)
        input_ids, labels = np.full(table, size + 3), np.full(table, size + 3)
        selected = np.zeros(table, dtype=bool)
        for filled, values in ((input_ids, shown), (labels, documents.words), (selected, chosen)):
            filled[owner, column] = values[order]
        if self.specials:
            for ids in (input_ids, labels):
                ids[:, 0] = size + 1
                ids[np.arange(len(ids)), documents.lengths + 1] = size + 2
        attendable = labels != size + 3
        if self.hide_selected:
            attendable &= ~selected
        return MaskedBatch(input_ids, labels, selected, attendable, size)

    def _select(self, rng: np.random.Generator, documents: Documents, owner: np.ndarray) -> np.ndarray:
        """Indices of the selected tokens, int64 [selected]."""
        at = np.flatnonzero(bernoulli(rng, len(owner), np.array([self.p_mask])))
        if self.weighting == "token":
            return at
        empty = np.bincount(owner[at], minlength=len(documents)) == 0
        if not empty.any():
            return at
        lengths = documents.lengths[empty]
        tokens = np.flatnonzero(empty[owner])
        starts = np.cumsum(lengths) - lengths
        # Position of each of these tokens after the first selected one of its document.
        after = np.arange(len(tokens)) - np.repeat(starts + first_selected(rng, lengths, self.p_mask), lengths)
        chosen = (after == 0) | ((after > 0) & (rng.random(len(tokens)) < self.p_mask))
        return np.concatenate([at, tokens[chosen]])


def first_selected(rng: np.random.Generator, lengths: np.ndarray, p_mask: float) -> np.ndarray:
    """Position of the first selected token given that there is one: P(j) ∝ (1-p)^j, 0 <= j < N. int64 like `lengths`.

    The tokens after it are selected independently; this gives the mask's law given |M| >= 1 without a loop.
    """
    some = -np.expm1(lengths * np.log1p(-p_mask))
    first = np.log1p(-rng.random(lengths.shape) * some) / np.log1p(-p_mask)
    return np.asarray(np.minimum(first.astype(np.int64), lengths - 1))
