"""The logarithm of each row's normaliser: a canary for the private CPU kernel that gives it, against its definition."""

import itertools

import pytest
import torch

from topicscope.probing.hf import sdpa as normaliser
from topicscope.probing.hf.sdpa import attend, log_normaliser

MASKS = ("none", "keys", "causal")


def inputs(
    dtype: torch.dtype, lengths: list[int], width: int = 8
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key, value [2, 3, L, d] as models lay them out, and the mask of keys."""
    torch.manual_seed(0)
    longest = max(lengths)
    q, k, v = (torch.randn(len(lengths), longest, 3, width).transpose(1, 2).to(dtype) for _ in range(3))
    mask = torch.zeros(len(lengths), 1, 1, longest, dtype=dtype)
    for row, length in enumerate(lengths):
        mask[row, ..., length:] = -torch.inf
    return 3 * q, k, v, mask.expand(-1, -1, longest, -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("lengths", [[7, 1], [40, 33], [600, 257]])
def test_output_and_normaliser_are_those_of_the_definition(dtype: torch.dtype, kind: str, lengths: list[int]) -> None:
    q, k, v, keys = inputs(dtype, lengths)
    mask, causal, scale = keys if kind == "keys" else None, kind == "causal", 0.3
    output, found = attend(q, k, v, mask, causal, scale)
    scores = scale * q.double() @ k.double().transpose(-1, -2)
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    half = dtype in (torch.bfloat16, torch.float16)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found.double(), scores.logsumexp(-1), **tolerance)
    torch.testing.assert_close(output.double(), scores.softmax(-1) @ v.double(), **tolerance)
    torch.testing.assert_close(log_normaliser(q, k, mask, causal, scale).double(), scores.logsumexp(-1), **tolerance)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    assert torch.equal(output, expected)  # the forward pass is the one of "sdpa"


def test_other_devices_and_layouts_take_the_public_function(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, mask = inputs(torch.float32, [19, 5])
    fused = attend(q, k, v, mask, False, 0.3)
    monkeypatch.setattr(normaliser, "SCORES_AT_A_TIME", 40)  # some rows at a time
    for output, found in (
        attend(q, k, v.mT.contiguous().mT, mask, False, 0.3),  # numbers of a value that stand apart
        attend(q, k, torch.cat([v, v], -1), mask, False, 0.3),  # values of another width than the keys'
    ):
        torch.testing.assert_close(output[..., : v.shape[-1]], fused[0])
        torch.testing.assert_close(found, fused[1])
    for kind, length in itertools.product(MASKS, (1, 2, 30)):
        a, b, c, _ = inputs(torch.float32, [length])
        wide = torch.cat([c, c], -1)
        output, _ = attend(a, b, wide, None, kind == "causal", 0.3)
        assert output.shape == wide.shape
