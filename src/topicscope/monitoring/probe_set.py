"""The fixed documents and topics that every measurement of a run uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing import Given, ProbeConfig, TopicSource, configurations_of, read_topics, topics_from
from topicscope.probing.attention import TopicLookup
from topicscope.probing.tokens import AlignedUnit, tokens_of
from topicscope.progress import SilentProgress
from topicscope.text import Corpus, normalise_word, split_words
from topicscope.topics import TopicAssignment, WordList

# Passages are enough where documents are long: more of one document tell little more.
MAX_UNITS = 64
# Each topic lists at least so many words, or its share of them: one word a topic, as in a small vocabulary, is no pair.
WORDS_PER_TOPIC = 20
DEFAULT_THRESHOLD = 0.001
MonitorTopics = TopicSource | Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class ProbeSet:
    """Units of a seeded sample of the documents, aligned with the tokenizer, and the topics of their words.

    document_of [unit]: number of its document. counts: occurrences of each word in the sample. left_out: what does not
    take part, by name.
    """

    units: tuple[AlignedUnit, ...]
    document_of: np.ndarray
    lookup: TopicLookup
    counts: Mapping[str, int]
    left_out: Mapping[str, int]
    topics: Mapping[str, Any]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return int(self.document_of[-1]) + 1

    @property
    def assignment(self) -> TopicAssignment:
        """Which words belong to which topic."""
        return self.lookup.configurations[0].assignment


def read_given(topics: MonitorTopics) -> Given:
    """Topics in any of their forms; a mapping of labels to words is a word list.

    Raises:
        InputError: whatever `read_topics` raises, or a mapping without two labels.
    """
    if not isinstance(topics, Mapping):
        given = read_topics(topics)
        if isinstance(given, tuple) and len(given) != 1:
            raise InputError("one topic model serves a whole run", received=f"{len(given)} topic models")
        return given
    labels = tuple(topics)
    if len(labels) < 2 or any(isinstance(words, str) for words in topics.values()):
        raise InputError(
            "a word list needs at least two labels, each with its words",
            received=dict(topics),
            expected='{"war": ["army", "battle"], "art": ["music", "film"]}',
        )
    found: dict[str, set[int]] = {}
    for number, label in enumerate(labels):
        for word in topics[label]:
            found.setdefault(normalise_word(word), set()).add(number)
    return WordList(tuple(found), tuple(map(frozenset, found.values())), labels, {"given": "in Python"})


def prepare(
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    given: Given,
    *,
    max_length: int,
    threshold: float | None,
    language: str,
    seed: int,
) -> ProbeSet:
    """Fit the topics if they are a number, take the sample, tokenise it, and give words their topics.

    Raises:
        InputError: text or topics that cannot be used, or no two words of one topic and of two topics in the sample.
    """
    options = ProbeConfig(
        threshold=(DEFAULT_THRESHOLD if threshold is None else threshold,),
        unit="passage",
        max_units=MAX_UNITS,
        language=language,
        seed=seed,
    )
    fitted = topics_from(given, corpus, options, split_words, SilentProgress())
    if threshold is None and fitted.topics:
        model = fitted.topics[0].model
        least = min(WORDS_PER_TOPIC / len(model.vocabulary), 1 / model.num_topics)
        options = replace(options, threshold=(max(DEFAULT_THRESHOLD, least),))
    (configuration,) = configurations_of(fitted, options)
    tokens = tokens_of(tokenizer, corpus, options, max_length=max_length, progress=SilentProgress())
    counts = dict(zip(tokens.words, tokens.word_counts.tolist(), strict=True))
    lookup = TopicLookup([configuration], tokens.words, np.array(list(counts.values()), dtype=np.int64))
    membership = lookup.memberships[0]
    if int((membership.sum(0) > 0).sum()) < 2 or int(membership.sum(0).max(initial=0)) < 2:
        raise InputError(
            "the documents need words of at least two topics, and two words of one topic",
            received=f"{int(membership.any(1).sum())} words with a topic in {int(membership.any(0).sum())} topics",
            where=corpus.name,
            advice="give more documents, other topics, or a larger threshold",
        )
    # Documents in a random order, the units of each together.
    ids = sorted({unit.document_id for unit in tokens[:]})
    place = dict(zip(ids, np.random.default_rng(seed).permutation(len(ids)).tolist(), strict=True))
    units = tuple(sorted(tokens[:], key=lambda unit: place[unit.document_id]))
    numbers = {name: i for i, name in enumerate(dict.fromkeys(unit.document_id for unit in units))}
    return ProbeSet(
        units=units,
        document_of=np.array([numbers[unit.document_id] for unit in units]),
        lookup=lookup,
        counts=counts,
        left_out={
            "documents_without_sample": tokens.unit_counts.documents - tokens.documents,
            **{f"units: {reason}": number for reason, number in tokens.unit_counts.dropped.items()},
            **{f"words of the text: {reason}": number for reason, number in tokens.coverage.lost.items()},
            "words_of_topics_not_in_sample": len(configuration.assignment.words) - int(membership.any(1).sum()),
            "words_of_several_topics": configuration.assignment.dropped_ambiguous,
        },
        topics={"threshold": configuration.threshold, "topics": configuration.assignment.num_topics}
        | {"words": len(configuration.assignment.words), **fitted.provenance},
    )
