"""The manifest: everything needed to make a result again, kept in the result itself."""

import os
import platform
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_LIBRARIES = (
    "topicscope",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "tomotopy",
    "safetensors",
)


class Environment(BaseModel):
    """Where a result was made."""

    model_config = ConfigDict(frozen=True)

    python: str = Field(description="Python version")
    platform: str = Field(description="operating system and processor architecture")
    processor: str = Field(description="processor name as the system gives it")
    cpu_count: int = Field(description="logical processors seen")
    libraries: dict[str, str] = Field(description="installed versions of the libraries that make numbers")


class Manifest(BaseModel):
    """Provenance of one result."""

    model_config = ConfigDict(frozen=True)

    created: str = Field(description="UTC time, ISO 8601")
    command: str | None = Field(default=None, description="the command line, when there was one")
    environment: Environment
    options: dict[str, Any] = Field(description="every option of the run, defaults included")
    sources: dict[str, Any] = Field(description="model, corpus and topics: names and hashes")


@cache  # it takes longer than the training of a tiny model, of which a sweep has thousands
def describe_environment() -> Environment:
    """Versions and machine of this process."""
    libraries = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            libraries[name] = "not installed"
    # On Linux `platform.processor` is empty or repeats the architecture, and samplers differ between processors.
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Environment(
        python=sys.version.split()[0],
        platform=platform.platform(),
        processor=names[0] if names else platform.processor() or platform.machine(),
        cpu_count=os.cpu_count() or 1,
        libraries=libraries,
    )


def now() -> str:
    """The present time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
