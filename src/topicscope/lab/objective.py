"""The data loss of Knowl 6, from logits and labels."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Loss = Literal["cross-entropy", "squared"]


def data_loss(
    logits: Float[Tensor, "selected token"],
    labels: Int[Tensor, " selected"],
    weights: Float[Tensor, " selected"],
    loss: Loss,
) -> Float[Tensor, ""]:
    """Σ_j w_j ℓ(z_j, e_{x_j}): ℓ = -log softmax(z)_x, or ‖z - e_x‖² summed over the vocabulary (the paper's).

    The weights hold 1/|M| and the mean over documents (`MaskedBatch.position_weights`).
    """
    if loss == "cross-entropy":
        each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    else:
        each = (logits - torch.nn.functional.one_hot(labels, logits.shape[-1])).square().sum(-1)
    return (weights * each).sum()


def grouped_loss(
    logits: Float[Tensor, "seed group token"],
    targets: Float[Tensor, "#seed group token"],
    loss: Loss,
) -> tuple[Float[Tensor, " seed"], Float[Tensor, "seed group token"]]:
    """Σ_g Σ_i y_gi ℓ(z_g, e_i) per seed, and its gradient by the logits. With n_g = Σ_i y_gi:

    cross-entropy   n_g lse(z_g) - y_g·z_g              gradient n_g softmax(z_g) - y_g
    squared         n_g ‖z_g‖² - 2 y_g·z_g + n_g        gradient 2 (n_g z_g - y_g)
    """
    n = targets.sum(-1, keepdim=True)
    fit = (targets * logits).sum((1, 2))
    if loss == "squared":
        scaled = n * logits
        return (scaled * logits).sum((1, 2)) - 2 * fit + n.sum((1, 2)), (scaled - targets).mul_(2)
    top = logits.amax(-1, keepdim=True)
    exponential = (logits - top).exp_()
    total = exponential.sum(-1, keepdim=True)
    value = (n * (total.log() + top)).sum((1, 2)) - fit
    return value, exponential.mul_(n / total).sub_(targets)
