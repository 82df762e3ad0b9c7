"""Knowls 3, 4 and 9 by training attention with W_V frozen."""

import numpy as np
import pytest
import torch

from lab.laboratory import at_step, run
from topicscope.lab import CountTensors, ReducedTransformer, held_out, make_recipe, start, topic_model_of
from topicscope.synthetic import TokenCounts

WORD, TOPIC, OTHER = "attention_same_word", "attention_same_topic", "attention_different_topic"
QUICK = ("history.every=100", "history.documents=60")
# theory.md 2: argmin of the exact landscape over (α, β) at N = 100, τ = 2, with its loss there.
OPTIMA = {"block": ((6.5, 0.5), 0.9469654877), "diagonal": ((0.0, 24.0), 0.8877667844)}


class Judge:
    """Losses on documents that no run has seen, in chunks, so that the error of a difference can be shown."""

    def __init__(self, record, chunks=20, documents=200) -> None:
        config = record.config | {"history": {"documents": documents * chunks}}
        self.recipe = make_recipe(config)
        self.topics = topic_model_of(self.recipe)
        counts = held_out(self.recipe, self.topics, by_query=True).counts
        self.parts = [self._part(counts, slice(i * documents, (i + 1) * documents)) for i in range(chunks)]
        self.W_V = record.weights["W_V"][0].astype(float)

    def _part(self, counts, rows):
        chosen = (counts.document >= rows.start) & (counts.document < rows.stop)
        targets = counts.targets[chosen] / counts.targets[chosen].sum()
        part = TokenCounts(counts.inputs[rows], counts.document[chosen] - rows.start, counts.query[chosen], targets)
        return CountTensors.of([part], torch.float64)

    def losses(self, W_K, W_Q):
        """Loss on each chunk."""
        arrays = {"W_V": self.W_V, "W_K": W_K.astype(float), "W_Q": W_Q.astype(float)}
        begin = start(self.recipe.model, len(self.W_V), self.topics, arrays, 0, torch.float64)
        model = ReducedTransformer(self.recipe.model, [begin])
        with torch.no_grad():
            return np.array([float(model.data_loss(part, "squared")) for part in self.parts])

    def topicwise(self, alpha, beta):
        """Loss of attention with weight β on the same word, α on the same topic, 1 on the rest and on [MASK]."""
        size = len(self.W_V)
        topic = np.append(-1, np.arange(size - 1) // 10)
        scores = np.where(topic[:, None] == topic, np.log(max(alpha, 1e-30)), 0.0)
        np.fill_diagonal(scores, np.log(beta))
        scores[0], scores[:, 0] = 0, 0
        return self.losses(scores, np.sqrt(size) * np.eye(size))


@pytest.mark.parametrize("kind", ["block", "diagonal"])
@pytest.mark.parametrize(("steps", "enough"), [(400, 0.9), pytest.param(1000, 0.95, marks=pytest.mark.long)])
def test_free_attention_comes_near_the_best_topicwise_weights(kind, steps, enough) -> None:
    name, lazy = f"attention-squared-{kind}", ("training.steps=1", "training.learning_rate=1e-9")
    record, untrained = (run(name, *how, "history.documents=10") for how in ((f"training.steps={steps}",), lazy))
    judge = Judge(record)
    (alpha, beta), exact = OPTIMA[kind]
    uniform, best = judge.topicwise(1.0, 1.0), judge.topicwise(alpha, beta)
    assert best.mean() == pytest.approx(exact, abs=4 * best.std() / np.sqrt(len(best) - 1))  # the oracle is right
    for weights, holds in ((record.weights, True), (untrained.weights, False)):
        for W_K, W_Q in zip(weights["W_K"], weights["W_Q"], strict=True):
            gain = uniform - judge.losses(W_K, W_Q)
            share = gain.mean() / (uniform - best).mean()
            # Delta method for the ratio of two means of the same chunks.
            error = (gain - share * (uniform - best)).std(ddof=1) / np.sqrt(len(gain)) / (uniform - best).mean()
            assert error < 0.02
            assert (share >= enough) == holds, f"{share:.3f} ± {error:.3f}"
            assert share < 1.05


@pytest.mark.parametrize("name", ["attention-block", "attention-theorem-2"])
@pytest.mark.parametrize("last", [500, pytest.param(3000, marks=pytest.mark.long)])
def test_block_values_draw_attention_to_the_topic_and_the_same_word_fades(name, last) -> None:
    record = run(name, f"training.steps={last}", *QUICK)
    first = at_step(record, 0)
    np.testing.assert_allclose(first[TOPIC], first[OTHER], rtol=0.01)  # untrained: no order
    for step in {500, min(1000, last)}:
        rows = at_step(record, step)
        assert (rows[TOPIC] > 1.3 * rows[WORD]).all()
        assert (rows[WORD] > 2 * rows[OTHER]).all()
    if last == 3000:
        assert (at_step(record, 3000)[WORD] < at_step(record, 3000)[OTHER]).all()


@pytest.mark.parametrize("last", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_diagonal_values_draw_attention_to_the_same_word(loss, last) -> None:
    record = run("attention-diagonal", f"training.steps={last}", f"training.loss={loss}", *QUICK)
    for step in range(100, last + 1, 100):
        rows = at_step(record, step)
        assert (rows[WORD] > 3 * rows[OTHER]).all()
        assert (rows[OTHER] > 1.1 * rows[TOPIC]).all()
    assert not (at_step(record, 0)[WORD] > 1.1 * at_step(record, 0)[OTHER]).any()


def test_with_the_squared_loss_same_word_and_same_topic_stay_together() -> None:
    rows = at_step(run("attention-theorem-2", "training.steps=300", "training.loss=squared", *QUICK), 300)
    np.testing.assert_allclose(rows[WORD], rows[TOPIC], rtol=0.1)
    assert (rows[TOPIC] > 2 * rows[OTHER]).all()


def test_start_becomes_a_sink_where_the_block_is_large() -> None:
    large, small = (
        run("attention-start", "training.steps=200", f"model.value_scale={scale}", *QUICK) for scale in (10, 1)
    )
    assert (large.final["attention_special"] > 0.05).all()
    assert (small.final["attention_special"] < 0.02).all()
