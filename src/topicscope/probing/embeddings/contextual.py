"""Contextual states: a word's mean over its occurrences, after every layer, in one more pass over the text.

A word's vector at a layer is h̄_w = Σ_{o of w} h_o / n_w, o over the places where one token is the whole word. So the
words of a pair need not meet in a text, and what is compared is what the model makes of a word on average; pairs inside
one text would share its context, whatever the model does with topics. Sums are streamed: no state is kept.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from topicscope.errors import InputError
from topicscope.probing.embeddings.vectors import WordVectors
from topicscope.probing.hf import LiveView, ModelView, aligned, evaluating
from topicscope.probing.tokens import LATER_PIECE, AlignedUnit, make_batches, tokens_at_once
from topicscope.progress import Progress, tracked

UNITS_PER_CHUNK = 256
_NONE = -1


def require_states(view: ModelView) -> None:
    """Raise InputError for a model of which only attention is known."""
    if isinstance(view, LiveView):
        raise InputError(
            "a model that is run from outside hands out attention only",
            received=view.name,
            expected="contextual=False, or a Hugging Face model",
        )


def contextual_vectors(
    view: ModelView,
    units: Sequence[AlignedUnit],
    words: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    batch_tokens: int | None = None,
    task: str,
    progress: Progress,
) -> list[WordVectors]:
    """The mean state of each of `words` that occurs as one token, at every layer; place "after layer 0" and so on.

    "before layer 0" is what enters the layers: embeddings with the positions at which the words stand. layers: which
    are wanted (numbered from 0); None: all. Encoder and decoder of a sequence-to-sequence model have "encoder " and
    "decoder " before it; a decoder's state is that of the position that reads the word. After the last layer a pre-norm
    model's state has gone through its final norm, as transformers hands it out. Memory: 8 bytes times words, layers and
    width.

    Raises:
        InputError: a model of which only attention is known.
    """
    require_states(view)
    code = {word: i for i, word in enumerate(words)}
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, np.ndarray] = {}
    with tracked(progress, task, len(units), "units"):
        for start in range(0, len(units), UNITS_PER_CHUNK):
            chunk = units[start : start + UNITS_PER_CHUNK]
            for batch in make_batches(chunk, max_tokens=batch_tokens or tokens_at_once(view.device)):
                codes = torch.full(batch.input_ids.shape, _NONE)
                for row, i in enumerate(batch.unit_index):
                    codes[row, : len(chunk[i].words)] = torch.tensor(_codes(chunk[i], code))
                ids, mask, _ = aligned(batch.input_ids.to(view.device), batch.attention_mask.to(view.device))
                for place, states, read in _states(view, ids, mask, codes, layers):
                    where = read != _NONE
                    found = states[where.to(states.device)].double().cpu()
                    if place not in sums:
                        sums[place] = torch.zeros(len(words), states.shape[-1], dtype=torch.float64)
                        counts[place] = np.zeros(len(words), dtype=np.int64)
                    sums[place].index_add_(0, read[where], found)
                    counts[place] += np.bincount(read[where].numpy(), minlength=len(words))
            progress.update(task, start + len(chunk))
    vectors = []
    for place, total in sums.items():
        seen = np.flatnonzero(counts[place])
        means = total.numpy()[seen] / counts[place][seen, None]
        vectors.append(WordVectors(place, tuple(words[i] for i in seen.tolist()), means))
    return vectors


def _codes(unit: AlignedUnit, code: dict[str, int]) -> list[int]:
    """Number of the word at each position; -1 where there is none that is wanted, or one of several tokens."""
    after = (*unit.words[1:], None)
    return [
        _NONE if word is None or later == LATER_PIECE else code.get(word, _NONE)
        for word, later in zip(unit.words, after, strict=True)
    ]


def _states(
    view: ModelView,
    ids: Int64[torch.Tensor, "unit position"],
    mask: Int64[torch.Tensor, "unit position"],
    codes: Int64[torch.Tensor, "unit position"],
    layers: Sequence[int] | None,
) -> Iterator[tuple[str, torch.Tensor, Int64[torch.Tensor, "unit place"]]]:
    """Place, states [unit place d] and the words that are read there, stack by stack and layer by layer."""
    with torch.inference_mode(), evaluating(view._model):
        inputs = view._inputs(ids.masked_fill(mask == 0, view._pad_id), mask)
        output: Any = view._model(**inputs | {"output_hidden_states": True})
    if view._family.shifts_text:
        stacks = {"encoder ": output.encoder_hidden_states, "decoder ": output.decoder_hidden_states}
    else:
        stacks = {"": output.hidden_states}
    for name, states in stacks.items():
        for number, state in enumerate(states):
            if layers is not None and number > 0 and number - 1 not in layers:
                continue
            place = f"{name}before layer 0" if number == 0 else f"{name}after layer {number - 1}"
            # A decoder that gets the text moved one to the right reads token i at position i + 1.
            yield (place, state[:, 1:], codes[:, :-1]) if name == "decoder " else (place, state, codes)
