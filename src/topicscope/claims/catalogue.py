"""The claims there are, in the order in which they are run and shown."""

from topicscope.claims import (
    attention_block,
    attention_diagonal,
    embedding_block,
    landscape,
    pretrained_table,
    theory_holds,
    two_stage,
    value_block,
)
from topicscope.claims.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    theory_holds.CLAIM,
    value_block.CLAIM,
    embedding_block.CLAIM,
    two_stage.CLAIM,
    attention_block.CLAIM,
    attention_diagonal.CLAIM,
    landscape.CLAIM,
    pretrained_table.CLAIM,
)
