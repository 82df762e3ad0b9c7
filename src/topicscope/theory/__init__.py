"""The exact theory: closed forms, optima, landscapes and dynamics for any setting, in float64, without
torch.

Matrices keep the paper's orientation W[out, in] with index 0 = [MASK]; `phi` is [topic, word].
"""

from topicscope.synthetic import Setting
from topicscope.theory.attention import (
    Value,
    attention_landscape,
    topicwise_attention_loss,
    topicwise_rational_loss,
    value_blocks,
)
from topicscope.theory.attention_optimum import (
    AttentionOptimum,
    block_bounds,
    block_limit,
    diagonal_bounds,
    diagonal_limit,
    topicwise_attention_optimum,
)
from topicscope.theory.bayes import bayes_loss
from topicscope.theory.conditions import OptimumConditions, embedding_conditions, value_matrix_conditions
from topicscope.theory.cross_entropy import CrossEntropyOptimum, uniform_cross_entropy_optimum
from topicscope.theory.dynamics import (
    GradientNorms,
    GrowthRates,
    StageOne,
    StageTwoDrift,
    growth_rates,
    initial_gradient_norms,
    stage_one,
    stage_two_drift,
)
from topicscope.theory.embedding import EmbeddingOptimum, embedding_bias, embedding_loss, embedding_optimum
from topicscope.theory.enumeration import enumerated_bayes_loss, enumerated_loss, topicwise_kernel
from topicscope.theory.moments import Moments, TopicLaw, dirichlet_law, moments, uniform_law
from topicscope.theory.rational import RationalLoss
from topicscope.theory.theorem import Assumption, Theorem, TheoremReport
from topicscope.theory.theorems import THEOREMS
from topicscope.theory.uniform import uniform_attention_loss
from topicscope.theory.value_matrix import (
    ValueMatrixBlocks,
    diagonal_value_matrix,
    minimum_norm_loss,
    minimum_norm_value_matrix,
    value_matrix_blocks,
    value_matrix_loss,
    value_matrix_optimum,
)

__all__ = [
    "THEOREMS",
    "Assumption",
    "AttentionOptimum",
    "CrossEntropyOptimum",
    "EmbeddingOptimum",
    "GradientNorms",
    "GrowthRates",
    "Moments",
    "OptimumConditions",
    "RationalLoss",
    "Setting",
    "StageOne",
    "StageTwoDrift",
    "Theorem",
    "TheoremReport",
    "TopicLaw",
    "Value",
    "ValueMatrixBlocks",
    "attention_landscape",
    "bayes_loss",
    "block_bounds",
    "block_limit",
    "diagonal_bounds",
    "diagonal_limit",
    "diagonal_value_matrix",
    "dirichlet_law",
    "embedding_bias",
    "embedding_conditions",
    "embedding_loss",
    "embedding_optimum",
    "enumerated_bayes_loss",
    "enumerated_loss",
    "growth_rates",
    "initial_gradient_norms",
    "minimum_norm_loss",
    "minimum_norm_value_matrix",
    "moments",
    "stage_one",
    "stage_two_drift",
    "topicwise_attention_loss",
    "topicwise_attention_optimum",
    "topicwise_kernel",
    "topicwise_rational_loss",
    "uniform_attention_loss",
    "uniform_cross_entropy_optimum",
    "uniform_law",
    "value_blocks",
    "value_matrix_blocks",
    "value_matrix_conditions",
    "value_matrix_loss",
    "value_matrix_optimum",
]
