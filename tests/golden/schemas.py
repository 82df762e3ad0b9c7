"""Infer the JSON Schemas of `schemas/` from a recording: `python -m golden.schemas RECORDING [FOLDER]`.

A field is required when every document has it; no other field is allowed, except in the maps of MAPS, whose names are
data (options, corpora, libraries). A number may be null everywhere: NaN is written as null. The schemas were inferred
once and are edited by hand since; `make golden` does not touch them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from golden.recording import MASKED

# Title of a schema and the recorded documents that it describes.
DOCUMENTS = {
    "probe-result": ("what `topicscope probe` writes as result.json and prints with --json", "*/result.json"),
    "circuits": ("what `topicscope circuits` writes as circuits.json and prints with --json", "*/circuits.json"),
    "comparison": ("what `topicscope compare --json` prints", "probe/compare.json"),
    "series": ("what `topicscope probe --checkpoints` writes as series.json", "*/series.json"),
    "run-summary": ("what `topicscope train` writes as summary.json and prints with --json", "*/summary.json"),
    "run-manifest": ("the manifest of a training run, manifest.json", "train/*/manifest.json"),
    "run-recipe": ("every field of a trained recipe, recipe.json", "*/recipe.json"),
    "run-history": ("a line of history.jsonl of a training run", "train/*/history.jsonl"),
    "sweep": ("what `topicscope sweep` writes as sweep.json and prints with --json", "sweep/*/sweep.json"),
    "sweep-row": ("a point of a sweep, rows/ID.json", "sweep/*/rows/*.json"),
    "sweep-plan": ("what `topicscope sweep --dry-run --json` prints", "sweep/dry-run.json"),
    "topics": ("what `topicscope topics fit` and `topics show` print with --json", "fitted/topics-*"),
    "theory": ("what `topicscope theory … --json` prints", "theory/command/*"),
    "monitor-history": ("a line of topic_structure.jsonl of a monitored training", "*/topic_structure.jsonl"),
    "report": ("what `topicscope report --json` prints", "probe/report.json"),
    "claims": ("what `topicscope reproduce` writes as claims.json and prints with --json", "*/claims.json"),
}  # fmt: skip
LINES = (".jsonl",)
_VOLATILE: dict[str, Any] = {
    "bytes": {"type": "integer"},
    "command": {"type": ["string", "null"]},
    "created": {"type": "string"},
    "key": {"type": "string"},
    "elapsed_s": {"type": ["number", "null"]},
    "left_s": {"type": ["number", "null"]},
    "libraries": {"type": "object", "additionalProperties": {"type": "string"}},
    "numbers_version": {"type": "integer"},
    "seconds": {"type": ["number", "null"]},
    "setup_seconds": {"type": ["number", "null"]},
    "environment": {
        "type": "object",
        "properties": {
            "python": {"type": "string"},
            "platform": {"type": "string"},
            "processor": {"type": "string"},
            "cpu_count": {"type": "integer"},
            "libraries": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["python", "platform", "processor", "cpu_count", "libraries"],
        "additionalProperties": False,
    },
}
# Objects whose names are data, by document and path.
MAPS = (
    "*/dropped", "*/skipped", "*/left_out", "*/sources/arrays", "*/sources/references", "run-recipe/recipe/arrays",
    "run-recipe/recipe/references", "*/model/sigmas", "*/training/ridge", "sweep/table/-", "*/measurements", "*/theory",
    "*/relative_deviation", "theory/quantities",
)  # fmt: skip
# Objects with values of any kind as well: settings of recipes.
OPEN = ("sweep*/set", "sweep*/grid", "sweep*/random", "sweep*/values")


def schemas_of(recording: Path) -> dict[str, Any]:
    """The schema of every document that was recorded."""
    documents: dict[str, Any] = {}
    for path in sorted(recording.glob("*.json")):
        documents |= json.loads(path.read_text(encoding="utf-8"))
    found = {}
    for name, (title, pattern) in DOCUMENTS.items():
        keys = [key for key in documents if fnmatchcase(key, pattern)]
        values = [documents[key] for key in keys]
        if pattern.endswith(LINES):
            values = [line for lines in values for line in (lines.values() if isinstance(lines, dict) else lines)]
        if values:
            head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, "description": title}
            found[name] = head | schema_of(values, name)
    return found


def schema_of(values: Sequence[Any], path: str) -> dict[str, Any]:
    """The narrowest schema of this form that all values meet."""
    name = path.rpartition("/")[2]
    if any(fnmatchcase(path, pattern) for pattern in OPEN):
        return {"type": ["object", "null"]}
    if MASKED in [value for value in values if isinstance(value, str)]:
        return dict(_VOLATILE[name])
    if name in ("schema_version", "kind") and len({json.dumps(value) for value in values}) == 1:
        return {"const": values[0]}
    types = sorted({kind_of(value) for value in values})
    if types == ["null"]:
        return {}  # no document has shown yet what it may be
    if "number" in types:
        types = sorted({*types, "null"} - {"integer"})
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    objects = [value for value in values if isinstance(value, Mapping)]
    if objects and any(fnmatchcase(path, pattern) for pattern in MAPS):
        items = [item for value in objects for item in value.values() if item != MASKED]
        found["additionalProperties"] = schema_of(items, f"{path}/*") if items else True
    elif objects:
        names = list(dict.fromkeys(key for value in objects for key in value))
        found["properties"] = {
            key: schema_of([value[key] for value in objects if key in value], f"{path}/{key}") for key in names
        }
        found["required"] = [key for key in names if all(key in value for value in objects)]
        found["additionalProperties"] = False
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        found["items"] = schema_of(items, f"{path}/-")
    return found


def kind_of(value: Any) -> str:
    """The JSON type."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def main() -> None:
    recording, *rest = map(Path, sys.argv[1:])
    folder = rest[0] if rest else Path(__file__).resolve().parents[2] / "schemas"
    folder.mkdir(exist_ok=True)
    for name, schema in schemas_of(recording).items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
