"""Claims about training: what is confirmed, and that no sabotaged run is."""

import pytest

from claims.sabotage import Shuffled, Untrained
from topicscope.claims import attention_block, attention_diagonal, embedding_block, two_stage
from topicscope.claims.context import Context
from topicscope.topics.setting import Setting


def answers(claim, rows):
    """Criterion -> whether all of its rows meet it."""
    met = {}
    for row in rows:
        for criterion in claim.criteria:
            if row["criterion"] == criterion.id:
                met[criterion.id] = met.get(criterion.id, True) and criterion.met(row)
    return met


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
    assert embedding_block.CLAIM.run(Untrained(seeds=2, quick=True)).verdict == "not_confirmed"


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
    assert two_stage.CLAIM.run(Untrained(seeds=2, quick=True)).verdict == "not_confirmed"


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
    ("claim", "leading", "outside"),
    [
        (attention_block, "topic", Setting(44396, 23, 30557, 0.498, 0.434, 0.434)),
        (attention_diagonal, "suppressed", Setting(10, 4, 2, 0.15, 0.1, 0.1)),
    ],
)
def test_attention(claim, leading, outside, monkeypatch) -> None:
    """Orders are confirmed, the printed averages are not; nothing of it without training or with the wrong W_V."""
    result = claim.CLAIM.run(Quicker(seeds=3, quick=True))
    met = answers(claim.CLAIM, result.rows)
    assert result.verdict == "partly"
    assert all(met[criterion.id] for criterion in claim.CLAIM.criteria if criterion.decisive)
    assert not met["printed"]
    assert claim.CLAIM.run(Untrained(seeds=2, quick=True)).verdict == "not_confirmed"
    wrong = answers(claim.CLAIM, claim.trained_rows(WrongValues(seeds=2, quick=True)))
    assert not wrong[leading]
    monkeypatch.setattr(claim, "SETTING", outside)
    assert not answers(claim.CLAIM, claim.optimum_rows())["bounds"]
