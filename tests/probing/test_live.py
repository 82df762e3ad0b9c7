"""Patterns from outside give the result that the model itself gives, and are checked as its own are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from scripts import load_script
from topicscope.errors import InputError, RunError
from topicscope.probing.hf import LiveView, live_view
from topicscope.probing.results import ProbeResult

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.csv"
    path.write_text(WORDS_CSV)
    return path


def hooked(
    family: str, change: Callable[[dict[str, torch.Tensor]], Any] = lambda cache: cache, seed: int = 0
) -> LiveView:
    """A model whose output_attentions stand for a cache of hooks."""
    model, tokenizer = tiny.build(family, seed=seed)
    model.set_attn_implementation("eager")

    def run(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        attentions = model(input_ids, attention_mask=attention_mask, output_attentions=True).attentions
        return change({f"blocks.{layer}.attn.hook_pattern": a for layer, a in enumerate(attentions)})

    return live_view(
        model,
        tokenizer,
        run,
        num_layers=2,
        num_heads=4,
        causal=family == "gpt2",
        W_E=model.get_input_embeddings().weight,
        max_length=tiny.MAX_LENGTH,
        layer_name="blocks.{layer}.attn.hook_pattern",
        name=family,
        randomised=lambda number: hooked(family, change, seed=number + 1),
    )


def numbers(result: ProbeResult, *, controls: bool) -> np.ndarray:
    row = result.table().iloc[0]
    names = [
        c for c in row.index if c.startswith(("attention", "pairs", "embedding_cosine_raw")) and "topic_sd" not in c
    ]
    names += ["control_attention_ratio"] if controls else []
    return np.array(row[names], dtype=float)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("padding", ["right", "left"])
def test_a_cache_gives_what_the_model_gives(family: str, padding: str, words: Path) -> None:
    options = {"topics": words, "controls": 0, "padding": padding}
    by_cache = topicscope.probe(hooked(family), documents=texts(), **options)
    model, tokenizer = tiny.build(family)
    by_model = topicscope.probe(model, tokenizer, texts(), **options)
    np.testing.assert_allclose(
        numbers(by_cache, controls=False), numbers(by_model, controls=False), rtol=1e-5, atol=1e-8
    )
    assert by_cache.model["weights_hash"] == by_model.model["weights_hash"]
    assert by_cache.model["kernel"] == "given from outside"
    assert not model.training


def test_layers_and_heads_can_be_chosen_and_controls_be_made(words: Path) -> None:
    options = {"topics": words, "controls": 2, "layers": (1,), "heads": (0, 2)}
    by_cache = topicscope.probe(hooked("bert"), documents=texts(), **options)
    model, tokenizer = tiny.build("bert")
    by_model = topicscope.probe(model, tokenizer, texts(), **options)
    np.testing.assert_allclose(by_cache.heads()["mean_same"], by_model.heads()["mean_same"], rtol=1e-5)
    assert len(by_cache.controls) == 2
    assert by_cache.controls["attention_ratio"].nunique() == 2


def test_a_list_of_patterns_serves_as_well(words: Path) -> None:
    view = hooked("bert", lambda cache: list(cache.values()))
    view._layer_name = None
    listed = topicscope.probe(view, documents=texts(), topics=words, controls=0)
    named = topicscope.probe(hooked("bert"), documents=texts(), topics=words, controls=0)
    assert listed.table().equals(named.table())


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("bert", lambda cache: {k: a for k, a in cache.items() if ".1." not in k}, "a layer's pattern is missing"),
        ("bert", lambda cache: {k: a[:, :2] for k, a in cache.items()}, "wrong shape"),
        ("bert", lambda cache: {k: a * 0.9 for k, a in cache.items()}, "sum"),
        ("gpt2", lambda cache: {k: torch.full_like(a, 1 / a.shape[-1]) for k, a in cache.items()}, "later tokens"),
    ],
)
def test_patterns_that_are_none_are_refused(family: str, change: Any, message: str, words: Path) -> None:
    with pytest.raises(RunError, match=message):
        topicscope.probe(hooked(family, change), documents=texts(), topics=words, controls=0, batch_size=1)


def test_controls_without_a_way_to_make_them(words: Path) -> None:
    view = hooked("bert")
    view._randomised = None
    with pytest.raises(InputError, match=r"(?s)no random-weights control.*controls=0"):
        topicscope.probe(view, documents=texts(), topics=words, controls=1)


def test_the_example_runs_and_its_two_ways_agree() -> None:
    example = load_script("examples/live_patterns.py")
    by_patterns, by_name = example.main()
    np.testing.assert_allclose(
        numbers(by_patterns, controls=False), numbers(by_name, controls=False), rtol=1e-4, atol=1e-8
    )
