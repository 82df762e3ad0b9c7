"""What must be true of every machine of a cluster before any work starts: versions, GPUs, and a folder they share."""

import inspect
import secrets
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from topicscope.errors import InputError, RunError

# What a difference of can change numbers, or the form of what is sent.
PACKAGES = ("topicscope", "torch", "transformers", "numpy", "tokenizers", "ray")
ANSWER_S = 60.0


def check_gpus(ray: Any, gpus_per_worker: float) -> None:
    """Make sure that some machine has the GPUs that one worker needs.

    Raises:
        InputError: none has.
    """
    if gpus_per_worker == 0:
        return
    most = max((node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
    if most < gpus_per_worker:
        raise InputError(
            "the cluster has no GPU for a worker",
            received=f"--gpus-per-worker {gpus_per_worker:g}",
            expected=f"at most {most:g}, the most of one machine of the cluster",
            advice="leave out --gpus-per-worker to compute on CPUs, or add machines with GPUs",
        )


def check_nodes(ray: Any, folder: Path) -> None:
    """Make sure that every machine has the versions of this one, and reads and writes `folder`.

    Raises:
        InputError: names the machine and the difference.
        RunError: a machine does not answer.
    """
    question, number = folder / f"question-{secrets.token_hex(4)}", secrets.token_hex(8)
    question.write_text(number, encoding="utf-8")
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    answers = [question.with_name(f"{question.name}-{i}") for i in range(len(nodes))]
    try:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Strategy

        task = ray.remote(num_cpus=0, max_retries=1)(_look_around())
        tasks = [
            task.options(scheduling_strategy=Strategy(node["NodeID"], soft=False)).remote(
                PACKAGES, str(question), str(answer)
            )
            for node, answer in zip(nodes, answers, strict=True)
        ]
        for node, answer, reference in zip(nodes, answers, tasks, strict=True):
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            try:
                versions, read, problem = ray.get(reference, timeout=ANSWER_S)
            except ray.exceptions.RayError as error:
                raise RunError(
                    "a machine of the cluster does not answer", received=str(error).strip()[:300], where=name
                ) from error
            _check_versions(versions, name)
            if problem or read != number or _read(answer) != number:
                raise InputError(
                    "the workers cannot write to the output folder",
                    received=str(folder),
                    expected="a folder that all machines of the cluster see under this path (NFS or the like)",
                    where=f"{name}: {problem or 'it sees another folder'}",
                    advice="choose an --out on storage that the machines share",
                )
    finally:
        for path in (question, *answers):
            path.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _check_versions(found: dict[str, str], name: str) -> None:
    here = installed(PACKAGES)
    different = sorted(package for package in here if here[package] != found.get(package))
    if different:
        raise InputError(
            "the cluster runs other versions",
            received=", ".join(f"{package} {found.get(package)}" for package in different),
            expected=", ".join(f"{package} {here[package]}" for package in different),
            where=name,
            advice="install the same versions on every machine of the cluster: pip install -c constraints.txt",
        )


def _version_reader() -> Callable[[tuple[str, ...]], dict[str, str]]:
    """What reads versions, made here so that it is sent by value: the machine may have another topicscope."""

    def installed(packages: tuple[str, ...]) -> dict[str, str]:
        versions = {"python": ".".join(map(str, sys.version_info[:2]))}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = "not installed"
        return versions

    plain: Callable[..., dict[str, str]] = inspect.unwrap(installed)
    return plain  # a checker of types around it could not be sent


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Version of Python and of each package here, "not installed" where there is none."""
    return _version_reader()(packages)


def _look_around() -> Callable[[tuple[str, ...], str, str], tuple[dict[str, str], str, str]]:
    """The question to a machine, sent by value as well: its versions, and whether it reads and writes the folder."""
    read_versions = _version_reader()

    def look(packages: tuple[str, ...], question: str, answer: str) -> tuple[dict[str, str], str, str]:
        versions = read_versions(packages)
        try:
            with open(question, encoding="utf-8") as stream:
                number = stream.read()
            with open(answer, "w", encoding="utf-8") as stream:
                stream.write(number)
        except (OSError, UnicodeDecodeError) as error:
            return versions, "", str(error)
        return versions, number, ""

    plain: Callable[..., tuple[dict[str, str], str, str]] = inspect.unwrap(look)
    return plain  # a checker of types around it could not be sent
