"""Frequency bands: words that occur about equally often, so that frequency cannot pass for topic."""

import numpy as np
from jaxtyping import Float, Int

MOST_BANDS = 10
BAND_WORDS = 20


def frequency_bands(counts: Float[np.ndarray, "word"]) -> Int[np.ndarray, "word"] | None:
    """Band of each word, 0 the rarest: bands of nearly equal size; None where there are too few words for two.

    counts [word]: occurrences, or anything that orders the words as they do.
    """
    number = min(MOST_BANDS, len(counts) // BAND_WORDS)
    if number < 2:
        return None
    bands = np.empty(len(counts), dtype=np.int64)
    bands[np.argsort(counts, kind="stable")] = np.arange(len(counts)) * number // len(counts)
    return bands
