"""Golden probes: every tiny family, the options that change numbers, MiniLM on 200 sentences."""

import json
from pathlib import Path
from typing import Any

import topicscope
from golden import adapter
from golden.material import CORPUS, LONG_CORPUS, TOPICS, WORD_LIST, save_model
from golden.recording import Recorder, succeed

_QUICK = ("--controls", 1, "--permutations", 40, "--profile", 6, "--progress", "none")
_FIXED = ("--topics", TOPICS, "--threshold", 0.2, 0.35)
_PYTHON: dict[str, Any] = {
    "topics": TOPICS,
    "threshold": (0.2, 0.35),
    "controls": 1,
    "permutations": 40,
    "profile": 6,
}
# Each family once, and units and pieces so that every two choices of the three meet somewhere.
_CASES = (
    "bert sentence skip", "bert sentence merge", "bert passage skip", "bert passage merge",
    "roberta sentence skip", "roberta passage merge", "albert sentence merge", "albert passage skip",
    "electra passage skip", "distilbert sentence merge", "mpnet passage merge", "bart sentence skip",
    "gpt2 sentence merge", "gpt2 passage skip", "llama passage merge", "deberta-v2 sentence skip",
    "gpt_neox passage skip", "mistral sentence merge", "qwen2 passage skip", "qwen3 sentence skip",
    "camembert passage merge", "xlm-roberta sentence merge", "modernbert sentence skip", "t5 passage skip",
    "mt5 sentence merge", "gemma passage merge", "gemma2 sentence skip", "gemma3_text passage skip",
    "gpt_oss sentence merge",
)  # fmt: skip
_MORE: dict[str, tuple[str, tuple[object, ...]]] = {
    "layers-heads": ("bert", (*_FIXED, "--layers", 1, "--heads", 0, 2)),
    "exclude-sinks": ("gpt2", (*_FIXED, "--exclude-sinks")),
    "contextual": ("bert", (*_FIXED, "--contextual", "--overlap", "keep")),
    "contextual-causal": ("llama", (*_FIXED, "--contextual", "--batch-size", 3)),
    "word-list": ("distilbert", ("--topics", WORD_LIST, "--controls", 2)),
    "sample": ("roberta", (*_FIXED, "--max-units", 40, "--seed", 3, "--shard-units", 16, "--batch-tokens", 300)),
    "no-permutations": ("electra", (*_FIXED, "--permutations", 0, "--controls", 0, "--profile", 0)),
}


def probe_command(folder: Path, family: str, *options: object, corpus: str = CORPUS) -> str:
    """`topicscope probe` of a tiny model; later options win over the quick ones."""
    model = save_model(Path(f"tiny-{family}"), family)
    chosen = merged("--corpus", corpus, "--id-column", "id", *_QUICK, *options, "--out", folder)
    return succeed("probe", model, *chosen, "--json")


def merged(*options: object) -> list[object]:
    """Each option once, the last of its name, since the command line refuses repetitions."""
    found: dict[str, list[object]] = {}
    for word in options:
        if isinstance(word, str) and word.startswith("--"):
            found[word], last = [], word
        else:
            found[last].append(word)
    return [word for name, values in found.items() for word in (name, *values)]


def record_probes(recorder: Recorder) -> None:
    """Families, units and pieces; the other options; a run that is stopped and resumed."""
    _record_case(recorder, _CASES[0])  # with its pictures and page
    with adapter.undrawn():
        for case in _CASES[1:]:
            _record_case(recorder, case)
        _record_options(recorder)
        _record_interrupted(recorder)
        _record_readers(recorder)


def _record_case(recorder: Recorder, case: str) -> None:
    """From Python: a saved tokenizer of some families comes back as the one of their real models."""
    family, unit, pieces = case.split()
    name = f"{family}-{unit}-{pieces}"
    model, tokenizer = adapter.find("tiny models")(family)
    options = _PYTHON | {"documents": CORPUS, "unit": unit, "pieces": pieces}
    topicscope.probe(model, tokenizer, out=Path("probe") / name, **options)
    recorder.put_folder(name, Path("probe") / name)


def _record_options(recorder: Recorder) -> None:
    for name, (family, options) in _MORE.items():
        probe_command(Path("probe") / name, family, *options)
        recorder.put_folder(name, Path("probe") / name)


class _Stopped:
    """Ctrl-C when so many units of the first pass are read."""

    def __init__(self, units: int) -> None:
        self.units, self.counted = units, ""

    def start(self, task: str, total: float | None, unit: str) -> None:
        if unit == "units" and not self.counted:
            self.counted = task

    def update(self, task: str, done: float) -> None:
        if task == self.counted and done >= self.units:
            raise KeyboardInterrupt

    def finish(self, task: str) -> None:
        pass


def _record_interrupted(recorder: Recorder) -> None:
    """Stopped in the third chunk of 256 units, and resumed: the very numbers of the unbroken run."""
    model, options = save_model(Path("tiny-bert")), _PYTHON | {"documents": LONG_CORPUS}
    out = Path("probe") / "resumed"
    stopped = topicscope.probe(str(model), out=out, progress=_Stopped(600), **options)
    assert stopped.interrupted, "the run was to be stopped"
    recorder.put_folder("interrupted", out)
    topicscope.probe(str(model), out=out, resume=True, **options)
    recorder.put_folder("resumed", out)
    topicscope.probe(str(model), out=Path("probe") / "unbroken", **options)
    recorder.put_folder("unbroken", Path("probe") / "unbroken")


def _record_readers(recorder: Recorder) -> None:
    """What reads finished probes: `compare`, `circuits`, and the Python side."""
    runs = [Path("probe") / name for name in ("bert-sentence-skip", "bert-sentence-merge", "gpt2-sentence-merge")]
    recorder.put("compare.json", json.loads(succeed("compare", *runs, "--json")))
    recorder.put("report.json", json.loads(succeed("report", runs[0], "--json")))
    for family in ("bert", "gpt2", "bart", "llama", "t5"):
        folder = Path("circuits") / family
        succeed("circuits", save_model(Path(f"tiny-{family}"), family), *_FIXED, "--out", folder)
        recorder.put_folder(f"circuits/{family}", folder)
    loaded = topicscope.ProbeResult.load(runs[0])
    recorder.put_columns("python/table", loaded.table())
    recorder.put_columns("python/heads", loaded.heads())


def record_fitted(recorder: Recorder) -> None:
    """Topics fitted on the spot: the sampler's numbers are only the same on one kind of processor."""
    fit = ("--sweeps", 15, "--min-count", 1, "--threshold", 0.2)
    with adapter.undrawn():
        probe_command(Path("fitted") / "topic-seeds", "bert", "--topics", 3, "--topic-seeds", 3, *fit)
    recorder.put_folder("topic-seeds", Path("fitted") / "topic-seeds")
    for engine in ("tomotopy", "gensim"):
        path = Path("fitted") / f"{engine}.npz"
        printed = succeed(
            "topics", "fit", CORPUS, "--topics", 3, "--engine", engine, "--sweeps", 10, "--min-count", 1,
            "-o", path, "--json", "--progress", "none",
        )  # fmt: skip
        recorder.put(f"topics-fit/{engine}", json.loads(printed))
    for name in (TOPICS, WORD_LIST):
        recorder.put(f"topics-show/{name}", json.loads(succeed("topics", "show", name, "--words", 3, "--json")))


def record_minilm(recorder: Recorder) -> None:
    """The model of the demo on real sentences; topics from the sampler, as in the demo."""
    folder = Path("minilm")
    with adapter.undrawn():
        succeed(
            "probe", "minilm", "--max-units", 200, "--topics", 20, "--sweeps", 5, "--threshold", 0.002, 0.004,
            "--controls", 1, "--permutations", 40, "--profile", 8, "--progress", "none", "--out", folder, "--json",
        )  # fmt: skip
    recorder.put_folder("minilm", folder)
