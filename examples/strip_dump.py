"""Strip a Wikipedia dump to plain prose, part by part on all processors, as JSON Lines for `--corpus`.

    python examples/strip_dump.py enwiki-20260901-pages-articles*.xml-*.bz2 --out enwiki
    topicscope probe bert-base-uncased --corpus enwiki --cluster local

Stripping takes a tenth of a second an article and processor, and a probe reads its text several times, so that a whole
Wikipedia is stripped once. Each part of the dump becomes a file part.jsonl.zst of lines {"id": title, "text": prose};
parts that are there are kept, so that a stopped run goes on. What is left out (redirects, pages that are no articles,
articles without prose) is counted in counts.json.
"""

import argparse
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pyarrow as pa

from topicscope.errors import InputError
from topicscope.text import open_corpus


def target_of(part: Path, folder: Path) -> Path:
    """Where the prose of a part goes."""
    return folder / f"{part.name}.jsonl.zst"


def strip(part: Path, folder: Path) -> tuple[int, dict[str, int]]:
    """Write the articles of one part; how many they are, and what was left out by reason."""
    target = target_of(part, folder)
    half = target.with_name(f".{target.name}.half")
    corpus, articles = open_corpus(part), 0
    with pa.output_stream(str(half), compression="zstd") as stream:
        for document in corpus:
            line = json.dumps({"id": document.id, "text": document.text}, ensure_ascii=False)
            stream.write(f"{line}\n".encode())
            articles += 1
    half.replace(target)  # only a whole part has its name
    return articles, corpus.skipped


def main(arguments: Sequence[str] | None = None) -> None:
    """Strip every part that is not there yet."""
    parser = argparse.ArgumentParser(description="Strip a Wikipedia dump to plain prose, part by part.")
    parser.add_argument("parts", type=Path, nargs="+", help="files of a MediaWiki dump, compressed or not")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; one for each processor")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    counts_file = options.out / "counts.json"
    counts = json.loads(counts_file.read_text()) if counts_file.is_file() else {}
    missing = [part for part in options.parts if not target_of(part, options.out).is_file() or part.name not in counts]
    failed = 0
    # Started anew and not forked, since the libraries that read and compress have threads.
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        started = {pool.submit(strip, part, options.out): part for part in missing}
        for number, done in enumerate(as_completed(started), start=1):
            part = started[done]
            try:
                articles, skipped = done.result()
            except InputError as error:
                failed += 1
                print(f"{part.name}: {error}")
                continue
            counts[part.name] = {"articles": articles, "left out": skipped}
            half = counts_file.with_name(".counts.half")
            half.write_text(json.dumps(counts, indent=2))
            half.replace(counts_file)
            print(f"{number} of {len(missing)}: {part.name}: {articles} articles")
    left_out = sum((Counter(part["left out"]) for part in counts.values()), Counter[str]())
    articles = sum(part["articles"] for part in counts.values())
    print(f"{articles} articles in {options.out}; left out: {dict(left_out)}; parts that could not be read: {failed}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
