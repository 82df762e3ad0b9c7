"""The numbers that a recipe's comments print are those that it gives: read there, measured here at full length."""

import pytest

from lab.laboratory import RECIPES, run

ATTENTION = ("attention_same_word", "attention_same_topic", "attention_different_topic")
# Recipe, seeds, measurement -> number as printed, relative tolerance.
PRINTED = [
    ("attention-block", 4, dict(zip(ATTENTION, (".0064", ".0137", ".0011"), strict=True)), 0.1),
    ("attention-theorem-2", 4, dict(zip(ATTENTION, (".0067", ".0137", ".0011"), strict=True)), 0.15),
    ("attention-diagonal", 4, {"attention_same_word": ".110"}, 0.02),
    ("attention-start", 4, dict(zip(ATTENTION, (".0095", ".0093", ".0031"), strict=True)), 0.05),
    ("attention-start", 4, {"attention_special": "15 %"}, 0.1),
    ("embeddings-cross-entropy", 4, {"E_same": "5.81", "E_different": "-.60", "E_diagonal": "6.00"}, 0.05),
    ("bert-layer", 1, {"E_same": ".211", "E_different": "-.026"}, 0.15),
    ("bert-layer", 1, {"attention_same_topic": ".0076", "attention_different_topic": ".0081"}, 0.15),
]


@pytest.mark.parametrize(("name", "numbers"), [(name, numbers) for name, _, numbers, _ in PRINTED])
def test_the_comment_prints_them(name, numbers) -> None:
    text = (RECIPES / f"{name}.toml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert [number for number in numbers.values() if number not in comment] == []


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({name for name, *_ in PRINTED}))
def test_training_gives_them(name) -> None:
    rows = [row for row in PRINTED if row[0] == name]
    record = run(name, seeds=rows[0][1])
    for _, _, numbers, tolerance in rows:
        for measurement, number in numbers.items():
            value = float(number.removesuffix(" %")) / (100 if number.endswith("%") else 1)
            assert record.final[measurement].mean() == pytest.approx(value, rel=tolerance), measurement
