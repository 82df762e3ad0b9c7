"""The attention of a corpus against the model's plain forward pass, on MiniLM and the Wikipedia sample, on one core.

    python benchmarks/probe.py [--json] [--rounds 9] [--tokens 8192] [--hooks]

A is the forward pass of the same model under "sdpa", on the same batches, in inference mode. B is what a probe does
with a chunk: all class sums of every layer and head at all thresholds, by distance too, the moments of all statistics
and the rows per document. A and B alternate in one process; the ratio of CPU times of one round is quoted by median and
quartiles. B stops at the attention of the last layer, since nothing after it is wanted; "to the end of the model" is
what it costs without that. Memory is the highest resident set over that of the loaded model and tokens, each
in a process of its own. The twin goes pair by pair through attention weights in float64.
"""

import argparse
import copy
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is loaded
# Glibc's own threshold moves while a process runs, which would decide what is given back and so what is measured.
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "1048576")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer, PreTrainedModel  # noqa: E402
from transformers.utils.logging import disable_progress_bar  # noqa: E402

from topicscope.demo import minilm_folder  # noqa: E402
from topicscope.probing import DEFAULT_THRESHOLDS  # noqa: E402
from topicscope.probing.attention import Configuration, PartSums, TopicLookup, sum_attention  # noqa: E402
from topicscope.probing.hf import ModelView, view_model  # noqa: E402
from topicscope.probing.results import document_rows  # noqa: E402
from topicscope.probing.statistics import PartMoments  # noqa: E402
from topicscope.probing.tokens import CPU_TOKENS, AlignedUnit, Batch, TokenWindows, align_units, make_batches  # noqa: E402
from topicscope.text import Unit, load_stop_words, passages, wikipedia_sample  # noqa: E402
from topicscope.topics import CorpusPassages, PairClass, Topics, assign_words, fit, load_topics, save_topics  # noqa: E402

TOPICS, SWEEPS = 100, 100
LENGTHS = (128, 512)
BATCH_TOKENS = CPU_TOKENS
REACH = {"128": 1.10, "512": 1.15, "memory": 1.10, "max_relative_error": 1e-4}
Chunk = tuple[list[AlignedUnit], np.ndarray, list[Batch], TopicLookup]


def load() -> tuple[PreTrainedModel, object]:
    folder = minilm_folder()
    return AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval(), AutoTokenizer.from_pretrained(folder)


def configurations_of(fitted: Topics, thresholds: Sequence[float] = DEFAULT_THRESHOLDS) -> list[Configuration]:
    stop_words = load_stop_words("en")
    return [Configuration(t, 0, assign_words(fitted, t, stop_words=stop_words)) for t in thresholds]


def chunk_of(view: ModelView, length: int, tokens: int, configurations: list[Configuration]) -> Chunk:
    """The first windows of about `length` tokens, `tokens` tokens in all."""
    documents = islice(wikipedia_sample(), 60)
    units = [Unit(document.id, 0, "\n".join(passages(document))) for document in documents]
    windows, _ = align_units(view.tokenizer, units, max_length=length)
    chosen = [window for window in windows if len(window.input_ids) > 0.9 * length][: max(1, tokens // length)]
    ids = list(dict.fromkeys(window.document_id for window in chosen))
    document_of = np.array([ids.index(window.document_id) for window in chosen])
    lookup = TopicLookup(configurations, [word for window in chosen for word in window.words if word is not None])
    batches = make_batches(chosen, batch_size=10**6, max_tokens=BATCH_TOKENS)
    return chosen, document_of, batches, lookup


def plain(model: PreTrainedModel, batches: list[Batch]) -> None:
    """A: the forward pass alone."""
    with torch.inference_mode():
        for batch in batches:
            model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)


def probed(view: ModelView, chunk: Chunk) -> list[PartSums]:
    """B: everything a probe does with a chunk of documents."""
    units, document_of, batches, lookup = chunk
    sums = sum_attention(view, batches, units, document_of, lookup)
    for part in sums:
        PartMoments.of(part)
    ids = list(dict.fromkeys(unit.document_id for unit in units))
    tokens = np.bincount(document_of, weights=[len(unit.input_ids) for unit in units]).astype(int)
    document_rows(sums, ids, np.bincount(document_of).tolist(), tokens.tolist(), lookup.configurations)
    return sums


def ratios(a: Callable[[], object], b: Callable[[], object], rounds: int) -> list[float]:
    """CPU time of b over that of a, round by round, after one round that does not count."""
    found = []
    for number in range(rounds + 1):
        start = time.process_time()
        a()
        middle = time.process_time()
        b()
        end = time.process_time()
        if number:
            found.append((end - middle) / (middle - start))
    return found


def quartiles(values: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(median, 4), "quartiles": [round(low, 4), round(high, 4)]}


def topical_share(chunk: Chunk) -> dict[str, float]:
    """Share of all tokens that bear a topic, by threshold and under any of them."""
    units, _, _, lookup = chunk
    tokens = sum(len(unit.input_ids) for unit in units)
    text = TokenWindows.of(units)
    words = lookup.codes(text.vocabulary)[text.words]
    words = words[words >= 0]
    flags = [lookup.memberships[c].any(1)[words] for c in range(len(lookup.configurations))]
    shares = {str(c.threshold): f.sum() / tokens for c, f in zip(lookup.configurations, flags, strict=True)}
    return {name: round(float(value), 3) for name, value in (shares | {"any": np.any(flags, 0).sum() / tokens}).items()}


def twin(units: list[AlignedUnit], lookup: TopicLookup) -> np.ndarray:
    """[configuration, layer, head, class], pair by pair through the weights of the eager model in float64."""
    model = AutoModel.from_pretrained(minilm_folder(), attn_implementation="eager").double().eval()
    sums: dict[tuple[int, PairClass], np.ndarray] = defaultdict(lambda: np.zeros((6, 12)))
    topics_of = [
        {word: set(lookup.memberships[c][i].nonzero()[0].tolist()) for i, word in enumerate(lookup.words)}
        for c in range(len(lookup.configurations))
    ]
    for unit in units:
        length = len(unit.input_ids)
        with torch.inference_mode():
            weights = model(input_ids=torch.tensor([unit.input_ids]), output_attentions=True).attentions
        attention = np.ascontiguousarray(torch.cat(weights).permute(2, 3, 0, 1).numpy()) * length / 100
        words = [(i, word) for i, word in enumerate(unit.words) if word is not None]
        for i, word_i in words:
            for j, word_j in words:
                for c, known in enumerate(topics_of):
                    if i != j:
                        sums[c, class_of(word_i, word_j, known[word_i], known[word_j])] += attention[i, j]
    return np.stack([np.stack([sums[c, k] for k in PairClass], -1) for c in range(len(topics_of))])


def class_of(word_i: str, word_j: str, topics_i: set[int], topics_j: set[int]) -> PairClass:
    if word_i == word_j:
        return PairClass.same_word if topics_i else PairClass.same_word_no_topic
    if not topics_i or not topics_j:
        return PairClass.no_topic
    return PairClass.same_topic if topics_i & topics_j else PairClass.different_topic


def largest_error(view: ModelView, length: int, configurations: list[Configuration]) -> float:
    """Relative, over configurations, layers, heads and classes, on ragged batches of some 1,500 tokens."""
    units = [
        *chunk_of(view, length, 1500, configurations)[0],
        *chunk_of(view, length // 3, length // 2, configurations)[0],
    ]
    lookup = TopicLookup(configurations, [word for unit in units for word in unit.words if word is not None])
    found = sum_attention(view, make_batches(units), units, np.zeros(len(units), dtype=int), lookup)[0]
    expected = twin(units, lookup)
    assert (expected > 0).any((1, 2)).all(), "the text has pairs of every class"
    return float((np.abs(found.heads[0] - expected) / np.where(expected > 0, expected, 1)).max())


def peak_over_idle(which: str, file: str) -> float:
    """In a process of its own: highest resident set in MB over that before, on batches of the longest units."""
    model, tokenizer = load()
    view = view_model(model, tokenizer, name="MiniLM")
    chunk = chunk_of(view, LENGTHS[-1], 4 * BATCH_TOKENS, configurations_of(load_topics(Path(file))))
    action = partial(plain, model, chunk[2]) if which == "plain" else partial(probed, view, chunk)
    warm = chunk_of(view, 16, 64, [])  # loads the libraries' code
    plain(model, warm[2])
    if which == "probe":
        probed(view, chunk_of(view, 16, 64, configurations_of(load_topics(Path(file)))))
    idle = resident()
    return watch(action) - idle


def resident() -> float:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize() / 1e6


def watch(action: Callable[[], object]) -> float:
    """The highest resident set while the action runs, in MB, after the kernel's own mark was reset."""
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")
    action()
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("VmHWM")) * 1024 / 1e6


def memory(fitted: Topics) -> dict[str, float]:
    """Peak over idle in MB of A and B, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "topics.npz")
        save_topics(file, fitted)
        command = [sys.executable, __file__, "--peak"]
        found = {
            which: float(subprocess.run([*command, which, file], capture_output=True, text=True, check=True).stdout)
            for which in ("plain", "probe")
        }
    return {**found, "ratio": found["probe"] / found["plain"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=2 * BATCH_TOKENS, help="tokens of each round")
    parser.add_argument("--threshold", type=float, nargs="+", default=DEFAULT_THRESHOLDS, help="of the topics' words")
    parser.add_argument("--hooks", action="store_true", help="time the reading of attention weights by hooks instead")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    if options.peak:
        print(peak_over_idle(*options.peak))
        return
    model, tokenizer = load()
    view = view_model(model, tokenizer, name="MiniLM", hooks_only=options.hooks)
    fitted = fit(CorpusPassages(wikipedia_sample()), TOPICS, sweeps=SWEEPS)
    configurations = configurations_of(fitted, options.threshold)
    overhead, errors = {}, []
    for length in LENGTHS:
        chunk = chunk_of(view, length, options.tokens, configurations)
        found = ratios(partial(plain, model, chunk[2]), partial(probed, view, chunk), options.rounds)
        whole = copy.copy(view)
        whole.run_factored = partial(view.run_factored, whole=True)  # type: ignore[method-assign]
        to_the_end = ratios(partial(plain, model, chunk[2]), partial(probed, whole, chunk), options.rounds)
        errors.append(largest_error(view, length, configurations))
        overhead[str(length)] = quartiles(found)
        print(f"L = {length}: {len(chunk[0])} windows in {len(chunk[2])} batches of {BATCH_TOKENS} tokens")
        print(f"  tokens that bear a topic, by threshold: {topical_share(chunk)}")
        print(f"  probe / plain forward: {overhead[str(length)]}, to reach {REACH[str(length)]}")
        print(f"  to the end of the model: {quartiles(to_the_end)}")
        print(f"  largest relative error against the pair-by-pair twin: {errors[-1]:.2g}, to reach 1e-4")
    peak = memory(fitted)
    print(f"read by: {[way for way, passes in view.paths.items() if passes]}")
    print(f"peak over idle, L = {LENGTHS[-1]}: {peak['plain']:.0f} MB plain, {peak['probe']:.0f} MB probe")
    if options.json:
        medians = {length: found["median"] for length, found in overhead.items()}
        print(json.dumps({"overhead": medians, "memory": round(peak["ratio"], 4), "max_relative_error": max(errors)}))


if __name__ == "__main__":
    main()
