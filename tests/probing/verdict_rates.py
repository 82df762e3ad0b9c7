"""How often the verdict speaks of topics where there are none, and how often it finds those that were learned.

Without topics: a BERT with random weights, two layers of four heads, each with a seed of its own. Half of them are
drawn with the standard deviation .02 of a fresh BERT, so that attention is nearly even, half with .3, so that words
attend to each other very unevenly without regard to topics. Wrong topics: trained models, but the words were dealt out
to the topics anew, so that words differ as in any trained model and topics mean nothing. With topics: models of one
layer (`trained.Training`), each from a seed of its own. All read documents of topic-model text that no model was
trained on, another text for each seed.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

import topicscope
from probing import topic_text, trained
from topicscope.probing.statistics.verdict import HIGHER, NONE

DOCUMENTS, WORDS = 40, 100
FRESH, UNEVEN = 0.02, 0.3
STEPS = 600
CONTROLS, PERMUTATIONS = 5, 1000
TRAINED_WITH_WRONG_TOPICS = 5  # models, each with many deals


@dataclass(frozen=True)
class Verdict:
    """What a probe says of the model with this seed: its verdict, and the two figures that make it."""

    seed: int
    verdict: str
    ratio: float
    p_value: float


def without_topics(seed: int) -> Verdict:
    """The verdict on random weights."""
    tokenizer = topic_text.tokenizer("bert", trained.TOPICS, trained.WINDOW)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=trained.WINDOW, pad_token_id=tokenizer.pad_token_id,
        initializer_range=FRESH if seed % 2 else UNEVEN,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(10_000 + seed)  # far from the seeds of the controls
        model = BertModel(config)
    return _verdict(model, tokenizer, seed)


def wrong_topics(seed: int) -> Verdict:
    """The verdict on a trained model and topics that are none."""
    words = np.random.default_rng(30_000 + seed).permutation(np.array(trained.TOPICS).ravel())
    dealt = words.reshape(len(trained.TOPICS), -1).tolist()
    return _verdict(*_trained(seed % TRAINED_WITH_WRONG_TOPICS), seed, dealt)


def with_topics(seed: int) -> Verdict:
    """The verdict on a model that learned the topics."""
    return _verdict(*_trained(seed), seed)


def _trained(seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    return trained.model_and_tokenizer(trained.Training("bert", "masked", STEPS, seed=1 + seed))


def _verdict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    topics: Sequence[Sequence[str]] = trained.TOPICS,
) -> Verdict:
    drawn = topic_text.documents(
        DOCUMENTS, WORDS, topics=trained.TOPICS, per_document=trained.PER_DOCUMENT, seed=20_000 + seed
    )
    with tempfile.TemporaryDirectory() as folder:
        result = topicscope.probe(
            model,
            tokenizer,
            [" ".join(words) + "." for words in drawn],
            topics=topic_text.word_list(topics, Path(folder) / "words.csv"),
            unit="passage",
            controls=CONTROLS,
            permutations=PERMUTATIONS,
            profile=0,
        )
    row = result.table().iloc[0]
    ratio = float(row["attention_ratio_distinct_distance_matched"])
    return Verdict(seed, str(row["verdict"]), ratio, float(row["permutation_p"]))


def wrong(found: Sequence[Verdict]) -> int:
    """Probes in which topics were seen where there are none."""
    return sum(each.verdict != NONE for each in found)


def right(found: Sequence[Verdict]) -> int:
    """Trained models in which more attention to words of the same topic was seen."""
    return sum(each.verdict == HIGHER for each in found)
