"""Contexts in which a claim must not be confirmed."""

from dataclasses import replace

import numpy as np

from topicscope.claims.claim import Context


def answers(claim, rows):
    """Criterion -> whether all of its rows that were measured meet it."""
    met = {}
    for row in rows:
        for criterion in claim.criteria:
            if row["criterion"] == criterion.id and row["measured"] is not None:
                met[criterion.id] = bool(met.get(criterion.id, True) and criterion.met(row))
    return met


class Untrained(Context):
    """Every run stops after one step that is too small to change anything."""

    def train(self, name, *overrides, seeds=None):
        lazy = ("training.steps=1", "training.learning_rate=1e-12", "training.schedule=constant")
        return super().train(name, *overrides, *lazy, seeds=seeds)


class Shuffled(Context):
    """Words change their topics between training and measuring: word 1, 11, 21, … now make up topic 1."""

    def train(self, name, *overrides, seeds=None):
        record = super().train(name, *overrides, seeds=seeds)
        T, v = record.config["data"]["num_topics"], record.config["data"]["words_per_topic"]
        order = np.append(0, 1 + np.arange(T * v).reshape(T, v).T.ravel())
        weights = dict(record.weights)
        if "W_V" in weights and weights["W_V"].shape[-1] == len(order):
            weights["W_V"] = weights["W_V"][:, order][:, :, order]
        if "W_E" in weights:
            weights["W_E"] = weights["W_E"][:, :, order]
        return replace(record, weights=weights)
