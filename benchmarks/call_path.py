"""How much of topicscope two small commands run through: functions that are entered, and the modules that hold them.

    python benchmarks/call_path.py [--json] [--list probe|train]

probe: a BERT of two layers, ten documents and labelled words, without random controls, shuffled topics and profiles of
heads: the smallest probe that writes a whole result with its page. train: two
seeds of recipes/theorem-2.toml for two steps. Each runs in a process of its own under `sys.setprofile`; bodies of
modules and classes are not counted, nor are lambdas and comprehensions, which belong to the function that has them.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SMALLEST = ("--controls", "0", "--permutations", "0", "--profile", "0")
WORDS = {
    "water": ("river", "sea", "ship", "fish"),
    "war": ("king", "army", "battle", "sword"),
    "art": ("music", "song", "piano", "actor"),
}


def write_inputs(folder: Path) -> list[str]:
    """A model, a text and a word list; returns what the command line needs of them."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = [word for of in WORDS.values() for word in of]
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", model_max_length=64, **special)
    fast.save_pretrained(folder / "model")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder / "model")
    (folder / "words.csv").write_text(
        "word,topic\n" + "".join(f"{word},{topic}\n" for topic, of in WORDS.items() for word in of)
    )
    lines = [" ".join(words[(start + step * 5) % len(words)] for step in range(8)) + "." for start in range(10)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    return [str(folder / "model"), "--corpus", str(folder / "text.txt"), "--topics", str(folder / "words.csv")]


def commands(folder: Path) -> dict[str, list[str]]:
    quiet = ["--progress", "none"]
    recipe = ["train", str(ROOT / "recipes" / "theorem-2.toml"), "--seeds", "2", "--set", "training.steps=2"]
    return {
        "probe": ["probe", *write_inputs(folder), *SMALLEST, "--out", str(folder / "probe"), *quiet],
        "train": [*recipe, "--out", str(folder / "train"), *quiet],
    }


def entered(arguments: list[str]) -> set[tuple[str, str]]:
    """(module, function) of ours that a command of topicscope enters."""
    import topicscope
    from topicscope.cli import run

    source = str(Path(topicscope.__file__).parent)
    found = set[tuple[str, str]]()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(source) and code.co_filename.endswith(".py")  # templates are no functions
        if event != "call" or not ours or code.co_name.startswith("<"):
            return
        if code.co_flags & 1:  # CO_OPTIMIZED, which bodies of classes lack
            found.add((code.co_filename.removeprefix(source), code.co_qualname))

    sys.setprofile(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            code = run(arguments)
    finally:
        sys.setprofile(None)
    if code:
        raise SystemExit(f"{arguments} ended with {code}")
    return found


def measure() -> dict[str, list[tuple[str, str]]]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in commands(Path(folder)).items():
            done = subprocess.run(
                [sys.executable, __file__, "--run", json.dumps(arguments)],
                env=os.environ | {"TOPICSCOPE_CACHE": f"{folder}/cache"},  # nothing from an earlier run
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            found[name] = [tuple(pair) for pair in json.loads(done.stdout)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", choices=("probe", "train"))
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(sorted(entered(json.loads(options.run)))))
        return
    found = measure()
    if options.list:
        for module, function in found[options.list]:
            print(module.lstrip("/"), function)
        return
    counts = {
        name: {"modules": len({module for module, _ in pairs}), "functions": len(pairs)}
        for name, pairs in found.items()
    }
    if options.json:
        print(json.dumps(counts))
        return
    for name, count in counts.items():
        print(f"{name}: {count['functions']} functions in {count['modules']} modules")


if __name__ == "__main__":
    main()
