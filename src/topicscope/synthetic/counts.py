"""TokenCounts: everything that a one-layer, position-free model can see of its documents.

With one layer and no positions an output depends on its own token type and on how often each type is attended in its
document, so a batch is known by counts. The same form holds a sampled batch, very long documents drawn as counts, and
the exact expectation over infinite documents.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from topicscope.errors import InputError
from topicscope.synthetic.documents import DocumentLaw, Documents
from topicscope.synthetic.masking import Corruption, MaskedBatch, Masking, first_selected
from topicscope.topics import TopicModel

# float64 entries of `targets`: 400 MB
MAX_ENTRIES = 50_000_000


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """inputs float64 [document token]: share of each token type among the attended keys; rows sum to 1 (0 if none).

    A group is the selected positions of one document, or of one (document, shown token) where attention is trained:
    document int64 [group], query int64 [group] (the shown token id; 0 where it does not matter), and
    targets float64 [group token]: how much each label weighs there. The weighting of documents is inside: targets sum
    to 1, and the data loss is Σ_g Σ_i targets[g, i] ℓ(z_g, i).
    """

    inputs: np.ndarray
    document: np.ndarray
    query: np.ndarray
    targets: np.ndarray


def count_tokens(batch: MaskedBatch, num_tokens: int, weighting: str, *, by_query: bool) -> TokenCounts:
    """The counts of a token-level batch; the same loss and gradients for a one-layer position-free model."""
    n, D = len(batch), num_tokens
    row = np.arange(n)[:, None]
    # PAD and whatever else is not attended falls into one bin past the end, dropped on purpose.
    cell = np.where(batch.attendable, row * D + batch.input_ids, n * D)
    counts = np.bincount(cell.ravel(), minlength=n * D + 1)[: n * D].reshape(n, D).astype(np.float64)
    counts /= np.maximum(counts.sum(axis=1, keepdims=True), 1)
    at = np.flatnonzero(batch.selected)
    document = at // batch.selected.shape[1]
    labels, shown = batch.labels.ravel()[at], batch.input_ids.ravel()[at]
    return _grouped(counts, document, shown, labels, n, weighting, by_query)[0]


def count_corrupted(
    documents: Documents, corruption: Corruption, masking: Masking, batch_size: int, *, by_query: bool
) -> list[TokenCounts]:
    """Counts without laying the documents out, `batch_size` to a batch: as `count_tokens` of the same tokens."""
    n, D = len(documents), masking.num_tokens(documents.vocabulary_size)
    first = D * np.arange(n)
    cells = np.repeat(first, documents.lengths)
    cells += documents.words
    attended = documents.lengths
    if masking.hide_selected:
        cells = np.delete(cells, corruption.at)
        attended = attended - np.bincount(corruption.document, minlength=n)
    else:
        cells[corruption.at] = first[corruption.document] + corruption.shown
    counts = np.bincount(cells, minlength=n * D).reshape(n, D)
    if masking.specials:
        counts[:, -2:] = 1
        attended = attended + 2
    shares = counts / np.maximum(attended, 1)[:, None]
    c = corruption
    return _grouped(shares, c.document, c.shown, c.labels, batch_size, masking.weighting, by_query)


def _grouped(
    inputs: np.ndarray,
    document: np.ndarray,
    shown: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
    weighting: str,
    by_query: bool,
) -> list[TokenCounts]:
    """Selected positions [selected], gathered by document or by (document, shown token), a batch after another."""
    n, D = inputs.shape
    weight = _weights(document, n, batch_size, weighting)
    cell = D * document
    if by_query:
        key = cell + shown
        present = np.zeros(n * D, dtype=bool)
        present[key] = True
        groups = np.flatnonzero(present)
        owner, query = groups // D, groups % D
        cell = D * (np.cumsum(present)[key] - 1)
    else:
        owner, query = np.arange(n), np.zeros(n, dtype=np.int64)
    targets = np.bincount(cell + labels, weights=weight, minlength=len(owner) * D).reshape(len(owner), D)
    edges = np.arange(0, n + 1, batch_size)
    cuts = np.searchsorted(owner, edges)
    return [
        TokenCounts(inputs[low:high], owner[begin:end] - low, query[begin:end], targets[begin:end])
        for low, high, begin, end in zip(edges[:-1], edges[1:], cuts[:-1], cuts[1:], strict=True)
    ]


def _weights(document: np.ndarray, n: int, batch_size: int, weighting: str) -> np.ndarray:
    """Weight of each selected position, as `MaskedBatch.position_weights` of its batch."""
    selected = np.bincount(document, minlength=n).reshape(-1, batch_size)
    if weighting == "token":
        selected = selected.sum(axis=1, keepdims=True).repeat(batch_size, axis=1)
    else:
        selected = selected * np.count_nonzero(selected, axis=1)[:, None]
    return np.asarray((1.0 / np.maximum(selected, 1)).ravel()[document])


def population_counts(
    topic_model: TopicModel, topics_per_document: int, masking: Masking, *, by_query: bool
) -> TokenCounts:
    """N = ∞: every τ-subset S of topics with its weight, so that the data loss is an exact expectation.

    x̄_S = a p_S + r u + m e_0 (with hide_selected: p_S). A query shows word u with probability p_c p_S(u) + p_r/V, its
    label then being u itself or a word of p_S; it shows [MASK] with p_0. START and END have share 0.

    Raises:
        InputError: too many subsets to enumerate; the message gives the number.
    """
    T, V, tau = topic_model.num_topics, len(topic_model.vocabulary), topics_per_document
    if not 1 <= tau <= T:
        raise InputError("impossible topics_per_document", received=tau, expected=f"1 to {T}")
    D = masking.num_tokens(V)
    subsets = comb(T, tau)
    entries = subsets * D * ((V + 1) if by_query else 1)
    if entries > MAX_ENTRIES:
        raise InputError(
            "too many kinds of documents to enumerate",
            received=f"C({T}, {tau}) = {subsets:,} subsets, {entries:,} numbers",
            expected=f"at most {MAX_ENTRIES:,} numbers",
            advice="use sampled documents, or fewer topics",
        )
    active = np.array(list(combinations(range(T), tau)))
    p = topic_model.phi[active].mean(axis=1)
    selected = 0.0 if masking.hide_selected else masking.p_mask
    inputs = np.zeros((subsets, D))
    inputs[:, 0] = selected * masking.p_mask_token
    inputs[:, 1 : V + 1] = (1 - selected * (1 - masking.p_correct)) * p + selected * masking.p_random / V
    weight = 1 / subsets
    if not by_query:
        return _per_document(inputs, weight * p)
    kept = masking.p_correct * p
    replaced = np.broadcast_to(masking.p_random / V * p[:, None, :], (subsets, V, V))
    return _per_query(inputs, weight * kept, weight * replaced, weight * masking.p_mask_token * p)


def sampled_counts(
    rng: np.random.Generator, law: DocumentLaw, masking: Masking, count: int, *, by_query: bool
) -> TokenCounts:
    """Fresh documents drawn as counts (multinomial): the same law as drawing and masking tokens, at any length."""
    V, D = law.vocabulary_size, masking.num_tokens(law.vocabulary_size)
    p = law.proportions(rng, count) @ law.topic_model.phi
    p /= p.sum(axis=1, keepdims=True)
    lengths = law.lengths(rng, count)
    k = rng.binomial(lengths, masking.p_mask)
    if masking.weighting == "document":
        empty = np.flatnonzero(k == 0)
        first = first_selected(rng, lengths[empty], masking.p_mask)
        k[empty] = 1 + rng.binomial(lengths[empty] - 1 - first, masking.p_mask)
    fates = [masking.p_correct, masking.p_random, masking.p_mask_token]
    kept, random, masked = rng.multinomial(k, fates).T
    plain, kept_words, masked_labels = (rng.multinomial(n, p) for n in (lengths - k, kept, masked))
    random_words = rng.multinomial(random, np.full(V, 1 / V))
    inputs = np.zeros((count, D))
    inputs[:, 1 : V + 1] = plain
    if not masking.hide_selected:
        inputs[:, 0] = masked
        inputs[:, 1 : V + 1] += kept_words + random_words
    if masking.specials:
        inputs[:, V + 1 :] = 1
    inputs /= np.maximum(inputs.sum(axis=1, keepdims=True), 1)
    weight = 1 / max(k.sum(), 1) if masking.weighting == "token" else 1 / (k[:, None] * count)
    if not by_query:
        return _per_document(inputs, weight * (kept_words + rng.multinomial(random, p) + masked_labels))
    random_labels = rng.multinomial(random_words, p[:, None, :])
    scale = np.broadcast_to(weight, (count, 1))
    return _per_query(inputs, scale * kept_words, scale[..., None] * random_labels, scale * masked_labels)


def _per_document(inputs: np.ndarray, labels: np.ndarray) -> TokenCounts:
    """One group a document; labels [document word]."""
    n = len(inputs)
    targets = np.zeros_like(inputs)
    targets[:, 1 : labels.shape[1] + 1] = labels
    return TokenCounts(inputs, np.arange(n), np.zeros(n, dtype=np.int64), targets)


def _per_query(inputs: np.ndarray, kept: np.ndarray, replaced: np.ndarray, masked: np.ndarray) -> TokenCounts:
    """Groups (document, shown token) of positive weight.

    kept [document word]: own word shown; replaced [document shown label]; masked [document label]: [MASK] shown.
    """
    n, V = kept.shape
    targets = np.zeros((n, V + 1, inputs.shape[1]))
    targets[:, 0, 1 : V + 1] = masked
    targets[:, 1:, 1 : V + 1] = replaced
    words = np.arange(1, V + 1)
    targets[:, words, words] += kept
    document, query = np.nonzero(targets.sum(axis=2))
    return TokenCounts(inputs, document, query, targets[document, query])
