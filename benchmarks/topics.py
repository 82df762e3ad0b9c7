"""Topics of text larger than memory: how flat the memory of a streamed fit is, and how good topics are on unseen text.

    python benchmarks/topics.py memory [--documents 10000 100000 1000000]
    python benchmarks/topics.py quality [summaries.jsonl] [--topics 50] [--seeds 3] [--page docs/large-corpora.md]

- memory: peak memory and CPU time of `fit_stream` on made-up documents, each fit in a process of its own. Every
  document brings a word that no other has, so that there are more and more words as well.
- quality: mean NPMI of topics in documents that no fit saw (every fifth), CPU time and memory of each way to fit, on
  the sample of Wikipedia and, if given, lead summaries (`examples/summaries_corpus.py` makes them).
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WAYS = {
    "tomotopy, all of the text": {"engine": "tomotopy"},
    "tomotopy, `--sample` of 30 %": {"engine": "tomotopy", "share": 0.3},
    "tomotopy, `--sample` of 10 %": {"engine": "tomotopy", "share": 0.1},
    "gensim, 10 sweeps": {"engine": "gensim"},
    "gensim, `--stream`": {"stream": 1},
    "gensim, `--stream --sweeps 10`": {"stream": 10},
}
BEGIN, END = "<!-- quality: benchmarks/topics.py -->", "<!-- end of quality -->"
LETTERS = "bcdfghklmnprstvz"


def word_of(number: int) -> str:
    """A word for a number, of letters only."""
    word = ""
    while True:
        number, digit = divmod(number, 16)
        word += LETTERS[digit] + "aeio"[digit % 4]
        if not number:
            return word


def write_documents(path: Path, documents: int, topics: int = 10, words: int = 10) -> None:
    """Documents of one topic each, its words by Zipf's law, and one word that is nowhere else."""
    draw = np.random.default_rng(0)
    vocabulary = [[word_of(topic * 1000 + i) + "x" for i in range(1000)] for topic in range(topics)]
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, documents, 1000):
            rows = np.minimum(draw.zipf(1.4, (1000, words)) - 1, 999)
            for number, row in zip(range(start, min(start + 1000, documents)), rows.tolist(), strict=False):
                text = [vocabulary[number % topics][i] for i in row]
                stream.write(json.dumps({"text": " ".join([*text, word_of(number) + "q"])}) + "\n")


def held_bytes(name: str) -> int:
    """Memory of this process: the most that it ever held ("VmHWM") or what it holds now ("VmRSS")."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def apart(task: str, **arguments: Any) -> dict[str, Any]:
    """What a function of this file returns in a new process, with its CPU seconds and its memory in MB."""
    given = json.dumps({"task": task, "arguments": arguments})
    done = subprocess.run([sys.executable, __file__, "apart", given], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_apart(given: str) -> None:
    """The other side of `apart`."""
    import gensim.models  # noqa: F401  # so that it is in the memory at the start

    import topicscope.topics.gensim_lda  # noqa: F401

    order = json.loads(given)
    before, started = held_bytes("VmRSS"), time.process_time()
    found = {"streamed": streamed, "fitted": fitted}[order["task"]](**order["arguments"])
    used = {"cpu_s": time.process_time() - started, "start_mb": before / 1e6, "peak_mb": held_bytes("VmHWM") / 1e6}
    print(json.dumps(used | found))


def streamed(path: str, words_held: int, batch: int | None, topics: int = 10) -> dict[str, Any]:
    """One streamed fit; what it counted."""
    from topicscope.text import open_corpus
    from topicscope.topics import CorpusPassages, Rate, fit_stream

    passages = CorpusPassages(open_corpus(path))
    known = fit_stream(passages, topics, rate=Rate(batch=batch), words_held=words_held).provenance
    return {"npmi": known["coherence"]["mean"], "tokens": known["tokens"], **known["dropped"]}


def memory(documents: Sequence[int], words_held: int, batch: int | None = None) -> list[dict[str, Any]]:
    """One row for each number of documents; batch: passages, None for as many as the fit takes."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="topicscope-") as folder:
        for number in documents:
            path = Path(folder) / "text.jsonl"
            write_documents(path, number)
            rows.append({"documents": number} | apart("streamed", path=str(path), words_held=words_held, batch=batch))
    return rows


def fitted(sources: Sequence[str], topics: int, seed: int, way: str) -> dict[str, Any]:
    """One fit on four fifths of the documents, its coherence there and in the last fifth."""
    from topicscope.text import corpus_from, open_corpus, sample_documents
    from topicscope.topics import CorpusPassages, Rate, coherence, fit_stream, fit_with

    options: dict[str, Any] = WAYS[way]
    documents = [document for source in sources for document in open_corpus(source)]
    seen = corpus_from([document for i, document in enumerate(documents) if i % 5])
    unseen = CorpusPassages(corpus_from([document for i, document in enumerate(documents) if not i % 5]))
    if "share" in options:
        seen = sample_documents(seen, round(options["share"] * len(documents) * 0.8), seed=seed).corpus
    passages = CorpusPassages(seen)
    started, before = time.process_time(), held_bytes("VmRSS")
    if "stream" in options:
        found = fit_stream(passages, topics, rate=Rate(passes=options["stream"]), seed=seed)
    else:
        found = fit_with(options["engine"], passages, topics, seed=seed)
    seconds, grown = time.process_time() - started, held_bytes("VmHWM") - before
    top = found.top_words()
    return {
        "held_out": coherence(top, unseen).mean,
        "seen": coherence(top, passages).mean,
        "fit_s": seconds,
        "fit_mb": grown / 1e6,
        "documents": found.provenance["documents"],
        "tokens": found.provenance["tokens"],
    }


def quality(sources: Sequence[str], topics: int, seeds: int) -> list[dict[str, Any]]:
    """One row for each way to fit and seed."""
    rows = []
    for way in WAYS:
        for seed in range(seeds):
            row = {"way": way, "seed": seed}
            row |= apart("fitted", sources=list(sources), topics=topics, seed=seed, way=way)
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def table(rows: Sequence[dict[str, Any]], topics: int) -> str:
    """Markdown: mean and range over the seeds."""
    seeds = len({row["seed"] for row in rows})
    lines = [
        f"| way to fit ({topics} topics, {seeds} seeds) | passages read | NPMI in unseen text | NPMI where fitted "
        "| CPU s | memory, MB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        unseen = [row["held_out"] for row in own]
        names = ("seen", "fit_s", "fit_mb", "documents")
        seen, seconds, megabytes, read = (statistics.fmean(row[name] for row in own) for name in names)
        lines.append(
            f"| {way} | {read:,.0f} | {statistics.fmean(unseen):.2f} ({min(unseen):.2f} to "
            f"{max(unseen):.2f}) | {seen:.2f} | {seconds:.0f} | {megabytes:.0f} |"
        )
    return "\n".join(lines)


def replaced(page: str, block: str) -> str:
    """The page with the block between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"the page has no {BEGIN}"
    assert end, f"the page has no {END}"
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parts = parser.add_subparsers(dest="what", required=True)
    part = parts.add_parser("memory")
    part.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    part.add_argument("--words-held", type=int, default=20_000)
    part = parts.add_parser("quality")
    part.add_argument("summaries", nargs="?")
    part.add_argument("--topics", type=int, default=50)
    part.add_argument("--seeds", type=int, default=3)
    part.add_argument("--page", type=Path, help="a page into which the table is written")
    parts.add_parser("apart").add_argument("given")
    chosen = parser.parse_args()
    if chosen.what == "apart":
        run_apart(chosen.given)
    elif chosen.what == "memory":
        for row in memory(chosen.documents, chosen.words_held):
            print(json.dumps(row))
    else:
        sources = ["wikipedia-sample", *([chosen.summaries] if chosen.summaries else [])]
        block = table(quality(sources, chosen.topics, chosen.seeds), chosen.topics)
        print(block)
        if chosen.page is not None:
            chosen.page.write_text(replaced(chosen.page.read_text(encoding="utf-8"), block), encoding="utf-8")


if __name__ == "__main__":
    main()
