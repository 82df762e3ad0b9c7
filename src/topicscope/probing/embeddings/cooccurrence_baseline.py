"""The baseline of co-occurrence: vectors that know nothing but which words of the text stand near each other.

Topics are patterns of co-occurrence, so any vectors that hold co-occurrence have S above D. How far plain counts go is
measured by the same means: positive pointwise mutual information of words at most `WINDOW` words apart,

    PPMI_wc = max(0, log( n_wc n / (n_w n_c) )),   n_w = Σ_c n_wc, n = Σ_w n_w,

factored by a truncated singular value decomposition, PPMI ≈ U Σ Vᵀ; the vectors are rows of U √Σ (Levy and Goldberg,
2014).
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from topicscope.probing.embeddings.vectors import COOCCURRENCE, WordVectors
from topicscope.probing.tokens import LATER_PIECE, AlignedUnit

WINDOW = 5
DIMENSIONS = 100
MOST_TOKENS = 2_000_000
UNITS_PER_CHUNK = 4096
_GAP = -1


def cooccurrence_vectors(
    units: Sequence[AlignedUnit], counts: Mapping[str, int], *, dimensions: int = DIMENSIONS
) -> WordVectors | None:
    """The vectors of all words of the text, place "cooccurrence"; None where the text has too few for a factorisation.

    units: what the model reads; co-occurrences are counted inside a unit, over the words that the alignment found, in
    the first `MOST_TOKENS` tokens. counts: the words of the text with their occurrences, which number them.
    """
    words = tuple(word for word, count in counts.items() if count and word != LATER_PIECE)
    pairs = cooccurrences(units, words)
    k = min(dimensions, len(words) - 1)
    matrix = ppmi(pairs)
    if k < 1 or matrix.nnz == 0:
        return None
    # A start of its own: the default one is drawn afresh each time, and the vectors would differ in the last digits.
    start = np.random.default_rng(0).random(len(words))
    U, sigma, _ = svds(matrix, k=k, v0=start)
    return WordVectors(COOCCURRENCE, words, np.asarray(U * np.sqrt(sigma)))


def cooccurrences(units: Sequence[AlignedUnit], words: Sequence[str]) -> sparse.csr_matrix:
    """n_wc [word context], symmetric: how often two words stand at most `WINDOW` words apart in a unit."""
    code = {word: i for i, word in enumerate(words)}
    total = sparse.csr_matrix((len(words), len(words)))
    tokens = 0
    for start in range(0, len(units), UNITS_PER_CHUNK):
        text: list[int] = []
        for unit in units[start : start + UNITS_PER_CHUNK]:
            tokens += len(unit.words)
            text += [code[word] for word in unit.words if word is not None and word in code]
            text += [_GAP] * WINDOW  # units do not touch
        at = np.array(text, dtype=np.int64)
        shifted = [(at[:-distance], at[distance:]) for distance in range(1, WINDOW + 1)]
        left, right = (np.concatenate(side) for side in zip(*shifted, strict=True))
        both = (left != _GAP) & (right != _GAP)
        ones = np.ones(int(both.sum()))
        total = total + sparse.coo_matrix((ones, (left[both], right[both])), shape=total.shape).tocsr()
        if tokens >= MOST_TOKENS:
            break
    return (total + total.T).tocsr()


def ppmi(pairs: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information of counts [word context]; 0 where a pair never occurs."""
    found = pairs.tocoo()
    row, column = (np.asarray(pairs.sum(axis=axis), dtype=np.float64).ravel() for axis in (1, 0))
    with np.errstate(divide="ignore"):
        information = np.log(found.data * row.sum() / (row[found.row] * column[found.col]))
    kept = information > 0
    return sparse.csr_matrix((information[kept], (found.row[kept], found.col[kept])), shape=pairs.shape)
