"""The monitor in a plain loop: the training is the same to the last bit, whatever happens inside the monitor."""

import logging
import random
import weakref
from itertools import islice

import numpy as np
import pytest
import torch

import tiny
from monitoring.small_runs import STEPS, THEMES, batches, documents, loop, masked_bert, same_weights
from topicscope import TopicStructureMonitor
from topicscope.errors import InputError, UnsupportedModelError
from topicscope.monitoring import monitor as session_module
from topicscope.monitoring.measurement import preserve_state, unwrap_model
from topicscope.monitoring.schedule import grid
from topicscope.probing.hf import live_view


def watched(tmp_path, model, tokenizer, **changes):
    options = {"topics": THEMES, "documents": documents(), "out": tmp_path, "total_steps": STEPS, "budget": None}
    return TopicStructureMonitor(model, tokenizer, **options | {"on_error": "raise"} | changes)


@pytest.mark.parametrize("options", [{}, {"autocast": True}, {"accumulate": 3}], ids=["plain", "bf16", "accumulation"])
def test_symptom_28_training_is_the_same_with_and_without(tmp_path, options):
    alone, tokenizer = masked_bert()
    steps = batches(tokenizer, STEPS)
    losses = loop(alone, steps, **options)
    model, _ = masked_bert()
    updates = STEPS // options.get("accumulate", 1)
    monitor = watched(tmp_path, model, tokenizer, total_steps=updates)
    assert loop(model, steps, monitor.step, **options) == losses
    assert same_weights(model, alone)
    found = monitor.finish()
    assert list(found.measurements["step"]) == list(grid("log", updates))
    assert found.layer(0)["W_Q_change"].iloc[-1] > 0
    assert found.layer(0)["attention_ratio"].nunique() > 3


def test_a_difference_would_be_noticed():
    """The negative control: one random number drawn between two steps changes the losses."""
    model, tokenizer = masked_bert()
    steps = batches(tokenizer, 4)
    first = loop(model, steps)
    again, _ = masked_bert()
    assert loop(again, steps, lambda: torch.rand(1)) != first


def test_symptoms_28_and_30_everything_is_put_back(tmp_path):
    model, tokenizer = masked_bert()
    model.train()
    model.bert.encoder.layer[1].eval()  # a frozen part, say
    modes = [module.training for module in model.modules()]
    config, kernel = model.config.to_dict(), model.config._attn_implementation
    model(**batches(tokenizer, 1)[0]).loss.backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    # Python's own state is looked at where nothing else checks types by drawing lots: in test_distributed.py.
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    monitor = watched(tmp_path, model, tokenizer, topics=3)
    monitor.step()
    assert [module.training for module in model.modules()] == modes
    assert (model.config.to_dict(), model.config._attn_implementation) == (config, kernel)
    kept = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(grads, kept, strict=True))
    assert np.array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])
    assert torch.is_grad_enabled()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_symptom_30_a_measurement_keeps_no_graph_and_one_layer_at_a_time(tmp_path):
    model, tokenizer = masked_bert()
    monitor = watched(tmp_path, model, tokenizer)
    seen = []

    def look(attention):
        assert not attention.requires_grad
        seen.append(weakref.ref(attention))
        assert sum(reference() is not None for reference in seen) == 1

    view = monitor._session._meter.view
    real = view.run

    def run(batch, on_attention):
        def heard(part, layer, attention):
            look(attention)
            on_attention(part, layer, attention)

        return real(batch, heard)

    view.run = run
    monitor.step()
    assert len(seen) >= 2
    assert all(reference() is None for reference in seen)
    assert not model.config.output_attentions  # the training's own forward passes return none


def test_random_states_are_put_back_even_after_an_error():
    model, _ = masked_bert()
    before = random.getstate(), torch.get_rng_state()

    def draw_and_fail():
        random.random(), torch.rand(3), np.random.rand()  # noqa: NPY002
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), preserve_state(model):
        draw_and_fail()
    assert (random.getstate(), torch.get_rng_state().tolist()) == (before[0], before[1].tolist())


def test_inside_autocast_the_numbers_are_those_without(tmp_path):
    model, tokenizer = masked_bert()
    outside = watched(tmp_path / "a", model, tokenizer).history.layers
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = watched(tmp_path / "b", model, tokenizer).history.layers
    assert outside.equals(inside)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_give_nearly_the_same(tmp_path, dtype):
    model, tokenizer = masked_bert()
    full = watched(tmp_path / "a", model, tokenizer).history.layers
    half = watched(tmp_path / "b", model.to(dtype), tokenizer).history.layers
    assert np.allclose(full["attention_ratio"], half["attention_ratio"], atol=0.01)
    assert np.allclose(full["W_V_norm"], half["W_V_norm"], rtol=0.01)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # the compiler's own
def test_wrapped_models_are_unwrapped(tmp_path):
    model, tokenizer = masked_bert()
    assert unwrap_model(torch.nn.DataParallel(torch.compile(model))) is model
    assert unwrap_model(model) is model
    monitor = watched(tmp_path, torch.compile(model), tokenizer)
    assert len(monitor.history.measurements) == 1


def test_a_sharded_model_is_refused_with_the_reason():
    model, _ = masked_bert()
    next(model.parameters()).ds_id = 0
    with pytest.raises(UnsupportedModelError, match="sharded"):
        unwrap_model(model)


def test_a_failure_is_logged_once_and_training_goes_on(tmp_path, monkeypatch, caplog):
    alone, tokenizer = masked_bert()
    steps = batches(tokenizer, STEPS)
    losses = loop(alone, steps)
    model, _ = masked_bert()
    monitor = watched(tmp_path, model, tokenizer, on_error="log")
    tries = []

    def failing(*_args):
        tries.append(1)
        torch.rand(5)  # whatever was drawn before the failure
        raise RuntimeError("out of memory")

    monkeypatch.setattr(monitor._session._meter, "measure", failing)
    with caplog.at_level(logging.WARNING):
        assert loop(model, steps, monitor.step) == losses
    assert same_weights(model, alone)
    assert len([r for r in caplog.records if "training goes on" in r.message]) == 1
    assert len(tries) == 3  # then it is given up
    found = monitor.finish()
    assert [note["failure"] for note in found.notes] == ["RuntimeError: out of memory"] * 3
    assert list(found.measurements["step"]) == [0]


def test_the_strict_get_the_failure_and_ctrl_c_always_passes(tmp_path, monkeypatch):
    model, tokenizer = masked_bert()
    monitor = watched(tmp_path, model, tokenizer)
    for error in (RuntimeError("x"), KeyboardInterrupt()):

        def failing(*_args, error=error):
            raise error

        monkeypatch.setattr(monitor._session._meter, "measure", failing)
        with pytest.raises(type(error)):
            monitor.step()
    lenient = watched(tmp_path / "b", model, tokenizer, on_error="log")
    monkeypatch.setattr(lenient._session._meter, "measure", failing)
    with pytest.raises(KeyboardInterrupt):
        lenient.step()


def test_a_model_that_cannot_be_viewed_fails_once_and_quietly(tmp_path, caplog):
    monitor = watched(tmp_path, torch.nn.Linear(3, 3), tiny.tokenizer_for("bert"), on_error="log")
    monitor.step()
    monitor.step()
    assert monitor.finish() is None
    assert len(caplog.records) == 1
    with pytest.raises(InputError):
        watched(tmp_path, torch.nn.Linear(3, 3), tiny.tokenizer_for("bert"))


@pytest.mark.parametrize(
    "changes",
    [{"every": 0}, {"budget": "much"}, {"on_error": "ignore"}, {"documents": "nowhere.txt"}, {"topics": "nowhere.npz"}],
)
def test_bad_options_are_refused_before_training(tmp_path, changes):
    model, tokenizer = masked_bert()
    with pytest.raises(InputError):
        watched(
            tmp_path,
            model,
            tokenizer,
            on_error=changes.get("on_error", "log"),
            **{k: v for k, v in changes.items() if k != "on_error"},
        )


def test_a_small_budget_is_kept_and_said(tmp_path, monkeypatch, caplog):
    """On a clock of the test's own: a step takes 1 s, a measurement 2 s."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    real = session_module.TopicStructureMeter.measure

    def measure(self, start, head):
        clock[0] += 2.0
        return real(self, start, head)

    monkeypatch.setattr(session_module.TopicStructureMeter, "measure", measure)
    model, tokenizer = masked_bert()
    monitor = watched(tmp_path, model, tokenizer, total_steps=500, budget="2%")
    with caplog.at_level(logging.WARNING):
        for _ in range(500):
            clock[0] += 1.0
            monitor.step()
    found = monitor.finish()
    measured = found.measurements
    assert measured["seconds"].sum() <= 10.0
    assert len(measured) == 4
    assert (measured["step"].iloc[0], measured["step"].iloc[-1]) == (0, 500)
    assert [note["skipped"] for note in found.notes if "skipped" in note] == [len(list(grid("log", 500))) - 4]
    assert ["2.0% of the run's time" in record.message for record in caplog.records] == [True]  # said once
    assert monitor.share <= 0.02


def test_a_resumed_run_goes_on_with_its_history_and_its_start(tmp_path):
    model, tokenizer = masked_bert()
    steps = batches(tokenizer, STEPS)
    monitor = watched(tmp_path, model, tokenizer)
    loop(model, steps[:6], monitor.step)
    loop(model, steps[6:9], monitor.step)  # killed here; the checkpoint was made at step 6
    before = monitor.history
    again = watched(tmp_path, model, tokenizer, start_step=6)
    loop(model, steps[6:], again.step)
    found = again.finish()
    assert list(found.measurements["step"]) == list(grid("log", STEPS))
    assert found.left_out["superseded"] == 1  # step 8
    first, second = (h.layers[h.layers["step"] == 6] for h in (before, found))
    assert first.equals(second)  # not written twice
    assert found.layer(0)["W_V_change"].iloc[0] == 0 < found.layer(0)["W_V_change"].iloc[-1]
    assert len(found.runs) == 2


def test_finish_measures_the_last_step_where_the_end_was_not_known(tmp_path):
    model, tokenizer = masked_bert()
    with watched(tmp_path, model, tokenizer, total_steps=None, every=4) as monitor:
        loop(model, batches(tokenizer, 6), monitor.step)
    assert list(monitor.history.measurements["step"]) == [0, 4, 6]


def test_numbers_go_to_a_logger_of_ones_own(tmp_path):
    model, tokenizer = masked_bert()
    got = []
    monitor = watched(tmp_path, model, tokenizer, every=2, log=lambda step, metrics: got.append((step, metrics)))
    loop(model, batches(tokenizer, 4), monitor.step)
    assert [step for step, _ in got] == [0, 2, 4]
    last = monitor.history.layer(1).iloc[-1]
    assert got[-1][1]["topics/layer_01/attention_ratio"] == last["attention_ratio"]


def test_a_model_that_is_run_from_outside_is_measured_without_its_matrices(tmp_path):
    model, tokenizer = tiny.build("bert")
    model.set_attn_implementation("eager")

    def run(ids, mask):
        return model(ids, attention_mask=mask, output_attentions=True).attentions

    W_E = model.embeddings.word_embeddings.weight
    view = live_view(model, tokenizer, run, num_layers=2, num_heads=4, causal=False, W_E=W_E, max_length=64)
    found = watched(tmp_path / "a", view, None).history
    whole = watched(tmp_path / "b", model, tokenizer).history
    assert "W_Q_norm" not in found.layers
    assert "ov_z" not in found.layers
    assert np.allclose(found.layers["attention_ratio"], whole.layers["attention_ratio"], rtol=1e-5)


def test_steps_may_be_numbered_by_the_loop(tmp_path):
    model, tokenizer = masked_bert()
    monitor = watched(tmp_path, model, tokenizer, total_steps=100, every=10)
    for step in range(5, 101, 5):
        monitor.step(step)
    assert list(monitor.history.measurements["step"]) == list(islice(grid(10, 100), 20))
