import json
import math

import numpy as np
import pandas as pd
import pytest

import topicscope
from topicscope.errors import InputError
from topicscope.records import Manifest, RunRecord, describe_environment


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(
        config={"name": "x", "data": {"length": [1, 2]}},
        manifest=Manifest(created="2026", environment=describe_environment(), options={"seeds": [0, 1]}, sources={}),
        history=pd.DataFrame({"seed": [0, 1], "step": [0, 0], "loss": [0.1, 1 / 3], "gap": [math.nan, 2.0]}),
        weights={"W_V": np.arange(8, dtype=np.float32).reshape(2, 2, 2), "b": np.ones((2, 1))},
        summary={"seeds": 2, "final": [{"seed": s, "step": 9, "loss": 0.5 + s} for s in range(2)]},
    )


def test_what_is_saved_is_what_is_loaded(record, tmp_path) -> None:
    found = topicscope.load(record.save(tmp_path / "run"))
    assert (found.config, found.summary, found.manifest) == (record.config, record.summary, record.manifest)
    pd.testing.assert_frame_equal(found.history, record.history)
    assert found.weights.keys() == record.weights.keys()
    for name, value in record.weights.items():
        np.testing.assert_array_equal(found.weights[name], value)
        assert found.weights[name].dtype == value.dtype


def test_table_is_mean_and_sample_deviation_over_seeds(record) -> None:
    (row,) = record.table().to_dict("records")
    assert row == {"measurement": "loss", "mean": 1.0, "sd": pytest.approx(math.sqrt(0.5))}
    alone = RunRecord(
        record.config, record.manifest, record.history, record.weights, {"final": record.summary["final"][:1]}
    )
    assert math.isnan(alone.table()["sd"][0])


def test_an_unfinished_or_damaged_folder_is_refused(record, tmp_path) -> None:
    with pytest.raises(InputError, match="no saved result"):
        topicscope.load(tmp_path / "none")
    folder = record.save(tmp_path / "run")
    (folder / "weights.safetensors").write_bytes(b"\x00" * 9)
    with pytest.raises(InputError, match="safetensors"):
        topicscope.load(folder)
    record.write(folder)
    (folder / "summary.json").write_text(json.dumps({"schema_version": 99, "summary": {}}))
    with pytest.raises(InputError, match="not a result of topicscope train"):
        topicscope.load(folder)
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="no finished run") as caught:
        topicscope.load(folder)
    assert "summary.json" in str(caught.value.received)
