"""One measurement of a model in training: attention, OV circuit and weights of every layer, and the embeddings; and
what keeps it from changing the training around it.

Norms of a layer's query, key, value and output weights, and how far they are from where training began.

The start is kept on disk, not in memory, so that a resumed run measures from the same start, and a run needs no second
copy of its weights.

Attention between words of one topic and of different topics, layer by layer, over a fixed set of units.

Which pairs there are does not change while a model trains, so they are found once; a measurement is a forward pass and
a few sums. For a pair of positions i ≠ j both of whose words have topics, x = A_ij · L/100, averaged over a layer's
heads; in causal parts A_ij · (i+1)/100 as well. With documents as clusters,

    same, different = Σ x / Σ 1 over the pairs of words of one topic (a word with itself included) and of two topics,

their ratio and difference have delta-method errors, as a probe's have. z says how far Σ_{same topic, i ≠ j words} r is
from what it is when topics are shuffled over the words, in closed form (Mantel's moments); r = x (in causal parts the
one with (i+1)/100) less the mean of all pairs at the same distance in the same layer, as in
`probing.statistics.permutation`.
z_banded: shuffled within frequency bands.

Axes: b unit of the batch, h head, q query, k key, e layer.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import save_file

from topicscope.errors import UnsupportedModelError
from topicscope.monitoring.probe_set import ProbeSet
from topicscope.probing.attention import NUM_BINS, PairReader, PairTable, TopicLookup, distance_bin
from topicscope.probing.circuits import attention_weights, circuit_factors
from topicscope.probing.embeddings import KINDS, embedding_similarity
from topicscope.probing.hf import ModelView, PartSpec
from topicscope.probing.statistics import (
    Moments,
    WordPairs,
    delta_method,
    effective_documents,
    frequency_bands,
    ratio_of_means,
)
from topicscope.probing.tokens import AlignedUnit, word_token_ids
from topicscope.topics import PairClass


def unwrap_model(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside torch.compile, DistributedDataParallel and DataParallel, however they are stacked.

    Raises:
        UnsupportedModelError: its parameters are sharded over processes, so that no process has the whole model.
    """
    parallel = torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel
    inner: torch.nn.Module | None = model
    while inner is not None:
        model = inner
        # The class of compiled modules is not asked for: that would load the compiler.
        inner = model.module if isinstance(model, parallel) else model._modules.get("_orig_mod")
    # FSDP and tensor parallelism keep DTensors or flat shards, DeepSpeed's third stage empties parameters.
    sharded = [
        n
        for n, p in model.named_parameters()
        if hasattr(p, "_local_tensor") or hasattr(p, "ds_id") or "_flat_param" in n
    ]
    if sharded:
        raise UnsupportedModelError(
            "a model whose parameters are sharded over processes cannot be measured while it trains",
            received=sharded[0],
            expected="a whole model in the first process (one device, DDP, DataParallel)",
            advice="probe its saved checkpoints instead",
        )
    return model


def is_first_process() -> bool:
    """Whether this is the process that measures: rank 0, or the only one."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


@contextmanager
def preserve_state(model: torch.nn.Module) -> Iterator[None]:
    """Inside no autocast, also not that which accelerate wraps a model's `forward` in, and no gradients; afterwards
    every random state is what it was.

    Modes, hooks and the attention kernel are put back by the readings themselves (`probing.hf.eager`).
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - somebody else's, which must stay
    device = next(model.parameters()).device.type
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    state: dict[str, Any] = model.__dict__
    wrapped, original = state.get("forward"), state.get("_original_forward")
    bare = wrapped is not None and original is not None
    try:
        if bare:
            state["forward"] = original
        with torch.random.fork_rng(devices), torch.autocast(device, enabled=False), torch.no_grad():
            yield
    finally:
        if bare:
            state["forward"] = wrapped
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def synchronise(model: torch.nn.Module) -> None:
    """Wait for what a GPU still has to do, so that it is not counted as the measurement's."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.synchronize(device)


START_FILE = "topic_structure_start.safetensors"


def save_start(view: ModelView, path: Path) -> bool:
    """Write the weights as they are; false where the model's matrices are not known."""
    try:
        found = {
            f"{part}/{layer}/{name}": matrix.float().contiguous().clone()
            for part, layer, matrices in attention_weights(view)
            for name, matrix in matrices.items()
        }
    except UnsupportedModelError:
        return False
    waiting = path.with_suffix(".writing")
    save_file(found, waiting)
    waiting.replace(path)
    return True


def weight_rows(view: ModelView, start: Path | None) -> Iterator[dict[str, Any]]:
    """One row per part and layer: ‖X‖_F as X_norm, and ‖X - X(start)‖_F as X_change, for W_Q, W_K, W_V and W_O.

    start: the file of `save_start`; None: no change is known. Nothing where the model's matrices are not known.
    """
    known = start is not None and start.is_file()
    opened: Any = safe_open(start, framework="pt") if known else nullcontext()
    with opened as kept, suppress(UnsupportedModelError):
        for part, layer, matrices in attention_weights(view):
            row: dict[str, Any] = {"part": part, "layer": layer}
            for name, matrix in matrices.items():
                row[f"{name}_norm"] = float(matrix.norm())
                if known:
                    row[f"{name}_change"] = float((matrix - kept.get_tensor(f"{part}/{layer}/{name}")).norm())
            yield row


# In this order: a word with itself, other words of one topic, words of different topics.
_KINDS = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)


class AttentionReader:
    """The pairs of some units, ready to be read of a model again and again."""

    def __init__(
        self,
        view: ModelView,
        units: Sequence[AlignedUnit],
        document_of: Int[np.ndarray, "unit"],
        lookup: TopicLookup,
    ) -> None:
        self.units = len(units)
        self.documents = int(document_of.max()) + 1
        self._pairs = PairReader(view, units, document_of, lookup, _KINDS)
        self._lookup = lookup

    def read(self, view: ModelView) -> Iterator[dict[str, Any]]:
        """One row per part and layer; the model runs once.

        Raises:
            RunError: see `ModelView.run`.
        """
        batches = list(self._pairs.read(view))
        for part in view.parts:
            yield from self._rows(part, PairTable.joined([batch[part.name] for batch in batches]))

    def _rows(self, part: PartSpec, pairs: PairTable) -> Iterator[dict[str, Any]]:
        scaled = pairs.attention.T * (pairs.length / 100)
        # In a causal part what a place can see differs from place to place, which is no matter of topics.
        corrected = pairs.attention.T * (pairs.rank / 100) if part.causal else scaled
        z, banded = self._z(pairs, corrected)
        for number, layer in enumerate(part.layers):
            row = {"part": part.name, "layer": layer} | _means(pairs, scaled[number], self.documents)
            row |= {"z": float(z[number]), "z_banded": float(banded[number]), "rows_not_a_number": pairs.nan_rows}
            if part.causal:
                by_row = _means(pairs, corrected[number], self.documents)
                row |= {
                    f"{name}_position_corrected{end}": by_row[f"{name}{end}"]
                    for name in ("ratio", "ratio_distinct")
                    for end in ("", "_se")
                }
            yield row

    def _z(
        self, pairs: PairTable, x: Float[np.ndarray, "layer pair"]
    ) -> tuple[Float[np.ndarray, "layer"], Float[np.ndarray, "layer"]]:
        chosen = pairs.pair_class != PairClass.same_word
        if not chosen.any():
            return np.full(len(x), np.nan), np.full(len(x), np.nan)
        distance = distance_bin(pairs.distance[chosen])
        words = np.sort([pairs.query[chosen], pairs.key[chosen]], axis=0)
        used, place = np.unique(words, return_inverse=True)
        first, second = place.reshape(2, -1)
        number = np.bincount(distance, minlength=NUM_BINS)
        expected = [np.bincount(distance, v, NUM_BINS) / np.maximum(number, 1) for v in x[:, chosen]]
        residual = x[:, chosen] - np.stack(expected)[:, distance]
        unique, group = np.unique(first * len(used) + second, return_inverse=True)
        values = np.stack([np.bincount(group, r, len(unique)) for r in residual])
        bands = frequency_bands(self._lookup.counts[used].astype(np.float64))
        shuffles = WordPairs(self._lookup.memberships[0][used], bands)
        z, banded = shuffles.shuffled(*np.divmod(unique, len(used)), values)
        return z, z if bands is None else banded  # too few words for two bands: the tests are one


def _means(pairs: PairTable, x: Float[np.ndarray, "pair"], documents: int) -> dict[str, float]:
    """Sums and counts by document and kind become means, ratios and their errors."""
    flat = pairs.document * 3 + np.searchsorted(_KINDS, pairs.pair_class)
    sums, counts = (np.bincount(flat, w, documents * 3).reshape(-1, 3).astype(np.float64) for w in (x, np.ones_like(x)))
    moments = Moments.of(np.concatenate([sums, counts], 1))
    paired = ratio_of_means(moments, [0, 1], [3, 4], [2], [5])
    distinct = ratio_of_means(moments, [1], [4], [2], [5])
    (s, n_s), (d, n_d) = ((sums[:, ks].sum(), counts[:, ks].sum()) for ks in ([0, 1], [2]))
    same, different = (float(a / n) if n else np.nan for a, n in ((s, n_s), (d, n_d)))
    gradient = np.zeros(6)
    if n_s and n_d:
        gradient[[0, 1]], gradient[[3, 4]] = 1 / n_s, -same / n_s
        gradient[2], gradient[5] = -1 / n_d, different / n_d
    effective = effective_documents(moments, [0, 1], [3, 4], [2], [5])
    difference = delta_method(moments, same - different, gradient, effective=effective)
    return {
        "same": same,
        "different": different,
        "difference": difference.value,
        "difference_se": difference.se,
        "ratio": paired.value,
        "ratio_se": paired.se,
        "ratio_distinct": distinct.value,
        "ratio_distinct_se": distinct.se,
        "pairs_same": int(n_s),
        "pairs_different": int(n_d),
    }


EMBEDDING_FIELDS = ("same", "different", "difference", "difference_se", "ratio", "z", "z_banded")


class TopicStructureMeter:
    """Measures one model again and again."""

    def __init__(self, view: ModelView, probe_set: ProbeSet) -> None:
        self.view = view
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
        self._attention = AttentionReader(view, probe_set.units, probe_set.document_of, probe_set.lookup)

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
            "documents": self._attention.documents,
            "units": self._attention.units,
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
        with suppress(UnsupportedModelError):
            for found in circuit_factors(self.view, self._ids, output_embeddings, direct_values_only=True):
                # [head word k]: side by side they are factors of the sum over heads.
                left, right = (x.swapaxes(0, 1).reshape(1, x.shape[1], -1) for x in (found.left, found.right))
                contrast = self._word_pairs.contrast(left, right)
                names = ("same", "different", "difference", "difference_se", "z", "z_banded")
                row: dict[str, Any] = {name: float(getattr(contrast, name)[0]) for name in names}
                row["z_banded"] = row["z_banded"] if self._banded else row["z"]
                yield {"part": found.part, "layer": found.layer} | row


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
