"""Probe a model that other tools run: patterns [batch, head, query, key] go in, the usual result comes out.

Here a Hugging Face model stands in for the hooked one, so that the example runs anywhere:

    python examples/live_patterns.py

With TransformerLens (run with 4.3) `model` is a `TransformerBridge` (a `HookedTransformer` before 4.0) and the function

    def patterns(input_ids, attention_mask):
        _, cache = model.run_with_cache(
            input_ids, attention_mask=attention_mask, names_filter=lambda name: name.endswith("hook_pattern")
        )
        return cache

with `layer_name="blocks.{layer}.attn.hook_pattern"`, `W_E=model.W_E`, `num_layers=model.cfg.n_layers`,
`num_heads=model.cfg.n_heads` and `max_length=model.cfg.n_ctx`. With nnsight (run with 0.8) `model` is the `NNsight` of
a model with attn_implementation="eager", and the function

    def patterns(input_ids, attention_mask):
        with model.trace(input_ids=input_ids, attention_mask=attention_mask):
            saved = nnsight.save([layer.attention.self.output[1].save() for layer in model.encoder.layer])
        return saved

Both gave the ratios of every head that the model gives by itself, to 3e-8.
"""

import torch
from transformers import AutoModel, AutoTokenizer

import topicscope
from topicscope.demo import minilm_folder
from topicscope.probing.hf import live_view
from topicscope.text import wikipedia_sample

OPTIONS = {"topics": 8, "sweeps": 50, "threshold": (0.01,), "max_units": 60, "controls": 0}


def main() -> tuple[topicscope.ProbeResult, topicscope.ProbeResult]:
    """The same model probed by its patterns and by its name."""
    model = AutoModel.from_pretrained(minilm_folder(), attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())

    def patterns(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        attentions = model(input_ids, attention_mask=attention_mask, output_attentions=True).attentions
        return {f"blocks.{layer}.attn.hook_pattern": pattern for layer, pattern in enumerate(attentions)}

    view = live_view(
        model,
        tokenizer,
        patterns,
        num_layers=model.config.num_hidden_layers,
        num_heads=model.config.num_attention_heads,
        causal=False,
        W_E=model.get_input_embeddings().weight,
        max_length=512,
        layer_name="blocks.{layer}.attn.hook_pattern",
        name="MiniLM by its patterns",
    )
    articles = list(wikipedia_sample())[:20]
    by_patterns = topicscope.probe(view, documents=articles, **OPTIONS)
    by_name = topicscope.probe(str(minilm_folder()), documents=articles, **OPTIONS)
    return by_patterns, by_name


if __name__ == "__main__":
    for result in main():
        print(result)
