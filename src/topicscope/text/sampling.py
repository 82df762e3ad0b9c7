"""A sample of the documents of a corpus, drawn by a seed in one reading that holds no text.

Document i (counted from 1) with the id d has the 64-bit number h(seed, i, d), a keyed hash. The sample is that of the N
smallest, in the order of the text; so every set of N documents is equally likely over the seeds, the same text and seed
give the same sample, and that of N is part of that of N + 1. Documents with one id are drawn each on its own.
"""

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.text.corpus import Corpus
from topicscope.text.source import Document, Faults


@dataclass(frozen=True)
class Sample:
    """corpus: the documents drawn, read again from the whole text each time; provenance: how they were drawn."""

    corpus: Corpus
    provenance: dict[str, Any]


def sample_documents(corpus: Corpus, documents: int, seed: int = 0, progress: Progress | None = None) -> Sample:
    """`documents` documents of a corpus; all of them where it has no more.

    provenance: documents asked for, drawn and there; the seed; the fingerprint of the whole. That of the sample is
    `Sample.corpus.fingerprint()`, as of every corpus. The memory needed is that of the numbers of the documents drawn.

    Raises:
        InputError: fewer than one document asked for, a seed below 0 or not below 2⁶⁴, or what reading `corpus` raises.
    """
    if documents < 1:
        raise InputError("bad option --sample", received=documents, expected="a number of documents of at least 1")
    if not 0 <= seed < 2**64:
        raise InputError("bad option --sample-seed", received=seed, expected="a whole number from 0 to 2^64 - 1")
    progress = SilentProgress() if progress is None else progress
    # (-hash, -number): the heap's first entry is the next to go.
    kept: list[tuple[int, int]] = []
    number = 0
    with tracked(progress, "draw a sample", None, "documents"):
        for number, document in enumerate(corpus, start=1):
            entry = (-_hash(seed, number, document.id), -number)
            if len(kept) < documents:
                heapq.heappush(kept, entry)
            elif entry > kept[0]:
                heapq.heapreplace(kept, entry)
            if number % 1000 == 0:
                progress.update("draw a sample", number)
    drawn = frozenset(-entry[1] for entry in kept)
    provenance = {
        "documents_asked_for": documents,
        "documents_drawn": len(drawn),
        "documents_of_the_whole": number,
        "seed": seed,
        "sha256_of_the_whole": corpus.fingerprint(),
    }
    return Sample(Corpus(corpus.name, lambda faults: _read(corpus, drawn, faults)), provenance)


def _hash(seed: int, number: int, identity: str) -> int:
    data = number.to_bytes(8, "big") + identity.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=seed.to_bytes(8, "big")).digest(), "big")


def _read(corpus: Corpus, drawn: frozenset[int], faults: Faults) -> Iterator[Document]:
    for number, document in enumerate(corpus, start=1):
        if number in drawn:
            yield document
        else:
            faults.skip("not sampled")
    faults.counts.update(corpus.skipped)
