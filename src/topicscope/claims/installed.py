"""Whether the optional packages are here that bring a pretrained model and text."""

from importlib import metadata

from topicscope.claims.context import Context
from topicscope.demo import PACKAGE


def demo_packages(_context: Context) -> str:
    """Versions of what brings MiniLM and its text, for `Claim.inputs`: what was missing may be here next time."""
    return repr([(name, _version(name)) for name in (PACKAGE, "gensim")])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
