"""What passes between a driver and workers that do not see its folder: tokens and shards, by way of a storage.

URL.unfinished/tokens-HASH/…       the tokens, put there once by the driver; every machine keeps a copy in its cache
URL.unfinished/PASS/shard-N.TRY/…  a shard that a worker has read, until the driver has fetched it
"""

import hashlib
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from upath import UPath

from topicscope.errors import InputError
from topicscope.probing.shards import STATE
from topicscope.probing.token_cache import KEPT_BYTES, prune
from topicscope.records.cache import cache_folder
from topicscope.records.files import sha256_of_file
from topicscope.records.folder import TemporaryFolder
from topicscope.records.places import address, reaching, reason_of, url_of
from topicscope.records.storage import copy_file, fetch, remove, sizes_below


def send_tokens(folder: Path, exchange: UPath) -> str:
    """Put a token cache where workers find it, unless it is there; returns its URL.

    Raises:
        InputError: the storage fails.
    """
    files = sorted(folder.iterdir())
    digest = hashlib.sha256("".join(f"{path.name} {sha256_of_file(path)}\n" for path in files).encode())
    url = exchange / f"tokens-{digest.hexdigest()[:16]}"
    if sizes_below(url) != {path.name: path.stat().st_size for path in files}:
        with reaching(url):
            for path in files:
                copy_file(path, url / path.name)
    return address(url)


def tokens_here(place: str) -> tuple[Path, TemporaryFolder | None]:
    """The folder of a token cache on this machine: `place` itself, or for a URL the copy that this machine keeps.

    Where no cache can be written, the copy goes with the object that is returned beside it.

    Raises:
        InputError: the storage fails, or a file does not arrive whole.
    """
    url = url_of(place)
    if url is None:
        return Path(place), None
    root = cache_folder() / "tokens"
    kept = root / url.name
    if kept.is_dir():
        return kept, None
    owner = TemporaryFolder()
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
        owner = TemporaryFolder(root)
    fetch(url, owner.path)
    if owner.path.parent != root:
        return owner.path, owner
    with suppress(OSError):  # another worker has put its own there meanwhile
        owner.renamed(kept)
        prune(root, KEPT_BYTES)
    return kept, None


def leave_shard(folder: Path, place: str) -> None:
    """Put a shard where the driver fetches it, its state last.

    Raises:
        InputError: the storage fails.
    """
    url = url_of(place)
    assert url is not None
    with reaching(url):
        for path in sorted(folder.iterdir(), key=lambda path: path.name == STATE):
            copy_file(path, url / path.name)


def collect_shard(url: UPath, folder: Path) -> str | None:
    """Move a shard from the storage into `folder`, whole or not at all; returns why it failed, if it did."""
    half = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        fetch(url, half)
        half.rename(folder)
    except (InputError, OSError) as error:
        shutil.rmtree(half, ignore_errors=True)
        received = error.received if isinstance(error, InputError) else reason_of(error)
        return f"what a worker left cannot be fetched: {received}"
    remove(url)
    return None
