"""The slow twin: the paper's experiment as one first writes it, with a library's BERT and Python loops.

Model: `transformers.BertForMaskedLM` as it stands, one layer and one head, hidden and feed-forward size = number of
tokens, frozen one-hot embeddings, no dropout, eager attention (all that the paper's transformers version has).
Data, as in the paper's released code: lines of text, parsed word by word into one tensor a document; the selected
positions masked one by one in a copy of it, drawn again if there are none; labels and attention mask as two more
tensors; a batch is padded from clones of the three. Masks are drawn anew at every step, as ours are.
"""

import copy
import random
from dataclasses import dataclass

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from topicscope.synthetic import Documents

WORDS, MASK, START, END, PAD = 100, 0, 101, 102, 103


@dataclass
class Rates:
    select: float = 0.15
    keep: float = 0.1
    random: float = 0.1


def text_lines(documents: Documents) -> list[str]:
    """Documents as lines of words, as they lie in a file."""
    ends = np.cumsum(documents.lengths)[:-1]
    return [" ".join(f"w{token}" for token in words) for words in np.split(documents.words, ends)]


def parse(line: str, vocabulary: dict[str, int]) -> torch.Tensor:
    """Token ids of one document between START and END."""
    words = [word.strip() for word in line.strip().split()]
    return torch.tensor([START, *(vocabulary[word] for word in words), END])


def mask(document: torch.Tensor, rates: Rates) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Shown ids, labels (-100 where nothing is predicted) and attention mask, position by position."""
    positions: list[int] = []
    while not positions:
        special = (document == PAD) | (document == START) | (document == END)
        chosen = (torch.rand(len(document)) < rates.select) & ~special
        positions = torch.flatten(chosen.nonzero()).tolist()
    shown = copy.deepcopy(document)
    for position in positions:
        fate = random.random()
        if fate < rates.random:
            shown[position] = random.randint(1, WORDS)
        elif fate >= rates.random + rates.keep:
            shown[position] = MASK
    labels = -100 * torch.ones(document.shape, dtype=torch.long)
    labels[positions] = document[positions]
    return shown, labels, torch.ones_like(document)


def collate(documents: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Padded tensors."""
    batch = {}
    for index, (name, filler) in enumerate((("input_ids", PAD), ("labels", -100), ("attention_mask", 0))):
        parts = [document[index].clone().detach() for document in documents]
        batch[name] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=filler)
    return batch


class Twin:
    """Training steps on lines of text; masks are drawn anew at every step."""

    def __init__(self, lines: list[str], attention: str, batch: int = 40) -> None:
        size = PAD + 1
        config = BertConfig(
            vocab_size=size, hidden_size=size, num_hidden_layers=1, num_attention_heads=1, intermediate_size=size,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=160, pad_token_id=PAD,
            attn_implementation="eager",
        )  # fmt: skip
        self.model = BertForMaskedLM(config).train()
        head = self.model.bert.encoder.layer[0].attention.self
        with torch.no_grad():
            self.model.bert.embeddings.word_embeddings.weight.copy_(torch.eye(size))
            if attention == "uniform":
                head.query.weight.zero_()
                head.key.weight.zero_()
        self.model.requires_grad_(False)
        trained = [head.value.weight] if attention == "uniform" else [head.query.weight, head.key.weight]
        for parameter in trained:
            parameter.requires_grad_(True)
        self.optimiser = torch.optim.AdamW(trained, lr=0.01)
        self.lines, self.batch, self.at = lines, batch, 0
        self.vocabulary = {f"w{i}": i for i in range(1, WORDS + 1)}
        self.settings = (
            f"BertForMaskedLM, 1 layer, 1 head, hidden {size}, feed-forward {size}, batch {batch}, N = 100-150, "
            f"AdamW .01, attention {attention}, {config._attn_implementation}, masking in Python loops"
        )

    def data(self) -> dict[str, torch.Tensor]:
        """The next batch, parsed and masked."""
        lines = [self.lines[(self.at + i) % len(self.lines)] for i in range(self.batch)]
        self.at += self.batch
        return collate([mask(parse(line, self.vocabulary), Rates()) for line in lines])

    def step(self, batch: dict[str, torch.Tensor] | None = None) -> float:
        """One training step; with `batch` given, without the cost of data."""
        loss = self.model(**(self.data() if batch is None else batch)).loss
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())
