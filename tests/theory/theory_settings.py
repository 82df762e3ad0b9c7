"""Hypothesis strategies and a sampler shared by the tests of the theory."""

import math

import numpy as np
from hypothesis import strategies as st

from topicscope.synthetic import Setting


@st.composite
def infinite_settings(draw: st.DrawFn, max_topics: int = 4, max_words: int = 3) -> Setting:
    """Small settings with N = ∞, the edges p_c = 0, p_r = 0, τ = 1, τ = T, T = 1, v = 1 and v = 25 among them."""
    T = draw(st.integers(1, max_topics))
    p_c = draw(st.one_of(st.just(0.0), st.floats(0.01, 0.6)))
    p_r = draw(st.one_of(st.just(0.0), st.floats(0.01, 0.95 - p_c)))
    words = st.integers(1, max_words)
    v = draw(st.one_of(words, st.just(25)) if max_words == 3 and T <= 2 else words)
    return Setting(T, v, draw(st.integers(1, T)), draw(st.floats(0.05, 0.9)), p_c, p_r)


@st.composite
def finite_settings(draw: st.DrawFn, most_documents: int = 6000) -> Setting:
    """Small settings with N ≤ 4, small enough to enumerate."""
    s = draw(infinite_settings(max_topics=3, max_words=2))
    states = s.topics_per_document * s.words_per_topic * (s.vocabulary_size + 2)
    sets = math.comb(s.num_topics, s.topics_per_document)
    lengths = [n for n in range(1, 5) if sets * math.comb(states + n - 1, n) <= most_documents]
    return Setting(
        s.num_topics,
        s.words_per_topic,
        s.topics_per_document,
        s.p_mask,
        s.p_correct,
        s.p_random,
        draw(st.sampled_from(lengths)),
        draw(st.sampled_from(["document", "token"])),
    )


def sampled_document(
    setting: Setting, p: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(clean words, shown tokens, selected) of one document with word distribution p over [MASK] and words."""
    N, V = setting.document_length, len(p) - 1
    clean = rng.choice(V + 1, size=N, p=p)
    selected = rng.random(N) < setting.p_mask
    u = rng.random(N)
    shown = np.where(u < setting.p_correct, clean, 0)
    random = (u >= setting.p_correct) & (u < setting.p_correct + setting.p_random)
    shown[random] = rng.integers(1, V + 1, size=int(random.sum()))
    return clean, np.where(selected, shown, clean), selected
