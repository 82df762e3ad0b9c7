"""Figures of a probe return what they show: every control, every class by distance, every count."""

import math

import numpy as np
import pandas as pd
import pytest

import topicscope
from cli.probe_files import WORDS_CSV, save_model, texts
from report.report_records import heads_of
from topicscope.errors import InputError
from topicscope.probing.attention import BINNED, NUM_BINS
from topicscope.probing.results.result import KINDS
from topicscope.probing.results.tables import distances
from topicscope.probing.statistics import pair_features
from topicscope.report import controls, coverage, profile
from topicscope.report.labels import RATIOS
from topicscope.report.probe_figures import SHARES
from topicscope.report.style import rendered


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    save_model(folder / "model", "bert")
    (folder / "words.csv").write_text(WORDS_CSV)
    options = {"controls": 2, "permutations": 20, "profile": 8}
    return topicscope.probe(str(folder / "model"), documents=texts(12), topics=str(folder / "words.csv"), **options)


def test_every_kind_is_drawn_the_same_from_a_loaded_result(result, tmp_path) -> None:
    again = topicscope.ProbeResult.load(result.save(tmp_path / "result"))
    for kind in KINDS:
        assert rendered(result.plot(kind), "svg") == rendered(again.plot(kind), "svg"), kind
        assert len(result.plot_data(kind)) > 0


def test_an_unknown_kind_names_the_kinds(result) -> None:
    with pytest.raises(InputError) as caught:
        result.plot("no such kind")
    assert all(kind in str(caught.value) for kind in KINDS)
    with pytest.raises(InputError, match="unknown option of the plot 'ratios'"):
        result.plot("ratios", part="encoder")


def test_the_data_are_the_result_s(result) -> None:
    counted = result.distances().groupby("pair")["pairs"].sum()
    [pairs] = result.coverage["pairs"]
    for name in ("same_word", "same_topic", "different_topic"):
        assert counted[name] == pairs[name]
    histogram = result.plot_data("similarities")
    words = len(result.embedding_map["words"])
    assert result.embedding_map["same"].sum() + result.embedding_map["different"].sum() == words * (words - 1) / 2
    assert histogram[["same", "different"]].sum().tolist() == pytest.approx([100, 100])
    heads = result.plot_data("heads")
    pd.testing.assert_frame_equal(heads, result.heads())


def rows():
    numbers = {name: 1.5 + i / 10 for i, name in enumerate(RATIOS)}
    ends = {
        f"{name}_{end}": value + sign for name, value in numbers.items() for end, sign in (("low", -0.1), ("high", 0.2))
    }
    nothing = {"attention_ratio_position_corrected": math.nan}
    base = {"source": "measured", "part": "encoder"} | numbers | ends | nothing
    return pd.DataFrame([base | {"threshold": 0.001}, base | {"threshold": 0.002, "attention_ratio": 9.0}])


def random_rows(seeds):
    numbers = dict.fromkeys(RATIOS, 1.0) | {"attention_ratio_position_corrected": None}
    return pd.DataFrame(
        [
            {"control_seed": seed, "part": "encoder", "threshold": threshold}
            | numbers
            | {"attention_ratio": 1 + seed / 100}
            for seed in range(seeds)
            for threshold in (0.001, 0.002)
        ]
    )


@pytest.mark.parametrize("columns", ["single", "double"])
def test_every_control_is_a_point(columns) -> None:
    data, figure = controls(rows(), random_rows(3), part="encoder", threshold=0.001, columns=columns)
    own = data[data["measure"] == "attention_ratio"]
    assert own["value"].tolist() == [1.5, 1.0, 1.01, 1.02]
    assert own["low"].iloc[0] == pytest.approx(1.4)
    assert "attention_ratio_position_corrected" not in set(data["measure"])
    drawn = [line.get_xdata().tolist() for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert [1.0, 1.01, 1.02] in drawn
    assert controls(rows(), pd.DataFrame(), part="encoder", threshold=0.001)[0]["source"].eq("measured").all()
    with pytest.raises(InputError, match="no ratios"):
        controls(rows(), random_rows(1), part="decoder", threshold=0.001)


def test_distances_are_the_means_of_the_moments() -> None:
    """Planted sums and counts: every class and bin has another mean, and topic seeds are added up."""
    size = max(int(indices.max()) for pair in BINNED for indices in pair_features([pair], matched="distance")) + 1
    total = np.zeros((4, size))
    for place, pair in enumerate(BINNED):
        sums, counts = (index[:, 0] for index in pair_features([pair], matched="distance"))
        assert len(set(sums) | set(counts)) == 2 * NUM_BINS
        for configuration in range(4):
            total[configuration, counts] = 1 + configuration
            total[configuration, sums] = (1 + configuration) * (place + np.arange(NUM_BINS))
        total[:, counts[3]] = 0
    pairs = [{"part": "encoder", "threshold": t} for t in (0.001, 0.001, 0.002, 0.002)]
    found = distances({"encoder/pooled_total": total}, pairs, "encoder", 0.002)
    assert found["pair"].tolist() == [pair.name for pair in BINNED for _ in range(NUM_BINS)]
    for place, pair in enumerate(BINNED):
        one = found[found["pair"] == pair.name].reset_index(drop=True)
        assert math.isnan(one["mean_attention"][3])
        np.testing.assert_allclose(
            one["mean_attention"].drop(3), (place + np.arange(NUM_BINS, dtype=float))[np.arange(NUM_BINS) != 3]
        )
        assert one["pairs"].drop(3).eq(3 + 4).all()
    with pytest.raises(InputError, match="no such pairs"):
        distances({"encoder/pooled_total": total}, pairs, "encoder", 0.5)


def test_coverage_shows_the_counts() -> None:
    pairs = [
        {"part": "encoder", "threshold": 0.001, "same_word": n, "same_topic": 10, "different_topic": 30} for n in (2, 4)
    ]
    counts = {"text": {"documents": 9, "documents_kept": 8}, "alignment": {"words": 100, "found": 90}, "pairs": pairs}
    data, figure = coverage(counts, part="encoder", threshold=0.001)
    assert dict(zip(data["step"], data["count"], strict=True)) == {
        "documents": 9,
        "documents read": 8,
        "words in them": 100,
        "words that are one token": 90,
        "pairs: same word": 3,
        "pairs: same topic": 10,
        "pairs: different topics": 30,
    }
    assert [bar.get_width() for bar in figure.axes[0].patches] == data["count"].tolist()


def test_a_profile_stands_among_all_heads() -> None:
    heads = heads_of("encoder", 2, 3, thresholds=(0.001,))
    for number, name in enumerate(SHARES):
        heads[name] = (np.arange(6) + number) / 20
    data, _ = profile(heads, part="encoder", threshold=0.001, layer=1, head=1)
    itself, first = data.set_index("quantity").loc["itself"], SHARES.index("itself")
    assert itself.tolist() == pytest.approx([(head + first) / 20 for head in (4, 0.0, 2.5, 5)])
    with pytest.raises(InputError, match="no profile"):
        profile(heads, part="encoder", threshold=0.001, layer=7, head=0)
    with pytest.raises(InputError, match="no profile"):
        profile(heads_of("encoder", 2, 3), part="encoder", threshold=0.001, layer=0, head=0)
