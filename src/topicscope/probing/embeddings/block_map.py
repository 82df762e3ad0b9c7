"""The block matrix of word similarities, with words ordered by topic, small enough to be kept and shown.

With unit vectors e_i, words ordered by topic and cut into at most 200 bins, the mean cosine of two bins a ≠ b is

    M_ab = (Σ_{i∈a} e_i) · (Σ_{j∈b} e_j) / (|a| |b|),     M_aa = (‖Σ_{i∈a} e_i‖² - |a|) / (|a| (|a| - 1))

exact without a matrix over pairs of words; a word's similarity with itself is left out. Topics that stand in the
vectors show as blocks along the diagonal, as in the paper's theorem on embeddings.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

MOST_BINS = 200
SAMPLED_WORDS = 2000
_BOUNDS = np.linspace(-1.0, 1.0, 81)
_BLOCK = 256  # rows of similarities alive at once


def embedding_map(
    words: Sequence[str],
    vectors: Float[np.ndarray, "word d"],
    membership: Bool[np.ndarray, "word topic"],
    *,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """The arrays of embedding_map.npz; empty where fewer than two words have a topic and a vector that is not zero.

    A word of several topics stands with the first of them, words of one topic in the order given.

    words [word] (unicode): in the order of the matrix. topics, starts [topic]: the number of each topic that has words,
    and the place of its first. edges [bin + 1]: bounds of the bins. cosine float32 [bin, bin]: M; NaN on the diagonal
    of a bin of one word. bounds [81]: of the cosines' histogram; same, different int64 [80]: pairs of distinct words
    that share a topic, and that do not, over sampled_words words (all, or 2,000 drawn with `seed`).
    left_out: words with a topic whose vector is zero or not finite.
    """
    squared = np.einsum("wd,wd->w", vectors.astype(np.float64), vectors.astype(np.float64))
    having = membership.any(1)
    kept = np.flatnonzero(having & np.isfinite(squared) & (squared > 0))
    if len(kept) < 2:
        return {}
    first = membership[kept].argmax(1)
    order = np.argsort(first, kind="stable")
    kept, first = kept[order], first[order]
    e = vectors[kept].astype(np.float64) / np.sqrt(squared[kept])[:, None]
    topics, starts = np.unique(first, return_index=True)
    edges = np.linspace(0, len(e), min(len(e), MOST_BINS) + 1).round().astype(np.int64)
    draw = np.sort(np.random.default_rng(seed).permutation(len(e))[:SAMPLED_WORDS])
    same, different = _histograms(e[draw], membership[kept[draw]])
    return {
        "words": np.array([words[i] for i in kept.tolist()]),
        "topics": topics,
        "starts": starts,
        "edges": edges,
        "cosine": block_means(e, edges).astype(np.float32),
        "bounds": _BOUNDS,
        "same": same,
        "different": different,
        "sampled_words": np.array(len(draw)),
        "left_out": np.array(int(having.sum()) - len(kept)),
    }


def block_means(e: Float[np.ndarray, "word d"], edges: Int[np.ndarray, "bound"]) -> Float[np.ndarray, "bin bin"]:
    """M of unit vectors cut at `edges`, from sums alone."""
    size = np.diff(edges).astype(np.float64)
    sums = np.add.reduceat(e, edges[:-1], axis=0)
    products = sums @ sums.T
    pairs = np.outer(size, size)
    np.fill_diagonal(products, products.diagonal() - size)
    np.fill_diagonal(pairs, size * (size - 1))
    means: np.ndarray = np.full_like(products, np.nan)
    np.divide(products, pairs, out=means, where=pairs > 0)
    return means


def _histograms(
    e: Float[np.ndarray, "word d"], membership: Bool[np.ndarray, "word topic"]
) -> tuple[Int[np.ndarray, "bar"], Int[np.ndarray, "bar"]]:
    """Numbers of unordered pairs by cosine, of those that share a topic and of the others."""
    topics = membership.astype(np.float32)
    same, different = np.zeros((2, len(_BOUNDS) - 1), dtype=np.int64)
    for start in range(0, len(e), _BLOCK):
        rows = slice(start, start + _BLOCK)
        # Rounding may take a cosine of two equal words past 1.
        cosine = np.clip(e[rows] @ e.T, -1.0, 1.0)
        later = np.arange(len(e))[None, :] > np.arange(len(e))[rows, None]
        shared = topics[rows] @ topics.T > 0
        same += np.histogram(cosine[later & shared], _BOUNDS)[0]
        different += np.histogram(cosine[later & ~shared], _BOUNDS)[0]
    return same, different
