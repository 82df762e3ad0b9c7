"""Head profiles: planted heads look like what they are, and every measure equals a loop over rows and tokens."""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import topicscope
from probing.test_attention import TEXTS, TOPICS, prepared
from probing.twin import attention_of
from topicscope.probing.attention import TopicLookup
from topicscope.probing.attention.head_profile import LONGEST, MEASURES, examples, profile_heads, sampled
from topicscope.probing.hf import ModelView, PartSpec, view_model
from topicscope.probing.hf.eager import Rows
from topicscope.probing.tokens import AlignedUnit, Batch

PREVIOUS, FIRST, TOPIC, UNIFORM = range(4)


class PlantedView(ModelView):
    """A BERT whose heads do each one thing only."""

    def __init__(self, units: list[AlignedUnit] | None = None) -> None:
        super().__init__(view_model(*tiny.build("bert"))._model, tiny.tokenizer_for("bert"), FAMILY, "planted")
        self.parts = (PartSpec("encoder", 1, 4, causal=False),)
        self.units = units

    def run(self, batch: Batch, on_attention: Callable[[str, int, torch.Tensor], None]) -> Rows:
        b, length = batch.input_ids.shape
        attention = torch.zeros(b, 4, length, length)
        names = {v: k for k, v in self.tokenizer.get_vocab().items()}
        for row, ids in enumerate(batch.input_ids.tolist()):
            real = int(batch.attention_mask[row].sum())
            for i in range(real):
                attention[row, PREVIOUS, i, max(i - 1, 0)] = 1
                attention[row, FIRST, i, 0] = 1
                attention[row, UNIFORM, i, :real] = 1 / real
                topic = TOPICS.get(names[ids[i]])
                mates = [
                    j
                    for j in range(real)
                    if names[ids[j]] != names[ids[i]] and topic and TOPICS.get(names[ids[j]]) == topic
                ]
                for j in mates or [i]:
                    attention[row, TOPIC, i, j] = 1 / len(mates or [i])
        on_attention("encoder", 0, attention)
        start = torch.zeros(len(batch.unit_index), dtype=torch.int64)
        return Rows(self.parts, batch.attention_mask, batch.attention_mask, start)


FAMILY = view_model(*tiny.build("bert")).family


@pytest.fixture(scope="module")
def planted() -> tuple[PlantedView, list[AlignedUnit], TopicLookup]:
    view = PlantedView()
    return view, *prepared(view)


def test_planted_heads_look_like_what_they_are(planted: Any) -> None:
    view, units, lookup = planted
    frame = profile_heads(view, units, lookup, 0).frame
    row = {head: frame.iloc[head] for head in range(4)}
    assert frame["profile_units"].eq(len(units)).all()
    assert row[PREVIOUS]["previous"] == 1
    assert row[PREVIOUS]["distance"] == 1
    assert row[PREVIOUS]["entropy"] == 0
    assert row[FIRST]["first_token"] == 1
    assert row[FIRST]["separators"] == row[FIRST]["punctuation"] == 0
    assert row[TOPIC]["same_topic_share"] == pytest.approx(1)
    assert row[UNIFORM]["entropy_share"] == pytest.approx(1, rel=1e-6)
    lengths = np.array([len(unit.input_ids) for unit in units])
    assert row[UNIFORM]["separators"] == pytest.approx((lengths - 1) @ (1 / lengths) / (lengths - 1).sum())
    # No other head is taken for one of these.
    for measure, head in (
        ("previous", PREVIOUS),
        ("first_token", FIRST),
        ("same_topic_share", TOPIC),
        ("entropy", UNIFORM),
    ):
        assert frame[measure].to_numpy().argmax() == head
        assert sorted(frame[measure])[-2] < 0.6 * frame[measure].max()


def test_the_example_is_the_sentence_with_the_most_attention_to_topic_mates(planted: Any) -> None:
    view, units, lookup = planted
    profile = profile_heads(view, units, lookup, 0)
    [found, other] = examples(view, units, lookup, 0, profile, [("encoder", 0, TOPIC), ("encoder", 0, UNIFORM)])
    assert found["same_topic_share"] == pytest.approx(1)
    assert found["text"] == view.tokenizer.decode(list(units[0].input_ids), skip_special_tokens=True)
    words = [entry["word"] for entry in found["words"]]
    assert words == ["river", "bridge", "sea"]
    assert all(entry["topics"] == [0] for entry in found["words"])
    assert {(pair["query"], pair["key"]) for pair in found["pairs"]} <= {(a, b) for a in words for b in words if a != b}
    assert len(found["pairs"]) == 5
    for pair in found["pairs"]:
        assert pair["attention"] == pytest.approx(0.5)
        assert (words[pair["query_place"]], words[pair["key_place"]]) == (pair["query"], pair["key"])
    shares = profile.shares["encoder"][0, UNIFORM]
    assert other["same_topic_share"] == pytest.approx(np.nanmax(shares))
    assert other["document_id"] == units[int(np.nanargmax(shares))].document_id


def test_a_unit_without_topic_mates_is_no_example(planted: Any) -> None:
    view, units, lookup = planted
    lonely = [unit for unit in units if [w for w in unit.words if w] == ["music"]]
    profile = profile_heads(view, lonely, lookup, 0)
    assert profile.frame["same_topic_share"].isna().all()
    assert examples(view, lonely, lookup, 0, profile, [("encoder", 0, TOPIC)]) == []


def slow_profile(view: ModelView, units: list[AlignedUnit], part: PartSpec, layer: int, head: int) -> dict[str, float]:
    """Every measure from its definition, token by token."""
    tokenizer, special = view.tokenizer, set(view.tokenizer.all_special_ids)
    sums, rows, shares = dict.fromkeys(MEASURES, 0.0), 0, []
    for unit in units:
        weights = attention_of(view, unit)[part.name][layer][head]
        length = len(unit.input_ids)
        of_unit = []
        for i in range(1, length):
            visible = range(i + 1) if part.causal else range(length)
            a = [float(weights[i, j]) for j in visible]
            entropy = -sum(x * math.log(x) for x in a if x > 0)
            sums["entropy"] += entropy
            sums["entropy_share"] += entropy / math.log(len(a))
            sums["first_token"] += a[0]
            here = i - part.query_shift
            given, mates = 0.0, 0
            for j in visible:
                place = j - part.key_shift
                if j > 0:
                    token = unit.input_ids[place]
                    text = tokenizer.decode([token]).strip()
                    sums["separators"] += a[j] * (token in special)
                    signs = text != "" and all(unicodedata.category(c)[0] == "P" for c in text)
                    sums["punctuation"] += a[j] * (signs and token not in special)
                sums["itself"] += a[j] * (place == here)
                sums["previous"] += a[j] * (place == here - 1)
                sums["next"] += a[j] * (place == here + 1)
                sums["distance"] += a[j] * abs(place - here)
                if here >= 0 and place >= 0:
                    one, two = unit.words[here], unit.words[place]
                    if one != two and one in TOPICS and two in TOPICS and TOPICS[one] & TOPICS[two]:
                        given, mates = given + a[j], mates + 1
            rows += 1
            if mates:
                of_unit.append(given)
        if of_unit:
            shares.append(sum(of_unit) / len(of_unit))
    return {name: value / rows for name, value in sums.items()} | {"same_topic_share": sum(shares) / len(shares)}


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_every_measure_equals_a_loop_over_rows_and_tokens(family: str) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    frame = profile_heads(view, units, lookup, 0).frame
    for part in view.parts:
        chosen = frame[(frame["part"] == part.name) & (frame["layer"] == 1) & (frame["head"] == 1)]
        assert len(chosen) == 1
        for name, expected in slow_profile(view, units, part, 1, 1).items():
            assert chosen[name].iloc[0] == pytest.approx(expected, rel=1e-4, abs=1e-6), (part.name, name)


def test_only_what_is_read_is_profiled_under_the_model_s_own_numbers() -> None:
    view = view_model(*tiny.build("bert"))
    units, lookup = prepared(view)
    whole, part = profile_heads(view, units, lookup, 0).frame, profile_heads(view.only([1], [0, 2]), units, lookup, 0)
    assert part.frame[["layer", "head"]].to_numpy().tolist() == [[1, 0], [1, 2]]
    expected = whole[(whole["layer"] == 1) & whole["head"].isin([0, 2])]
    np.testing.assert_allclose(part.frame[list(MEASURES)], expected[list(MEASURES)], rtol=1e-5)


def test_the_sample_is_seeded_and_in_order(planted: Any) -> None:
    _, units, _ = planted
    assert sampled(units, 99, 0) == units
    some = sampled(units, 3, 1)
    assert some == sampled(units, 3, 1) == sorted(some, key=units.index)
    assert len({tuple(units.index(u) for u in sampled(units, 3, seed)) for seed in range(8)}) > 1


def probed(tmp_path: Path, **options: Any) -> topicscope.ProbeResult:
    words = tmp_path / "words.csv"
    words.write_text("word,topic\n" + "".join(f"{word},{min(t)}\n" for word, t in TOPICS.items()))
    model, tokenizer = tiny.build("bert")
    texts = [(name, text) for name, text in TEXTS for _ in range(2)]
    fixed = {"controls": 0, "permutations": 0, "max_units": 4}
    return topicscope.probe(model, tokenizer, texts, topics=words, **fixed | options)


def test_a_result_holds_profile_and_examples_and_keeps_them_on_disk(tmp_path: Path) -> None:
    result = probed(tmp_path, profile=3)
    assert result.heads()["profile_units"].eq(3).all()
    assert result.heads()["entropy_share"].between(0.5, 1).all()
    assert result.model["attention_path"] == {"encoder": "registry"}  # the profile was read by weights, the sums not
    best = result.top_heads(3)
    ratios = result.heads()["attention_ratio_distinct"].sort_values(ascending=False)
    assert best["attention_ratio_distinct"].tolist() == ratios.tolist()[:3]
    assert best["example"].notna().all()
    assert best["pairs"].str.contains("→").all()
    assert len(result.head_examples) == len(result.heads()) == 8  # as many as there are, up to 200
    loaded = topicscope.ProbeResult.load(result.save(tmp_path / "out"))
    pd.testing.assert_frame_equal(loaded.top_heads(), result.top_heads())
    assert loaded.head_examples == result.head_examples


def test_without_a_profile_the_best_heads_stand_alone(tmp_path: Path) -> None:
    result = probed(tmp_path, profile=0)
    assert not set(MEASURES) & set(result.heads().columns)
    assert result.head_examples == ()
    assert result.top_heads(2)["example"].isna().all()


def test_a_long_unit_is_read_from_its_beginning(planted: Any) -> None:
    _, units, _ = planted
    long = replace(units[0], input_ids=units[0].input_ids * 60, words=units[0].words * 60)
    [cut] = sampled([long], 1, 0)
    assert len(cut.input_ids) == len(cut.words) == LONGEST
    assert cut.input_ids == long.input_ids[:LONGEST]
