"""The slow twin of the attention sums: one unit at a time, one pair at a time, straight from Knowl 8, in float64."""

import copy
from collections import defaultdict
from collections.abc import Sequence

import torch

from topicscope.probing.attention import TopicLookup
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import LATER_PIECE, AlignedUnit
from topicscope.topics import PairClass


def class_of(word_i: str, word_j: str, topics_i: set[int], topics_j: set[int]) -> PairClass:
    """design.md's pair classes for two words at different places."""
    if word_i == word_j:
        return PairClass.same_word if topics_i else PairClass.same_word_no_topic
    if not topics_i or not topics_j:
        return PairClass.no_topic
    return PairClass.same_topic if topics_i & topics_j else PairClass.different_topic


def attention_of(view: ModelView, unit: AlignedUnit) -> dict[str, list[torch.Tensor]]:
    """Attention [head, query, key] of every layer by the library's own output, without batches, hooks or padding.

    The weights are the model's own in float64.
    """
    model = copy.deepcopy(view._model).double()
    model.config._experts_implementation = "eager"  # the quick one knows no float64
    model.set_attn_implementation("eager")
    ids = torch.tensor([unit.input_ids])
    inputs = {"input_ids": ids, "output_attentions": True}
    if any(part.query_shift for part in view.parts):
        start = torch.tensor([[model.config.decoder_start_token_id]])
        inputs["decoder_input_ids"] = torch.cat([start, ids[:, :-1]], 1)
    with torch.no_grad():
        output = model.eval()(**inputs)
    if "decoder_input_ids" in inputs:
        names = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    else:
        names = {view.parts[0].name: "attentions"}
    return {part: [layer[0] for layer in output[name]] for part, name in names.items()}


def words_of(unit: AlignedUnit) -> list[tuple[str, list[int]]]:
    """Every word with the places of its tokens."""
    found: list[tuple[str, list[int]]] = []
    for place, word in enumerate(unit.words):
        if word == LATER_PIECE:
            found[-1][1].append(place)
        elif word is not None:
            found.append((word, [place]))
    return found


def pair_sums(
    view: ModelView, units: Sequence[AlignedUnit], lookup: TopicLookup, configuration: int
) -> dict[tuple[str, str, int, int, PairClass], tuple[float, float, int]]:
    """(document, part, layer, head, class) -> (Σ A·L/100, Σ A·(i+1)/100, pairs).

    Attention to a word is summed over its tokens, from it averaged.
    """
    membership = lookup.memberships[configuration]
    topics = {w: set(membership[i].nonzero()[0].tolist()) for i, w in enumerate(lookup.words)}
    found: dict = defaultdict(lambda: (0.0, 0.0, 0))
    for unit in units:
        attention = attention_of(view, unit)
        length, words = len(unit.input_ids), words_of(unit)
        for part in view.parts:
            for i, (word_i, places_i) in enumerate(words):
                for j, (word_j, places_j) in enumerate(words):
                    rows = [place + part.query_shift for place in places_i]
                    columns = [place + part.key_shift for place in places_j]
                    if i == j or max(*rows, *columns) >= length or (part.causal and j > i):
                        continue
                    kind = class_of(word_i, word_j, topics[word_i], topics[word_j])
                    for layer, weights in enumerate(attention[part.name]):
                        for head in range(weights.shape[0]):
                            to_word = [sum(float(weights[head, row, column]) for column in columns) for row in rows]
                            a = sum(to_word) / len(rows)
                            corrected = sum(t * (row + 1) for t, row in zip(to_word, rows, strict=True)) / len(rows)
                            key = (unit.document_id, part.name, layer, head, kind)
                            x, y, n = found[key]
                            found[key] = (x + a * length / 100, y + corrected / 100, n + 1)
    return found
