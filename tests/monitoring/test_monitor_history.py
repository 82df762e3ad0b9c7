"""The file of a history: appended, never rewritten, readable after a kill, and the stages found in it."""

import json
import math

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.monitoring import MonitorHistory, find_stages
from topicscope.monitoring.history import HISTORY_FILE, append_line

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def begin(path, start=0):
    append_line(path, "run", {"schema_version": 1, "start_step": start, "model": {"name": "m"}})


def measured(path, step, *, embedding=0.0, ov=0.0, attention=0.0, weights=(1.0, 1.0, 1.0), kind="bert"):
    layer = {"part": "encoder", "layer": 0, "attention_ratio": 1 + attention / 100, "attention_ratio_se": 0.01}
    layer |= {"attention_z": attention, "attention_z_banded": attention, "ov_z": ov, "ov_z_banded": None}
    for name, change in zip(("W_V", "W_K", "W_Q"), weights, strict=True):
        layer |= {f"{name}_norm": 10.0, f"{name}_change": change}
    rows = [{"kind": kind, "z": embedding, "z_banded": None, "difference": 0.1} for kind in ("cosine", "dot")]
    append_line(
        path,
        "measurement",
        {"step": step, "seconds": 0.1, "documents": 9, "units": 20, "embeddings": rows, "layers": [layer]},
    )


def history(tmp_path, curves):
    """curves: step -> keywords of `measured`."""
    path = tmp_path / HISTORY_FILE
    begin(path)
    for step in STEPS:
        measured(path, step, **curves(step))
    return MonitorHistory.load(tmp_path)


def test_lines_come_back(tmp_path):
    found = history(tmp_path, lambda s: {"embedding": s / 10, "attention": float(s)})
    assert list(found.measurements["step"]) == list(STEPS)
    assert found.layer(0)["attention_z"].tolist() == list(map(float, STEPS))
    assert found.layers["ov_z_banded"].isna().all()
    assert found.embeddings[found.embeddings["kind"] == "dot"]["z"].tolist() == [s / 10 for s in STEPS]
    with pytest.raises(InputError, match="no such layer"):
        found.layer(7)


def test_a_killed_writer_costs_one_line_and_the_next_one_is_whole(tmp_path):
    path = tmp_path / HISTORY_FILE
    begin(path)
    measured(path, 0)
    with path.open("a") as stream:
        stream.write('{"kind": "measurement", "step": 1, "lay')
    begin(path, start=0 + 1)
    measured(path, 2)
    found = MonitorHistory.load(path)
    assert list(found.measurements["step"]) == [0, 2]
    assert found.left_out == {"superseded": 0, "damaged_lines": 1}


def test_a_resumed_run_supersedes_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / HISTORY_FILE
    begin(path)
    for step in (0, 1, 2, 4):
        measured(path, step, embedding=1.0)
    begin(path, start=2)
    measured(path, 4, embedding=7.0)
    found = MonitorHistory.load(tmp_path)
    assert list(found.measurements["step"]) == [0, 1, 2, 4]
    assert found.embeddings["z"].max() == 7.0
    assert found.left_out["superseded"] == 1
    begin(path)  # a new run from the start
    measured(path, 0)
    found = MonitorHistory.load(tmp_path)
    assert list(found.measurements["step"]) == [0]
    assert found.left_out["superseded"] == 5


@pytest.mark.parametrize("content", [None, "", "{}\n", json.dumps({"kind": "run", "schema_version": 99}) + "\n"])
def test_what_is_no_history_is_refused(tmp_path, content):
    path = tmp_path / HISTORY_FILE
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError):
        MonitorHistory.load(tmp_path)


def test_stages_of_a_run_in_which_attention_follows(tmp_path):
    def curves(s):
        return {"embedding": 8.0 * (s >= 2), "ov": 5.0 * (s >= 8), "attention": 9.0 * (s >= 64) + 1.0}

    found = find_stages(history(tmp_path, curves))
    embeddings, ov, attention = (found.first(name) for name in ("embeddings", "ov", "attention"))
    assert (embeddings.low, embeddings.step, embeddings.high) == (1, 2, 2)
    assert (ov.low, ov.step) == (4, 8)
    assert math.isinf(ov.high)  # 5 may be a 4 in truth
    assert (attention.low, attention.step, attention.high) == (32, 64, 64)
    ratio, low, high = found.lag()
    assert (ratio, low, high) == (32, 16, 64)
    assert "attention: from step 64 [32, 64] (layer 0)" in found.verdict


def test_what_comes_and_goes_is_no_onset(tmp_path):
    found = find_stages(history(tmp_path, lambda s: {"attention": 9.0 * (4 <= s <= 32), "embedding": 3.0 * (s > 8)}))
    assert math.isnan(found.first("attention").step)
    assert math.isinf(found.first("attention").high)
    assert found.first("attention").low == 256
    embeddings = found.first("embeddings")  # between 2 and 4 it may have come after step 8, or not at all
    assert (embeddings.low, embeddings.high) == (8, math.inf)
    assert math.isnan(embeddings.step)
    assert math.isnan(found.lag()[0])
    assert "attention: not yet" in found.verdict


def test_the_rule_on_norms_is_that_of_the_laboratory(tmp_path):
    def curves(s):
        return {"weights": (5.0 * min(s / 4, 1), 2.0 * (s >= 64), 0.0)}

    stages = find_stages(history(tmp_path, curves)).norms["encoder", 0]
    assert (stages.k1, stages.k2, stages.separated) == (4, 64, True)


def test_the_interval_covers_a_true_onset_seen_through_noise(tmp_path):
    """A curve whose true z passes 4 at step 20, seen with a standard error of 1, many times."""
    covered = 0
    for seed in range(40):
        folder = tmp_path / str(seed)
        noise = np.random.default_rng(seed).normal(size=len(STEPS))
        curve = {
            s: 4 * math.log1p(s) / math.log1p(20) * (1 if s < 200 else 2) + e for s, e in zip(STEPS, noise, strict=True)
        }
        found = find_stages(history(folder, lambda s, curve=curve: {"embedding": curve[s]})).first("embeddings")
        covered += found.low <= 20 <= found.high
    assert covered >= 36


def test_the_figure_shows_the_history(tmp_path):
    found = history(tmp_path, lambda s: {"embedding": 8.0 * (s >= 2), "attention": s / 30, "ov": 1.0})
    data, figure = found.plot("emergence")
    assert set(data["quantity"]) == {"embeddings", "ov", "attention"}
    drawn = data[data["quantity"] == "attention"]
    assert drawn["value"].tolist() == found.layers["attention_ratio"].tolist()
    assert np.allclose(drawn["high"] - drawn["value"], 1.96 * 0.01)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert len(panels) == 3
    said = [text.get_text() for axes in panels for text in axes.texts]
    assert sum("no onset" in text for text in said) == 1
    assert any("onset 2 [1, 2]" in text for text in said)
    line = panels[2].lines[0]
    assert list(line.get_xdata()) == list(STEPS)
    figure.savefig(tmp_path / "figure.png")
    with pytest.raises(InputError, match="figure"):
        found.plot("pie")
