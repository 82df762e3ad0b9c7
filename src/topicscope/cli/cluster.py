"""The options --cluster, --workers and --gpus-per-worker, which several commands share."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from topicscope.errors import InputError


def asked_cluster(
    cluster: str | None, workers: int | None = None, gpus_per_worker: float = 0.0
) -> AbstractContextManager[Any]:
    """A `topicscope.distributed.Cluster` to enter, or what gives None where none was asked for.

    Raises:
        InputError: options of a cluster without one.
    """
    if cluster is None:
        if workers is not None or gpus_per_worker:
            raise InputError(
                "--workers and --gpus-per-worker are of a cluster",
                expected="--cluster local, auto or ray://HOST:PORT as well",
            )
        return nullcontext()
    from topicscope.distributed import Cluster  # with all that a probe needs

    return Cluster(cluster, workers=workers, gpus_per_worker=gpus_per_worker)


def check_device(device: str, cluster: str | None, gpus_per_worker: float) -> None:
    """A recipe's device must be one that workers of the cluster have.

    Raises:
        InputError: a GPU without GPUs for workers, or GPUs that the recipe does not use.
    """
    if cluster is not None and device.startswith("cuda") and not gpus_per_worker:
        raise InputError(
            "workers of the cluster have no GPU",
            received=f'training.device = "{device}"',
            expected="--gpus-per-worker 1, or a share of one, as well",
        )
    if gpus_per_worker and not device.startswith("cuda"):
        raise InputError(
            "the recipe does not use the GPUs of workers",
            received=f'--gpus-per-worker {gpus_per_worker:g} and training.device = "{device}"',
            expected="--set training.device=cuda as well, or no --gpus-per-worker",
        )
