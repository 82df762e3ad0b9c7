"""docs/gallery.md is what its maker makes, and shows every kind of figure; its blocks run with those of other pages."""

from pathlib import Path

from PIL import Image

from scripts import load_script
from topicscope.probing.results.result import KINDS as PROBE_KINDS
from topicscope.report.training_figures import KINDS as RUN_KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"


maker = load_script("docs/gallery.py")


def test_the_page_is_what_the_maker_makes() -> None:
    assert maker.PAGE.read_text(encoding="utf-8") == maker.render()


def test_every_kind_of_figure_is_shown() -> None:
    for entries, kinds in ((maker.PROBE, PROBE_KINDS), (maker.TRAINING, RUN_KINDS)):
        assert {entry.call.partition(",")[0].strip('"') for entry in entries} == set(kinds)


def test_every_picture_is_there_small_and_not_empty() -> None:
    names = {f"{entry.name}.png" for entry in (*maker.PROBE, *maker.TRAINING)}
    assert {path.name for path in maker.PICTURES.iterdir()} == names
    for name in names:
        path = maker.PICTURES / name
        assert path.stat().st_size < 300_000
        with Image.open(path) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10
