"""Folders of `topicscope reproduce` made up in a moment: small runs with known weights, rows with known numbers."""

import numpy as np
import pandas as pd

from topicscope.records import Environment, Manifest, RunRecord, write_json, write_npz

T, V = 3, 2
SEEDS = 2
ENVIRONMENT = Environment(
    python="3.11",
    platform="Linux",
    processor="none",
    cpu_count=2,
    libraries={"topicscope": "1", "torch": "2", "transformers": "5"},
)


def row(quantity, measured, criterion=None, **more):
    empty = {
        "paper": None,
        "theory": None,
        "error": 0.1,
        "seeds": SEEDS,
        "holds": None if None in (criterion, measured) else True,
    }
    return {"criterion": criterion, "quantity": quantity, "measured": measured} | empty | more


def weights(seed):
    """W_V and W_E of 1 + 6 tokens; every entry of W_V is another number."""
    size = 1 + T * V
    rng = np.random.default_rng(seed)
    return {"W_V": rng.normal(size=(SEEDS, size, size)), "W_E": rng.normal(size=(SEEDS, 4, size))}


def run(recipe, seed=0, loss="squared", optimizer="adam", rate=0.01, steps=200, source="fresh"):
    columns = [f"{name}_norm" for name in ("W_V", "W_K", "W_Q")]
    columns += [f"attention_{name}" for name in ("same_word", "same_topic", "different_topic")]
    history = pd.DataFrame(
        [
            {"seed": s, "step": step} | {name: 0.1 + number + step / 100 for number, name in enumerate(columns)}
            for s in range(SEEDS)
            for step in (0, 1, 10, 100, 200)
        ]
    )
    stages = [
        {"seed": s, "k1": 10, "k2": 100, "ratio": 10.0, "separated": True, "stage_two_reached": True}
        for s in range(SEEDS)
    ]
    return RunRecord(
        config={
            "name": recipe,
            "data": {"num_topics": T, "words_per_topic": V, "length": [100, 150], "source": source},
            "training": {"loss": loss, "optimizer": optimizer, "learning_rate": rate, "ridge": {}},
            "arrays": {},
        },
        manifest=Manifest(created="2026", environment=ENVIRONMENT, options={}, sources={}),
        history=history,
        weights=weights(seed),
        summary={"steps": steps, "stages": stages, "final": []},
    )


def make(folder, claims, *, runs=(), arrays=(), quick=True, unfinished=()):
    """claims: id -> (verdict, rows); runs: (claim, path, RunRecord); arrays: (claim, path, arrays, labels)."""
    evidence = {name: [] for name in claims}
    for claim, path, record in runs:
        record.write(folder / "runs" / path)
        entry = {"path": path, "recipe": record.config["name"], "overrides": [], "seeds": SEEDS}
        evidence[claim] += [entry, entry]  # a claim may ask for one run twice
    for claim, path, values, labels in arrays:
        write_npz(folder / "runs" / path, values)
        evidence[claim].append({"path": path} | labels)
    entries = []
    for name, (verdict, rows) in claims.items():
        entry = {"id": name, "verdict": verdict, "statistic": "1 of 1 comparisons hold", "rows": rows}
        entries.append(entry)
        finished = {"schema_version": 1, "key": "k", "claim": entry, "evidence": evidence[name], "seconds": 2.0}
        write_json(folder / "finished" / f"{name}.json", finished)
    write_json(folder / "claims.json", {"schema_version": 1, "kind": "reproduction", "claims": entries})
    sources = {name: about(name) for name in (*claims, *unfinished)}
    options = {"claims": list(sources), "quick": quick, "seeds": SEEDS}
    manifest = Manifest(
        created="2026-01-01T00:00:00+00:00",
        command="topicscope reproduce --quick",
        environment=ENVIRONMENT,
        options=options,
        sources=sources,
    )
    write_json(folder / "manifest.json", manifest.model_dump())
    return folder


def about(name):
    return {
        "title": f"Title of {name}",
        "where": "Theorem 9",
        "assertion": f"What {name} asserts.",
        "recipes": ["value-matrix"],
        "theory": ["value_matrix_blocks"],
        "verdict_rule": "confirmed: always",
        "criteria": [{"id": "c", "text": "asked", "decisive": True}],
    }
