"""Command lines that must fail, and the bad files they name."""

import gzip
from pathlib import Path

import numpy as np

from golden.material import CORPUS, TOPICS, WORD_LIST, save_model, write_topics

MODEL = "tiny-bert"
_BASE = ("probe", MODEL, "--progress", "none")
_RUN = (*_BASE, "--out", "out")
_READ = (*_RUN, "--topics", WORD_LIST, "--corpus")
_WITH = (*_RUN, "--corpus", CORPUS)
_FULL = (*_BASE, "--topics", WORD_LIST, "--corpus", CORPUS, "--out", "full")
_FIT = ("topics", "fit", "--progress", "none", "-o", "out/topics.npz")
_SETTING = ("--topics", 5, "--words-per-topic", 4, "--topics-per-document", 2)

CASES: dict[str, tuple[object, ...]] = {
    "an unknown command": ("prob",),
    "an unknown option": ("probe", MODEL, "--thresold", 1),
    "an option without its value": ("probe", MODEL, "--seed"),
    "not a whole number": ("probe", MODEL, "--seed", 2.5),
    "not one of the choices": ("probe", MODEL, "--unit", "word"),
    "probe: no model": ("probe",),
    "probe: a model and checkpoints": ("probe", MODEL, "--checkpoints", "checkpoints"),
    "probe: no such model": ("probe", "nobody/nothing", "--corpus", CORPUS, "--topics", WORD_LIST, "--out", "out"),
    "probe: a folder that is no model": ("probe", "empty", "--corpus", CORPUS, "--topics", WORD_LIST, "--out", "out"),
    "probe: no such corpus": (*_READ, "nowhere.txt"),
    "probe: an empty corpus": (*_READ, "empty.txt"),
    "probe: not UTF-8": (*_READ, "latin.txt"),
    "probe: an unknown kind of file": (*_READ, "paper.pdf"),
    "probe: a bad line of JSON": (*_READ, "bad.jsonl"),
    "probe: no column of text": (*_READ, "column.jsonl"),
    "probe: no such column": (*_READ, CORPUS, "--text-column", "body"),
    "probe: a cut archive": (*_READ, "cut.txt.gz"),
    "probe: not Parquet": (*_READ, "bad.parquet"),
    "probe: not a dump": (*_READ, "bad.xml"),
    "probe: an unknown encoding": (*_READ, CORPUS, "--encoding", "utf-99"),
    "probe: no word is known": (*_READ, "foreign.jsonl"),
    "probe: no pair of words": (*_READ, "pairless.jsonl"),
    "probe: threshold 0": (*_WITH, "--topics", TOPICS, "--threshold", 0),
    "probe: threshold above 1": (*_WITH, "--topics", TOPICS, "--threshold", 0.1, 1.5),
    "probe: a threshold twice": (*_WITH, "--topics", TOPICS, "--threshold", 0.1, 0.1),
    "probe: too many topics": (*_WITH, "--topics", 99, "--min-count", 1),
    "probe: no topics": (*_WITH, "--topics", 0),
    "probe: no such topics file": (*_WITH, "--topics", "nowhere.npz"),
    "probe: topics of another schema": (*_WITH, "--topics", "schema.npz"),
    "probe: topics that are no topics": (*_WITH, "--topics", "arrays.npz"),
    "probe: seeds of topics that are given": (*_WITH, "--topics", WORD_LIST, "--topic-seeds", 2),
    "probe: no units": (*_READ, CORPUS, "--max-units", 0),
    "probe: negative controls": (*_READ, CORPUS, "--controls", -1),
    "probe: no such layer": (*_READ, CORPUS, "--layers", 7),
    "probe: no such head": (*_READ, CORPUS, "--heads", 9),
    "probe: an unknown language": (*_WITH, "--topics", 3, "--language", "xx"),
    "probe: an unknown device": (*_READ, CORPUS, "--device", "abacus"),
    "probe: an unknown dtype": (*_READ, CORPUS, "--dtype", "float12"),
    "probe: a folder that is not empty": _FULL,
    "probe: resume a folder of something else": (*_FULL, "--resume"),
    "probe: workers without a cluster": (*_READ, CORPUS, "--workers", 2),
    "probe: no checkpoints": ("probe", "--checkpoints", "empty", "--corpus", CORPUS, "--topics", WORD_LIST),
    "probe: checkpoints and a revision": ("probe", "--checkpoints", "empty", "--revision", "main"),
    "compare: one result": ("compare", "empty"),
    "compare: no results": ("compare", "empty", "full"),
    "circuits: no topics": ("circuits", MODEL),
    "circuits: no such topics": ("circuits", MODEL, "--topics", "nowhere.csv"),
    "topics fit: no such text": (*_FIT, "nowhere.txt"),
    "topics fit: an unknown engine": (*_FIT, CORPUS, "--engine", "mallet"),
    "topics fit: stream without gensim": (*_FIT, CORPUS, "--stream"),
    "topics fit: a seed without a sample": (*_FIT, CORPUS, "--sample-seed", 3),
    "topics fit: the file exists": ("topics", "fit", CORPUS, "-o", TOPICS),
    "topics fit: the output is a folder": ("topics", "fit", CORPUS, "-o", "empty"),
    "topics show: no such file": ("topics", "show", "nowhere.npz"),
    "topics show: no words": ("topics", "show", TOPICS, "--words", 0),
    "theory: more active topics than topics": (
        "theory",
        "bayes",
        "--topics",
        2,
        "--words-per-topic",
        4,
        "--topics-per-document",
        3,
    ),
    "theory: an impossible rate": ("theory", "bayes", *_SETTING, "--p-mask", 1.5),
    "theory: rates above 1": ("theory", "value-matrix", *_SETTING, "--p-correct", 0.6, "--p-random", 0.6),
    "theory: an empty grid": ("theory", "landscape", *_SETTING, "--points", 1),
    "theory: dynamics of finite documents": ("theory", "dynamics", *_SETTING, "--document-length", 9),
    "theory: a missing option": ("theory", "bayes", "--topics", 2),
    "train: no such recipe": ("train", "nowhere.toml"),
    "train: not TOML": ("train", "bad.toml"),
    "train: an unknown field": ("train", "field.toml"),
    "train: an unknown key of --set": ("train", "good.toml", "--set", "training.speed=3", "--out", "out"),
    "train: not a change": ("train", "good.toml", "--set", "training.steps", "--out", "out"),
    "train: a value of another kind": ("train", "good.toml", "--set", "training.steps=many", "--out", "out"),
    "train: no seeds": ("train", "good.toml", "--seeds", 0, "--out", "out"),
    "train: resume without a folder": ("train", "good.toml", "--resume"),
    "train: seeds per task without a cluster": ("train", "good.toml", "--seeds-per-task", 2, "--out", "out"),
    "train: a folder that is not empty": ("train", "good.toml", "--out", "full"),
    "sweep: no such file": ("sweep", "nowhere.toml"),
    "sweep: no recipe": ("sweep", "good.toml", "--out", "out"),
    "sweep: an unknown setting": ("sweep", "sweep.toml", "--out", "out"),
    "reproduce: an unknown claim": ("reproduce", "value-blocks", "--out", "out"),
    "reproduce: one seed": ("reproduce", "value-block", "--seeds", 1, "--out", "out"),
    "reproduce: resume without a folder": ("reproduce", "--resume"),
    "report: no folder": ("report",),
    "report: no result": ("report", "empty"),
    "report: the page is a folder": ("report", "empty", "--out", "full"),
}

_GOOD = """
name = "good"
[data]
num_topics = 2
words_per_topic = 2
topics_per_document = 1
[model]
attention = "uniform"
[training]
loss = "squared"
steps = 3
"""


def prepare(folder: Path) -> None:
    """The bad files, in the folder where the command lines run."""
    save_model(folder / MODEL)
    (folder / "empty").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("mine")
    files = {
        "empty.txt": b"",
        "latin.txt": "river sea\ncaf\u00e9 queen\n".encode("latin-1"),
        "paper.pdf": b"%PDF",
        "bad.jsonl": b'{"text": "river"}\nriver sea\n',
        "column.jsonl": b'{"body": "river"}\n',
        "cut.txt.gz": gzip.compress(b"river sea\n" * 99, mtime=0)[:-9],
        "bad.parquet": b"river",
        "bad.xml": b"<html>river</html>",
        "foreign.jsonl": '{"text": "река мост море"}\n{"text": "война меч король"}\n'.encode(),
        "pairless.jsonl": b'{"text": "the old stone cafe"}\n{"text": "the old stone garden"}\n',
        "good.toml": _GOOD.encode(),
        "bad.toml": b"name = \n",
        "field.toml": _GOOD.replace("steps = 3", "step = 3").encode(),
        "sweep.toml": b'recipe = "good.toml"\n[grid]\n"training.speed" = [1, 2]\n',
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    write_topics(folder / "schema.npz", schema_version=99)
    np.savez(folder / "arrays.npz", schema_version=np.array(1), phi=np.full((2, 2), np.nan), alpha=np.ones(2))
