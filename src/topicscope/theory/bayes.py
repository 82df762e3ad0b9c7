"""The Bayes loss: what a predictor that knows the active topics can reach, a lower bound for every model at every
length."""

import math
from typing import Literal

from topicscope.errors import InputError
from topicscope.synthetic import Setting


def bayes_loss(setting: Setting, loss: Literal["squared", "cross_entropy"] = "squared") -> float:
    """The expected loss of the posterior of the clean word given the active set S and the token shown at its position.

        ja = p_c/(τv) + p_r/V   chance that a selected position shows a given active word
        ρ = p_c/(τv ja)         chance that it is then the position's own word; otherwise p_S, uniform on τv words
        squared:        p_0 (1-p) + τv ja [1 - (ρ² + 2ρ(1-ρ)p + (1-ρ)²p)] + (V-τv)(p_r/V)(1-p),  p = 1/(τv)
        cross-entropy:  (p_0 + (V-τv) p_r/V) log(τv) + τv ja H(ρ e_w + (1-ρ) p_S)

    Ours. It does not depend on document_length: N = ∞ reveals S, and a finite document reveals less.

    Raises:
        InputError: an unknown loss.
    """
    V, support = setting.vocabulary_size, setting.topics_per_document * setting.words_per_topic
    p_c, p_r, p = setting.p_correct, setting.p_random, 1 / support
    shows_active = p_c / support + p_r / V
    rho = p_c / (support * shows_active) if shows_active > 0 else 0.0
    uninformed = setting.p_mask_token + (V - support) * p_r / V
    informed = support * shows_active
    if loss == "squared":
        return uninformed * (1 - p) + informed * (1 - (rho**2 + 2 * rho * (1 - rho) * p + (1 - rho) ** 2 * p))
    if loss != "cross_entropy":
        raise InputError("unknown loss", received=loss, expected='"squared" or "cross_entropy"')
    other = (1 - rho) * p
    entropy = -_x_log_x(rho + other) - (support - 1) * _x_log_x(other)
    return uninformed * math.log(support) + informed * entropy


def _x_log_x(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0
