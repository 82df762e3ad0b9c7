"""The callback in a Hugging Face Trainer: the same training, numbers in TensorBoard and MLflow, resumable."""

import logging
import shutil
from pathlib import Path

import pytest
import transformers

from monitoring.small_runs import STEPS, THEMES, documents, masked_bert, same_weights, trained
from topicscope import TopicStructureCallback
from topicscope.errors import InputError
from topicscope.monitoring.history import HISTORY_FILE
from topicscope.monitoring.schedule import grid


def callback(**changes) -> TopicStructureCallback:
    return TopicStructureCallback(THEMES, documents(), **{"budget": None, "on_error": "raise"} | changes)


def losses(trainer: transformers.Trainer) -> list[tuple]:
    return [(row["step"], row.get("loss"), row.get("grad_norm")) for row in trainer.state.log_history]


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_accumulation_steps": 3}, {"bf16": True}],
    ids=["plain", "accumulation", "bf16"],
)
def test_training_is_the_same_with_and_without(tmp_path, options):
    alone = trained(tmp_path / "alone", [], **options)
    watcher = callback()
    watched = trained(tmp_path / "watched", [watcher], **options)
    assert losses(watched) == losses(alone)
    assert len(losses(alone)) == STEPS + 1
    assert same_weights(watched.model, alone.model)
    assert watched.model.config.to_dict() == alone.model.config.to_dict()
    found = watcher.history
    assert list(found.measurements["step"]) == list(grid("log", STEPS))
    assert (tmp_path / "watched" / HISTORY_FILE).is_file()
    assert found.runs[0]["total_steps"] == STEPS


def test_a_bare_model_under_autocast_is_measured_in_its_own_precision(tmp_path):
    """accelerate wraps the outermost forward in autocast; a head-less model is itself the outermost."""
    model, tokenizer = masked_bert(dropout=0.0)
    watcher = callback(out=tmp_path)
    wrapped = model.bert
    wrapped._original_forward = type(wrapped).forward.__get__(wrapped)
    calls = []
    wrapped.forward = lambda *args, **kwargs: calls.append(1)
    args = transformers.TrainingArguments(output_dir=str(tmp_path), max_steps=1, use_cpu=True, report_to="none")
    state = transformers.TrainerState(max_steps=1)
    control = transformers.TrainerControl()
    watcher.on_train_begin(args, state, control, model=wrapped, processing_class=tokenizer)
    assert not calls
    assert len(watcher.history.measurements) == 1
    wrapped.forward()
    assert calls  # it was put back


def test_numbers_reach_tensorboard(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    watcher = callback()
    watched = trained(tmp_path / "run", [watcher], report_to=["tensorboard"])
    [file] = (tmp_path / "board").rglob("events.*")
    events = EventAccumulator(str(file))
    events.Reload()
    name = "train/topics/layer_01/attention_ratio"
    assert [event.step for event in events.Scalars(name)] == list(grid("log", STEPS))
    values = watcher.history.layer(1)["attention_ratio"].tolist()
    assert [event.value for event in events.Scalars(name)] == pytest.approx(values, rel=1e-6)
    assert "train/topics/embeddings/cosine_z" in events.Tags()["scalars"]
    assert [row["step"] for row in watched.state.log_history if "loss" in row] == list(range(1, STEPS + 1))
    assert len(events.Scalars("train/loss")) == STEPS  # none was lost to ours


def test_without_the_trainer_numbers_go_to_the_file_alone_and_this_is_said(tmp_path, caplog):
    model, tokenizer = masked_bert()
    options = {"max_steps": 1, "use_cpu": True, "report_to": ["tensorboard"]}
    args = transformers.TrainingArguments(output_dir=str(tmp_path), **options)
    state, control = transformers.TrainerState(max_steps=1), transformers.TrainerControl()
    watcher = callback()
    with caplog.at_level(logging.WARNING):
        watcher.on_train_begin(args, state, control, model=model, processing_class=tokenizer)
    assert len(watcher.history.measurements) == 1
    assert ["not to tensorboard: give" in record.message for record in caplog.records] == [True]


@pytest.mark.filterwarnings("ignore")  # mlflow's own
def test_numbers_reach_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    place = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
        place = (tmp_path / "mlruns").as_uri()
    watcher = callback(every=4)
    trained(tmp_path / "run", [watcher], report_to=["mlflow"])
    client = mlflow.tracking.MlflowClient(place)
    [run] = client.search_runs([e.experiment_id for e in client.search_experiments()])
    history = client.get_metric_history(run.info.run_id, "topics/layer_00/attention_ratio")
    assert [entry.step for entry in history] == [0, 4, 8, 12]
    assert [entry.value for entry in history] == watcher.history.layer(0)["attention_ratio"].tolist()


def test_a_run_that_resumes_from_a_checkpoint_continues_its_history(tmp_path):
    class Killed(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 9:
                raise InterruptedError

    options = {"save_strategy": "steps", "save_steps": 6}
    first = callback()
    with pytest.raises(InterruptedError):
        trained(tmp_path / "run", [first, Killed()], **options)
    before = first.history
    assert list(before.measurements["step"]) == [0, 1, 2, 3, 4, 6, 8]
    shutil.copytree(tmp_path / "run", tmp_path / "alone")
    resumed = callback()
    trainer = trained(tmp_path / "run", [resumed], resume=True, **options)
    alone = trained(tmp_path / "alone", [], resume=True, **options)
    assert same_weights(trainer.model, alone.model)
    assert losses(trainer) == losses(alone)
    found = resumed.history
    assert list(found.measurements["step"]) == list(grid("log", STEPS))
    assert found.left_out["superseded"] == 1  # step 8 of the run that was killed
    kept = [h.layers[h.layers["step"] <= 6].reset_index(drop=True) for h in (before, found)]
    assert kept[0].equals(kept[1])
    assert found.layer(0)["W_V_change"].is_monotonic_increasing  # from the first start, not from the checkpoint


def test_the_tokenizer_may_be_inside_a_processor_and_must_be_somewhere(tmp_path, caplog):
    model, tokenizer = masked_bert()
    args = transformers.TrainingArguments(output_dir=str(tmp_path), max_steps=1, use_cpu=True, report_to="none")
    state, control = transformers.TrainerState(max_steps=1), transformers.TrainerControl()

    class Processor:
        pass

    processor = Processor()
    processor.tokenizer = tokenizer
    for given, options in ((processor, {}), (None, {"tokenizer": tokenizer})):
        watcher = callback(**options)
        watcher.on_train_begin(args, state, control, model=model, processing_class=given)
        assert len(watcher.history.measurements) == 1
    with pytest.raises(InputError, match="tokenizer"):
        callback().on_train_begin(args, state, control, model=model, processing_class=None)
    lenient = callback(on_error="log")
    with caplog.at_level(logging.WARNING):
        lenient.on_train_begin(args, state, control, model=model, processing_class=None)
        lenient.on_step_end(args, state, control)
        lenient.on_train_end(args, state, control)
    assert len(caplog.records) == 1


def test_other_processes_do_nothing(tmp_path):
    model, tokenizer = masked_bert()
    args = transformers.TrainingArguments(output_dir=str(tmp_path), max_steps=1, use_cpu=True, report_to="none")
    state = transformers.TrainerState(max_steps=1, is_world_process_zero=False)
    watcher = callback()
    watcher.on_train_begin(args, state, transformers.TrainerControl(), model=model, processing_class=tokenizer)
    watcher.on_step_end(args, state, transformers.TrainerControl())
    assert watcher.monitor is None
    assert not list(Path(tmp_path).iterdir())
    with pytest.raises(InputError, match="nothing was measured"):
        _ = watcher.history


def test_reporters_of_ones_own_that_fail_do_not_end_the_training(tmp_path, caplog):
    def failing(step, metrics):
        raise ConnectionError("the server is gone")

    trained(tmp_path, [watcher := callback(on_error="log", log=failing)])
    assert len([r for r in caplog.records if "training goes on" in r.message]) == 1
    assert list(watcher.history.measurements["step"])[:2] == [0, 1]  # the file has it all the same
