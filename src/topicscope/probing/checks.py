"""What a probe makes sure of before it goes on: that there is something to measure, and that a run is the same run."""

import hashlib
from collections.abc import Mapping
from typing import Any

from topicscope.errors import InputError
from topicscope.probing.attention import TopicLookup
from topicscope.probing.config import ProbeOptions
from topicscope.probing.hf import ModelView
from topicscope.probing.results import ProbeResult
from topicscope.probing.statistics import DIFFERENT, PAIRED, PartMoments, rows_read
from topicscope.probing.tokens import TokenCache, cache_key
from topicscope.records import UnfinishedRun, describe_environment, dump_json
from topicscope.text import Corpus, WordSplitter


def identity_of_run(
    view: ModelView,
    weights_hash: str,
    device: str,
    corpus: Corpus,
    topics: Any,
    splitter: WordSplitter,
    options: ProbeOptions,
) -> dict[str, Any]:
    """Everything that decides the numbers of a run, as JSON has it; device: where the text is read."""
    libraries = describe_environment().libraries
    return {
        "model": [view.name, view.model_type, weights_hash, view.dtype, device],
        "text": [corpus.name, corpus.fingerprint()],
        "tokens": cache_key(view.tokenizer, corpus, options, view.max_length),
        "topics": topics,
        "splitter": getattr(splitter, "__qualname__", type(splitter).__qualname__),
        "options": options.model_dump(mode="json"),
        "libraries": {name: libraries[name] for name in ("topicscope", "torch", "transformers", "tomotopy")},
    }


def require_known_words(tokens: TokenCache, view: ModelView) -> None:
    """An error where no token is a word of the text."""
    if not tokens.words:
        raise InputError(
            "no word of the text is known to the tokenizer as one token",
            received=f"{len(tokens)} units",
            where=view.name,
            advice="use a tokenizer of the text's language, or a word splitter that fits it",
        )


def require_pairs(moments: Mapping[str, PartMoments], lookup: TopicLookup) -> list[str]:
    """Warnings for thresholds without pairs; an error where no threshold has any."""
    warnings, found = [], False
    word_list = lookup.configurations[0].threshold is None
    for c, configuration in enumerate(lookup.configurations):
        counts = next(iter(moments.values())).counts(c)
        missing = [name for name, ks in (("same", PAIRED), ("different", DIFFERENT)) if sum(counts[k] for k in ks) == 0]
        found = found or not missing
        if missing:
            warnings.append(
                f"threshold {configuration.threshold}, topic seed {configuration.topic_seed}: the text has no "
                f"{' and no '.join(missing)}-topic pair, so its ratios are missing; a larger --threshold lists more "
                "words, a smaller one leaves fewer of them in several topics, where they belong to none"
            )
    if not found:
        tried = "the word list" if word_list else f"thresholds {[c.threshold for c in lookup.configurations]}"
        words = [
            f"{len(c.assignment.words)} ({c.assignment.dropped_ambiguous} more in several)"
            for c in lookup.configurations
        ]
        raise InputError(
            "no same-topic and different-topic pair of words was found at any threshold",
            received=f"{tried}; words with one topic: {', '.join(words)}",
            expected="units in which two words of one topic meet, and units in which two words of different topics do",
            where="; ".join(rows_read(moments)[1]) or None,  # rows that are not a number may be the reason
            advice=(
                "list more words"
                if word_list
                else "choose other thresholds (more words are listed at larger ones, "
                "more stand in several topics as well), at least 2 topics"
            )
            + ", more text (--max-units), or --unit passage",
        )
    return warnings


def digest(identity: Mapping[str, Any]) -> str:
    """SHA-256 of an identity."""
    return hashlib.sha256(dump_json(identity).encode()).hexdigest()


def finished(run: UnfinishedRun, identity: Mapping[str, Any]) -> ProbeResult | None:
    """What the target folder holds, if it is the finished result of this very run."""
    if run.resumed or not (run.target / "result.json").is_file():
        return None
    found = ProbeResult.load(run.target)
    if found.manifest.sources.get("run") != digest(identity):
        raise InputError(
            "the folder holds the result of another run",
            received=str(run.target),
            expected="the same model, text, topics and options as before",
            advice="choose another --out, or use --overwrite in place of --resume",
        )
    return found if found.complete else None
