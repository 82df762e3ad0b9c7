"""First and second moments of what uniform attention sees: everything a linear predictor's squared loss depends on."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.synthetic import Setting


@dataclass(frozen=True, eq=False)
class TopicLaw:
    """The law of a document's topic proportions θ, as far as squared loss can see it.

    mean: E θ [topic]; second: E θθᵀ [topic, topic].
    """

    mean: Float[np.ndarray, "topic"]
    second: Float[np.ndarray, "topic topic"]


def uniform_law(num_topics: int, topics_per_document: int) -> TopicLaw:
    """θ uniform on a set of τ distinct topics chosen uniformly (Knowl 6): E θθᵀ = κ I + ((1/T - κ)/T) 1 1ᵀ."""
    T, tau = num_topics, topics_per_document
    kappa = 0.0 if T == 1 else (T - tau) / (tau * T * (T - 1))
    return TopicLaw(np.full(T, 1 / T), kappa * np.eye(T) + (1 / T - kappa) / T)


def dirichlet_law(alpha: Float[np.ndarray, "topic"]) -> TopicLaw:
    """θ ~ Dirichlet(α): E θ = α/α₀, E θθᵀ = (diag α + ααᵀ) / (α₀(α₀+1)), α₀ = Σα.

    Raises:
        InputError: an α that is not positive.
    """
    if not (alpha > 0).all():
        raise InputError(
            "a Dirichlet law needs positive parameters", received=alpha.tolist()[:10], expected="alpha > 0"
        )
    total = alpha.sum()
    return TopicLaw(alpha / total, (np.diag(alpha) + np.outer(alpha, alpha)) / (total * (total + 1)))


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the mean input x̄ = (1/N) Σ_i x̃_i and of the clean word x_j at a selected position j; index 0 is
    [MASK].

    | field | symbol | shape |
    | --- | --- | --- |
    | input_mean | E x̄ | [V+1] |
    | target_mean | E x_j | [V+1] |
    | input_second | C = E x̄x̄ᵀ | [V+1, V+1] |
    | cross | X = E x̄ x_jᵀ | [V+1 in, V+1 out] |

    The squared loss of W x̄ + b is 1 + tr(W C Wᵀ) - 2 tr(W X) + 2 bᵀ W E x̄ - 2 bᵀ E x_j + ‖b‖².
    """

    input_mean: Float[np.ndarray, "size"]
    target_mean: Float[np.ndarray, "size"]
    input_second: Float[np.ndarray, "size size"]
    cross: Float[np.ndarray, "size size"]

    def loss(self, W: Float[np.ndarray, "size size"], b: Float[np.ndarray, "size"] | None = None) -> float:
        """The exact expected squared loss of the predictor W x̄ + b."""
        value = 1 + np.sum((W @ self.input_second) * W) - 2 * np.sum(W * self.cross.T)
        if b is not None:
            value += 2 * b @ W @ self.input_mean - 2 * b @ self.target_mean + b @ b
        return float(value)

    def gradient(
        self, W: Float[np.ndarray, "size size"], b: Float[np.ndarray, "size"] | None = None
    ) -> Float[np.ndarray, "size size"]:
        """∂L/∂W = 2 (W C - Xᵀ + b E x̄ᵀ)."""
        gradient = W @ self.input_second - self.cross.T
        return np.asarray(2 * (gradient if b is None else gradient + np.outer(b, self.input_mean)))


def selection_moments(setting: Setting) -> tuple[float, float]:
    """(k1, k2) = (E k/N, E k²/N²), k the number of selected positions of the document that a loss term comes from.

    "document" weighting: k ~ Bin(N, p_m) given k ≥ 1. "token" weighting: k = 1 + Bin(N-1, p_m). Both tend to
    (p_m, p_m²) as N → ∞.
    """
    p, N = setting.p_mask, setting.document_length
    if N is None:
        return p, p * p
    if setting.weighting == "document":
        some = -np.expm1(N * np.log1p(-p))
        return float(p / some), float((p * (1 - p) / N + p * p) / some)
    mean = 1 + (N - 1) * p
    return mean / N, ((N - 1) * p * (1 - p) + mean**2) / N**2


def disjoint_phi(setting: Setting) -> Float[np.ndarray, "topic word"]:
    """The setting's own topics: T rows, each uniform over its v words."""
    return np.kron(np.eye(setting.num_topics), np.full((1, setting.words_per_topic), 1 / setting.words_per_topic))


def moments(
    setting: Setting, phi: Float[np.ndarray, "topic word"] | None = None, law: TopicLaw | None = None
) -> Moments:
    """The moments for any topics and any law of θ, at any document length and weighting.

    With p = Φθ, q = p_c p + p_r u + p_0 e_0 (u uniform over words) and k1, k2 of `selection_moments`:

        C = E pp' + k1 E[p(q-p)' + (q-p)p'] + k2 E[(q-p)(q-p)'] + (1/N){(1-k1)(diag E p - E pp') + k1(diag E q - E qq')}
        X = E pp' + k1 E[(q-p)p'] + (p_c/N)(diag E p - E pp')

    setting: gives the masking rates, N, the weighting and the defaults of the other two.
    phi: [topic, word], rows sum to 1, in any shape (unequal, overlapping, dense); the setting's disjoint topics if
    None. law: of θ; τ-uniform if None.

    Raises:
        InputError: phi or the law speak of another number of topics than the setting.
    """
    phi = disjoint_phi(setting) if phi is None else phi
    law = uniform_law(setting.num_topics, setting.topics_per_document) if law is None else law
    check_topics(setting, phi, law)
    num_words = phi.shape[1]
    k1, k2 = selection_moments(setting)
    inverse_length = 0.0 if setting.document_length is None else 1 / setting.document_length
    p_c = setting.p_correct

    columns = np.vstack([np.zeros(phi.shape[0]), phi.T])  # [V+1, topic]
    mean_p = columns @ law.mean
    pp = columns @ law.second @ columns.T
    noise = np.concatenate([[setting.p_mask_token], np.full(num_words, setting.p_random / num_words)])
    mean_q = p_c * mean_p + noise
    qp = p_c * pp + np.outer(noise, mean_p)
    qq = p_c * (qp + np.outer(mean_p, noise)) + np.outer(noise, noise)

    shift = qp - pp  # E (q-p)p'
    spread = qq - qp - qp.T + pp  # E (q-p)(q-p)'
    own = (1 - k1) * (np.diag(mean_p) - pp) + k1 * (np.diag(mean_q) - qq)
    return Moments(
        input_mean=mean_p + k1 * (mean_q - mean_p),
        target_mean=mean_p,
        input_second=pp + k1 * (shift + shift.T) + k2 * spread + inverse_length * own,
        cross=pp + k1 * shift + p_c * inverse_length * (np.diag(mean_p) - pp),
    )


def check_topics(setting: Setting, phi: np.ndarray, law: TopicLaw) -> None:
    """Refuse a phi or a law that speaks of other topics than the setting."""
    if not phi.shape[0] == len(law.mean) == setting.num_topics:
        raise InputError(
            "the topics do not fit the setting",
            received=f"phi with {phi.shape[0]} topics, a law of {len(law.mean)}",
            expected=f"num_topics = {setting.num_topics} in both",
        )
    if not (np.isfinite(phi).all() and (phi >= 0).all() and np.abs(phi.sum(axis=1) - 1).max() < 1e-9):
        raise InputError("phi is not [topic, word] probabilities", expected="finite rows >= 0 that sum to 1")
