"""One figure a claim, drawn from a folder of `topicscope reproduce` alone; nothing is trained or computed anew.

A claim with a figure of its own has an entry in `FIGURES`; any other claim gets the forest of its rows.
"""

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from topicscope.report import claims_attention, claims_effects, claims_matrices, claims_shares
from topicscope.report.forest import forest_figure
from topicscope.report.reproduction_record import ReproductionRecord

Drawing = Callable[[ReproductionRecord, str], Figure | None]
"""(record, claim id) -> a figure, or None where the folder lacks what it would show."""

FIGURES: Mapping[str, Drawing] = {
    "theory-holds": claims_shares.settings_figure,
    "value-block": claims_matrices.value_figure,
    "embedding-block": claims_matrices.gram_figure,
    "two-stage": claims_attention.stages_figure,
    "attention-block": claims_attention.classes_figure,
    "attention-diagonal": claims_attention.classes_figure,
    "landscape": claims_matrices.landscape_figure,
    "joint-training": claims_effects.log_ratio_figure,
    "pretrained-table": claims_effects.models_figure,
    "ambiguous-words": claims_effects.ambiguous_figure,
    "co-occurrence": claims_effects.coefficients_figure,
    "topicwise-assumption": claims_effects.variance_figure,
}


def claim_figure(record: ReproductionRecord, claim: str) -> Figure:
    """The figure of a finished claim."""
    drawing = FIGURES.get(claim)
    figure = None if drawing is None else drawing(record, claim)
    if figure is not None:
        return figure
    about = record.about(claim)
    return forest_figure(record.claims[claim]["rows"], title=about.get("title", claim))


def figure_text(record: ReproductionRecord, claim: str) -> str:
    """What the figure shows, for those who cannot see it; its numbers stand in the claim's table."""
    return TEXTS.get(claim, _FOREST)


_FOREST = (
    "Every row of the table as a point with its 95% CI; a diamond is theory, a star the paper, a cross a value "
    "whose criterion is not met."
)
_CLASSES = (
    "Mean attention by class of word pair at the end, with 95% CIs, beside the paper's numbers; below, along training."
)
TEXTS: Mapping[str, str] = {
    "theory-holds": "For each theorem the share of random settings in which it holds, inside and outside its "
    "assumptions; the line below a dot reaches to the lower 97.5 % limit of the share.",
    "value-block": "Heat maps of the trained value matrix of the first seed, topics between the ticks: orange "
    "positive, purple negative. Below: deviation of the entry means from theory with 95% CIs.",
    "embedding-block": "Heat maps of the embeddings' Gram matrix of the first seed in units of its mean diagonal "
    "entry, by loss, optimiser and learning rate. Blocks along the diagonal are topics.",
    "two-stage": "Norms of the value, key and query matrices over steps, both axes logarithmic; the band spans the "
    "seeds. Vertical lines: end of stage one (dotted) and begin of stage two (dashed), means over seeds.",
    "attention-block": _CLASSES,
    "attention-diagonal": _CLASSES,
    "pretrained-table": "For each model and threshold the ratios of attention and of embedding cosines, and the "
    "difference of cosines, with 95% CIs; grey: random weights; star: the paper. Models that were not run have "
    "the star alone.",
    "topicwise-assumption": "Bars: the share of attention's variance within queries that the classes of word pairs "
    "explain, for each model and step, with 95% CIs, beside shuffled classes.",
    "landscape": "Contours of the loss over the attention weights α (same topic) and β (same word), dark is low; the "
    "star is the exact optimum, the dashed line the ridge of equal average weight inside a topic.",
}
