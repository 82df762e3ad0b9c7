"""Topic structure in a model's OV and QK matrices, without text."""

from topicscope.probing.circuits.circuits import (
    ALL_HEADS,
    CircuitResult,
    circuits,
    circuits_of_probe,
    stand_out,
)
from topicscope.probing.circuits.factors import attention_weights, circuit_factors

__all__ = [
    "ALL_HEADS",
    "CircuitResult",
    "attention_weights",
    "circuit_factors",
    "circuits",
    "circuits_of_probe",
    "stand_out",
]
