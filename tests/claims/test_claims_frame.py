"""The verdict rule, what is kept, and what is made again."""

import json
import math
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from topicscope.claims import CLAIMS
from topicscope.claims.claim import Claim, Context, above, below, exact_row, measured_row, near, not_run_row
from topicscope.errors import InputError
from topicscope.lab import recipe_path
from topicscope.records import read_npz

frame = import_module("topicscope.claims.reproduce")


def make(measure, name="toy"):
    criteria = (
        near("value", "the value", 0.1),
        above("more", "another", 2.0, decisive=False),
        below("less", "less", 0.0),
    )
    return Claim(name, "A toy", "nowhere", "It is one.", (), (), criteria, measure)


def rows(value=1.0, more=3.0, less=-1.0, error=0.01):
    named = {"value": value, "more": more, "less": less}
    return [exact_row(name, name, number, theory=1.0) | {"error": error} for name, number in named.items()]


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "confirmed"),
        ({"value": 1.2}, "not_confirmed"),
        ({"value": 0.8}, "not_confirmed"),
        ({"value": 1.095}, "not_confirmed"),  # the interval sticks out
        ({"value": math.nan}, "not_confirmed"),
        ({"less": 0.001}, "not_confirmed"),
        ({"less": -0.005}, "not_confirmed"),
        ({"more": 1.0}, "partly"),
        ({"more": 2.005}, "partly"),
        ({"more": math.nan}, "partly"),
        ({"more": 1.0, "less": 1.0}, "not_confirmed"),
        ({"error": None}, "not_confirmed"),  # no spread, no verdict
        ({"error": 0.2}, "not_confirmed"),
    ],
)
def test_the_rule(changed, verdict) -> None:
    judged, statistic = make(lambda context: []).judge(rows(**changed))
    assert judged == verdict
    assert ("not: " in statistic) == (verdict != "confirmed")


def test_one_bad_row_of_many_is_enough() -> None:
    assert make(lambda context: []).judge([*rows(), *rows(value=3.0)])[0] == "not_confirmed"


@pytest.mark.parametrize("missing", range(3))
def test_what_was_not_measured_is_not_confirmed(missing) -> None:
    assert make(lambda context: []).judge([])[0] == "not_run"
    assert make(lambda context: []).judge([row for i, row in enumerate(rows()) if i != missing])[0] == "not_run"


def test_only_a_reason_excuses_a_line_and_only_one_that_is_not_decisive() -> None:
    """A model that is not installed costs a line about it, not everything else that was measured."""
    claim = make(lambda context: [])
    missing = {name: not_run_row(name, "not installed", criterion=name, model="MiniLM") for name in ("value", "more")}
    value, more, less = rows()
    verdict, statistic = claim.judge([value, missing["more"], less])
    assert verdict == "partly"
    assert statistic.startswith("2 of 2 comparisons hold")
    assert "not measured: another" in statistic
    assert statistic.endswith("; 1 not run: MiniLM")
    assert claim.judge([rows(value=2.0)[0], missing["more"], less])[0] == "not_confirmed"
    assert claim.judge([missing["value"], more, less])[0] == "not_run"
    assert claim.judge([value, missing["more"]])[0] == "not_run"  # another line is silent without a reason
    assert claim.judge([*rows(), missing["more"]])[0] == "confirmed"  # measured elsewhere: counted only
    assert [row["holds"] for row in make(lambda context: [value, missing["more"], less]).run(Context()).rows] == [
        True,
        None,
        True,
    ]


@pytest.mark.parametrize("name", ["topicwise-assumption", "co-occurrence", "ambiguous-words", "pretrained-table"])
def test_what_is_installed_later_is_not_kept_as_missing(name, monkeypatch) -> None:
    claim = next(claim for claim in CLAIMS if claim.id == name)
    before = frame.claim_key(claim, Context())
    assert frame.claim_key(claim, Context()) == before
    monkeypatch.setattr("importlib.metadata.version", lambda package: "another")
    assert frame.claim_key(claim, Context()) != before


def test_the_error_is_students_interval() -> None:
    row = measured_row("value", "x", [1.0, 2.0, 3.0])
    assert row["measured"] == 2.0
    assert row["error"] == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # t_{.975} at 2 degrees of freedom
    assert measured_row("value", "x", [1.0])["error"] is None


def test_claims_declare_themselves() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert any(criterion.decisive for criterion in claim.criteria)
        assert len({criterion.id for criterion in claim.criteria}) == len(claim.criteria)
        assert all(criterion.text in claim.verdict_rule for criterion in claim.criteria)
        assert all(recipe_path(name).is_file() for name in claim.recipes)


@pytest.fixture
def counted(monkeypatch):
    """Two toy claims in place of the real ones, and how often each was measured."""
    calls = []

    def toy(name):
        return make(lambda context: calls.append((name, context.seeds, context.quick)) or rows(), name)

    monkeypatch.setattr(frame, "CLAIMS", (toy("first"), toy("second")))
    # Figures and page have tests of their own, and take seconds.
    monkeypatch.setattr("topicscope.report.write_reproduction", lambda folder, drawn: None)
    return calls


def test_a_document_is_written_and_finished_claims_are_kept(counted, tmp_path) -> None:
    out = tmp_path / "out"
    done = frame.reproduce(["second"], out=out)
    document = json.loads((out / "claims.json").read_text())
    assert document == done.to_dict()
    assert list(document) == ["schema_version", "kind", "claims"]
    assert [list(entry) for entry in document["claims"]] == [["id", "verdict", "statistic", "rows"]]
    again = frame.reproduce(out=out, resume=True)
    assert counted == [("second", 4, False), ("first", 4, False)]
    assert [result.id for result in again.results] == ["first", "second"]
    assert again.results[1] == done.results[0]
    assert isinstance(again.table(), pd.DataFrame)
    assert list(again.table()["claim"]) == ["first"] * 3 + ["second"] * 3


def test_finished_claims_stay_on_the_page_when_others_are_asked_for(counted, tmp_path, monkeypatch) -> None:
    frame.reproduce(["first"], out=tmp_path)
    both = frame.reproduce(["second"], out=tmp_path, resume=True)
    assert [result.id for result in both.results] == ["first", "second"]
    assert [entry["id"] for entry in json.loads((tmp_path / "claims.json").read_text())["claims"]] == [
        "first",
        "second",
    ]
    assert json.loads((tmp_path / "manifest.json").read_text())["options"]["claims"] == ["first", "second"]
    assert [name for name, *_ in counted] == ["first", "second"]
    monkeypatch.setattr(frame, "NUMBERS_VERSION", 0)  # results of another version are not shown as this one's
    assert [result.id for result in frame.reproduce(["second"], out=tmp_path, resume=True).results] == ["second"]


def test_other_options_or_another_numbers_version_make_a_claim_again(counted, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    for options in ({}, {"quick": True}, {"seeds": 5}):
        frame.reproduce(["first"], out=out, resume=True, **options)
    assert len(counted) == 3
    frame.reproduce(["first"], out=out, resume=True, seeds=5)
    assert len(counted) == 3
    monkeypatch.setattr(frame, "NUMBERS_VERSION", 0)
    frame.reproduce(["first"], out=out, resume=True, seeds=5)
    assert len(counted) == 4


def test_an_interrupted_run_keeps_what_is_finished(counted, tmp_path, monkeypatch) -> None:
    first, second = frame.CLAIMS

    def interrupted(context):
        raise KeyboardInterrupt

    monkeypatch.setattr(frame, "CLAIMS", (first, make(interrupted, "second")))
    with pytest.raises(KeyboardInterrupt):
        frame.reproduce(out=tmp_path)
    assert [entry["id"] for entry in json.loads((tmp_path / "claims.json").read_text())["claims"]] == ["first"]
    monkeypatch.setattr(frame, "CLAIMS", (first, second))
    frame.reproduce(out=tmp_path, resume=True)
    assert [name for name, *_ in counted] == ["first", "second"]


def test_evidence_is_listed_and_rows_say_whether_they_hold(monkeypatch, tmp_path) -> None:
    def measure(context):
        context.keep("toy-grid", "a grid", {"loss": np.arange(3.0)}, value="block")
        return [*rows(value=1.2), exact_row(None, "shown", 1.0)]

    monkeypatch.setattr(frame, "CLAIMS", (make(measure, "first"), make(measure, "second")))
    monkeypatch.setattr("topicscope.report.write_reproduction", lambda folder, drawn: None)
    frame.reproduce(out=tmp_path)
    for name in ("first", "second"):  # each claim lists its own
        finished = json.loads((tmp_path / "finished" / f"{name}.json").read_text())
        assert finished["evidence"] == [{"path": "toy-grid.npz", "title": "a grid", "value": "block"}]
        assert finished["seconds"] >= 0
        assert [row["holds"] for row in finished["claim"]["rows"]] == [False, True, True, None]
    assert read_npz(tmp_path / "runs" / "toy-grid.npz")["loss"].tolist() == [0, 1, 2]


def test_a_page_is_written_after_every_claim(monkeypatch, tmp_path) -> None:
    def interrupted(context):
        raise KeyboardInterrupt

    monkeypatch.setattr(frame, "CLAIMS", (make(lambda context: rows(), "first"), make(interrupted, "second")))
    with pytest.raises(KeyboardInterrupt):
        frame.reproduce(out=tmp_path)
    page = (tmp_path / "reproduction.html").read_text(encoding="utf-8")
    assert "Not finished when this page was written: second" in page
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["first.pdf", "first.png"]


def test_bad_input_is_refused_by_name(counted, tmp_path) -> None:
    with pytest.raises(InputError, match="did you mean second"):
        frame.reproduce(["secnd"])
    with pytest.raises(InputError, match="at least 2"):
        frame.reproduce(seeds=1)
    with pytest.raises(InputError, match="resume needs a folder"):
        frame.reproduce(resume=True)
    (tmp_path / "mine.txt").write_text("keep me")
    for resume in (False, True):
        with pytest.raises(InputError):
            frame.reproduce(out=tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert counted == []


def test_a_result_is_gone_on_with_or_replaced_as_a_whole(counted, tmp_path) -> None:
    out = tmp_path / "out"
    frame.reproduce(["first"], out=out)
    listed = json.loads((out / "files.json").read_text())["files"]
    assert {"claims.json", "manifest.json", "finished/first.json"} <= set(listed)
    with pytest.raises(InputError, match=r"add --resume .*--overwrite"):
        frame.reproduce(["second"], out=out)
    done = frame.reproduce(["second"], out=out, overwrite=True)
    assert [result.id for result in done.results] == ["second"]
    assert not (out / "finished" / "first.json").exists()
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match="not replaced"):
        frame.reproduce(["first"], out=out, overwrite=True)
    assert [name for name, *_ in counted] == ["first", "second"]


def test_two_runs_never_write_to_one_folder(monkeypatch, tmp_path) -> None:
    def measure(context):
        for more in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError, match="another run is writing"):
                frame.reproduce(out=tmp_path / "out", **more)
        return rows()

    monkeypatch.setattr(frame, "CLAIMS", (make(measure, "first"),))
    monkeypatch.setattr("topicscope.report.write_reproduction", lambda folder, drawn: None)
    frame.reproduce(out=tmp_path / "out")
    assert not (tmp_path / "out" / "lock").exists()
