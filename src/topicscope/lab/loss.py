"""What is minimised: the data loss of Knowl 6 (the models compute it) plus a true L2 term."""

from collections.abc import Collection, Mapping

from torch import Tensor

from topicscope.errors import InputError


def ridge_penalty(parameters: Mapping[str, Tensor], ridge: Mapping[str, float], losses: Tensor) -> Tensor:
    """losses + Σ_W λ_W ‖W‖²_F, both [seed].

    parameters: name -> [seed …]. The squared norm itself is penalised, so its gradient is 2 λ W (Knowl 2): neither a
    decoupled decay nor an unsquared norm.
    """
    for name, weight in ridge.items():
        losses = losses + weight * parameters[name].flatten(1).square().sum(1)
    return losses


def check_names(what: str, names: Collection[str], trainable: Collection[str]) -> None:
    """Refuse to regularise or move a matrix that is not trained: it would silently do nothing.

    Raises:
        InputError: naming the matrices that are trained.
    """
    wrong = sorted(set(names) - set(trainable))
    if wrong:
        raise InputError(
            f"{what} names a matrix that is not trained", received=wrong, expected=f"some of {sorted(trainable)}"
        )
