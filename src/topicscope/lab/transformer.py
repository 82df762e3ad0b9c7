"""The paper's transformer at token level, to be read from top to bottom.

Axes: batch (document), query and key (positions), head, d (width), a (width of a head's keys), token (D types).
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from topicscope.errors import InputError
from topicscope.lab.parameters import ModelConfig, Start, layer_name
from topicscope.synthetic import MaskedBatch, Weighting

Loss = Literal["cross-entropy", "squared"]


def data_loss(
    logits: Float[Tensor, "selected token"],
    labels: Int[Tensor, " selected"],
    weights: Float[Tensor, " selected"],
    loss: Loss,
) -> Float[Tensor, ""]:
    """Σ_j w_j ℓ(z_j, e_{x_j}): ℓ = -log softmax(z)_x, or ‖z - e_x‖² summed over the vocabulary (the paper's).

    The weights hold 1/|M| and the mean over documents (`MaskedBatch.position_weights`).
    """
    if loss == "cross-entropy":
        each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    else:
        each = (logits - torch.nn.functional.one_hot(labels, logits.shape[-1])).square().sum(-1)
    return (weights * each).sum()


class TopicTransformer(nn.Module):
    """Z = W_E X̃;  X̂ = W_pred W_V Z A + b_pred;  A = softmax over keys of (W_K Z)ᵀ(W_Q Z)/√d_a (Knowls 1-5).

    Parts that are not trained are buffers: no optimiser can move them. With uniform attention W_K = W_Q = 0, so that
    every attended key weighs the same. A document with nothing to attend gets a value of 0.
    """

    def __init__(self, config: ModelConfig, start: Start) -> None:
        super().__init__()
        self.config = config
        self.frozen = start.frozen
        for name, value in start.parameters.items():
            if name in start.frozen:
                self.register_buffer(name, value.clone())
            else:
                self.register_parameter(name, nn.Parameter(value.clone()))

    def weights(self) -> dict[str, Tensor]:
        """Every matrix by name, frozen ones too; detached, sharing memory."""
        return {name: value.detach() for name, value in self.state_dict(keep_vars=True).items()}

    def forward(self, batch: MaskedBatch) -> Float[Tensor, "batch position token"]:
        """The prediction X̂ at every position."""
        return self._run(batch)[0]

    def attention(self, batch: MaskedBatch) -> list[Float[Tensor, "batch head query key"]]:
        """The attention of each layer; rows sum to 1 over the keys."""
        return self._run(batch)[1]

    def data_loss(self, batch: MaskedBatch, loss: Loss, weighting: Weighting) -> Float[Tensor, ""]:
        """The loss of Knowl 6 on one batch."""
        logits = self(batch)
        selected = torch.from_numpy(batch.selected).to(logits.device)
        labels = torch.from_numpy(batch.labels).to(logits.device)
        weights = torch.from_numpy(batch.position_weights(weighting)).to(logits)
        return data_loss(logits[selected], labels[selected], weights[selected], loss)

    def _part(self, name: str, layer: int = 0) -> Tensor:
        part = getattr(self, layer_name(name, layer))
        assert isinstance(part, Tensor)
        return part

    def _run(self, batch: MaskedBatch) -> tuple[Tensor, list[Tensor]]:
        W_E = self._part("W_E")  # [d token]
        ids = torch.from_numpy(batch.input_ids).to(W_E.device)
        attendable = torch.from_numpy(batch.attendable).to(W_E.device)
        # PAD has no embedding: it shows [MASK]'s, which nothing attends and no loss reads.
        ids = ids.masked_fill(ids == batch.vocabulary_size + 3, 0)
        self._check(ids)
        z = W_E.T[ids]  # [batch position d]
        if self.config.positions:
            z = z + self._part("W_pos").T[: z.shape[1]]
        patterns = []
        for layer in range(self.config.layers):
            pattern = self._pattern(z, attendable, layer)
            z = self._sub_layer(z, self._attend(z, pattern, layer), "ln_attention", layer)
            if self.config.feed_forward:
                z = self._sub_layer(z, self._feed_forward(z, layer), "ln_feed_forward", layer)
            patterns.append(pattern)
        W_pred = self._part("W_pred") if self.config.head == "trained" else W_E.T  # [token d]
        return z @ W_pred.T + self._part("b_pred"), patterns

    def _pattern(
        self, z: Float[Tensor, "batch position d"], attendable: Bool[Tensor, "batch key"], layer: int
    ) -> Float[Tensor, "batch head query key"]:
        """softmax over attended keys k of (W_Q z_q)·(W_K z_k)/√d_a."""
        q = self._heads(z @ self._part("W_Q", layer).T)  # [batch query head a]
        k = self._heads(z @ self._part("W_K", layer).T)  # [batch key head a]
        scores = torch.einsum("bqha,bkha->bhqk", q, k) / math.sqrt(q.shape[-1])
        keys = attendable[:, None, None, :]
        scores = scores.masked_fill(~keys, torch.finfo(scores.dtype).min)
        # The product clears rows in which no key is attended.
        return torch.softmax(scores, dim=-1) * keys

    def _attend(
        self, z: Float[Tensor, "batch position d"], pattern: Float[Tensor, "batch head query key"], layer: int
    ) -> Float[Tensor, "batch position d"]:
        values = self._heads(z @ self._part("W_V", layer).T)  # [batch key head value]
        if not self.config.output_projection:
            return torch.einsum("bhqk,bkhd->bqd", pattern, values)
        mixed = torch.einsum("bhqk,bkhv->bqhv", pattern, values)
        return mixed.flatten(2) @ self._part("W_O", layer).T

    def _feed_forward(self, z: Float[Tensor, "batch position d"], layer: int) -> Float[Tensor, "batch position d"]:
        hidden = torch.nn.functional.gelu(z @ self._part("W_in", layer).T + self._part("b_in", layer))
        return hidden @ self._part("W_out", layer).T + self._part("b_out", layer)

    def _sub_layer(self, z: Tensor, out: Tensor, norm: str, layer: int) -> Float[Tensor, "batch position d"]:
        """Residual connection and layer norm around a sub-layer's output, where the config has them."""
        if self.config.residual:
            out = z + out
        if self.config.layer_norm:
            gain, bias = self._part(f"{norm}_gain", layer), self._part(f"{norm}_bias", layer)
            out = torch.nn.functional.layer_norm(out, out.shape[-1:], gain, bias)
        return out

    def _heads(self, x: Float[Tensor, "batch position all"]) -> Float[Tensor, "batch position head each"]:
        return x.reshape(*x.shape[:2], self.config.heads, -1)

    def _check(self, ids: Int[Tensor, "batch position"]) -> None:
        limit = self._part("W_E").shape[1]
        if ids.numel() and int(ids.max()) >= limit:
            raise InputError(
                "the documents hold tokens that the model does not know",
                received=f"token id {int(ids.max())}",
                expected=f"ids below {limit}",
                advice="give documents with START and END a model with as many tokens (Masking.num_tokens)",
            )
        if self.config.positions and ids.shape[1] > self.config.positions:
            raise InputError(
                "a document is longer than the model's positions",
                received=ids.shape[1],
                expected=f"at most {self.config.positions}",
            )
