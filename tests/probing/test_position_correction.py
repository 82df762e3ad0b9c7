"""Attention by place alone, on text whose topics go by place: what each corrected ratio takes out."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import topicscope
from probing import topic_text
from topicscope.probing.hf import ModelView, attention_modules, view_model

TOPICS = topic_text.words_of(4, 10)
# Causal parts that see all that went before, so that a row of equal scores is 1/(i+1) everywhere.
CAUSAL = ("gpt2", "llama", "gpt_neox", "qwen2", "qwen3", "gemma", "bart", "t5")


def probe(view: ModelView, texts: list[str], folder: Path) -> pd.DataFrame:
    words = topic_text.word_list(TOPICS, folder / "words.csv")
    result = topicscope.probe(view, None, texts, topics=words, unit="passage", controls=0)
    return result.table().query("source == 'measured'").set_index("part")


def front_loaded(number: int = 30) -> list[str]:
    """Texts of 8 to 50 words that begin with words of one topic and go on with all of them."""
    rng = np.random.default_rng(3)
    texts = []
    for length in rng.integers(8, 51, number):
        first = rng.choice(TOPICS[rng.integers(4)], length // 4)
        texts.append(" ".join([*first, *rng.choice(np.concatenate(TOPICS), length - len(first))]) + ".")
    return texts


def in_runs(number: int = 40) -> list[str]:
    """Texts of 20 to 50 words whose topic changes every few words, so that near words share it."""
    rng = np.random.default_rng(4)
    texts = []
    for length in rng.integers(20, 51, number):
        words: list[str] = []
        while len(words) < length:
            words += list(rng.choice(TOPICS[rng.integers(4)], rng.integers(2, 7)))
        texts.append(" ".join(words[:length]) + ".")
    return texts


def blind(family: str) -> ModelView:
    """Scores that do not depend on the tokens: W_Q = 0."""
    tokenizer = topic_text.tokenizer(family, TOPICS, tiny.MAX_LENGTH)
    view = view_model(tiny.model_for(family, len(tokenizer), tokenizer), tokenizer)
    with torch.no_grad():
        for pattern in view.family.parts:
            for module in attention_modules(view._model, pattern):
                for name, parameter in module.named_parameters():
                    if "norm" not in name:
                        parameter.zero_()
    return view


@pytest.mark.parametrize("family", CAUSAL)
def test_the_row_correction_takes_out_what_a_causal_mask_does(family: str, tmp_path: Path) -> None:
    view = blind(family)
    row = probe(view, front_loaded(), tmp_path).loc["decoder"]
    # Early rows spread over few keys, and early words share a topic here: 1/(i+1) alone looks like structure.
    assert row["attention_ratio"] > 1.3
    assert row["attention_ratio_position_corrected"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("family", ["t5", "mpnet"])
def test_matching_distances_takes_out_what_nearness_does(family: str, tmp_path: Path) -> None:
    view = blind(family)
    table = next(m for n, m in view._model.named_modules() if n.endswith("relative_attention_bias"))
    buckets = table.num_embeddings
    with torch.no_grad():
        # Bucket b and b + buckets/2 are the same distance in the two directions, wider and wider ones.
        table.weight.copy_(-0.8 * (torch.arange(buckets) % (buckets // 2))[:, None].float().expand_as(table.weight))
    row = probe(view, in_runs(), tmp_path).loc["encoder"]
    assert row["attention_ratio"] > 1.4
    # What is left comes from the ends of a text, where rows spread over fewer near words.
    assert row["attention_ratio_distance_matched"] == pytest.approx(1, abs=0.05)


def test_on_text_without_places_nothing_is_left_to_correct(tmp_path: Path) -> None:
    """The negative control: equal attention and topics anywhere give 1 in every form."""
    drawn = topic_text.documents(40, 40, topics=TOPICS, per_document=3, seed=5)
    row = probe(blind("gpt2"), [" ".join(words) + "." for words in drawn], tmp_path).loc["decoder"]
    for form in ("", "_distinct", "_distance_matched", "_position_corrected"):
        assert row[f"attention_ratio{form}"] == pytest.approx(1, abs=0.05)
