"""Figures and pages drawn from records alone: plain dicts and tables in, figures and HTML out; no model is loaded."""

from typing import TYPE_CHECKING

from topicscope.lazy import load_on_use

if TYPE_CHECKING:
    from topicscope.report.comparison_page import write_comparison
    from topicscope.report.forest import forest_figure
    from topicscope.report.labels import EMBEDDING_COLUMNS, ratio_label
    from topicscope.report.probe_figures import (
        block_matrix,
        circuit_map,
        controls,
        coverage,
        distances,
        head_map,
        profile,
        ratio_figure,
        similarity_histogram,
    )
    from topicscope.report.probe_page import ProbeRecord, render_probe
    from topicscope.report.reproduction_page import render_reproduction, write_reproduction
    from topicscope.report.reproduction_record import load_reproduction
    from topicscope.report.series import emergence, render_series
    from topicscope.report.style import save, to_png
    from topicscope.report.sweep import draw_sweep, metric_words, render_sweep
    from topicscope.report.tables import Table, attention_table, embedding_table, paper_table
    from topicscope.report.theory_figures import curves_figure, landscape_figure, stages_figure
    from topicscope.report.training_figures import draw_run
    from topicscope.report.training_page import notebook, render_run

__all__ = [
    "EMBEDDING_COLUMNS",
    "ProbeRecord",
    "Table",
    "attention_table",
    "block_matrix",
    "circuit_map",
    "controls",
    "coverage",
    "curves_figure",
    "distances",
    "draw_run",
    "draw_sweep",
    "embedding_table",
    "emergence",
    "forest_figure",
    "head_map",
    "landscape_figure",
    "load_reproduction",
    "metric_words",
    "notebook",
    "paper_table",
    "profile",
    "ratio_figure",
    "ratio_label",
    "render_probe",
    "render_reproduction",
    "render_run",
    "render_series",
    "render_sweep",
    "save",
    "similarity_histogram",
    "stages_figure",
    "to_png",
    "write_comparison",
    "write_reproduction",
]

load_on_use(__name__)
