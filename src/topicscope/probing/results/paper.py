"""The paper's natural-language table (Knowl 7: Li, Li & Risteski 2023, T = 100 topics, Wikipedia), beside ours.

These are published figures, never measurements of topicscope. The paper does not say whether its embeddings are the raw
matrix or the embedding layer's output; its random model's ratios so near 1 fit the layer's output, so they stand there.
"""

from typing import Any

_THRESHOLDS = (0.0005, 0.001, 0.002)
# model: cosine S/D, dot product S/D, attention S/D, each at the three ambiguity thresholds
_TABLE = {
    "BERT": ((1.21, 1.13, 1.11), (1.19, 1.15, 1.13), (1.32, 1.28, 1.22)),
    "ALBERT": ((5.64, 4.18, 3.24), (6.29, 3.74, 2.93), (1.33, 1.28, 1.22)),
    "BART": ((2.80, 1.95, 1.63), (2.67, 1.92, 1.62), (1.35, 1.31, 1.23)),
    "ELECTRA": ((5.98, 7.70, 7.46), (5.37, 7.35, 8.08), (2.14, 2.09, 1.95)),
    "RoBERTa": ((6.44, 5.73, 5.24), (6.81, 6.31, 5.30), (1.40, 1.31, 1.22)),
    "BERT (random)": ((1.00080, 0.99974, 1.00016), (1.00063, 1.00036, 1.00027), (0.99943, 0.99996, 1.00007)),
}


def paper_rows() -> list[dict[str, Any]]:
    """Rows of `ProbeResult.table()` with source "paper"; columns the paper does not report are absent."""
    return [
        {
            "source": "paper",
            "model": model,
            "part": "encoder",
            "threshold": threshold,
            "attention_ratio": attention[i],
            "embedding_cosine_layer_ratio": cosine[i],
            "embedding_dot_layer_ratio": dot[i],
        }
        for model, (cosine, dot, attention) in _TABLE.items()
        for i, threshold in enumerate(_THRESHOLDS)
    ]
