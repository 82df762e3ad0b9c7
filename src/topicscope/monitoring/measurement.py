"""One measurement of a model in training: attention, OV circuit and weights of every layer, and the embeddings."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from topicscope.errors import UnsupportedModelError
from topicscope.monitoring.attention import AttentionReader
from topicscope.monitoring.probe_set import ProbeSet
from topicscope.monitoring.weights import weight_rows
from topicscope.probing.circuits import circuit_factors
from topicscope.probing.embeddings import KINDS, embedding_similarity
from topicscope.probing.hf import ModelView
from topicscope.probing.statistics import WordPairs, frequency_bands
from topicscope.probing.tokens import word_token_ids

EMBEDDING_FIELDS = ("same", "different", "difference", "difference_se", "ratio", "z", "z_banded")


class Meter:
    """Measures one model again and again; `documents` of the set take part."""

    def __init__(self, view: ModelView, probe_set: ProbeSet, *, documents: int | None = None) -> None:
        self.view, self._set = view, probe_set
        assignment = probe_set.assignment
        tokens = word_token_ids(view.tokenizer, assignment.words)
        self.words = tuple(word for word in assignment.words if word in tokens.found)
        self.words_without_token = len(assignment.words) - len(self.words)
        self._ids = torch.tensor([tokens.found[word].token_id for word in self.words], dtype=torch.int64)
        self._membership = assignment.membership(self.words)
        self._frequencies = np.array([probe_set.counts.get(word, 0) for word in self.words], dtype=np.float64)
        bands = frequency_bands(self._frequencies)
        self._banded = bands is not None
        self._word_pairs = WordPairs(self._membership, bands)
        self._attention: AttentionReader
        self.take(probe_set.documents if documents is None else documents)

    def take(self, documents: int) -> None:
        """From now on only the first `documents` documents are read."""
        self.documents = documents
        self._attention = AttentionReader(self.view, *self._set.beginning(documents), self._set.lookup)

    @property
    def units(self) -> int:
        """How many units are read."""
        return self._attention.units

    def measure(self, start: Path | None, output_embeddings: Float[torch.Tensor, "token d"] | None) -> dict[str, Any]:
        """{"documents", "units", "embeddings": one row per kind, "layers": one row per part and layer}.

        start: see `weights.weight_rows`. output_embeddings: W_U of the OV circuit; None: the input embeddings.
        Attention has the prefix `attention_`, the OV circuit `ov_`.
        """
        layers: dict[tuple[str, int], dict[str, Any]] = {}
        for prefix, rows in (
            ("attention_", self._attention.read(self.view)),
            ("ov_", self._circuits(output_embeddings)),
            ("", weight_rows(self.view, start)),
        ):
            for row in rows:
                key = row.pop("part"), row.pop("layer")
                kept = layers.setdefault(key, {"part": key[0], "layer": key[1]})
                kept |= {prefix + name: value for name, value in row.items()}
        embeddings = list(self._embeddings())
        return {
            "documents": self.documents,
            "units": self.units,
            "embeddings": embeddings,
            "layers": [*layers.values()],
        }

    def _embeddings(self) -> Iterator[dict[str, Any]]:
        vectors = self.view.embedding_matrix()[self._ids].double().numpy()
        for kind in KINDS:
            found = embedding_similarity(vectors, self._membership, kind=kind, frequencies=self._frequencies)
            yield {"kind": kind} | {name: getattr(found, name) for name in EMBEDDING_FIELDS}

    def _circuits(self, output_embeddings: torch.Tensor | None) -> Iterator[dict[str, Any]]:
        """The sum of a layer's OV circuits, straight from the embeddings; nothing where the matrices are not known."""
        factors = circuit_factors(self.view, self._ids, output_embeddings, direct_values_only=True)
        try:
            for found in factors:
                left, right = (_side_by_side(x) for x in (found.left, found.right))
                contrast = self._word_pairs.contrast(left, right)
                names = ("same", "different", "difference", "difference_se", "z", "z_banded")
                row: dict[str, Any] = {name: float(getattr(contrast, name)[0]) for name in names}
                row["z_banded"] = row["z_banded"] if self._banded else row["z"]
                yield {"part": found.part, "layer": found.layer} | row
        except UnsupportedModelError:
            return


def flat_metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """A measurement as named numbers for a logger: topics/embeddings/cosine_z, topics/layer_03/attention_ratio, …

    Layers count from 0. The part is named where there are several: topics/decoder/layer_03/…. What is not finite is
    left out.
    """
    several = len({layer["part"] for layer in row["layers"]}) > 1
    found: dict[str, float] = {}
    for kind in row["embeddings"]:
        found |= {f"topics/embeddings/{kind['kind']}_{name}": v for name, v in kind.items() if name != "kind"}
    for layer in row["layers"]:
        part = f"{layer['part']}/" if several else ""
        where = f"topics/{part}layer_{layer['layer']:02d}"
        found |= {f"{where}/{name}": v for name, v in layer.items() if name not in ("part", "layer")}
    return {name: float(value) for name, value in found.items() if value is not None and np.isfinite(value)}


def _side_by_side(x: Float[np.ndarray, "head word k"]) -> Float[np.ndarray, "one word all"]:
    """Factors of the sum over heads."""
    return np.asarray(x.swapaxes(0, 1).reshape(1, x.shape[1], -1))
