"""Golden theory: every public function of `topicscope.theory` in 50 random settings, to the last bit."""

import dataclasses
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from golden.recording import Recorder, succeed
from topicscope import TopicscopeError, theory

NUMBER = 50
_ALPHAS = np.array([0.5, 1.0, 4.0])
_DOCUMENTS = 3000  # more sets of topics and tokens than this are not enumerated


def settings() -> Iterator[theory.Setting]:
    """Small ones, infinite and finite, with the edges p_c = 0, p_r = 0, τ = 1, τ = T and T = 1 among them."""
    draw = random.Random(0)
    for number in range(NUMBER):
        T, v = draw.randint(1, 4), draw.randint(1, 3)
        p_c = draw.choice([0.0, draw.uniform(0.01, 0.5)])
        p_r = draw.choice([0.0, draw.uniform(0.01, 0.9 - p_c)])
        length = None if number % 2 == 0 else draw.randint(1, 6)
        weighting = draw.choice(["document", "token"])
        yield theory.Setting(T, v, draw.randint(1, T), draw.uniform(0.05, 0.9), p_c, p_r, length, weighting)


def calls(s: theory.Setting) -> dict[str, Callable[[], Any]]:
    """Name of a call and the call."""
    t = theory
    rng = np.random.default_rng(7)
    size = s.vocabulary_size + 1
    W, b, E = rng.normal(size=(size, size)), rng.normal(size=size), rng.normal(size=(2, size))
    phi = rng.dirichlet(np.ones(s.vocabulary_size), s.num_topics)
    law = t.uniform_law(s.num_topics, s.topics_per_document)
    found: dict[str, Callable[[], Any]] = {
        "block_bounds": lambda: t.block_bounds(s),
        "block_limit": lambda: t.block_limit(s),
        "diagonal_bounds": lambda: t.diagonal_bounds(s),
        "diagonal_limit": lambda: t.diagonal_limit(s),
        "diagonal_value_matrix": lambda: t.diagonal_value_matrix(s),
        "dirichlet_law": lambda: t.dirichlet_law(np.arange(1, s.num_topics + 1) / 3),
        "uniform_law": lambda: law,
        "embedding_bias": lambda: t.embedding_bias(s),
        "embedding_conditions": lambda: t.embedding_conditions(s, E.T @ E),
        "embedding_loss": lambda: t.embedding_loss(s, E),
        "embedding_optimum": lambda: t.embedding_optimum(s, s.num_topics),
        "embedding_optimum, low rank": lambda: t.embedding_optimum(s, max(1, s.num_topics - 1)),
        "growth_rates": lambda: t.growth_rates(s, 5),
        "initial_gradient_norms": lambda: t.initial_gradient_norms(s, 0.01),
        "moments": lambda: t.moments(s),
        "moments, own topics": lambda: t.moments(s, phi, law),
        "moments, loss and gradient": lambda: (t.moments(s).loss(W, b), t.moments(s).gradient(W, b)),
        "minimum_norm_loss": lambda: t.minimum_norm_loss(phi, law),
        "minimum_norm_value_matrix": lambda: t.minimum_norm_value_matrix(phi, s, law),
        "stage_one": lambda: t.stage_one(s, [0.0, 1.0, 20.0]),
        "uniform_attention_loss": lambda: t.uniform_attention_loss(s, W, b),
        "uniform_cross_entropy_optimum": lambda: t.uniform_cross_entropy_optimum(s, 1e-3),
        "value_matrix_blocks": lambda: t.value_matrix_blocks(s),
        "value_matrix_blocks, ridge": lambda: t.value_matrix_blocks(s, 0.1),
        "value_matrix_conditions": lambda: t.value_matrix_conditions(s, W),
        "value_matrix_loss": lambda: t.value_matrix_loss(s),
        "value_matrix_optimum": lambda: t.value_matrix_optimum(s),
        "THEOREMS": lambda: {theorem.id: _checked(theorem, s) for theorem in t.THEOREMS},
    }
    for value in ("block", "diagonal"):
        found |= {
            f"attention_landscape, {value}": lambda value=value: t.attention_landscape(s, _ALPHAS, _ALPHAS, value),
            f"topicwise_attention_loss, {value}": lambda value=value: t.topicwise_attention_loss(s, 2.0, 0.5, value),
            f"topicwise_attention_optimum, {value}": lambda value=value: t.topicwise_attention_optimum(s, value),
            f"topicwise_rational_loss, {value}": lambda value=value: t.topicwise_rational_loss(s, value)(
                _ALPHAS, _ALPHAS
            ),
            f"stage_two_drift, {value}": lambda value=value: t.stage_two_drift(s, value),
        }
    states = s.topics_per_document * s.words_per_topic * (s.vocabulary_size + 2)
    drawn = s.document_length or 0
    few = math.comb(s.num_topics, s.topics_per_document) * math.comb(states + drawn - 1, drawn) <= _DOCUMENTS
    for loss in ("squared", "cross_entropy"):
        found[f"bayes_loss, {loss}"] = lambda loss=loss: t.bayes_loss(s, loss)
        found[f"topicwise_attention_loss, {loss}"] = lambda loss=loss: t.topicwise_attention_loss(
            s, 2.0, 0.5, "block", loss
        )
        found[f"enumerated_bayes_loss, {loss}"] = lambda loss=loss: t.enumerated_bayes_loss(s, loss)
        if few:
            found[f"enumerated_loss, {loss}"] = lambda loss=loss: t.enumerated_loss(s, W, b, loss=loss)
    return found


def _checked(theorem: theory.Theorem, s: theory.Setting) -> Any:
    return outcome(lambda: theorem.check(s))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns as plain values, or the first line of the error that users see."""
    try:
        return plain(call())
    except TopicscopeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def plain(value: Any) -> Any:
    """Dataclasses as their fields, arrays as lists; floats stay floats, which JSON writes to the last bit."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {name: plain(item) for name, item in fields.items() if not callable(item)}
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return value


def record_theory(recorder: Recorder) -> None:
    """Every function in every setting, and the documents of the command."""
    for number, setting in enumerate(settings()):
        recorder.put(f"settings/{number}", plain(setting))
        for name, call in calls(setting).items():
            recorder.put(f"functions/{name}/{number}", outcome(call))
    for name, document in theory_documents().items():
        recorder.put(f"command/{name}", document)


def theory_documents() -> dict[str, Any]:
    """`topicscope theory … --json`, every one of them."""
    setting = ("--topics", 5, "--words-per-topic", 4, "--topics-per-document", 2)
    more = {
        "value-matrix": ("--ridge", 0.01),
        "embedding": (),
        "attention": ("--value", "diagonal"),
        "landscape": ("--points", 3),
        "dynamics": (),
        "bayes": (),
    }
    return {name: json.loads(succeed("theory", name, *setting, *options, "--json")) for name, options in more.items()}
