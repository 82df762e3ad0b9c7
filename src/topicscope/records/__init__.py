"""What a result is on disk: atomic files, run folders with their locks, manifests, URLs. Imports nothing of topicscope
but errors and progress."""

from typing import TYPE_CHECKING

from topicscope.lazy import load_on_use

if TYPE_CHECKING:
    from topicscope.records.array_fields import ArrayFields
    from topicscope.records.arrays import Header, Headers, npz_headers, read_npy, read_npz
    from topicscope.records.contents import (
        CIRCUITS,
        COMPARISON,
        MODEL,
        PAGE,
        PROBE,
        REPRODUCTION,
        RUN,
        SERIES,
        SWEEP,
        TOKENS,
    )
    from topicscope.records.files import (
        NUMBERS_VERSION,
        cache_folder,
        dump_json,
        plain,
        read_json,
        read_jsonl,
        require_regular_file,
        sha256_of_file,
        special_kind,
        write_bytes,
        write_json,
        write_jsonl,
        write_npz,
        write_text,
    )
    from topicscope.records.lock import LOCK, folder_lock
    from topicscope.records.manifest import Environment, Manifest, describe_environment, now
    from topicscope.records.result import Result, add_file, undamaged
    from topicscope.records.run_folder import TemporaryFolder, check_output_folder, replaced_folder
    from topicscope.records.run_record import (
        HISTORY,
        MANIFEST,
        RECIPE,
        SCHEMA_VERSION,
        SNAPSHOTS,
        SUMMARY,
        WEIGHTS,
        RunRecord,
    )
    from topicscope.records.threshold import select, threshold_cell, threshold_of
    from topicscope.records.unfinished import UnfinishedRun, growing_run, require_same, unfinished_run
    from topicscope.records.urls import (
        Place,
        Url,
        files_below,
        inside,
        kind_of,
        local_file,
        name_of,
        open_place,
        output_path,
        place_of,
        reaching,
        result_path,
        shown,
        suffix_of,
        without_secrets,
    )

__all__ = [
    "CIRCUITS",
    "COMPARISON",
    "HISTORY",
    "LOCK",
    "MANIFEST",
    "MODEL",
    "NUMBERS_VERSION",
    "PAGE",
    "PROBE",
    "RECIPE",
    "REPRODUCTION",
    "RUN",
    "SCHEMA_VERSION",
    "SERIES",
    "SNAPSHOTS",
    "SUMMARY",
    "SWEEP",
    "TOKENS",
    "WEIGHTS",
    "ArrayFields",
    "Environment",
    "Header",
    "Headers",
    "Manifest",
    "Place",
    "Result",
    "RunRecord",
    "TemporaryFolder",
    "UnfinishedRun",
    "Url",
    "add_file",
    "cache_folder",
    "check_output_folder",
    "describe_environment",
    "dump_json",
    "files_below",
    "folder_lock",
    "growing_run",
    "inside",
    "kind_of",
    "local_file",
    "name_of",
    "now",
    "npz_headers",
    "open_place",
    "output_path",
    "place_of",
    "plain",
    "reaching",
    "read_json",
    "read_jsonl",
    "read_npy",
    "read_npz",
    "replaced_folder",
    "require_regular_file",
    "require_same",
    "result_path",
    "select",
    "sha256_of_file",
    "shown",
    "special_kind",
    "suffix_of",
    "threshold_cell",
    "threshold_of",
    "undamaged",
    "unfinished_run",
    "without_secrets",
    "write_bytes",
    "write_json",
    "write_jsonl",
    "write_npz",
    "write_text",
]

load_on_use(__name__)
