"""The verdict and its columns through a whole probe: planted structure, none, untested, cut documents, no sinks."""

from pathlib import Path

import numpy as np
import pytest

import tiny
import topicscope
from probing.planted import plant
from probing.test_probe import THEMES, small, themed_documents, word_list  # noqa: F401 - a fixture
from topicscope.probing.execution import forward_pass as passes
from topicscope.probing.hf import view_model
from topicscope.probing.results import ProbeResult


def measured(result: ProbeResult) -> dict:
    """The one measured row."""
    (row,) = result.table().query("source == 'measured'").to_dict(orient="records")
    return row


def test_planted_structure_is_found_and_none_in_random_weights(word_list: Path) -> None:  # noqa: F811
    view = view_model(*tiny.build("bert"))
    plant(view, [[view.tokenizer.convert_tokens_to_ids(word) for word in words] for words in THEMES.values()])
    options = {"documents": themed_documents(), "topics": word_list, "controls": 3, "permutations": 199}
    found, random = (topicscope.probe(v, **options) for v in (view, view_model(*tiny.build("bert"))))
    assert found.headline["verdict"] == measured(found)["verdict"] == "same-topic attention higher"
    assert measured(found)["permutation_p"] == pytest.approx(2 / 200)
    assert "Verdict: same-topic attention higher" in str(found)
    assert found.headline["verdicts"] == {"encoder": "same-topic attention higher"}
    assert random.headline["verdict"] == "no topic structure found"
    tests = found.to_dict()["coverage"]["permutations"]["tests"]
    assert tests == [{"part": "encoder", "threshold": None, "words": 24, "bands": 1}]


@pytest.mark.parametrize("without", [{"permutations": 0}, {"controls": 0}])
def test_half_a_test_is_none(without: dict, word_list: Path) -> None:  # noqa: F811
    result = small(word_list, **{"permutations": 99, **without})
    assert result.headline["verdict"] == "not tested"
    assert "not tested" in str(result)
    assert np.isnan(measured(result)["permutation_p"]) == (without == {"permutations": 0})


def test_shuffles_and_frequencies_do_not_mind_where_a_document_is_cut(
    word_list: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"controls": 0, "permutations": 99, "family": "bart"}
    whole = small(word_list, **options)
    monkeypatch.setattr(passes, "UNITS_PER_CHUNK", 7)
    cut = small(word_list, **options)
    names = ["permutation_statistic", "permutation_p", "attention_ratio_distinct_frequency_matched"]
    one, other = (r.table().query("source == 'measured'")[names].to_numpy(dtype=float) for r in (whole, cut))
    assert one.shape == (3, 3)
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_sinks_are_excluded_in_columns_of_their_own(word_list: Path) -> None:  # noqa: F811
    options = {"controls": 0, "permutations": 0}
    plain, again = measured(small(word_list, **options)), measured(small(word_list, exclude_sinks=True, **options))
    names = [f"attention_ratio{form}_sinks_excluded" for form in ("", "_distinct_distance_matched")]
    for name in names:
        assert np.isnan(plain[name])
        assert again[f"{name}_low"] < again[name] < again[f"{name}_high"]
        assert again[name] != again[name.removesuffix("_sinks_excluded")]
    assert again["attention_ratio"] == plain["attention_ratio"]
