"""Joint training: one topic is preferred where nothing is frozen, and nothing of it is said of a sabotaged run."""

import numpy as np
import pytest

from claims.sabotage import Shuffled, Untrained
from topicscope.claims import joint_training as claim
from topicscope.claims.claim import Context
from topicscope.claims.pair_attention import attention_of, losses_of
from topicscope.topics import PairClass


class Quicker(Context):
    """Enough steps for the order, measured at the end only, and BERT's parts barely begun."""

    def train(self, name, *overrides, seeds=None):
        steps = 200 if "model.residual=true" not in overrides else 2
        fast = (f"training.steps={steps}", "history.every=1000", "history.documents=5")
        return super().train(name, *overrides, *fast, seeds=seeds)


class QuickerShuffled(Quicker, Shuffled):
    """The same, measured with words that have changed their topics."""


def answers(rows):
    """Criterion -> whether all of its rows meet it."""
    met = {}
    for row in rows:
        for criterion in claim.CLAIM.criteria:
            if row["criterion"] == criterion.id:
                met[criterion.id] = met.get(criterion.id, True) and criterion.met(row)
    return met


@pytest.fixture(scope="module")
def one_layer():
    return claim.one_layer_rows(Quicker(seeds=3, quick=True))


def test_one_layer_with_nothing_frozen(one_layer) -> None:
    met = answers(one_layer)
    assert met["topic"]
    assert met["distinct"]
    assert met["learned"]


@pytest.mark.parametrize("context", [Untrained, QuickerShuffled])
def test_without_training_or_with_other_topics_nothing_is_confirmed(context) -> None:
    result = claim.CLAIM.run(context(seeds=3, quick=True))
    assert result.verdict == "not_confirmed"
    assert set(answers(result.rows).values()) == {False}


def test_parts_of_bert_cost_a_partly_and_never_the_claim(one_layer) -> None:
    parts = claim.part_rows(Quicker(seeds=2, quick=True))
    assert answers(parts) == {"parts": False, "parts-learned": False}  # two steps
    assert claim.CLAIM.judge([*one_layer, *parts])[0] == "partly"


def test_ratios_are_those_of_a_loop_over_pairs() -> None:
    """Two layers of four heads; documents of unequal length, where the debiasing matters."""
    small = (
        "data.length=[5, 12]",
        "model.layers=2",
        *claim.PARTS["with 4 heads"],
        "training.steps=3",
        "model.sigma=0.5",
    )
    record = Context(seeds=2).train("joint-training", *small)
    ratios = claim.log_ratios(record, (PairClass.same_word, PairClass.same_topic))
    assert {name: values.shape for name, values in ratios.items()} == {"mean": (2, 1), "layer": (2, 2), "head": (2, 8)}
    for seed, (documents, attention) in enumerate(attention_of(record)):
        shown = np.broadcast_to((documents.words >= 0)[None, :, None, :], attention.shape[:-1])
        np.testing.assert_allclose(attention.sum(axis=-1)[shown], 1.0, rtol=1e-6)
        sums, counts = np.zeros((2, 2, 4)), np.zeros(2)
        for d, words in enumerate(documents.words):
            length = sum(word >= 0 for word in words)
            for i in range(length):
                for j in range(length):
                    if i != j:
                        other = int(words[i] // 10 != words[j] // 10)
                        sums[other] += attention[:, d, :, i, j] * length / 100
                        counts[other] += 1
        means = sums / counts[:, None, None]
        expected = np.log(means[0] / means[1])
        np.testing.assert_allclose(ratios["head"][seed].reshape(2, 4), expected, rtol=1e-6)
        pooled = means.mean(axis=(1, 2))
        np.testing.assert_allclose(ratios["mean"][seed, 0], np.log(pooled[0] / pooled[1]), rtol=1e-6)
        by_layer = means.mean(axis=2)
        np.testing.assert_allclose(ratios["layer"][seed], np.log(by_layer[0] / by_layer[1]), rtol=1e-6)


def test_uniform_attention_has_a_ratio_of_one_whatever_the_lengths() -> None:
    still = ("model.sigmas={W_K = 0.0, W_Q = 0.0}", "training.steps=1", "training.learning_rate=1e-12")
    record = Context(seeds=2).train("joint-training", "data.length=[5, 60]", *still)
    assert np.abs(claim.log_ratios(record, (PairClass.same_topic,))["mean"]).max() < 1e-6


def test_an_untrained_model_costs_what_guessing_costs() -> None:
    record = Untrained(seeds=2).train("joint-training", "model.sigma=1e-6")
    np.testing.assert_allclose(losses_of(record, 20), np.log(101), rtol=1e-4)  # [MASK] is a possible answer too
    assert claim.BAYES < claim.UNIFORM < claim.LEARNED < claim.GUESS
