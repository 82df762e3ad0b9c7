"""Write docs/gallery.md and its pictures: every figure there is, drawn by the code that the page shows.

    python docs/gallery.py demo          a folder that `topicscope demo` wrote

The runs are trained here, half a minute in all. Pictures are those of real results, never drawn by hand.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from topicscope.cli import run as command_line
from topicscope.report import save

DOCS = Path(__file__).resolve().parent
PAGE, PICTURES = DOCS / "gallery.md", DOCS / "images" / "gallery"
RUNS: Mapping[str, str] = {
    "stages": "two-stages-population",
    "embeddings": "embeddings",
    "attention": "attention-squared-block",
}


@dataclass(frozen=True)
class Entry:
    """One figure: its name, what it shows, whose plot it is, and what is given to `plot`."""

    name: str
    words: str
    source: str
    call: str

    @property
    def code(self) -> str:
        """The three lines that draw it."""
        name = "result" if self.source == "probe" else "run"
        lines = [f'{name} = topicscope.load("results/{self.source}")', f"figure = {name}.plot({self.call})"]
        return "\n".join([*lines, f'save(figure, "{self.name}.pdf")'])


PROBE = (
    Entry("heads", "The attention ratio of every head; brackets: the difference could be chance.", "probe", '"heads"'),
    Entry("ratios", "Ratios by threshold with 95 % intervals, random weights and the paper.", "probe",
          '"ratios", columns="double"'),
    Entry("controls", "Every ratio beside every random initialisation of the same model.", "probe",
          '"controls", columns="double"'),
    Entry("embedding-blocks", "How similar the embeddings are, words in the order of topics.", "probe",
          '"embeddings", columns="single"'),
    Entry("similarities", "The same similarities as a histogram, same topic beside different topics.", "probe",
          '"similarities", columns="single"'),
    Entry("distances", "Mean attention by the distance between two words.", "probe", '"distances", columns="double"'),
    Entry("profile", "What one head attends to, beside all heads; the best head unless layer and head are given.",
          "probe", '"profile", columns="double"'),
    Entry("circuits", "What every head writes for a word (OV), for words of one topic and others, as z.", "probe",
          '"circuits", circuit="OV", columns="double"'),
    Entry("coverage", "From documents to word pairs: what was read and what was found.", "probe",
          '"coverage", columns="double"'),
)  # fmt: skip
TRAINING = (
    Entry("norms", "Norms along training, with the detected stages.", "stages", '"norms"'),
    Entry("stages", "How the stages were told apart: k₁ where W_V has covered 0.9 of its way, k₂ where attention has "
          "moved by 0.1.", "stages", '"stages"'),
    Entry("losses", "The loss along training, in one column.", "stages", '"losses", columns="single"'),
    Entry("values", "The value matrix at three moments, topics in brackets.", "stages", '"values"'),
    Entry("gram", "Inner products of trained embeddings at three moments.", "embeddings", '"gram"'),
    Entry("attention", "Attention by class of word pair, theory's best weights beside it.", "attention", '"attention"'),
    Entry("logits", "Attention logits from word to word at the end.", "attention", '"logits", columns="single"'),
)  # fmt: skip

HEAD = """# Gallery

Every figure that a result or a training run can draw. `plot` gives a matplotlib figure, `plot_data` the numbers that
it shows. `columns="single"` and `columns="double"` make it as wide as one or two columns of a paper (3.25 and 6.75
inches), with letters to fit; `save` writes PNG, PDF or SVG by the name's ending, fonts embedded. Colours can be told
apart with every common colour blindness, and no line or mark differs in colour alone.

<!-- run smaller: --topics 3 --threshold 0.1 --min-count 1 --sweeps 20 --controls 2 --permutations 50 -->
```sh
topicscope probe bert-base-uncased --corpus articles.jsonl --out results/probe
```

<!-- run smaller: --set training.steps=20 --set history.documents=20 -->
```sh
{runs}
```

```python
import topicscope
from topicscope.report import save
```

The pictures of a probe below are those of `make demo`: MiniLM on a sample of Wikipedia. `make gallery` draws all of
them again.
"""
TAIL = """
## The paper's claims

`topicscope reproduce` draws a figure for each claim into its folder; those of a full run are on
[the page of the claims](reproduction.md).
"""


def trainings() -> list[str]:
    """The commands that make the runs."""
    return [f"topicscope train recipes/{recipe}.toml --seeds 2 --out results/{name}" for name, recipe in RUNS.items()]


def render() -> str:
    """The page."""
    parts = [HEAD.format(runs="\n".join(trainings()))]
    for title, entries in (("A probe", PROBE), ("A training run", TRAINING)):
        parts.append(f"\n## {title}\n")
        for entry in entries:
            picture = f"![{entry.words}](images/gallery/{entry.name}.png)"
            parts.append(f"\n{entry.words}\n\n```python\n{entry.code}\n```\n\n{picture}\n")
    return "".join([*parts, TAIL])


def draw(folder: Path, *, dpi: int = 130) -> None:
    """Every picture, by the page's own code, in a folder with results/."""
    names: dict[str, object] = {}
    exec("import topicscope\nfrom topicscope.report import save", names)
    with inside(folder):
        for entry in (*PROBE, *TRAINING):
            exec(entry.code, names)
            save(names["figure"], PICTURES / f"{entry.name}.png", dpi=dpi)  # type: ignore[arg-type]


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main(probe: Path) -> None:
    """Train the runs, draw, and write the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "results").mkdir()
        (folder / "results" / "probe").symlink_to(probe.resolve())
        (folder / "recipes").symlink_to(DOCS.parent / "recipes")
        with inside(folder):
            for command in trainings():
                assert command_line(command.split()[1:]) == 0
        draw(folder)
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
