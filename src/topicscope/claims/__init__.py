"""One file per claim of the paper: where theory, training and probing meet."""

from topicscope.claims.catalogue import CLAIMS
from topicscope.claims.claim import ClaimResult
from topicscope.claims.reproduce import Reproduction, reproduce

__all__ = ["CLAIMS", "ClaimResult", "Reproduction", "reproduce"]
