import json

import pytest

import topicscope
from lab.laboratory import RECIPES
from topicscope.cli import run

OTHER_SETTING = (
    "data.num_topics=6",
    "data.words_per_topic=5",
    "data.topics_per_document=2",
    "masking.p_mask=0.2",
    "masking.p_correct=0.15",
    "masking.p_random=0.05",
)
TINY = ("training.steps=5", "training.batch_size=4", "history.documents=5")


def arguments(name, *overrides):
    sets = [word for override in overrides for word in ("--set", override)]
    return ["train", str(RECIPES / f"{name}.toml"), *sets]


def test_json_holds_measured_values_beside_theory(tmp_path, capsys) -> None:
    words = [*arguments("value-matrix", *OTHER_SETTING, "training.steps=1500"), "--seeds", "2", "--json"]
    assert run([*words, "--out", str(tmp_path / "run")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "run" / "summary.json").read_text())
    part = document["summary"]["value_matrix"]
    assert list(part["measured"]) == list(part["theory"]) == ["mask_column", "different", "same", "diagonal"]
    for name, value in part["theory"].items():
        assert part["measured"][name] == pytest.approx(value, rel=0.03)
    # Theory is not made of what was measured: the same table after five steps is far off.
    assert run([*arguments("value-matrix", *OTHER_SETTING, *TINY), "--json", "--out", str(tmp_path / "short")]) == 0
    short = json.loads(capsys.readouterr().out)["summary"]["value_matrix"]
    assert short["theory"] == part["theory"]
    assert short["measured"]["same"] != pytest.approx(part["theory"]["same"], rel=0.5)


def test_the_table_shows_theory_and_the_record(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "run"
    assert run([*arguments("embeddings", "training.steps=3"), "--seeds", "2", "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "0.1156" in out  # 1/(a v)
    assert "reduced engine" in out
    assert str(folder) in out
    record = topicscope.load(folder)
    assert record.summary["embedding"]["theory"]["gap"] == pytest.approx(1 / 8.65)
    assert record.manifest.environment.libraries["torch"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("training.loss=cross-entropy", "squared loss"),
        ("model.attention=trained", "uniform attention"),
        ("data.length=[90,110]", "one length"),
        ("model.bias=trained", "not Theorem 2's"),
        ("masking.hide_selected=true", "every position"),
    ],
)
def test_where_no_closed_form_applies_the_reason_is_given(change, reason, tmp_path, capsys) -> None:
    words = arguments("theorem-2-sampled", *TINY, "data.source=fresh", "data.length=20", "training.ridge={}", change)
    assert run([*words, "--json", "--out", str(tmp_path / "run")]) == 0
    part = json.loads(capsys.readouterr().out)["summary"]["value_matrix"]
    assert part["theory"] is None
    assert reason in part["no_theory"]


def test_unknown_keys_exit_2_and_name_the_nearest(capsys) -> None:
    assert run(arguments("value-matrix", "training.stepps=5")) == 2
    assert "training.steps?" in capsys.readouterr().err


def test_divergence_exits_1_with_the_step(tmp_path, capsys) -> None:
    words = arguments("theorem-2", "training.learning_rate=1e20", "training.dtype=float32", "training.steps=100")
    assert run([*words, "--out", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert "diverged at step" in err
    assert "learning_rate" in err


def test_a_full_folder_is_refused_and_resume_reads_a_finished_run(tmp_path, capsys) -> None:
    words = [*arguments("value-matrix", *TINY), "--json", "--out", str(tmp_path / "run")]
    assert run(words) == 0
    first = capsys.readouterr().out
    assert run(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run([*words, "--resume"]) == 0
    assert capsys.readouterr().out == first
    assert run([*words, "--overwrite"]) == 0


def test_resume_needs_out(capsys) -> None:
    assert run([*arguments("value-matrix", *TINY), "--resume"]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_closed_form_for_the_wrong_parameter_is_refused(tmp_path, capsys) -> None:
    assert run([*arguments("embeddings", "arrays.b_pred=theorem-2"), "--out", str(tmp_path / "run")]) == 2
    assert "theorem-2" in capsys.readouterr().err
    assert run([*arguments("value-matrix", "data.length=[1,5]"), "--out", str(tmp_path / "run")]) == 2
    assert "finite-n" in capsys.readouterr().err


# The one of pretrained models is not for training; tests/claims/test_claims_pretrained.py reads it.
TRAINING = sorted(path.stem for path in RECIPES.glob("*.toml") if path.stem != "pretrained-table")


@pytest.mark.parametrize("name", TRAINING)
def test_every_recipe_runs_in_its_shortened_form(name, tmp_path, capsys) -> None:
    assert run([*arguments(name, "training.steps=3", "history.documents=5"), "--out", str(tmp_path / "run")]) == 0
    text = (RECIPES / f"{name}.toml").read_text()
    assert capsys.readouterr().out.startswith(f"{name}: 1 seed(s), ")
    assert "What to expect" in text
    assert "Run time" in text


def test_progress_as_json_goes_to_stderr(tmp_path, capsys) -> None:
    words = [*arguments("value-matrix", *TINY), "--json", "--progress", "json", "--out", str(tmp_path / "run")]
    assert run(words) == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    events = [json.loads(line)["event"] for line in printed.err.splitlines()]
    assert (events[0], events[-1]) == ("start", "finish")
