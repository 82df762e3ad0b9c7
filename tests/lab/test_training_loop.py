import math

import numpy as np
import pytest
import torch

from topicscope.errors import InputError, RunError
from topicscope.lab import load_recipe, make_recipe, train
from topicscope.lab.engine import learning_rate, spans_of
from topicscope.lab.history import measured_steps

SMALL = {"num_topics": 3, "words_per_topic": 3, "topics_per_document": 2, "length": [12, 20]}
POPULATION = SMALL | {"source": "population"}


def recipe(data=SMALL, model=None, history=None, arrays=None, **training):
    base = {"dtype": "float64", "steps": 20, "batch_size": 5, "optimizer": "sgd", "learning_rate": 0.5}
    history = {"documents": 10} | (history or {})
    tables = {"data": data, "model": model or {}, "training": base | training, "history": history}
    return make_recipe(tables | {"arrays": arrays or {}})


def same(a, b, tolerance=0.0) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    "model", [{}, {"attention": "uniform", "bias": "trained"}, {"embedding": "trained", "width": 4}]
)
def test_both_engines_reach_the_same_weights_and_history(loss, optimizer, model) -> None:
    kind = {"loss": loss, "optimizer": optimizer, "learning_rate": 0.05, "ridge": {"W_V": 0.01}, "clip": 0.8}
    data = SMALL | {"specials": True}
    fast = train(recipe(data, model, engine="reduced", **kind), seeds=2)
    plain = train(recipe(data, model, engine="token", **kind), seeds=2)
    assert (fast.summary["engine"], plain.summary["engine"]) == ("reduced", "token")
    same(fast.weights, plain.weights, 1e-9)
    assert list(fast.history) == list(plain.history)
    np.testing.assert_allclose(fast.history, plain.history, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("engine", ["reduced", "token"])
def test_a_seed_alone_and_among_others(engine) -> None:
    together = train(recipe(engine=engine, optimizer="adam"), seeds=3)
    alone = train(recipe(engine=engine, optimizer="adam", seed=2))
    same({name: value[2:] for name, value in together.weights.items()}, alone.weights, 1e-12)
    assert not np.allclose(together.weights["W_V"][0], together.weights["W_V"][1])


def test_auto_takes_the_fast_engine_only_where_it_is_exact() -> None:
    assert train(recipe(steps=1)).summary["engine"] == "reduced"
    slow = train(recipe(model={"residual": True}, steps=1)).summary
    assert (slow["engine"], slow["engine_reason"]) == ("token", "the model has a residual connection")


def test_ridge_is_a_true_squared_norm_with_its_gradient() -> None:
    without, with_it = (train(recipe(POPULATION, steps=1, ridge=r)) for r in ({}, {"W_V": 0.1}))
    start = train(recipe(POPULATION, steps=1, learning_rate=1e-300)).weights["W_V"]
    same({"W_V": with_it.weights["W_V"] - without.weights["W_V"]}, {"W_V": -0.5 * 2 * 0.1 * start}, 1e-15)
    first = with_it.history.iloc[0]
    assert first.objective - first.batch_loss == pytest.approx(0.1 * np.square(start).sum(), rel=1e-12)


def test_schedules() -> None:
    def rates(**training):
        t = recipe(steps=8, learning_rate=1.0, **training).training
        return [learning_rate(t, spans_of(t)[0], step) for step in range(8)]

    assert rates() == [1.0] * 8
    assert rates(schedule="linear") == pytest.approx([1 - k / 8 for k in range(8)])
    assert rates(schedule="cosine") == pytest.approx([(1 + math.cos(math.pi * k / 8)) / 2 for k in range(8)])
    assert rates(schedule="linear", warmup=4) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 0.75, 0.5, 0.25])


@pytest.mark.parametrize("engine", ["reduced", "token"])
def test_stages_move_only_their_matrices(engine) -> None:
    stages = [
        {"share": 0.5, "train": ["W_V"]},
        {"share": 0.5, "train": ["W_K", "W_Q"], "learning_rate": 3.0},
    ]
    record = train(recipe(engine=engine, stages=stages, optimizer="adam"))
    rows = record.history.set_index("step")
    assert (rows.W_K_change[:10] == 0).all()
    assert rows.W_K_change[11] > 0
    assert (np.diff(rows.W_V_change[:10]) != 0).all()
    assert (rows.W_V_change[10:] == rows.W_V_change[10]).all()
    assert (rows.learning_rate[9], rows.learning_rate[10]) == (0.5, 3.0)


def test_the_shortest_schedule_still_visits_every_stage() -> None:
    stages = [{"share": 0.9, "train": ["W_V"]}, {"share": 0.1, "train": ["W_K"]}]
    assert [(s.first, s.last) for s in spans_of(recipe(stages=stages, steps=1).training)] == [(0, 1), (1, 2)]
    assert [(s.first, s.last) for s in spans_of(recipe(stages=stages, steps=100).training)] == [(0, 90), (90, 100)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_averaging_is_the_mean_of_the_last_iterates(dtype) -> None:
    iterates = [train(recipe(POPULATION, steps=k, dtype=dtype)).weights["W_V"] for k in range(6, 11)]
    averaged = train(recipe(POPULATION, steps=10, average=0.5, dtype=dtype))
    same({"W_V": averaged.weights["W_V"]}, {"W_V": np.mean(iterates, axis=0)}, 1e-7 if dtype == "float32" else 1e-15)
    # The history follows the raw iterates; the final measurement is that of the average.
    assert averaged.history.iloc[-1].W_V_norm == pytest.approx(np.linalg.norm(iterates[-1]), rel=1e-6)
    assert averaged.final.W_V_norm[0] == pytest.approx(np.linalg.norm(np.mean(iterates, axis=0)), rel=1e-6)


@pytest.mark.parametrize("engine", ["reduced", "token"])
def test_clipping_is_by_seed(engine) -> None:
    first = train(recipe(engine=engine, steps=1, model={"sigma": 1.0}), seeds=4)
    norms = np.sqrt(sum(first.history[first.history.step == 0][f"{name}_grad"] ** 2 for name in ("W_V", "W_K", "W_Q")))
    limit = float(np.median(norms))
    clipped = train(recipe(engine=engine, steps=1, clip=limit, model={"sigma": 1.0}), seeds=4)
    moves = np.sqrt(sum(np.array(clipped.final[f"{name}_change"]) ** 2 for name in ("W_V", "W_K", "W_Q")))
    np.testing.assert_allclose(moves, 0.5 * np.minimum(norms, limit), rtol=1e-9)
    assert (norms > limit).sum() == 2


def test_the_optimisers_are_the_textbook_ones() -> None:
    """One step from the known gradient: SGD moves by ηg; Adam, Adam-W by η sign(g) (+ decay)."""
    model = {"attention": "uniform", "sigma": 0.0}
    grad = -train(recipe(POPULATION, model, steps=1, learning_rate=1.0)).weights["W_V"][0]
    adam = train(recipe(POPULATION, model, steps=1, optimizer="adam", learning_rate=0.01)).weights["W_V"][0]
    moving = np.abs(grad) > 1e-5
    np.testing.assert_allclose(adam[moving], -0.01 * np.sign(grad[moving]), rtol=2e-3)
    model = {"attention": "uniform", "sigma": 0.1}
    base, decayed = (
        train(recipe(POPULATION, model, steps=1, optimizer=name, learning_rate=0.01, weight_decay=w)).weights["W_V"]
        for name, w in (("adam", 0.0), ("adamw", 0.5))
    )
    start = train(recipe(POPULATION, model, steps=1, learning_rate=1e-300)).weights["W_V"]
    np.testing.assert_allclose(decayed - base, -0.01 * 0.5 * start, atol=1e-12)
    heavy = train(recipe(POPULATION, {"attention": "uniform", "sigma": 0.0}, steps=2, learning_rate=1e-6, momentum=0.9))
    np.testing.assert_allclose(heavy.weights["W_V"][0], -1e-6 * 2.9 * grad, atol=1e-10)


@pytest.mark.parametrize("engine", ["reduced", "token"])
def test_divergence_stops_with_step_checkpoint_and_advice(engine, tmp_path) -> None:
    wild = recipe(engine=engine, loss="squared", learning_rate=1e30, steps=60, checkpoint_every=1)
    with pytest.raises(RunError, match=r"diverged at step \d+") as caught:
        train(wild, seeds=2, out=tmp_path / "run")
    assert "learning_rate" in str(caught.value.advice)
    assert "checkpoint.json" in str(caught.value.where)
    assert caught.value.exit_code == 1
    from topicscope.lab import load_checkpoint

    checkpoint = load_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    assert all(bool(torch.isfinite(value).all()) for name, value in checkpoint.tensors.items() if "weights" in name)


def test_divergence_without_a_folder_says_so() -> None:
    with pytest.raises(RunError, match="none was written"):
        train(recipe(loss="squared", learning_rate=1e30, steps=60))


def test_frozen_parts_stay_frozen_whatever_else_is_set() -> None:
    model = {"value": "block", "frozen": ["W_Q"], "bias": "trained", "sigma": 0.0, "sigmas": {"W_K": 0.3, "W_Q": 0.3}}
    record = train(recipe(model=model, optimizer="adamw", weight_decay=0.1, ridge={"W_K": 0.1}))
    assert record.summary["frozen"] == ["W_E", "W_Q", "W_V"]
    np.testing.assert_array_equal(record.weights["W_V"][0, 1:4, 1:4], np.ones((3, 3)))
    np.testing.assert_array_equal(record.weights["W_Q"], train(recipe(model=model, steps=1)).weights["W_Q"])
    assert record.final.W_K_change[0] > 0


def test_what_cannot_be_trained_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="ridge"):
        train(recipe(ridge={"W_E": 1.0}))
    with pytest.raises(InputError, match="stages"):
        train(recipe(model={"value": "block"}, stages=[{"share": 1, "train": ["W_V"]}]))
    with pytest.raises(InputError, match="nothing to train"):
        train(recipe(model={"value": "block", "attention": "uniform"}))
    with pytest.raises(InputError, match="no tokens"):
        train(recipe(POPULATION, engine="token"))
    with pytest.raises(InputError, match="more than one layer"):
        train(recipe(POPULATION, {"layers": 2}))
    with pytest.raises(InputError, match="residual"):
        train(recipe(model={"residual": True}, engine="reduced"))
    with pytest.raises(InputError, match="theorem-2"):
        train(recipe(model={"value": "fixed"}, arrays={"W_V": "theorem-2"}))
    with pytest.raises(InputError, match="no such device"):
        train(recipe(device="abacus"))
    with pytest.raises(InputError, match="seeds"):
        train(recipe(), seeds=0)
    with pytest.raises(InputError, match="resume"):
        train(recipe(), resume=True)


def test_a_fixed_set_is_the_same_every_time_and_counts_what_it_skips() -> None:
    data = SMALL | {"source": "fixed", "documents": 12}
    whole = train(recipe(data, batch_size="all"), seeds=2)
    assert whole.summary["documents_skipped"] == 0
    rows = whole.history
    # All of the set at every step: the batch's loss is that of the whole set.
    np.testing.assert_allclose(rows.batch_loss, rows.loss, rtol=1e-12)
    parts = train(recipe(data, batch_size=5, steps=20))
    assert parts.summary["documents_skipped"] > 0
    assert parts.history.batch_loss.nunique() > 10


def test_every_early_step_is_measured() -> None:
    history = recipe().history
    assert measured_steps(history, 20) == list(range(21))
    steps = measured_steps(history, 1050)
    assert steps[:51] == list(range(51))
    assert {100, 500, 1000, 1050} <= set(steps)
    assert steps[-1] == 1050
    assert len(steps) < 90


def test_a_reference_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InputError, match="reference"):
        train(recipe(), references={"W_V": np.zeros((3, 3))})
    with pytest.raises(InputError, match="reference"):
        train(recipe(), references={"W_X": np.zeros((10, 10))})
    W = train(recipe(steps=3)).weights["W_V"][0]
    assert train(recipe(steps=3), references={"W_V": W}).final.W_V_distance[0] == pytest.approx(0, abs=1e-15)


def test_progress_reaches_the_end_of_the_work() -> None:
    seen = []

    class Watch:
        def start(self, task: str, total: int | float | None, unit: str) -> None:
            seen.append(("start", total))

        def update(self, task: str, done: int | float) -> None:
            seen.append(("update", done))

        def finish(self, task: str) -> None:
            seen.append(("finish", None))

    train(recipe(steps=50), progress=Watch())
    assert seen[0] == ("start", 50)
    assert seen[-2:] == [("update", 50), ("finish", None)]


def test_float32_is_the_default_and_loading_a_recipe_trains(tmp_path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text("[data]\nnum_topics = 2\nwords_per_topic = 2\nlength = 5\n[training]\nsteps = 2\nbatch_size = 3\n")
    assert train(load_recipe(path)).weights["W_V"].dtype == np.float32
