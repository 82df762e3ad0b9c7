"""Where a training run of the command line meets theory: matrices handed in, and values put beside measured ones."""

from dataclasses import replace

import numpy as np

from topicscope.errors import InputError
from topicscope.lab import Recipe, law_of, masking_of, shares_topic, topic_model_of, why_not_reduced
from topicscope.records import RunRecord
from topicscope.synthetic import Setting
from topicscope.theory import (
    TopicLaw,
    diagonal_value_matrix,
    dirichlet_law,
    minimum_norm_value_matrix,
    moments,
    topicwise_attention_optimum,
    value_matrix_blocks,
)
from topicscope.topics import TopicModel

_BLOCKS = ("mask_column", "different", "same", "diagonal")
_BARE = ("one-hot", "tied", "zero")  # embedding, head and bias of the model of Theorems 2, 3 and 4


def resolve(recipe: Recipe) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What `train` takes as arrays and as references: the closed forms that a recipe's [arrays] and [references] name.

    They are padded with zeros for START and END.

    Raises:
        InputError: a closed form that does not exist for these topics, or stands for another parameter.
    """
    arrays = {name: _closed_form(recipe, name, form) for name, form in recipe.arrays.items()}
    return arrays, {name: _closed_form(recipe, name, form) for name, form in recipe.references.items()}


def _closed_form(recipe: Recipe, parameter: str, form: str) -> np.ndarray:
    belongs = "b_pred" if form == "theorem-1" else "W_V"
    if parameter != belongs:
        raise InputError(f"the closed form {form} is no {parameter}", received=parameter, expected=belongs)
    topics, setting, ridge = topic_model_of(recipe), recipe.setting(), recipe.training.ridge.get("W_V", 0.0)
    T, V = topics.num_topics, len(topics.vocabulary)
    infinite = _infinite_setting(recipe, topics)
    # Whether the topics are the paper's, whichever way the recipe names them.
    regular = V % T == 0 and np.array_equal(topics.phi, TopicModel.disjoint(T, V // T).phi)
    if form == "theorem-1" and regular:
        found = np.full(V + 1, -infinite.r / (infinite.a * V))
        found[0] = 0
    elif form == "theorem-1":
        raise InputError("no closed form theorem-1 for these topics", expected="disjoint topics of one size")
    elif form == "theorem-2" and regular:
        found = value_matrix_blocks(infinite).matrix(infinite)
    elif form == "theorem-2" and np.linalg.matrix_rank(topics.phi) == T:
        found = minimum_norm_value_matrix(topics.phi, infinite)
    elif form == "theorem-2":
        raise InputError(
            "no closed form theorem-2 for these topics",
            received="topics that are mixtures of one another",
            expected="linearly independent rows of phi",
        )
    elif form == "finite-n" and setting is not None:
        found = value_matrix_blocks(setting, ridge).matrix(setting)
    elif form == "diagonal" and regular:
        found = diagonal_value_matrix(infinite)
    else:
        raise InputError(
            f"no closed form {form} for these documents",
            expected="disjoint topics of one size"
            + ("" if form == "diagonal" else ", τ topics a document, one length"),
        )
    return np.pad(found, (0, masking_of(recipe).num_tokens(V) - 1 - V))


def finite_value_matrix(recipe: Recipe) -> np.ndarray:
    """The optimal W_V under uniform attention and the squared loss for the recipe's law and length, [out in]."""
    topics, length = topic_model_of(recipe), recipe.data.length
    assert isinstance(length, int)
    plain = dirichlet_law(topics.alpha)
    law = TopicLaw(plain.mean, law_of(recipe, topics).second_moment(plain.second))
    seen = moments(replace(_infinite_setting(recipe, topics), document_length=length), topics.phi, law)
    return np.asarray(seen.cross.T @ np.linalg.pinv(seen.input_second))


def infinite_value_matrix(recipe: Recipe) -> np.ndarray:
    """The optimal W_V of least norm at N = ∞ for the recipe's topics, [out in]; it does not depend on their law."""
    topics = topic_model_of(recipe)
    return np.asarray(minimum_norm_value_matrix(topics.phi, _infinite_setting(recipe, topics)))


def _infinite_setting(recipe: Recipe, topics: TopicModel) -> Setting:
    """The set-up at N = ∞. Without ridge its optimum does not depend on τ < T, so a Dirichlet law does not matter."""
    data, masking = recipe.data, recipe.masking
    v = max(1, len(topics.vocabulary) // topics.num_topics)  # of unequal topics only the masking rates matter
    rates = (masking.p_mask, masking.p_correct, masking.p_random)
    return Setting(topics.num_topics, v, data.topics_per_document or 1, *rates)


def add_theory(record: RunRecord, recipe: Recipe) -> None:
    """Put `value_matrix`, `embedding` or `attention` into the record's summary, measured and theory side by side."""
    final = record.final.astype(float).to_dict(orient="records")  # a record that was read has None for NaN
    found: dict[str, tuple[dict[str, list[float]], dict[str, float] | None, str | None]] = {}
    if "W_V_diagonal" in final[0] and "W_V" not in record.summary["frozen"]:
        means = {name: [row[f"W_V_{name}"] for row in final] for name in _BLOCKS}
        found["value_matrix"] = (means, *_value_theory(recipe))
    if "E_diagonal" in final[0]:
        share = shares_topic(topic_model_of(recipe))
        own = 1 / share.sum(axis=1).mean()  # share of self-pairs among all pairs of words with a common topic
        gaps = [(1 - own) * row["E_same"] + own * row["E_diagonal"] - row["E_different"] for row in final]
        found["embedding"] = ({"gap": gaps}, *_embedding_theory(recipe))
    if all(row.get("attention_different_topic") for row in final):
        names = ("same_word", "same_topic")
        ratios = {n: [row[f"attention_{n}"] / row["attention_different_topic"] for row in final] for n in names}
        found["attention"] = (ratios, *_attention_theory(recipe))
    for part, (measured, theory, reason) in found.items():
        mean = {name: float(np.mean(values)) for name, values in measured.items()}
        record.summary[part] = {
            "measured": mean,
            "sd": {name: float(np.std(v, ddof=1)) if len(v) > 1 else None for name, v in measured.items()},
            "theory": theory,
            "relative_deviation": {name: mean[name] / v - 1 for name, v in theory.items() if v} if theory else None,
            "no_theory": reason,
        }


def _value_theory(recipe: Recipe) -> tuple[dict[str, float] | None, str | None]:
    model, setting = recipe.model, recipe.setting()
    if why_not_reduced(model) or (model.embedding, model.head, model.bias) != _BARE:
        return None, "the model is not Theorem 2's"
    if setting is None:
        return None, "the closed form needs disjoint topics of one size, τ topics a document and one length"
    if recipe.training.loss != "squared" or model.attention != "uniform":
        return None, "the closed form needs the squared loss and uniform attention"
    if recipe.masking.hide_selected or recipe.data.specials:
        return None, "the closed form attends every position, and there are no START and END"
    blocks = value_matrix_blocks(setting, recipe.training.ridge.get("W_V", 0.0))
    return {name: float(getattr(blocks, name)) for name in _BLOCKS}, None


def _embedding_theory(recipe: Recipe) -> tuple[dict[str, float] | None, str | None]:
    """Theorem 1's gap 1/(a v), times (d - 1)/(T - 1) at widths below T - with the fixed bias (theory.md 2)."""
    model, setting = recipe.model, recipe.setting()
    if setting is None or setting.num_topics == 1:
        return None, "Theorem 1 needs at least two disjoint topics of one size and τ topics a document"
    if recipe.training.loss != "squared" or model.attention != "uniform" or model.value != "identity":
        return None, "Theorem 1 needs the squared loss, uniform attention and W_V = I"
    if model.head != "tied" or recipe.arrays.get("b_pred") != "theorem-1":
        return None, "Theorem 1 needs a tied head and its own fixed bias"
    assert model.width is not None
    infinite = replace(setting, document_length=None)
    rank = min(1.0, (model.width - 1) / (setting.num_topics - 1))
    return {"gap": rank / (infinite.a * setting.words_per_topic)}, None


def _attention_theory(recipe: Recipe) -> tuple[dict[str, float] | None, str | None]:
    """The best topic-wise weights of Theorems 3 and 4 at the document length, relative to a different topic's word."""
    model, setting = recipe.model, recipe.setting()
    value = {"theorem-2": "block", "diagonal": "diagonal"}.get(recipe.arrays.get("W_V", ""))
    bare = why_not_reduced(model) is None and (model.embedding, model.head, model.bias) == _BARE
    if setting is None:
        return None, "the best topic-wise weights need disjoint topics of one size, τ topics a document and one length"
    if recipe.training.loss != "squared":
        return None, "Theorems 3 and 4 speak of the squared loss"
    if model.value != "fixed" or value is None or model.attention != "trained" or not bare:
        return None, "Theorems 3 and 4 need W_V frozen at the closed form theorem-2 or diagonal, and nothing beside it"
    best = topicwise_attention_optimum(setting, "block" if value == "block" else "diagonal")
    return {"same_word": best.beta, "same_topic": best.alpha}, None
