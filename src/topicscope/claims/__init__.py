"""One file per claim of the paper: where theory, training and probing meet."""

from topicscope.claims.claim import ClaimResult
from topicscope.claims.reproduce import CLAIMS, Reproduction, reproduce

__all__ = ["CLAIMS", "ClaimResult", "Reproduction", "reproduce"]
