"""The E-step of gensim's LDA on a batch, cut into parts that can be done anywhere, in any order, to the same numbers.

For passage d with counts n_dw, and E = exp(E[log φ]) [topic, word], gensim finds θ's variational parameters and adds

    s_kw += n_dw exp(E[log θ_dk]) E_kw / Σ_j exp(E[log θ_dj]) E_jw

A part holds `PART` passages, the columns of E of its words only, and the state from which gensim draws the start of θ:
that which the generator would have had, had the batch been done at once. So s differs from that of the whole batch by
the order of addition only, and not at all where the batch is one part; and the parts do not depend on who does them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from topicscope.errors import RunError
from topicscope.runner import Failed, Job, Runner
from topicscope.topics.stored_text import Bags

PART = 1024

Part = tuple[np.ndarray, np.ndarray]


def expect(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    columns: np.ndarray,
    alpha: np.ndarray,
    iterations: int,
    state: tuple[Any, ...],
) -> np.ndarray:
    """s [topic, word] of one part.

    arrays: of `Bags`, words numbered as the `columns` of E [topic, word]; state: of the generator, as numpy gives it.
    """
    from gensim.models import LdaModel
    from threadpoolctl import threadpool_limits

    model = LdaModel(
        num_topics=len(alpha), id2word={0: ""}, alpha=alpha, iterations=iterations, dtype=np.float64, random_state=0
    )
    model.expElogbeta = columns
    model.random_state.set_state(state)
    with threadpool_limits(1):  # sums of one order, whatever the machine's processors
        found: np.ndarray = model.inference(list(Bags(*arrays)), collect_sstats=True)[1]
    return found


def expected(
    runner: Runner, batch: Bags, weights: np.ndarray, alpha: np.ndarray, iterations: int, state: np.random.RandomState
) -> np.ndarray:
    """s [topic, word] of a batch; weights: E; state: the generator, which moves on.

    Raises:
        RunError: a part could not be done.
    """
    jobs, places = [], []
    for number, start in enumerate(range(0, len(batch), PART)):
        part = batch.part(start, start + PART)
        used, words = np.unique(part.words, return_inverse=True)
        arrays = (words.astype(np.uint32), part.counts, part.lengths)
        columns = np.ascontiguousarray(weights[:, used])  # in the order of gensim's own, or sums round otherwise
        jobs.append(Job(str(number), (arrays, columns, alpha, iterations, state.get_state())))
        places.append(used)
        state.gamma(100.0, 0.01, (len(part), len(alpha)))  # what this part draws
    total = np.zeros_like(weights)
    for used, found in zip(places, _in_order(runner, expect, jobs), strict=True):
        total[:, used] += found
    return total


def _in_order(runner: Runner, work: Callable[..., np.ndarray], jobs: Sequence[Job]) -> list[np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for outcome in runner.run(work, jobs):
        if isinstance(outcome, Failed):
            raise RunError(
                "a part of the text could not be read for its topics",
                received=outcome.reason,
                advice="see whether the workers have memory enough; nothing was written",
            )
        found[outcome.name] = outcome.value
    return [found[job.name] for job in jobs]
