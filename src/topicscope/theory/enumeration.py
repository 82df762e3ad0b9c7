"""The slow twin: every document of a small setting, straight from Knowl 6, sharing no formula with the fast forms.

A document type is a set S of active topics with its word distribution p_S. A position is described by its clean word,
the token shown in its place and whether it was selected; positions of a document are independent given S. At finite N
every multiset of N positions is visited; at N = ∞ the shares of shown tokens are deterministic given S.

Index 0 is [MASK] everywhere; matrices are W[out, in].
"""

import math
from collections import Counter
from itertools import combinations, combinations_with_replacement
from typing import Literal

import numpy as np

from topicscope.synthetic import Setting

Loss = Literal["squared", "cross_entropy"]


def document_types(setting: Setting, phi: np.ndarray | None = None) -> list[tuple[float, np.ndarray]]:
    """(probability, p_S over [MASK] and the words) of every set S of τ topics.

    phi: [topic, word], the topics' word distributions; the disjoint uniform topics of the setting by default.
    """
    T, v, tau = setting.num_topics, setting.words_per_topic, setting.topics_per_document
    if phi is None:
        phi = np.zeros((T, T * v))
        for word in range(T * v):
            phi[word // v, word] = 1 / v
    sets = list(combinations(range(T), tau))
    return [(1 / len(sets), np.concatenate([[0.0], phi[list(active)].mean(axis=0)])) for active in sets]


def corruption(setting: Setting, num_words: int) -> np.ndarray:
    """channel[shown, clean]: what a selected position shows, given its clean word (column 0 is unused)."""
    channel = np.zeros((num_words + 1, num_words + 1))
    for clean in range(1, num_words + 1):
        channel[clean, clean] += setting.p_correct
        channel[1:, clean] += setting.p_random / num_words
        channel[0, clean] += 1 - setting.p_correct - setting.p_random
    return channel


def topicwise_kernel(setting: Setting, alpha: float, beta: float) -> np.ndarray:
    """kernel[key, query] of Knowl 3: β same word, α same topic, 1 otherwise; [MASK] attends and is attended with
    weight 1."""
    v, size = setting.words_per_topic, setting.vocabulary_size + 1
    kernel = np.ones((size, size))
    for key in range(1, size):
        for query in range(1, size):
            if key == query:
                kernel[key, query] = beta
            elif (key - 1) // v == (query - 1) // v:
                kernel[key, query] = alpha
    return kernel


def enumerated_loss(
    setting: Setting,
    W: np.ndarray,
    b: np.ndarray | None = None,
    *,
    kernel: np.ndarray | None = None,
    loss: Loss = "squared",
    phi: np.ndarray | None = None,
) -> float:
    """The expected loss of output_j = W Σ_i x̃_i A_ij + b with A_ij = kernel[x̃_i, x̃_j] / Σ_i' kernel[x̃_i', x̃_j].

    W: [V+1, V+1]; b: [V+1], 0 by default; kernel: [V+1, V+1], uniform attention by default; phi: as in
    `document_types`. Cost: exponential in N; meant for V ≤ 8 and N ≤ 4 (or N = ∞ with a few thousand topic sets).
    """
    size = W.shape[0]
    bias = np.zeros(size) if b is None else b
    weights = np.ones((size, size)) if kernel is None else kernel
    types = document_types(setting, phi)
    channel = corruption(setting, size - 1)
    if setting.document_length is None:
        parts = [_infinite(setting, p, channel, W, bias, weights, loss) for _, p in types]
    else:
        parts = [_finite(setting, setting.document_length, p, channel, W, bias, weights, loss) for _, p in types]
    return math.fsum(probability * part for (probability, _), part in zip(types, parts, strict=True))


def enumerated_bayes_loss(setting: Setting, loss: Loss = "squared") -> float:
    """The least loss of any predictor that knows S and the token shown at the position it predicts."""
    channel = corruption(setting, setting.vocabulary_size)
    total = 0.0
    for probability, p in document_types(setting):
        for shown in range(len(p)):
            joint = channel[shown] * p
            if joint.sum() > 0:
                posterior = joint / joint.sum()
                inside = posterior[posterior > 0]
                risk = 1 - (posterior**2).sum() if loss == "squared" else -(inside * np.log(inside)).sum()
                total += probability * float(joint.sum() * risk)
    return total


def _criterion(output: np.ndarray, target: int, loss: Loss) -> float:
    if loss == "cross_entropy":
        top = float(output.max())
        return top + math.log(float(np.exp(output - top).sum())) - float(output[target])
    difference = output.copy()
    difference[target] -= 1.0
    return float(difference @ difference)


def _infinite(
    setting: Setting, p: np.ndarray, channel: np.ndarray, W: np.ndarray, b: np.ndarray, kernel: np.ndarray, loss: Loss
) -> float:
    shown = (1 - setting.p_mask) * p + setting.p_mask * channel @ p
    terms = []
    for query in range(len(p)):
        attention = kernel[:, query] * shown
        output = W @ (attention / attention.sum()) + b
        for clean in np.flatnonzero(channel[query] * p):
            terms.append(p[clean] * channel[query, clean] * _criterion(output, int(clean), loss))
    return math.fsum(terms)


def _finite(
    setting: Setting,
    length: int,
    p: np.ndarray,
    channel: np.ndarray,
    W: np.ndarray,
    b: np.ndarray,
    kernel: np.ndarray,
    loss: Loss,
) -> float:
    states = _position_states(setting, p, channel)
    some_selected = 1 - (1 - setting.p_mask) ** length
    expected_selected = length * setting.p_mask
    terms = []
    for positions in combinations_with_replacement(range(len(states)), length):
        multiplicity = Counter(positions)
        selected = sum(count for state, count in multiplicity.items() if states[state][2])
        if selected == 0:
            continue
        ways = math.factorial(length)
        probability = 1.0
        shown = np.zeros(len(p))
        for state, count in multiplicity.items():
            ways //= math.factorial(count)
            probability *= states[state][3] ** count
            shown[states[state][1]] += count
        weight = ways * probability
        weight /= some_selected * selected if setting.weighting == "document" else expected_selected
        for state, count in multiplicity.items():
            clean, query, is_selected, _ = states[state]
            if is_selected:
                attention = kernel[:, query] * shown
                output = W @ (attention / attention.sum()) + b
                terms.append(weight * count * _criterion(output, clean, loss))
    return math.fsum(terms)


def _position_states(setting: Setting, p: np.ndarray, channel: np.ndarray) -> list[tuple[int, int, bool, float]]:
    """(clean word, shown token, selected, probability) of one position, the impossible ones left out."""
    states = []
    for clean in np.flatnonzero(p):
        states.append((int(clean), int(clean), False, float(p[clean] * (1 - setting.p_mask))))
        for shown in np.flatnonzero(channel[:, clean]):
            probability = float(p[clean] * setting.p_mask * channel[shown, clean])
            states.append((int(clean), int(shown), True, probability))
    return states
