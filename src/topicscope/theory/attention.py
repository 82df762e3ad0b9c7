"""Theorems 3 and 4 (Knowls 3, 4): the loss and the optimum of topic-wise attention weights (α, β), at any document
length.

A word query gives weight β to its own word, α to the other words of its topic and 1 to everything else, [MASK]
included; a [MASK] query attends uniformly. The paper leaves the last point open; only this convention gives the exact
ridge that Theorem 3 implies.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory.queries import QueryKind, query_contexts
from topicscope.theory.rational import RationalLoss, product
from topicscope.theory.value_matrix import ValueMatrixBlocks, diagonal_blocks, value_matrix_blocks

Value = Literal["block", "diagonal"]
Loss = Literal["squared", "cross_entropy"]
Numbers = float | int | Sequence[float | int] | np.ndarray  # one number or an array of them


def value_blocks(setting: Setting, value: Value | ValueMatrixBlocks) -> ValueMatrixBlocks:
    """ "block": Theorem 2's N = ∞ matrix; "diagonal": Knowl 4's D^V. Both are the N = ∞ ones at every document length.
    Entries given outright stand for themselves.

    Raises:
        InputError: another name.
    """
    if isinstance(value, ValueMatrixBlocks):
        return value
    if value not in ("block", "diagonal"):
        raise InputError("unknown value matrix", received=value, expected='"block" or "diagonal"')
    return diagonal_blocks(setting) if value == "diagonal" else value_matrix_blocks(infinite(setting))


def infinite(setting: Setting) -> Setting:
    """The same setting with infinitely long documents."""
    return Setting(**(setting.as_dict() | {"document_length": None}))  # type: ignore[arg-type]


def topicwise_rational_loss(setting: Setting, value: Value | ValueMatrixBlocks = "block") -> RationalLoss:
    """The squared loss as a function of (α, β), exact for the setting's document length.

    With W's entries wc ([MASK] column), o (different topic), s (same topic), d (diagonal), e = s-o, g = d-s, δ = wc-o,
    and a context's n_w, n_o, R, n_0, n_s, n_i (see `Contexts`):

        C = β n_w + α n_o,  Z = R + C,  b0 = o Z + δ n_0
        own word (b0 + eC + gβ n_w)/Z, other word of the topic (b0 + eC + gα n_i)/Z, elsewhere (b0 + e n_s + g n_i)/Z
    """
    W = value_blocks(setting, value)
    shares: dict[QueryKind, tuple[float, float]] = {
        "active": (setting.p_correct, setting.p_random * setting.topics_per_document / setting.num_topics),
        "inactive": (0.0, setting.p_random * (1 - setting.topics_per_document / setting.num_topics)),
        "mask": (0.0, setting.p_mask_token),
    }
    parts = [_terms(setting, W, kind, own, other) for kind, (own, other) in shares.items() if own + other > 0]
    quadratic, linear, normaliser = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return RationalLoss(quadratic, linear, normaliser, 1.0)


def _terms(
    setting: Setting, W: ValueMatrixBlocks, kind: QueryKind, own: float, other: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(N, M, Z) of one kind of query, a row a context.

    own, other: probability that a selected position shows its own word, or another token of this kind.
    """
    x = query_contexts(setting, kind)
    v, tau, T = setting.words_per_topic, setting.topics_per_document, setting.num_topics
    e, g, delta = W.same - W.different, W.diagonal - W.same, W.mask_column - W.different

    zero = np.zeros_like(x.rest)
    word_part = _form(zero, zero, x.same_word)
    C = _form(zero, x.same_topic, x.same_word)
    Z = _form(x.rest, x.same_topic, x.same_word)
    outside = W.different * Z + _form(delta * x.mask, zero, zero)  # E b0
    inside = outside + e * C

    N = v * product(inside, inside) + (T - 1) * v * product(outside, outside)
    N += 2 * g * product(inside, C) + g**2 * product(word_part, word_part)
    N[:, 3] += g**2 * x.other_squares
    in_topics = x.rest - x.mask  # E Σ_s n_s over the topics other than the query's
    covariance = delta * (x.rest * x.mask - x.mask_squared)  # of δ n_0 with Σ_s n_s = R - n_0, uncentred
    N[:, :3] += 2 * (e * v + g) * (W.different * Z * in_topics[:, None] + _form(covariance, zero, zero))
    N[:, 0] += T * v * delta**2 * (x.mask_squared - x.mask**2)
    N[:, 0] += (v * e**2 + 2 * e * g) * x.topic_squares + g**2 * x.word_squares

    active = _form((e * v + g) * x.active, zero, zero)
    if kind == "active":
        at_random_target = (v * inside + g * C + (tau - 1) * v * outside + active) / (tau * v)
    else:
        at_random_target = (tau * v * outside + active) / (tau * v)
    M = own * (inside + g * word_part) + other * at_random_target
    weight = x.probability[:, None]
    return weight * (own + other) * N, weight * M, Z


def _form(constant: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The linear form constant + α alpha + β beta, [context, 3]."""
    return np.stack([constant, alpha, beta], axis=-1)


def topicwise_attention_loss(
    setting: Setting,
    alpha: Numbers,
    beta: Numbers,
    value: Value | ValueMatrixBlocks = "block",
    loss: Loss = "squared",
) -> np.ndarray:
    """L(α, β) with the value matrix frozen to Theorem 2's ("block") or Knowl 4's ("diagonal"), broadcasting over
    arrays.

    Squared loss is exact at N = ∞ and at every finite N; cross-entropy (the same outputs as logits) at N = ∞ only.
    alpha, beta: weights relative to a different-topic key, ≥ 0. value: or the entries of any other symmetric value
    matrix, such as `value_matrix_blocks` of a finite setting. Source: the set-up of Knowls 3, 4; the formulas are ours.

    Raises:
        InputError: a negative or infinite weight; cross-entropy at finite N (its logarithm does not reduce to moments).
    """
    alpha, beta = np.broadcast_arrays(np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64))
    if not (np.isfinite(alpha + beta).all() and (alpha >= 0).all() and (beta >= 0).all()):
        raise InputError("attention weights cannot be negative or infinite", expected="finite alpha, beta >= 0")
    if loss == "squared":
        return np.asarray(topicwise_rational_loss(setting, value)(alpha, beta))
    if loss != "cross_entropy":
        raise InputError("unknown loss", received=loss, expected='"squared" or "cross_entropy"')
    if setting.document_length is not None:
        raise InputError(
            "no exact cross-entropy at finite document length",
            received=f"document_length = {setting.document_length}",
            expected="document_length = None",
            advice='use loss = "squared", or infinite documents',
        )
    flat = _cross_entropy(setting, value_blocks(setting, value), alpha.ravel(), beta.ravel())
    return flat.reshape(alpha.shape)


def _cross_entropy(setting: Setting, W: ValueMatrixBlocks, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Cross-entropy at N = ∞: lse of the logits minus the target's; the [MASK] row's logit is 0."""
    v, tau, T = setting.words_per_topic, setting.topics_per_document, setting.num_topics
    V = setting.vocabulary_size
    f1, f2 = setting.a / (tau * v) + setting.r / V, setting.r / V
    e, g = W.same - W.different, W.diagonal - W.same

    def logits(f: float, query: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(own word, other words of the topic, active, inactive words); without a query topic all weights are 1."""
        C = f * (beta + (v - 1) * alpha)
        Z = 1 - v * f + C if query else np.ones_like(C)
        b0 = W.different * Z + (W.mask_column - W.different) * setting.m
        return (
            (b0 + e * C + g * f * beta) / Z,
            (b0 + e * C + g * f * alpha) / Z,
            (b0 + e * v * f1 + g * f1) / Z,
            (b0 + e * v * f2 + g * f2) / Z,
        )

    def log_sum(groups: list[tuple[int, np.ndarray]]) -> np.ndarray:
        parts = [np.zeros_like(alpha)] + [z + np.log(n) for n, z in groups if n > 0]
        return np.asarray(np.logaddexp.reduce(np.stack(parts), axis=0))

    w, u, x, y = logits(f1, True)
    lse = log_sum([(1, w), (v - 1, u), ((tau - 1) * v, x), ((T - tau) * v, y)])
    mean_active = (w + (v - 1) * u + (tau - 1) * v * x) / (tau * v)
    total = setting.p_correct * (lse - w) + setting.p_random * tau / T * (lse - mean_active)
    if tau < T:
        w, u, x, y = logits(f2, True)
        lse = log_sum([(1, w), (v - 1, u), (tau * v, x), ((T - tau - 1) * v, y)])
        total = total + setting.p_random * (1 - tau / T) * (lse - x)
    _, _, x, y = logits(0.0, False)
    lse = log_sum([(tau * v, x), ((T - tau) * v, y)])
    return np.asarray(total + setting.p_mask_token * (lse - x))


def attention_landscape(
    setting: Setting,
    alphas: Float[np.ndarray, "alphas"],
    betas: Float[np.ndarray, "betas"],
    value: Value = "block",
) -> Float[np.ndarray, "alphas betas"]:
    """The squared loss on a grid, [alpha, beta], exact at the setting's document length (the paper's Figures 7 and
    8)."""
    return topicwise_attention_loss(setting, alphas[:, None], betas[None, :], value)
