"""The real models that install from PyPI, probed on passages of the Wikipedia sample; run by `make test-models`."""

from dataclasses import dataclass
from functools import cache

import torch

import topicscope
from probing.twin import attention_of
from topicscope.experiments import Source, packaged
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import AlignedUnit, make_batches
from topicscope.topics import Topics

OPTIONS = {"max_units": 80, "unit": "passage", "threshold": (0.001, 0.002, 0.004), "seed": 0}
NUM_TOPICS = 50
TEXT = (
    "The river flows under the old stone bridge toward the sea, and ships carry the goods of the city to its market.",
    "A king and his army.",
)
NAMES = tuple(source.name for source in packaged())


@dataclass(frozen=True)
class Measured:
    """What the probe says of one model; `ratio` is position-corrected for a causal one."""

    label: str
    kind: str
    path: str
    library: float  # largest difference of an attention weight from what the library returns for each unit alone
    result: topicscope.ProbeResult


def source_of(name: str) -> Source:
    """Where a model comes from."""
    return next(source for source in packaged() if source.name == name)


@cache
def measure(name: str) -> Measured:
    """Load and probe a model. Raises ModelUnavailableError where it is not installed."""
    source = source_of(name)
    source.require()
    view = source.load()
    library = difference_from_library(view)
    view = view.only()  # with no batch read yet
    result = topicscope.probe(view, None, "wikipedia-sample", topics=list(_topics()), controls=1, **OPTIONS)
    return Measured(source.label, source.kind_of(view), view.path, library, result)


@cache
def _topics() -> tuple[Topics, ...]:
    """One topic model for all."""
    source = source_of("minilm")
    probed = topicscope.probe(source.load(), None, "wikipedia-sample", topics=NUM_TOPICS, controls=0, **OPTIONS)
    return probed.topics


def difference_from_library(view: ModelView) -> float:
    """A padded batch through the view against each unit alone through the library."""
    encoded = [tuple(view.tokenizer.encode(text)) for text in TEXT]
    units = [AlignedUnit("d", i, 0, ids, (None,) * len(ids)) for i, ids in enumerate(encoded)]
    (batch,) = make_batches(units)
    found: dict[tuple[str, int], torch.Tensor] = {}
    view.run(batch, lambda part, layer, attention: found.__setitem__((part, layer), attention.clone()))
    worst = 0.0
    for row, unit in enumerate(batch.unit_index):
        n = len(units[unit].input_ids)
        for part, layers in attention_of(view, units[unit]).items():
            for layer, expected in enumerate(layers):
                worst = max(worst, float((found[part, layer][row][:, :n, :n] - expected).abs().max()))
    return worst
