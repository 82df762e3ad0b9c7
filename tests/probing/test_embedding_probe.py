"""Embeddings in a probe: planted topics are found at every place, random weights have none, and stops are harmless."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
import topicscope
from probing.test_probe import THEMES, StopsAfter, themed_documents, word_list  # noqa: F401 - a fixture
from topicscope.cli.probe import show
from topicscope.errors import InputError
from topicscope.probing.embeddings.similarity import BASELINE, HIGHER, NONE, NOT_TESTED
from topicscope.probing.hf import live_view
from topicscope.probing.results import ProbeResult

PLACES = ["raw", "layer", "layer_first"]
IN_CONTEXT = ["before layer 0", "after layer 0", "after layer 1"]


def probe(word_list: Path, *, planted: float = 0.0, **options: object) -> ProbeResult:  # noqa: F811
    model, tokenizer = tiny.build("bert")
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for words in THEMES.values():
            ids = torch.tensor(tokenizer.convert_tokens_to_ids(words))
            model.embeddings.word_embeddings.weight[ids] += planted * torch.randn(32, generator=rng)
    given = {"topics": word_list, "documents": themed_documents(), "controls": 3, "permutations": 0, "profile": 0}
    return topicscope.probe(model, tokenizer, **given | options)


def cosine(result: ProbeResult, place: str) -> dict[str, object]:
    rows = result.embeddings.query("place == @place and kind == 'cosine'")
    return rows.iloc[0].to_dict()


def test_planted_topics_are_found_at_every_place_and_random_weights_have_none(
    word_list: Path,  # noqa: F811
) -> None:
    result = probe(word_list, planted=0.02, contextual=True)
    assert list(dict.fromkeys(result.embeddings["place"])) == [*PLACES, *IN_CONTEXT, "cooccurrence"]
    for place in (*PLACES, *IN_CONTEXT):
        row = cosine(result, place)
        assert row["verdict"] == HIGHER, place
        assert row["bands"] == 1  # 24 words
        assert row["control_difference_low"] <= row["control_difference"] <= row["control_difference_high"]
        assert row["control_difference_high"] < row["difference"]
        assert -1 < row["anisotropy"] < row["same"]
    text = cosine(result, "cooccurrence")
    assert text["z_banded"] > 5  # the text has topics, whatever the model
    assert text["verdict"] == BASELINE
    random = probe(word_list)
    assert set(random.embeddings.query("place in @PLACES")["verdict"]) == {NONE}
    untested = probe(word_list, planted=0.02, controls=0).embeddings
    assert untested["verdict"].tolist() == [NOT_TESTED] * 6 + [BASELINE] * 2


def test_states_in_context_follow_the_layers_that_are_read(word_list: Path) -> None:  # noqa: F811
    result = probe(word_list, contextual=True, layers=(1,), controls=1)
    assert list(dict.fromkeys(result.embeddings["place"]))[3:] == ["before layer 0", "after layer 1", "cooccurrence"]


def test_a_result_says_it_on_the_command_line_and_reads_back(
    word_list: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = probe(word_list, planted=0.02, contextual=True, controls=1)
    show(result, str(tmp_path))
    printed = capsys.readouterr().out
    assert "layer, position 0" in printed
    assert "higher" in printed
    loaded = ProbeResult.load(result.save(tmp_path / "run"))
    assert loaded.embeddings["verdict"].tolist() == result.embeddings["verdict"].tolist()
    np.testing.assert_array_equal(loaded.embeddings["z_banded"], result.embeddings["z_banded"])
    assert "co-occurrence</th>" in loaded.page()


@pytest.mark.parametrize("task", ["states in context", "random weights 2 of 3, states in context"])
def test_ctrl_c_in_a_pass_for_states_keeps_the_rest(word_list: Path, task: str) -> None:  # noqa: F811
    result = probe(word_list, contextual=True, progress=StopsAfter(task, 1))
    assert result.interrupted
    assert np.isfinite(result.headline["attention_ratio"])
    finished = 0 if task == "states in context" else 1
    assert len(result.controls["control_seed"].unique() if finished else []) == finished
    assert set(PLACES) <= set(result.embeddings["place"])
    assert (cosine(result, "raw")["verdict"] == NOT_TESTED) == (finished == 0)


def test_two_runs_give_the_same_numbers(word_list: Path) -> None:  # noqa: F811
    a, b = (probe(word_list, contextual=True, controls=1).embeddings for _ in range(2))
    assert a.equals(b)


def test_a_model_of_which_only_attention_is_known_is_refused_before_it_is_read(word_list: Path) -> None:  # noqa: F811
    model, tokenizer = tiny.build("bert")
    view = live_view(
        model, tokenizer, lambda *_: pytest.fail("it was read"), num_layers=2, num_heads=4, causal=False,
        W_E=model.get_input_embeddings().weight, max_length=64,
    )  # fmt: skip
    with pytest.raises(InputError, match="attention only"):
        topicscope.probe(view, documents=themed_documents(), topics=word_list, controls=0, contextual=True)
