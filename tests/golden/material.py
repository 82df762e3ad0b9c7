"""What the golden runs read: tiny models, generated texts, topics that need no sampler. The same bytes everywhere."""

import json
import random
from pathlib import Path

import numpy as np

from golden import adapter

THEMES = {
    "water": ["river", "bridge", "sea", "ship", "sails", "ice", "snow", "fish", "glacier", "lagoon"],
    "war": ["king", "queen", "castle", "war", "army", "battle", "sword", "city", "fortress", "knights"],
    "art": ["music", "song", "piano", "violin", "concert", "theatre", "actor", "film", "orchestra", "ballet"],
}
OTHERS = ["the", "of", "in", "and", "old", "under", "to", "with"]
WORDS = [word for words in THEMES.values() for word in words]
CORPUS, LONG_CORPUS, WORD_LIST, TOPICS = "texts.jsonl", "long.jsonl", "words.csv", "topics.npz"


def write_material(folder: Path) -> None:
    """The texts, the word list and the topics file."""
    _write_texts(folder / CORPUS, 32)
    _write_texts(folder / LONG_CORPUS, 260)
    rows = [f"{word},{theme}" for theme, words in THEMES.items() for word in words]
    (folder / WORD_LIST).write_text("\n".join(["word,topic", *rows]) + "\n", encoding="utf-8")
    write_topics(folder / TOPICS)


def write_topics(path: Path, schema_version: int = 1) -> None:
    """A topics file with known probabilities: each theme, a fall within it, and some words that two themes share."""
    phi = np.full((len(THEMES), len(WORDS)), 0.02)
    for t, words in enumerate(THEMES.values()):
        for rank, word in enumerate(words):
            phi[t, WORDS.index(word)] = 1.0 / (1 + 0.3 * rank)
        phi[t, WORDS.index(list(THEMES.values())[(t + 1) % 3][4])] = 0.5
    np.savez(
        path,
        schema_version=np.array(schema_version),
        phi=phi / phi.sum(axis=1, keepdims=True),
        alpha=np.array([0.2, 0.3, 0.4]),
        words=np.array(WORDS),
        labels=np.array(list(THEMES)),
        provenance=np.array(json.dumps({"engine": "golden"})),
    )


def texts(number: int, seed: int = 0) -> list[str]:
    """Documents of two themes: two passages of a few sentences, with words that fall into pieces."""
    draw = random.Random(seed)
    found = []
    for _ in range(number):
        pool = [word for theme in draw.sample(sorted(THEMES), 2) for word in THEMES[theme]] + OTHERS
        passages = []
        for _ in range(2):
            sentences = [
                " ".join(draw.choice(pool) for _ in range(draw.randint(6, 12))) for _ in range(draw.randint(2, 3))
            ]
            passages.append(" ".join(sentence.capitalize() + "." for sentence in sentences))
        found.append("\n\n".join(passages))
    return found


def _write_texts(path: Path, number: int) -> None:
    lines = [json.dumps({"id": f"doc{i}", "text": text}) for i, text in enumerate(texts(number))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def save_model(folder: Path, family: str = "bert", *, seed: int = 0) -> Path:
    """A random model of a family with its tokenizer, as transformers saves them; kept if it is there."""
    if not folder.exists():
        model, tokenizer = adapter.find("tiny models")(family, seed=seed)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
