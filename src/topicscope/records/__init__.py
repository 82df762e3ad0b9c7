"""What a result is on disk: atomic files, output folders, manifests. Imports nothing of topicscope but errors."""

from topicscope.records.arrays import read_npy, read_npz
from topicscope.records.files import (
    read_json,
    read_jsonl,
    sha256_of_file,
    write_bytes,
    write_json,
    write_jsonl,
    write_npz,
    write_text,
)
from topicscope.records.folder import check_output_folder, replaced_folder
from topicscope.records.manifest import Environment, Manifest, describe_environment

__all__ = [
    "Environment",
    "Manifest",
    "check_output_folder",
    "describe_environment",
    "read_json",
    "read_jsonl",
    "read_npy",
    "read_npz",
    "replaced_folder",
    "sha256_of_file",
    "write_bytes",
    "write_json",
    "write_jsonl",
    "write_npz",
    "write_text",
]
