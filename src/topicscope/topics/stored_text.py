"""Passages read once and kept on disk as bags of words: memory grows neither with the text nor with its vocabulary.

While the text is read, each word but the stop words is counted (`BoundedCounts`) and its number written to disk, 4
bytes a word. What is in the vocabulary is known at the end; then the numbers are read back and written as bags, 8 bytes
for each distinct word of a passage, in `STRIPS` strips of neighbouring passages. A batch takes an equal share of every
strip, so that it is spread over the text, whatever its order; one strip keeps the order of the text.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from topicscope.errors import RunError
from topicscope.progress import Progress, tracked
from topicscope.text import WordLengths, WordSplitter, load_stop_words, normalise_word
from topicscope.topics.bounded_counts import BoundedCounts
from topicscope.topics.lda import require_rereadable

STRIPS = 64
_AT_ONCE = 4096  # passages
_NAMED = 10  # words in a warning


@dataclass(frozen=True, eq=False)
class Bags:
    """Passages one after another, in uint32: `lengths` [passage] distinct words each; `words`, `counts` [Σ lengths]."""

    words: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, start: int, end: int) -> "Bags":
        """Passages `start` to `end` - 1."""
        first, last = int(self.lengths[:start].sum()), int(self.lengths[:end].sum())
        return Bags(self.words[first:last], self.counts[first:last], self.lengths[start:end])

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """Passages as lists of (word, count), as gensim takes them."""
        pairs = list(zip(self.words.tolist(), self.counts.tolist(), strict=True))
        end = 0
        for length in self.lengths.tolist():
            end += length
            yield pairs[end - length : end]


@dataclass(frozen=True, eq=False)
class StoredText:
    """The bags in `folder`, and what was counted.

    vocabulary: the most frequent word first, as in `CountedText`, but at most so many as were asked for; sizes: of the
    strips, in passages; passages: all that were read; tokens: words of the vocabulary in them; left_out: what the
    provenance says of the rest.
    """

    folder: Path
    vocabulary: tuple[str, ...]
    sizes: tuple[int, ...]
    passages: int
    tokens: int
    left_out: dict[str, Any]

    @property
    def documents(self) -> int:
        """Passages with a word of the vocabulary."""
        return sum(self.sizes)

    def batches(self, size: int) -> Iterator[Bags]:
        """All passages once, in ⌈documents / size⌉ batches of nearly equal size, each from all over the text."""
        rounds = -(-self.documents // size)
        with ExitStack() as stack:
            strips = [
                tuple(stack.enter_context((self.folder / f"{name}-{k}").open("rb")) for name in ("lengths", "bags"))
                for k in range(len(self.sizes))
            ]
            for number in range(rounds):
                parts = []
                for k, (lengths, bags) in enumerate(strips):
                    # Whole passages by k / strips later in strip k, so that batches differ by few.
                    before, after = (
                        (self.sizes[k] * n * len(strips) + k * rounds) // (rounds * len(strips))
                        for n in (number, number + 1)
                    )
                    parts.append(_read_bags(lengths, bags, after - before))
                yield Bags(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _read_bags(lengths: BinaryIO, bags: BinaryIO, passages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = _read(lengths, passages)
    pairs = _read(bags, 2 * int(sizes.sum())).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], sizes


def _read(stream: BinaryIO, numbers: int) -> np.ndarray:
    data = stream.read(4 * numbers)
    assert len(data) == 4 * numbers, "a file of bags is too short"
    return np.frombuffer(data, dtype=np.uint32)


def store_text(
    passages: Iterable[str],
    folder: Path,
    *,
    min_count: int,
    max_words: int,
    words_held: int,
    language: str,
    stop_words: Collection[str] | None,
    splitter: WordSplitter,
    progress: Progress,
    strips: int = STRIPS,
) -> StoredText:
    """Read the passages once and keep them in `folder`, which must be empty.

    Raises:
        InputError: one text instead of passages, or an unknown language.
        RunError: `folder` cannot be written, or is full.
    """
    require_rereadable(passages)
    stops = load_stop_words(language) if stop_words is None else frozenset(map(normalise_word, stop_words))
    counts, lengths, number, stopped = BoundedCounts(words_held), WordLengths(), 0, 0
    with _written(folder), tracked(progress, "read text", None, "passages"):
        with (folder / "text").open("wb") as words_file, (folder / "text-lengths").open("wb") as lengths_file:
            for number, passage in enumerate(passages, start=1):
                found = splitter(passage)
                lengths.add(found)
                words = [word for word in (normalise_word(word.text) for word in found) if word not in stops]
                stopped += len(found) - len(words)
                array("I", counts.add(words)).tofile(words_file)
                array("I", [len(words)]).tofile(lengths_file)
                if number % 1000 == 0:
                    progress.update("read text", number)
        vocabulary, numbers, tokens = counts.most_frequent(min_count)
        sizes = _bag(folder, numbers[:max_words], number, strips)
    kept = int(tokens[:max_words].sum())
    dropped = {
        "passages_without_a_word": number - sum(sizes),
        "tokens_of_stop_words": stopped,
        "tokens_of_rare_words": counts.tokens - int(tokens.sum()) + counts.pruned_tokens,
        "rare_words": len(counts) - len(vocabulary),  # and those that were pruned, whose number nobody knows
        "pruned_words": counts.pruned_words,
        "pruned_tokens": counts.pruned_tokens,
        "largest_count_of_a_pruned_word": counts.undercount,
        "words_beyond_the_vocabulary": max(0, len(vocabulary) - max_words),
        "tokens_beyond_the_vocabulary": int(tokens[max_words:].sum()),
    }
    unsure = [w for w, c in zip(vocabulary[:max_words], tokens, strict=False) if c <= 2 * counts.undercount]
    warnings = [lengths.warning()]
    if unsure:
        warnings.append(
            f"{counts.pruned_tokens} occurrences of rare words were forgotten, of no word more than "
            f"{counts.undercount}: {len(unsure)} words of the vocabulary are hardly more frequent, so their counts may "
            f"be too small and others like them be missing: {', '.join(unsure[-_NAMED:])}"
            f"{', …' if len(unsure) > _NAMED else ''}. A larger --min-count or a smaller --max-words leaves them out"
        )
    left_out = {
        "min_count": min_count,
        "max_words": max_words,
        "words_held": words_held,
        "language": language if stop_words is None else None,
        "stop_words": len(stops),
        "splitter": getattr(splitter, "__qualname__", type(splitter).__qualname__),
        "dropped": dropped,
        "warnings": [warning for warning in warnings if warning is not None],
    }
    return StoredText(folder, vocabulary[:max_words], sizes, number, kept, left_out)


def _bag(folder: Path, numbers: np.ndarray, passages: int, strips: int) -> tuple[int, ...]:
    """Make bags of the words on disk; word i of the vocabulary has the i-th of `numbers`. Sizes of the strips."""
    order = np.argsort(numbers)
    numbers, size = numbers[order], max(1, len(numbers))
    sizes = []
    with (folder / "text").open("rb") as words_file, (folder / "text-lengths").open("rb") as lengths_file:
        for strip in range(strips):
            left = (strip + 1) * passages // strips - strip * passages // strips
            sizes.append(0)
            with (folder / f"lengths-{strip}").open("wb") as lengths, (folder / f"bags-{strip}").open("wb") as bags:
                while left:
                    read = _read(lengths_file, min(left, _AT_ONCE))
                    left -= len(read)
                    words = _read(words_file, int(read.sum()))
                    place = np.searchsorted(numbers, words)
                    known = place < len(numbers)
                    known[known] = numbers[place[known]] == words[known]
                    passage = np.repeat(np.arange(len(read)), read)[known]
                    keys, counts = np.unique(passage * size + order[place[known]], return_counts=True)
                    distinct = np.bincount(keys // size, minlength=len(read))
                    distinct = distinct[distinct > 0]
                    sizes[-1] += len(distinct)
                    distinct.astype(np.uint32).tofile(lengths)
                    np.column_stack([keys % size, counts]).astype(np.uint32).tofile(bags)
    for name in ("text", "text-lengths"):
        (folder / name).unlink()
    return tuple(sizes)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is not None and Path(error.filename).parent != folder:
            raise
        raise RunError(
            "the bags of words cannot be kept on disk",
            received=str(error),
            expected="4 bytes a word of the text and 8 for each distinct word of a passage",
            where=str(folder),
            advice="name a roomier folder by the environment variable TMPDIR",
        ) from error
