"""Claims about training: what is confirmed, and that no sabotaged run is."""

from dataclasses import replace

import numpy as np
import pytest

from claims.sabotage import Shuffled, Untrained, answers
from topicscope.claims import attention_order, embedding_block, two_stage
from topicscope.claims.attention_order import BLOCK, DIAGONAL, FREE, free_attention_rows, topicwise_run
from topicscope.claims.claim import Context
from topicscope.claims.pair_attention import losses_of
from topicscope.synthetic import Setting
from topicscope.theory import topicwise_attention_loss, topicwise_attention_optimum


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (Context, {"gap": True, "conditions": True, "loss": True, "distinct": True}),
        (Untrained, {"gap": False, "conditions": False, "loss": False, "distinct": False}),
        (Shuffled, {"gap": False, "conditions": False, "loss": False, "distinct": False}),
    ],
)
def test_embeddings_in_the_population(context, expected) -> None:
    rows = embedding_block.theorem_rows(context(seeds=2), "Adam .01", "training.steps=300")
    assert answers(embedding_block.CLAIM, rows) == expected


def test_embeddings_without_training_are_not_confirmed() -> None:
    result = embedding_block.CLAIM.run(Untrained(seeds=2, quick=True))
    assert result.verdict == "not_confirmed"
    assert answers(embedding_block.CLAIM, result.rows) == {c.id: False for c in embedding_block.CLAIM.criteria}


SETTING = Setting(5, 4, 2, 0.15, 0.1, 0.1)


def test_first_gradients_and_stage_one() -> None:
    rows = two_stage.start_rows(Context(seeds=2, quick=True), SETTING)
    assert answers(two_stage.CLAIM, rows) == {"gradients": True, "stage-one": True}
    wrong = two_stage.start_rows(Context(seeds=2, quick=True), Setting(10, 8, 2, 0.4, 0.1, 0.1))
    assert answers(two_stage.CLAIM, wrong) == {"gradients": False, "stage-one": False}


@pytest.mark.long
def test_two_stages_in_the_population() -> None:
    rows = two_stage.population_rows(Context(seeds=2, quick=True))
    assert set(answers(two_stage.CLAIM, rows).values()) == {True}


def test_two_stages_without_training_are_not_confirmed() -> None:
    result = two_stage.CLAIM.run(Untrained(seeds=2, quick=True))
    assert result.verdict == "not_confirmed"
    assert answers(two_stage.CLAIM, result.rows) == {c.id: c.id == "gradients" for c in two_stage.CLAIM.criteria}


def test_stages_at_other_rates_and_starts() -> None:
    """They need a start near zero, and plain gradient descent."""
    rows = two_stage.setting_rows(Context(seeds=3, quick=True))
    assert answers(two_stage.CLAIM, rows) == {"separated": True, "adam": False}
    log = {row["quantity"].rpartition(", ")[2]: row["measured"] for row in rows}
    assert log["σ 0.0001"] > log["σ 0.01"] > log["σ 0.1"] > log["σ 0.3"]
    assert all(row["stage_two_reached"] for row in rows)


def test_adam_with_cross_entropy_shows_no_stages() -> None:
    rows = two_stage.sampled_rows(Context(seeds=2, quick=True))
    assert answers(two_stage.CLAIM, rows) == {"cross-entropy": False}
    assert not any(rows[0]["separated"])


class Quicker(Context):
    """Enough steps for the orders, on few held-out documents."""

    def train(self, name, *overrides, seeds=None):
        return super().train(
            name, *overrides, "training.steps=150", "history.every=1000", "history.documents=60", seeds=seeds
        )


class WrongValues(Quicker):
    """The frozen value matrix of the other claim."""

    def train(self, name, *overrides, seeds=None):
        wrong = "diagonal" if name != "attention-diagonal" else "block"
        return super().train(name, *overrides, f"model.value={wrong}", "arrays={}", seeds=seeds)


@pytest.mark.parametrize(
    ("claim", "value", "leading", "outside"),
    [
        (BLOCK, "block", "topic", Setting(44396, 23, 30557, 0.498, 0.434, 0.434)),
        (DIAGONAL, "diagonal", "suppressed", Setting(10, 4, 2, 0.15, 0.1, 0.1)),
    ],
)
def test_attention(claim, value, leading, outside, monkeypatch) -> None:
    """Orders are confirmed, the printed averages are not; nothing of it without training or with the wrong W_V."""
    result = claim.run(Quicker(seeds=3, quick=True))
    met = answers(claim, result.rows)
    assert result.verdict == "partly"
    assert all(met[criterion.id] for criterion in claim.criteria if criterion.decisive)
    assert not met["printed"]
    untrained = claim.run(Untrained(seeds=2, quick=True))
    assert untrained.verdict == "not_confirmed"
    exact = ("bounds", "inside")  # of theory alone: see below
    assert answers(claim, untrained.rows) == {c.id: c.id in exact for c in claim.criteria}
    wrong = answers(claim, attention_order.trained_rows(value, WrongValues(seeds=2, quick=True)))
    assert not wrong[leading]
    monkeypatch.setattr(attention_order, "SETTING", outside)
    assert not answers(claim, attention_order.optimum_rows(value))["bounds"]
    monkeypatch.setattr(attention_order, "SETTING", Setting(10, 10, 2, 0.15, 0.0, 0.1))  # a masked word is never shown
    assert not answers(claim, attention_order.optimum_rows(value))["inside"]


@pytest.mark.parametrize("value", ["block", "diagonal"])
def test_the_best_topicwise_weights_are_the_oracles(value) -> None:
    """Losses of attention put in place by hand are the exact ones, and least at (α*, β*)."""
    setting = Setting(10, 10, 2, 0.15, 0.1, 0.1, 100)
    record = Untrained(seeds=2).train(f"attention-squared-{value}", "history.documents=5")
    best = topicwise_attention_optimum(setting, value)
    losses = {}
    for alpha, beta in ((1.0, 1.0), (best.alpha, best.beta), (2.0, 3.0)):
        losses[alpha, beta] = losses_of(topicwise_run(record, alpha, beta), 2000)[0]
        assert losses[alpha, beta] == pytest.approx(topicwise_attention_loss(setting, alpha, beta, value), abs=2e-3)
    assert min(losses, key=losses.get) == (best.alpha, best.beta)


@pytest.mark.parametrize("value", ["block", "diagonal"])
def test_free_attention_comes_near_the_best_weights_unless_topics_are_shuffled(value) -> None:
    trained = {}  # once for both: they judge the same runs

    class Shorter(Context):
        def train(self, name, *overrides, seeds=None):
            fast = ("training.steps=400", "history.every=1000", "history.documents=20")
            if (name, *overrides, seeds) not in trained:
                trained[name, *overrides, seeds] = super().train(name, *overrides, *fast, seeds=seeds)
            return trained[name, *overrides, seeds]

    class OtherWords(Shorter):
        """What was learned, judged with words that have changed their topics."""

        def train(self, name, *overrides, seeds=None):
            record = super().train(name, *overrides, seeds=seeds)
            order = np.append(0, 1 + np.arange(100).reshape(10, 10).T.ravel())
            weights = {n: record.weights[n][:, :, order] for n in ("W_K", "W_Q")}
            return replace(record, weights=dict(record.weights) | weights)

    for context, holds in ((Shorter, True), (OtherWords, value == "diagonal")):
        (row, *_) = free_attention_rows(context(seeds=3, quick=True), value)
        assert FREE.met(row) == holds, row
