"""examples/emergence.py: a run is the same stopped or not, its page holds its numbers, and embeddings come first."""

import json
import math
import re
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import topicscope
from scripts import load_script
from topicscope.monitoring import MonitorHistory, find_stages, onset
from topicscope.text import Corpus, corpus_from

ROOT = Path(__file__).resolve().parents[1]
THEMES = {
    "water": ["river", "bridge", "sea", "ship", "sails", "ice", "snow", "fish"],
    "war": ["king", "queen", "castle", "war", "army", "battle", "sword", "city"],
    "art": ["music", "song", "piano", "violin", "concert", "theatre", "actor", "film"],
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example with everything small."""
    module = load_script("examples/emergence.py")
    for name, value in {"LENGTH": 32, "BATCH": 4, "EVERY": 2, "KEPT": 2, "TOPICS": 3, "MIN_COUNT": 1}.items():
        monkeypatch.setattr(module, name, value)
    return module


def corpus() -> Corpus:
    rng, documents = np.random.default_rng(0), []
    for _ in range(24):
        pool = [word for theme in rng.choice(list(THEMES), 2, replace=False) for word in THEMES[theme]]
        documents.append(" ".join(rng.choice(pool, 80)) + ".")
    return corpus_from(documents, name="themes")


def test_a_stopped_run_goes_on_to_the_same_weights(script: ModuleType, tmp_path: Path) -> None:
    text = script.prepared(tmp_path / "whole", corpus())
    whole, losses = script.train(tmp_path / "whole", text, steps=6, seed=3)
    for name in ("tokenizer.json", "topics.npz"):
        (tmp_path / "parts").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "whole" / name, tmp_path / "parts" / name)
    again = script.prepared(tmp_path / "parts", corpus())
    torch.manual_seed(99)  # nothing outside a run decides it
    script.train(tmp_path / "parts", again, steps=4, seed=3)
    parts, more = script.train(tmp_path / "parts", again, steps=6, seed=3)
    assert more == losses
    assert len(losses) == 6
    names = ("models/checkpoint-6/model.safetensors",)
    weights = [load_file(tmp_path / run / name) for run in ("whole", "parts") for name in names]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert parts.measurements["step"].tolist() == whole.measurements["step"].tolist() == [0, 1, 2, 3, 4, 6]
    assert np.array_equal(parts.layers["attention_z"], whole.layers["attention_z"])
    _, elsewhere = script.train(tmp_path / "other", text, steps=2, seed=4)
    assert elsewhere != losses[:2]
    # What a run keeps is what `topicscope probe --checkpoints` reads.
    kept = sorted(path.name for path in (tmp_path / "whole" / "models").iterdir())
    assert kept == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    series = topicscope.probe_checkpoints(
        tmp_path / "whole" / "models",
        corpus(),
        topics=tmp_path / "whole" / "topics.npz",
        threshold=(0.2,),
        out=tmp_path / "series",
        controls=0,
        permutations=50,
        profile=0,
    )
    page_of_the_runs(script, text, tmp_path, losses)
    assert series.count("measured") == 3


def page_of_the_runs(script: ModuleType, text: object, folder: Path, losses: list[float]) -> None:
    """The maker writes what the runs say between the marks of the page, and nothing else changes."""
    run = folder / "whole"
    said = script.numbers(MonitorHistory.load(run), losses, text, 3)
    (run / "emergence.json").write_text(json.dumps(said, default=float))
    maker = load_script("docs/emergence_page.py")
    before = maker.PAGE.read_text(encoding="utf-8")
    maker.PAGE, maker.IMAGES = folder / "page.md", folder
    maker.PAGE.write_text(before, encoding="utf-8")
    maker.main([str(run), str(run), "--series", str(folder / "series")])
    after = maker.PAGE.read_text(encoding="utf-8")
    mark = re.compile(r"<!-- ([\w-]+): make emergence -->\n.*?<!-- end of \1 -->", re.DOTALL)
    assert mark.sub(r"\1", after) == mark.sub(r"\1", before)
    found = {match.group(1): match.group(0) for match in mark.finditer(after)}
    assert f"| 3 | 6 | {losses[0]:.2f}, {sum(losses) / 6:.2f} |" in found["runs"]
    assert found["curve"].count("\n| ") == 4  # the head, and what is shown of steps 0, 16, … and the last
    last = MonitorHistory.load(run).layers.query("step == 6 and layer == 3").iloc[0]
    assert f"| 3 | {last['attention_ratio']:.3f} ± {last['attention_ratio_se']:.3f} |" in found["layers"]
    assert found["series"].count("\n| ") == 5
    assert (folder / "emergence.png").stat().st_size > 10_000


def test_the_page_was_made_by_the_maker() -> None:
    text = (ROOT / "docs" / "emergence.md").read_text(encoding="utf-8")
    for name in ("setting", "runs", "curve", "layers", "series", "laboratory"):
        block = text.partition(f"<!-- {name}: make emergence -->")[2].partition(f"<!-- end of {name} -->")[0]
        assert block.strip(), name


@pytest.mark.long
def test_embeddings_have_topics_before_attention(tmp_path: Path) -> None:
    """On Wikipedia: z > 4 within 128 steps, and no attention whose z stays above 4 comes earlier."""
    script = load_script("examples/emergence.py")
    text = script.prepared(tmp_path, script.corpus(None))
    history, losses = script.train(tmp_path, text, steps=128, seed=0)
    assert np.mean(losses[-10:]) < losses[0] - 1.5
    cosine = history.embeddings[history.embeddings["kind"] == "cosine"]
    assert cosine["z"].iloc[-1] > 4
    assert abs(cosine["z"].iloc[0]) < 4
    plain = onset(cosine.assign(z_banded=math.nan), "", quantity="embeddings")
    stages = find_stages(history)
    assert plain.step <= 128
    attention = stages.first("attention")
    assert math.isnan(attention.step) or attention.step >= plain.step
    ratios = history.layers[history.layers["step"] == 128]
    assert (ratios["attention_ratio_se"] > 0).all()  # either outcome is fine, with its interval


@pytest.mark.long
def test_the_laboratory_keeps_to_its_theory(tmp_path: Path) -> None:
    script = load_script("examples/emergence.py")
    script.laboratory(tmp_path)
    assert (tmp_path / "laboratory.png").stat().st_size > 10_000
    record = topicscope.load(tmp_path / "laboratory")
    (stages,) = record.summary["stages"]
    assert stages["separated"]
    end = record.history[record.history["step"].between(30, 300)]
    flow = script.stage_one(script.load_recipe(script.RECIPE).setting(), 1e4)
    assert (end["W_V_same"] - end["W_V_different"]).to_numpy() == pytest.approx(
        float((flow.same - flow.different)[0]), rel=0.01
    )
