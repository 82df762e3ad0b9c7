"""What the page of a training run says beside its charts and tables."""

from collections.abc import Mapping

NORMS = (
    "Frobenius norm of every trained matrix over steps, both axes logarithmic, step 0 at the left; means over seeds. "
    "Vertical lines, where stages were found: the value matrix has settled (dotted), attention begins to move (dashed)."
)
LOSSES = "Loss over steps, means over seeds: on documents that no step has seen, and of the batches themselves."
ATTENTION = (
    "How much more a word attends to its own word and to words of its topic than to words of other topics; 1 is "
    "uniform attention. Lines of theory, where it speaks of this run, are the best topic-wise weights."
)
_SLIDER = (
    "The slider moves along the steps; colours are those of the last one. Brackets are topics; [MASK] comes first."
)
MATRICES: Mapping[str, tuple[str, str]] = {
    "W_V": (
        "The value matrix W_V",
        "Row: the word it speaks for, column: the word it sees; orange speaks for a word, purple against it. With "
        f"trained embeddings it is shown as what it does from word to word. First seed. {_SLIDER}",
    ),
    "E": ("Similarity of embeddings", f"Inner products of the words' embeddings, W_Eᵀ W_E, first seed. {_SLIDER}"),
    "logits": (
        "Attention logits",
        f"Column: the word that looks, row: the word looked at; orange draws attention. First seed. {_SLIDER}",
    ),
}
NOTES = {
    "value_matrix": "Mask column: what [MASK] says for a word; diagonal: what a word says for itself.",
    "attention": "Theory: the best weights that depend on topics alone. Free attention may do as well with others, as "
    "the loss is flat along a ridge: a smaller weight of the same word is made up for by the topic's other words.",
}
