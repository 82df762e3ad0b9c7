"""From a recipe's [data] and [masking] to topic models, streams of batches and held-out documents."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from topicscope.errors import InputError
from topicscope.lab.recipe import Recipe
from topicscope.records import sha256_of_file
from topicscope.synthetic import (
    BatchStream,
    DocumentLaw,
    FixedDocuments,
    FreshDocuments,
    MaskedBatch,
    Masking,
    Population,
    SampledCounts,
    TokenCounts,
    count_tokens,
    sampled_counts,
)
from topicscope.topics import TopicModel, load_phi

# The fixed set and the held-out documents are the same for every seed of a recipe, and never a seed's own documents.
_FIXED_SET = 0x5E7
_HELD_OUT = 0xE7A1
# In an infinite document every pair has attention 0; its attention is read off as though it had this many tokens.
POPULATION_LENGTH = 100


def topic_model_of(recipe: Recipe) -> TopicModel:
    """The topics that [data] describes.

    Raises:
        InputError: the file that `phi` names is missing or holds no topic model.
    """
    data = recipe.data
    if data.phi is not None:
        return load_phi(_file(recipe, "data.phi", data.phi), data.alpha)
    if data.topic_sizes is not None:
        return TopicModel.unequal(data.topic_sizes, data.alpha)
    if data.shared_words:
        return TopicModel.overlapping(data.num_topics, data.words_per_topic, data.shared_words, data.alpha)
    return TopicModel.disjoint(data.num_topics, data.words_per_topic, data.alpha)


def inputs_of(recipe: Recipe, topic_model: TopicModel | None = None) -> dict[str, str]:
    """What a run depends on besides its recipe, by digest: the files that it names, and topics that are handed in.

    Raises:
        InputError: no such file, or topics are both named and handed in.
    """
    if topic_model is not None and recipe.data.phi is not None:
        raise InputError("topics are handed in, and the recipe names a file", received=f"data.phi = {recipe.data.phi}")
    digests = {}
    for key, name in (("data.phi", recipe.data.phi), ("data.file", recipe.data.file)):
        if name is not None:
            digests[key] = f"sha256:{sha256_of_file(_file(recipe, key, name))}"
    if topic_model is not None:
        content = topic_model.phi.tobytes() + topic_model.alpha.tobytes()
        digests["topic_model"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return digests


def _file(recipe: Recipe, key: str, name: str) -> Path:
    path = recipe.path(name)
    if not path.is_file():
        raise InputError(
            f"the file that {key} names is not there",
            received=str(path),
            advice="names are relative to the recipe's folder",
        )
    return path


def masking_of(recipe: Recipe) -> Masking:
    """The corruption that [masking] describes."""
    m = recipe.masking
    return Masking(
        m.p_mask,
        m.p_correct,
        m.p_random,
        weighting=recipe.training.weighting,
        specials=recipe.data.specials,
        hide_selected=m.hide_selected,
    )


def law_of(recipe: Recipe, topic_model: TopicModel) -> DocumentLaw:
    """How documents of finite length are drawn."""
    return DocumentLaw(topic_model, recipe.data.topics_per_document, recipe.data.length, recipe.data.linked)


def fixed_set(recipe: Recipe, topic_model: TopicModel | None = None) -> MaskedBatch:
    """The set of masked documents that a recipe with source = "fixed" trains on: drawn, or read from `data.file`.

    `fixed_set(recipe).save(path)` writes it. topic_model: in the place of the recipe's.

    Raises:
        InputError: no such file, not a masked set, or one with another vocabulary or other special tokens.
    """
    topic_model = topic_model or topic_model_of(recipe)
    if recipe.data.file is None:
        rng = np.random.default_rng([recipe.training.seed, _FIXED_SET])
        return masking_of(recipe).apply(rng, law_of(recipe, topic_model).draw(rng, recipe.data.documents))
    path, words = _file(recipe, "data.file", recipe.data.file), len(topic_model.vocabulary)
    batch = MaskedBatch.load(path)
    if batch.vocabulary_size != words:
        raise InputError(
            "the saved set speaks of other words than the topics",
            received=f"{batch.vocabulary_size} words",
            expected=f"{words} words ({topic_model.num_topics} topics)",
            where=str(path),
            advice="set data.num_topics, data.words_per_topic or data.phi to the topics it was drawn from",
        )
    specials = bool(np.isin(batch.input_ids, (words + 1, words + 2)).any())
    if specials != recipe.data.specials:
        raise InputError(
            f"the saved set has {'' if specials else 'no '}START and END",
            received=f"data.specials = {str(recipe.data.specials).lower()}",
            expected=f"data.specials = {str(specials).lower()}",
            where=str(path),
        )
    return batch


def streams_of(recipe: Recipe, topic_model: TopicModel, seeds: list[int]) -> list[BatchStream]:
    """One stream a seed; a single one, shared, where all seeds see the same batch at every step."""
    masking, size = masking_of(recipe), recipe.training.batch_size
    if recipe.data.source == "population":
        assert recipe.data.topics_per_document is not None
        return [Population(topic_model, recipe.data.topics_per_document, masking)]
    law = law_of(recipe, topic_model)
    if recipe.data.source == "fixed":
        batch, whole = fixed_set(recipe, topic_model), size == "all"
        return [
            FixedDocuments(batch, masking, None if size == "all" else size, s) for s in seeds[: 1 if whole else None]
        ]
    assert size != "all"
    kind = FreshDocuments if recipe.data.source == "fresh" else SampledCounts
    return [kind(law, masking, size, seed) for seed in seeds]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What every measurement is made on: the same for all seeds and steps.

    batch: masked documents for the loss at token level (None without tokens). counts: the same for the reduced model.
    plain: unmasked documents, on which attention is measured (None without tokens).
    shares: float64 [document token], how many of each token a plain document holds (None where attention is uniform).
    """

    batch: MaskedBatch | None
    counts: TokenCounts
    plain: MaskedBatch | None
    shares: np.ndarray | None
    infinite: bool = False


def held_out(recipe: Recipe, topic_model: TopicModel, *, by_query: bool) -> HeldOut:
    """Fresh documents of the recipe's law; the exact expectation for a population; a fixed set itself, all of it.

    by_query: attention is trained, so counts go by the shown token, and shares are needed.
    Attention is measured on fresh documents too; on those of a saved set where there is one.
    """
    masking = masking_of(recipe)
    D = masking.num_tokens(len(topic_model.vocabulary))
    rng = np.random.default_rng([recipe.training.seed, _HELD_OUT])
    count = recipe.history.documents
    shares = None
    if recipe.data.source in ("population", "counts"):
        if recipe.data.source == "population":
            (stream,) = streams_of(recipe, topic_model, [recipe.training.seed])
            counts = stream.next_counts(by_query=by_query)
        else:
            counts = sampled_counts(rng, law_of(recipe, topic_model), masking, count, by_query=by_query)
        if by_query:
            law = law_of(recipe, topic_model)
            if recipe.data.source == "population":
                words = POPULATION_LENGTH * law.proportions(rng, count) @ topic_model.phi
            else:
                words = rng.multinomial(law.lengths(rng, count), law.proportions(rng, count) @ topic_model.phi)
            # [MASK] first, START and END (absent) last.
            shares = np.pad(words.astype(np.float64), ((0, 0), (1, D - 1 - words.shape[1])))
        return HeldOut(None, counts, None, shares, infinite=recipe.data.source == "population")
    law = law_of(recipe, topic_model)
    fixed = fixed_set(recipe, topic_model) if recipe.data.source == "fixed" else None
    if fixed is not None and recipe.data.file is not None:
        plain = _as_it_was(fixed.rows(slice(0, count)))  # the law of a saved set is not known
    else:
        plain = _as_it_was(masking.apply(np.random.default_rng(0), law.draw(rng, count)))
    batch = masking.apply(rng, law.draw(rng, count)) if fixed is None else fixed
    counts = count_tokens(batch, D, masking.weighting, by_query=by_query)
    if by_query:
        shares = count_tokens(plain, D, "token", by_query=False).inputs * plain.attendable.sum(axis=1, keepdims=True)
    return HeldOut(batch, counts, plain, shares)


def _as_it_was(batch: MaskedBatch) -> MaskedBatch:
    """The documents before masking: START and END where there are any, nothing selected, everything attended."""
    is_token = batch.labels != batch.vocabulary_size + 3
    return MaskedBatch(batch.labels, batch.labels, np.zeros_like(is_token), is_token, batch.vocabulary_size)
