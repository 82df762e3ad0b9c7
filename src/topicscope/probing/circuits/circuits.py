"""Static circuits: do a model's own matrices connect words of one topic? No text is read.

Theorem 2 of the paper speaks of the blocks of W_V, Theorem 3 of W_K and W_Q. Their counterparts in a pretrained head
are its OV and QK circuits between words (Elhage et al. 2021); see `circuits.factors` for what stands in them.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import erfc, sqrt
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError, UnsupportedModelError
from topicscope.lab import TopicTransformer, layer_name
from topicscope.probing.attention import Configuration
from topicscope.probing.circuits.factors import CircuitFactors, circuit_factors, layouts_of
from topicscope.probing.config import DEFAULT_THRESHOLDS, ProbeConfig
from topicscope.probing.hf import ModelView
from topicscope.probing.inputs import FittedTopics, TopicSource, configurations_of, read_topics, view_of
from topicscope.probing.statistics import WordPairs, frequency_bands
from topicscope.probing.tokens import word_token_ids
from topicscope.records import CIRCUITS, Result, plain, select, threshold_cell, write_json, write_text
from topicscope.topics import TopicModel, Topics, WordList

ALL_HEADS = -1
_LEADING = ("part", "threshold", "topic_seed", "place", "circuit", "layer", "head")


def circuit_rows(
    view: ModelView,
    configurations: Sequence[Configuration],
    *,
    frequencies: Mapping[str, float] | None = None,
    output_embeddings: Float[torch.Tensor, "token d"] | None = None,
) -> pd.DataFrame:
    """One row per part, configuration, place ("raw", "layer"), circuit ("OV", "QK"), layer and head.

    head -1 (`ALL_HEADS`) stands for all heads of the layer that are read: the sum of their OV, the mean of their QK.
    same, different, difference, difference_se, sd, diagonal, z, z_banded, z_turned: see `PairContrast`; p_value,
        p_value_banded, p_value_turned: two-sided normal probabilities of the z. Far out an order of magnitude, not a p.
    words: distinct words that have a topic and are one token; words_without_token: words of the topics that are not.
    frequencies: how often each word occurs, in any unit (also a rank, negated); words are cut into at most 10 bands of
        at least 20 words. None, or fewer than 40 words: no bands, and z_banded is NaN.
    output_embeddings: see `circuit_factors`.

    Raises:
        UnsupportedModelError: a type of model whose matrices are not known.
    """
    words = list(dict.fromkeys(word for c in configurations for word in c.assignment.words))
    found = word_token_ids(view.tokenizer, words).found
    known = [word for word in words if word in found]
    if not known:
        return pd.DataFrame()
    chosen = []
    for configuration in configurations:
        membership = configuration.assignment.membership(known)
        lost = len(configuration.assignment.words) - int(membership.any(1).sum())
        chosen.append(_Words(configuration.threshold, configuration.topic_seed, membership, lost))
    counts = None if frequencies is None else np.array([frequencies.get(word, 0.0) for word in known], dtype=float)
    ids = torch.tensor([found[word].token_id for word in known])
    heads = {part.name: {head: part.key_value_head(head) for head in part.heads} for part in view.parts}
    return _rows(circuit_factors(view, ids, output_embeddings), chosen, counts, heads)


class _Words(NamedTuple):
    """The words of one configuration among those that are known; lost: how many more it has."""

    threshold: float | None
    topic_seed: int
    membership: Bool[np.ndarray, "word topic"]
    lost: int


def _rows(
    factors: Iterable[CircuitFactors],
    chosen: Sequence[_Words],
    counts: Float[np.ndarray, "word"] | None,
    heads: Mapping[str, Mapping[int, int]],
) -> pd.DataFrame:
    """See `circuit_rows`; heads: of each part, with the key-value head that each reads."""
    # Of each configuration with a pair of words: those that are used, their pairs, and the columns of all its rows.
    measured = []
    for of in chosen:
        used = np.flatnonzero(of.membership.any(1))
        if len(used) < 2:
            continue
        bands = None if counts is None else frequency_bands(counts[used])
        pairs = WordPairs(of.membership[used], bands)
        constant = {
            "threshold": threshold_cell(of.threshold),
            "topic_seed": of.topic_seed,
            "words": len(used),
            "topics": int(of.membership.any(0).sum()),
            "bands": 0 if bands is None else len(np.unique(bands)),
            "words_without_token": of.lost,
            "pairs_same": pairs.same_pairs,
            "pairs_different": pairs.different_pairs,
        }
        measured.append((used, pairs, constant))
    rows: list[dict[str, Any]] = []
    for found in factors:
        where = {"part": found.part, "place": found.place, "circuit": found.circuit, "layer": found.layer}
        for used, pairs, constant in measured:
            left, right = found.left[:, used], found.right[:, used]
            scale = len(left) if found.circuit == "QK" else 1
            # All heads side by side are the factors of their sum.
            every = [x.swapaxes(0, 1).reshape(1, x.shape[1], -1) for x in (left / scale, right)]
            contrasts = asdict(pairs.contrast(left, right)), asdict(pairs.contrast(every[0], every[1]))
            columns = {name: np.concatenate([of[name] for of in contrasts]).tolist() for name in contrasts[0]}
            for number, (head, shared) in enumerate([*heads[found.part].items(), (ALL_HEADS, ALL_HEADS)]):
                row = {name: values[number] for name, values in columns.items()}
                for name in ("z", "z_banded", "z_turned"):
                    row[name.replace("z", "p_value")] = erfc(abs(row[name]) / sqrt(2))
                rows.append(constant | where | {"head": head, "kv_head": shared} | row)
    frame = pd.DataFrame(rows)
    return frame[[*_LEADING, *(c for c in frame if c not in _LEADING)]] if rows else frame


def _laboratory_factors(model: TopicTransformer, num_words: int) -> Iterator[CircuitFactors]:
    weights, config = {name: value.double().cpu() for name, value in model.weights().items()}, model.config
    x = weights["W_E"].T[1 : num_words + 1]  # [word d]
    u = weights["W_pred"][1 : num_words + 1] if config.head == "trained" else x
    for layer in range(config.layers):
        W_Q, W_K, W_V = (
            weights[layer_name(name, layer)].reshape(config.heads, -1, x.shape[1]) for name in ("W_Q", "W_K", "W_V")
        )
        queries, keys, values = (torch.einsum("wd,hkd->hwk", x, W) for W in (W_Q, W_K, W_V))
        if config.output_projection:
            W_O = weights[layer_name("W_O", layer)].reshape(x.shape[1], config.heads, -1)  # [d head value]
            written = torch.einsum("wd,dhv->hwv", u, W_O)
        else:
            written = u.expand(config.heads, -1, -1)
        for circuit, left, right in (("QK", queries / queries.shape[-1] ** 0.5, keys), ("OV", written, values)):
            yield CircuitFactors("layer", layer, "raw", circuit, left.numpy(), right.numpy())


Circuit = Literal["OV", "QK"]
CIRCUIT_NAMES: tuple[Circuit, ...] = ("OV", "QK")


@dataclass(frozen=True, eq=False)
class CircuitResult(Result):
    """Same-topic minus different-topic means of every head's OV and QK circuit.

    model: name and type. rows: see `circuit_rows`. notes: how to read them (what output embeddings were
    used, what the scores leave out, the direct path); warnings: what a reader must know of these words and topics.
    """

    kind, layout = "circuits", CIRCUITS

    model: Mapping[str, str]
    rows: pd.DataFrame
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    folder: Path | None = None

    def table(self) -> pd.DataFrame:
        """One row per layer (the sum of its heads' OV, the mean of their QK), threshold, place and circuit."""
        return self.rows[self.rows["head"] == ALL_HEADS].drop(columns=["head", "kv_head"]).reset_index(drop=True)

    def heads(self) -> pd.DataFrame:
        """One row per head, threshold, place and circuit; layers and heads from 0."""
        return self.rows[self.rows["head"] != ALL_HEADS].reset_index(drop=True)

    def plot(
        self,
        circuit: Circuit = "OV",
        *,
        place: str | None = None,
        part: str | None = None,
        threshold: float | None = None,
    ) -> Any:
        """Layer × head map of z of one circuit; the last place, the first part and the middle threshold by default.

        Raises:
            InputError: no such rows.
        """
        from topicscope.report import circuit_map

        return circuit_map(
            self.heads(),
            circuit=circuit,
            place=place or self.rows["place"].iloc[-1],
            part=part or self.rows["part"].iloc[0],
            threshold=self._middle_threshold if threshold is None else threshold,
            name=self.model["name"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The document that `circuits.json` holds and `--json` prints."""
        return {
            **self._head(),
            "model": dict(self.model),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "rows": plain(self.rows.to_dict(orient="records")),
        }

    def pictures(self) -> dict[str, bytes]:
        """A map of each circuit of each part."""
        from topicscope.report import to_png

        return {
            f"{circuit.lower()}-{part}.png": to_png(self.plot(circuit, part=part))
            for part in dict.fromkeys(self.rows["part"])
            for circuit in CIRCUIT_NAMES
        }

    def write(self, folder: Path) -> None:
        """circuits.csv and circuits.json."""
        write_text(folder / "circuits.csv", self.rows.to_csv(index=False))
        write_json(folder / "circuits.json", self.to_dict())

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "CircuitResult":
        """See `Result.read`."""
        rows = pd.read_csv(folder / "circuits.csv")
        return cls(record["model"], rows, tuple(record["notes"]), tuple(record["warnings"]), folder)

    @property
    def _middle_threshold(self) -> float:
        usable = self.rows[self.rows["z"].notna()]
        values = (self.rows if usable.empty else usable)["threshold"].unique()
        return float(values[len(values) // 2])

    def __str__(self) -> str:
        threshold, place = self._middle_threshold, self.rows["place"].iloc[-1]
        sentences = []
        for part in dict.fromkeys(self.rows["part"]):
            for circuit, name in (("OV", "values"), ("QK", "scores")):
                rows = select(self.heads(), threshold)
                rows = rows[(rows["part"] == part) & (rows["circuit"] == circuit) & (rows["place"] == place)]
                more, less = stand_out(rows)
                sentences.append(
                    f"{circuit} ({name}), {part}: of {len(rows)} heads {more} connect same-topic words more than "
                    f"others, {less} less"
                )
        return f"Circuits of {self.model['name']} between words\n" + "\n".join(sentences)

    def _repr_html_(self) -> str:
        shown = ["part", "threshold", "place", "circuit", "layer", "same", "different", "difference"]
        shown += ["z", "z_banded", "z_turned"]
        table = self.table()[shown].to_html(index=False, float_format="{:.3g}".format)
        return f"<p>{html.escape(str(self)).replace(chr(10), '<br>')}</p>{table}"


def stand_out(heads: pd.DataFrame) -> tuple[int, int]:
    """How many heads connect same-topic words more than others, and how many less.

    Both z (within frequency bands where they are known) and z_turned are beyond 4, on the same side: two-sided
    p = 6e-5, Bonferroni's .05 over some 800 heads.
    """
    z, turned = heads["z_banded"].fillna(heads["z"]), heads["z_turned"]
    return int(((z > Z) & (turned > Z)).sum()), int(((z < -Z) & (turned < -Z)).sum())


Z = 4.0


def circuits(
    model: str | PreTrainedModel | ModelView | TopicTransformer,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    topics: TopicSource | TopicModel,
    threshold: tuple[float, ...] = DEFAULT_THRESHOLDS,
    overlap: Literal["drop", "keep"] = "drop",
    language: str = "en",
    frequencies: Mapping[str, float] | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: str | None = None,
) -> CircuitResult:
    """Same-topic minus different-topic means of the OV and QK circuit of every head, from the weights alone.

        QK_ij = (W_Q x_i) · (W_K x_j) / √d_h     OV_ij = u_i · W_O W_V x_j,   i ≠ j distinct words of the topics

    model: a name or folder, a live model with its tokenizer (its own output embeddings are used where it has a head;
        the input embeddings stand in otherwise, and `notes` says so), or a laboratory `TopicTransformer`.
    topics: a topics file, a word list, `Topics` or a `TopicModel`; nothing is fitted here. For a `TopicTransformer` the
        `TopicModel` of its documents; threshold and overlap do not matter then.
    frequencies: how often each word occurs, for shuffles within frequency bands. Topics that were fitted by topicscope
        know the order of their words' frequencies, which is used unless this is given.

    Raises:
        InputError: topics that cannot be used, or no pair of words of one topic and of two.
        UnsupportedModelError: a type of model whose matrices are not known.
    """
    if isinstance(model, TopicTransformer):
        return _laboratory(model, topics)
    config = ProbeConfig(
        threshold=tuple(threshold),
        overlap=overlap,
        language=language,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    given = read_topics(Topics(topics, {}) if isinstance(topics, TopicModel) else topics)
    if isinstance(given, int):
        raise InputError(
            "circuits need topics that are there already",
            received=given,
            expected="a topics file, a matrix or a word list",
            advice="fit them: topicscope topics fit CORPUS --topics NUMBER --output topics.npz",
        )
    fitted = FittedTopics((), given, {}) if isinstance(given, WordList) else FittedTopics(given, None, {})
    configurations = configurations_of(fitted, config)
    view = view_of(model, tokenizer, config, call="topicscope.circuits(model, tokenizer, topics=…)")
    W_U = None
    if not isinstance(model, (str, ModelView)):
        head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        W_U = None if head is None else head.weight.detach()
    layouts = layouts_of(view)
    frequencies = _ranks(fitted.topics) if frequencies is None else frequencies
    rows = circuit_rows(view, configurations, frequencies=frequencies, output_embeddings=W_U)
    _require_pairs(rows, configurations, view.name)
    notes = [_output_note(view, W_U)]
    notes += [f"{part}: not in the scores: {layout.left_out}" for part, layout in layouts.items() if layout.left_out]
    notes.append(
        "layers beyond the first: the direct path from the embeddings, without what other layers add (Elhage et al., "
        "2021)"
    )
    if rows["bands"].eq(0).all():
        notes.append("the words' frequencies are not known, or the words are too few for bands: no z within bands")
    warnings = dict.fromkeys(w for c in configurations for w in c.assignment.warnings)
    return CircuitResult({"name": view.name, "type": view.model_type}, rows, tuple(notes), tuple(warnings))


def circuits_of_probe(
    view: ModelView, configurations: Sequence[Configuration], topics: tuple[Topics, ...]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Rows for a probe's result, of the first topic seed only; a warning where the model's matrices are not known."""
    first = [configuration for configuration in configurations if configuration.topic_seed == 0]
    try:
        return circuit_rows(view, first, frequencies=_ranks(topics)), ()
    except UnsupportedModelError as error:
        return pd.DataFrame(), (f"circuits were left out: {error.summary}",)


def _laboratory(model: TopicTransformer, topics: TopicSource | TopicModel) -> CircuitResult:
    """Of the paper's transformer, whose words are the tokens 1 … V: OV = W_pred W_O W_V W_E, and QK.

    With one-hot embeddings and one head, OV is W_V[written, attended] itself, whose blocks Theorem 2 gives. Positions,
    layer norms and the feed-forward sub-layer are not in it.
    """
    source = topics.model if isinstance(topics, Topics) else topics
    if not isinstance(source, TopicModel):
        raise InputError(
            "the circuits of a laboratory model need the topic model of its documents",
            received=type(topics).__name__,
            expected="topics=TopicModel",
        )
    words, tokens = len(source.vocabulary), model.weights()["W_E"].shape[1]
    if tokens < words + 1:
        raise InputError("the topic model has other words", received=f"{words} words", expected=f"{tokens - 1} words")
    heads = {head: head for head in range(model.config.heads)}
    rows = _rows(_laboratory_factors(model, words), [_Words(None, 0, source.members.T, 0)], None, {"layer": heads})
    _require_pairs(rows, (), "the laboratory model")
    notes = ("exact: the words' tokens through the layer's matrices; layers beyond the first: the direct path",)
    return CircuitResult({"name": "laboratory", "type": "TopicTransformer"}, rows, notes)


def _ranks(topics: Sequence[Topics]) -> dict[str, float] | None:
    """Minus the rank of each word's frequency: topics fitted here list the most frequent word first."""
    if not topics or not str(topics[0].provenance.get("engine")).startswith("tomotopy"):
        return None
    return {word: -float(rank) for rank, word in enumerate(topics[0].model.vocabulary.words)}


def _output_note(view: ModelView, W_U: torch.Tensor | None) -> str:
    projected = any(layout.project for layout in layouts_of(view).values())
    if W_U is not None and not projected:
        return "OV: output embeddings of the model's head"
    if projected:
        return "OV: the input embeddings, projected to the layers' width, stand for the output embeddings"
    tied = bool(getattr(view._model.config, "tie_word_embeddings", False))
    why = "tied to them in this type of model" if tied else "which this model does not tie to them: give the live model"
    return f"OV: the input embeddings stand for the output embeddings, {why}"


def _require_pairs(rows: pd.DataFrame, configurations: Sequence[Configuration], name: str) -> None:
    if len(rows) and bool(((rows["pairs_same"] > 0) & (rows["pairs_different"] > 0)).any()):
        return
    words = max((len(c.assignment.words) for c in configurations), default=0)
    counts = "none" if rows.empty else f"{rows['words'].max()} in {rows['topics'].max()} topics"
    raise InputError(
        "circuits need at least two topics with words, and two words of one topic",
        received=f"words that are one token of the model: {counts} ({words} words in the topics)",
        where=name,
        advice="use topics of the model's language, more topics, or a larger --threshold",
    )
