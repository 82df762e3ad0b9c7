"""The claims there are, in the order in which they are run and shown."""

from topicscope.claims import (
    ambiguous_words,
    attention_order,
    co_occurrence,
    embedding_block,
    joint_training,
    landscape,
    pretrained_table,
    theory_holds,
    topicwise_assumption,
    two_stage,
    value_block,
)
from topicscope.claims.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    theory_holds.CLAIM,
    value_block.CLAIM,
    embedding_block.CLAIM,
    two_stage.CLAIM,
    joint_training.CLAIM,
    attention_order.BLOCK,
    attention_order.DIAGONAL,
    landscape.CLAIM,
    pretrained_table.CLAIM,
    ambiguous_words.CLAIM,
    co_occurrence.CLAIM,
    topicwise_assumption.CLAIM,
)
