"""Which words' vectors are compared, and the vectors of a model at the places that need no text.

Contextual states: a word's mean over its occurrences, after every layer, in one more pass over the text.

A word's vector at a layer is h̄_w = Σ_{o of w} h_o / n_w, o over the places where one token is the whole word. So the
words of a pair need not meet in a text, and what is compared is what the model makes of a word on average; pairs inside
one text would share its context, whatever the model does with topics. Sums are streamed: no state is kept.

The baseline of co-occurrence: vectors that know nothing but which words of the text stand near each other.

Topics are patterns of co-occurrence, so any vectors that hold co-occurrence have S above D. How far plain counts go is
measured by the same means: positive pointwise mutual information of words at most `WINDOW` words apart,

    PPMI_wc = max(0, log( n_wc n / (n_w n_c) )),   n_w = Σ_c n_wc, n = Σ_w n_w,

factored by a truncated singular value decomposition, PPMI ≈ U Σ Vᵀ; the vectors are rows of U √Σ (Levy and Goldberg,
2014).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy import sparse
from scipy.sparse.linalg import svds

from topicscope.errors import InputError
from topicscope.probing.attention import Configuration
from topicscope.probing.hf import LiveView, ModelView, aligned, evaluating
from topicscope.probing.tokens import (
    LATER,
    AlignedUnit,
    TokenForm,
    TokenWindows,
    make_batches,
    tokens_at_once,
    word_token_ids,
)
from topicscope.progress import Progress, tracked

RANDOM_WORDS = 1000
FIRST_POSITION = 0
COOCCURRENCE = "cooccurrence"  # the place of vectors that are no model's


@dataclass(frozen=True, eq=False)
class WordVectors:
    """One vector for each of some words; `place` says whence. vectors: any float dtype."""

    place: str
    words: tuple[str, ...]
    vectors: Float[np.ndarray, "word d"]


@dataclass(frozen=True, eq=False)
class ComparedWords:
    """The words whose vectors are made, once for a model and all its random controls.

    words: those that have a topic under any configuration, then those of `random` that have none.
    random: words taken at random from the text, each as likely, whatever their topic: the baseline of anisotropy.
    tokens: the token of each word that is one token of the model.
    counts: occurrences in the text; empty where there is no text, and then there are no frequency bands.
    """

    words: tuple[str, ...]
    random: frozenset[str]
    tokens: Mapping[str, TokenForm]
    counts: Mapping[str, int]

    @classmethod
    def of(
        cls,
        view: ModelView,
        configurations: Sequence[Configuration],
        counts: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "ComparedWords":
        """Every word with a topic, and at most `RANDOM_WORDS` words of the text drawn with `seed`."""
        counts = {} if counts is None else counts
        in_text = sorted(word for word, count in counts.items() if count)
        draw = np.random.default_rng(seed).permutation(len(in_text))[:RANDOM_WORDS]
        random = [in_text[i] for i in draw.tolist()]
        words = tuple(dict.fromkeys([*(w for c in configurations for w in c.assignment.words), *random]))
        return cls(words, frozenset(random), word_token_ids(view.tokenizer, words, progress).found, counts)


def static_vectors(view: ModelView, chosen: ComparedWords) -> list[WordVectors]:
    """The vectors of the words that are one token, at three places.

    raw: the row of the input embedding matrix.
    layer: the output of the embedding layer with every word at position 1, the first place that is a word's.
    layer_first: the same at position 0, where a special token stands in running text: a model gives that position a
        vector of its own, which can outweigh the words' (in MiniLM it is five times as long as the others).
    """
    words = tuple(word for word in chosen.words if word in chosen.tokens)
    if not words:
        return []
    ids = torch.tensor([chosen.tokens[word].token_id for word in words])
    places = {
        "raw": view.embedding_matrix()[ids],
        "layer": view.embedding_output(ids),
        "layer_first": view.embedding_output(ids, FIRST_POSITION),
    }
    return [WordVectors(place, words, tensor.detach().double().cpu().numpy()) for place, tensor in places.items()]


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
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, np.ndarray] = {}
    with tracked(progress, task, len(units), "units"):
        for start in range(0, len(units), UNITS_PER_CHUNK):
            chunk = TokenWindows.of(units[start : start + UNITS_PER_CHUNK])
            for batch in make_batches(chunk, max_tokens=batch_tokens or tokens_at_once(view.device)):
                text = chunk.take(batch.unit_index)
                later = np.append(text.words[1:] == LATER, False)
                later[np.cumsum(text.lengths) - 1] = False  # the next window is another text
                codes = torch.full(batch.input_ids.shape, _NONE)  # of words that are one token
                codes[batch.attention_mask.bool()] = torch.from_numpy(np.where(later, _NONE, _numbered(text, words)))
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


def _numbered(text: TokenWindows, words: Sequence[str]) -> Int64[np.ndarray, "token"]:
    """Number among `words` of the word at each token; -1 where there is none of them."""
    code = {word: i for i, word in enumerate(words)}
    numbers = np.array([*(code.get(word, _NONE) for word in text.vocabulary), _NONE, _NONE], dtype=np.int64)
    return np.asarray(numbers[text.words])


def _states(
    view: ModelView,
    ids: Int64[torch.Tensor, "unit position"],
    mask: Int64[torch.Tensor, "unit position"],
    codes: Int64[torch.Tensor, "unit position"],
    layers: Sequence[int] | None,
) -> Iterator[tuple[str, torch.Tensor, Int64[torch.Tensor, "unit place"]]]:
    """Place, states [unit place d] and the words that are read there, stack by stack and layer by layer."""
    with torch.inference_mode(), evaluating(view._model):
        inputs = view._inputs(ids, mask)
        output: Any = view._model(**inputs | {"output_hidden_states": True})
    if any(part.query_shift for part in view.parts):
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


WINDOW = 5
DIMENSIONS = 100
MOST_TOKENS = 2_000_000
COUNTED_UNITS_PER_CHUNK = 4096
_GAP = -1  # as `_NONE`


def cooccurrence_vectors(
    units: Sequence[AlignedUnit], counts: Mapping[str, int], *, dimensions: int = DIMENSIONS
) -> WordVectors | None:
    """The vectors of all words of the text, place "cooccurrence"; None where the text has too few for a factorisation.

    units: what the model reads; co-occurrences are counted inside a unit, over the words that the alignment found, in
    the first `MOST_TOKENS` tokens. counts: the words of the text with their occurrences, which number them.
    """
    words = tuple(word for word, count in counts.items() if count)
    pairs = cooccurrences(units, words)
    k = min(dimensions, len(words) - 1)
    matrix = ppmi(pairs)
    if k < 1 or matrix.nnz == 0:
        return None
    # A start of its own: the default one is drawn afresh each time, and the vectors would differ in the last digits.
    start = np.random.default_rng(0).random(len(words))
    U, sigma, _ = svds(matrix, k=k, v0=start)
    return WordVectors(COOCCURRENCE, words, np.asarray(U * np.sqrt(sigma)))


def cooccurrences(units: Sequence[AlignedUnit], words: Sequence[str]) -> sparse.csr_matrix:
    """n_wc [word context], symmetric: how often two words stand at most `WINDOW` words apart in a unit."""
    total = sparse.csr_matrix((len(words), len(words)))
    tokens = 0
    for start in range(0, len(units), COUNTED_UNITS_PER_CHUNK):
        text = TokenWindows.of(units[start : start + COUNTED_UNITS_PER_CHUNK])
        tokens += len(text.words)
        codes = _numbered(text, words)
        # A gap after each unit: units do not touch.
        gaps = np.repeat(np.cumsum(text.lengths), WINDOW)
        at = np.insert(codes, gaps, _GAP)
        at = at[np.insert(codes != _NONE, gaps, True)]
        shifted = [(at[:-distance], at[distance:]) for distance in range(1, WINDOW + 1)]
        left, right = (np.concatenate(side) for side in zip(*shifted, strict=True))
        both = (left != _GAP) & (right != _GAP)
        ones = np.ones(int(both.sum()))
        total = total + sparse.coo_matrix((ones, (left[both], right[both])), shape=total.shape).tocsr()
        if tokens >= MOST_TOKENS:
            break
    return (total + total.T).tocsr()


def ppmi(pairs: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information of counts [word context]; 0 where a pair never occurs."""
    found = pairs.tocoo()
    row, column = (np.asarray(pairs.sum(axis=axis), dtype=np.float64).ravel() for axis in (1, 0))
    with np.errstate(divide="ignore"):
        information = np.log(found.data * row.sum() / (row[found.row] * column[found.col]))
    kept = information > 0
    return sparse.csr_matrix((information[kept], (found.row[kept], found.col[kept])), shape=pairs.shape)
