"""One pass of a model over the aligned units, chunk by chunk of whole documents."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from topicscope.probing.alignment import AlignedUnit
from topicscope.probing.attention import sum_attention
from topicscope.probing.batches import Batch, make_batches
from topicscope.probing.lookup import TopicLookup
from topicscope.probing.model import ModelView
from topicscope.probing.moments import PartMoments
from topicscope.probing.options import ProbeOptions
from topicscope.probing.table import document_rows
from topicscope.progress import Progress, tracked
from topicscope.topics.pairs import PairClass

# Whole documents are read in chunks of about this many units: enough to sort by length, little enough to lose.
UNITS_PER_CHUNK = 256


@dataclass
class PassResult:
    """Moments per part; the document table only where it was asked for."""

    documents_planned: int
    documents: int = 0
    interrupted: bool = False
    moments: dict[str, PartMoments] = field(default_factory=dict)
    tables: list[pd.DataFrame] = field(default_factory=list)

    @property
    def document_table(self) -> pd.DataFrame:
        """One row per document, part, threshold and topic seed."""
        return pd.concat(self.tables, ignore_index=True)

    def pair_counts(self, lookup: TopicLookup) -> list[dict[str, object]]:
        """Pairs of every class, per part and configuration: what the ratios rest on and what they leave out."""
        return [
            {
                "part": name,
                "threshold": configuration.threshold,
                "topic_seed": configuration.topic_seed,
                **{k.name: int(part.counts(c)[k]) for k in PairClass},
                "words_with_topic": len(configuration.assignment.words),
                "words_with_topic_in_text": int(lookup.membership(c).any(1).sum()),
                "ambiguous_words_dropped": configuration.assignment.dropped_ambiguous,
            }
            for name, part in self.moments.items()
            for c, configuration in enumerate(lookup.configurations)
        ]


def attention_pass(
    view: ModelView,
    units: Sequence[AlignedUnit],
    lookup: TopicLookup,
    options: ProbeOptions,
    task: str,
    progress: Progress,
    *,
    keep_documents: bool = False,
) -> PassResult:
    """Read every unit once. Ctrl-C keeps the finished chunks; before the first one it is raised.

    A chunk holds whole documents, wherever in `units` they are, so its moments are final.
    """
    result = PassResult(documents_planned=len({unit.document_id for unit in units}))
    done = 0
    with tracked(progress, task, len(units), "units"):
        try:
            for chunk in _chunks(units):
                ids = list(dict.fromkeys(unit.document_id for unit in chunk))
                index = {document_id: i for i, document_id in enumerate(ids)}
                document_of = np.array([index[unit.document_id] for unit in chunk])
                batches = make_batches(chunk, batch_size=options.batch_size, pad_side=options.padding)
                sums = sum_attention(view, _reporting(batches, progress, task, done), chunk, document_of, lookup)
                for part in sums:
                    moments = PartMoments.of(part)
                    name = part.part.name
                    result.moments[name] = result.moments[name] + moments if name in result.moments else moments
                if keep_documents:
                    tokens = np.bincount(document_of, weights=[len(u.input_ids) for u in chunk]).astype(int)
                    table = document_rows(
                        sums, ids, np.bincount(document_of).tolist(), tokens.tolist(), lookup.configurations
                    )
                    result.tables.append(table)
                result.documents += len(ids)
                done += len(chunk)
        except KeyboardInterrupt:
            if not result.documents:
                raise
            result.interrupted = True
    return result


def _chunks(units: Sequence[AlignedUnit]) -> Iterator[list[AlignedUnit]]:
    # Rows of one id need not be neighbours in a corpus: a document cut in two would count as two clusters.
    documents: dict[str, list[AlignedUnit]] = {}
    for unit in units:
        documents.setdefault(unit.document_id, []).append(unit)
    chunk: list[AlignedUnit] = []
    for document in documents.values():
        chunk += document
        if len(chunk) >= UNITS_PER_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _reporting(batches: Iterable[Batch], progress: Progress, task: str, done: int) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        done += len(batch.unit_index)
        progress.update(task, done)
