"""Keys that draw attention whatever they mean: the first token, specials such as [SEP] and </s>, and punctuation.

Models park attention there (Clark et al. 2019; Xiao et al. 2024), differently from row to row. `--exclude-sinks` reads
the text once more, as if these keys did not exist: they make no pairs, and each row is divided by what is left of it,

    A'_ij = A_ij / Σ_{k kept} A_ik,

L counting the keys that are kept. A row of which nothing is left gives nothing.

Axes: b unit of the batch, h head, q query, k key.
"""

import unicodedata
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float

from topicscope.probing.hf import ModelView, PartSpec
from topicscope.probing.tokens import Batch


def sink_keys(view: ModelView, batch: Batch, part: PartSpec) -> Bool[torch.Tensor, "b k"]:
    """Where the first attended token, a special one or punctuation stands, as the keys of a part see the text."""
    attended = batch.attention_mask.bool()
    found = torch.zeros_like(attended)
    for kind in specials_and_punctuation(view, batch):
        found |= moved(kind, part.key_shift)
    found[torch.arange(len(found)), batch.attention_mask.argmax(1)] = True
    return found & attended


def without_keys(
    attention: Float[torch.Tensor, "b h q k"], out: Bool[torch.Tensor, "b k"]
) -> Float[torch.Tensor, "b h q k"]:
    """Rows over the other keys, which sum to 1 again; 0 where nothing is left."""
    kept = attention.masked_fill(out[:, None, None], 0)
    mass = kept.sum(-1, keepdim=True)
    return kept / torch.where(mass > 0, mass, 1)


def moved(kind: torch.Tensor, shift: int) -> torch.Tensor:
    """[b, position] with position i holding what stood at i - shift."""
    found = torch.zeros_like(kind)
    found[:, shift:] = kind[:, : kind.shape[1] - shift]
    return found


def specials_and_punctuation(view: ModelView, batch: Batch) -> Iterator[torch.Tensor]:
    """bool [b, k] of the text: special tokens; punctuation."""
    ids = batch.input_ids
    special = set(view.tokenizer.all_special_ids)
    present = sorted(set(ids.flatten().tolist()))
    punctuation = [i for i in present if i not in special and _is_punctuation(str(view.tokenizer.decode([i])))]
    for kind in (sorted(special), punctuation):
        yield torch.isin(ids, torch.tensor(kind, dtype=ids.dtype))


def _is_punctuation(text: str) -> bool:
    text = text.strip()
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)
