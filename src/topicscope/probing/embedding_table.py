"""Embedding similarities of a model at its two places, for every configuration of the probe."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from topicscope.probing.alignment import word_token_ids
from topicscope.probing.embeddings import embedding_similarity
from topicscope.probing.lookup import Configuration
from topicscope.probing.model import ModelView

KINDS: tuple[Literal["cosine", "dot"], ...] = ("cosine", "dot")


def embedding_rows(view: ModelView, configurations: Sequence[Configuration]) -> pd.DataFrame:
    """One row per configuration, place and kind.

    place "raw": rows of the input embedding matrix; "layer": output of the embedding layer with every word at one
    fixed position. Only words that are one token of the model have a vector; the others are counted.
    """
    words = list(dict.fromkeys(word for c in configurations for word in c.assignment.words))
    tokens = word_token_ids(view.tokenizer, words)
    found = tokens.found
    known = [word for word in words if word in found]
    if not known:
        return pd.DataFrame()
    ids = torch.tensor([found[word].token_id for word in known])
    places = {
        "raw": view.embedding_matrix()[ids],
        "layer": view.embedding_output(ids),
    }
    rows: list[dict[str, Any]] = []
    for place, tensor in places.items():
        vectors = tensor.detach().double().cpu().numpy()
        for configuration in configurations:
            membership = configuration.assignment.membership(known)
            used = np.asarray(membership.any(1))
            spaced = sum(found[word].form == "spaced" for word, keep in zip(known, used.tolist(), strict=True) if keep)
            for kind in KINDS:
                similarity = embedding_similarity(vectors, membership, kind=kind)
                rows.append(
                    {
                        "topic_seed": configuration.topic_seed,
                        "threshold": math.nan if configuration.threshold is None else configuration.threshold,
                        "place": place,
                        "words_without_token": int(len(configuration.assignment.words) - np.count_nonzero(used)),
                        "words_spaced_form": spaced,
                        **asdict(similarity),
                    }
                )
    return pd.DataFrame(rows)
