"""What tells the weights of one model from those of another."""

import hashlib

import torch


def hash_of_weights(model: torch.nn.Module) -> str:
    """Sha256 over names, shapes and bytes of the parameters in the order of their names.

    A pooler is left out: it takes no part in attention, and where a checkpoint lacks it, it is random.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if name.startswith("pooler."):
            continue
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}\n".encode())
        digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
