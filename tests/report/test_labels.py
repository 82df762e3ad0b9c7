"""Every ratio that is measured has a label, and a label is all that tables, figures and pages need of a new one."""

import pandas as pd
import pytest

from report.report_records import make_record
from topicscope.probing.statistics import RATIOS as MEASURED
from topicscope.probing.statistics import WITHOUT_SINKS
from topicscope.report import attention_table, controls, ratio_figure, ratio_label
from topicscope.report.labels import RATIOS, Quantity
from topicscope.report.probe_page import ProbeRecord, head_charts, head_panel, render_probe
from topicscope.report.tables import control_table


def test_every_measured_ratio_has_a_label_of_its_own() -> None:
    measured = {ratio.name for ratio in MEASURED} | {f"{name}_sinks_excluded" for name in WITHOUT_SINKS}
    assert measured == set(RATIOS)
    looks = [(ratio.color, ratio.marker) for ratio in RATIOS.values()]
    assert len(set(looks)) == len({ratio.label for ratio in RATIOS.values()}) == len(RATIOS)
    assert all(ratio.about for ratio in RATIOS.values())
    assert ratio_label("attention_ratio_of_old") == "of old"


def test_a_new_ratio_needs_a_label_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    record, heads = make_record()
    for row in record["table"]:
        row |= {f"attention_ratio_new{end}": 1.5 for end in ("", "_se", "_low", "_high")}
    heads = heads.assign(attention_ratio_new=1.5, attention_ratio_new_se=0.1)
    rows = [row for row in record["table"] if row["source"] == "measured"]
    frame = pd.DataFrame.from_records(record["table"])
    numeric = [c for c in frame if c.startswith(("threshold", "attention_", "control_"))]
    frame = frame.astype(dict.fromkeys(numeric, float))

    def shown() -> list[bool]:
        drawn = controls(frame, pd.DataFrame(), part="encoder", threshold=0.001)[1]
        map_ = head_charts(heads, threshold=0.001, name="m")[0].cells
        assert map_ is not None
        return [
            "a new ratio" in attention_table(rows).columns,
            "a new ratio" in control_table(rows, []).columns,
            "a new ratio" in [text.get_text() for text in ratio_figure(frame).legends[0].get_texts()],
            "a new ratio" in [label.get_text() for label in drawn.axes[0].get_yticklabels()],
            "a new ratio" in [state["name"] for state in map_["states"]],
            "ratio, a new ratio" in head_panel(record, heads)[1]["labels"],
            "what it is for" in render_probe(ProbeRecord(record, heads)),
        ]

    assert not any(shown())
    monkeypatch.setitem(RATIOS, "attention_ratio_new", Quantity("a new ratio", "what it is for"))
    assert all(shown())
