"""What watching a training costs: share of its time and of its memory at default settings.

    python benchmarks/callback.py [--json] [--steps 300] [--repeats 3]

A BERT of 4 layers × 128, a vocabulary of 8,000, 16 passages of 128 tokens a step, AdamW, one thread, with and without
`TopicStructureMonitor` (30 articles of the Wikipedia sample, 20 topics fitted before, budget 2 %). Each run is a
process of its own, with and without in turn, so that peak memory can be told; times are CPU seconds of the training,
the set-up of the monitor included. Reach: at most 2 % more time and 5 % more memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LENGTH, BATCH = 128, 16


def child(folder: Path, steps: int, watched: bool) -> dict[str, float]:
    """One training in this process."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    from topicscope import TopicStructureMonitor
    from topicscope.text import wikipedia_sample

    torch.set_num_threads(1)
    torch.manual_seed(0)
    specials = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), model_max_length=LENGTH, **specials
    )
    small = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=LENGTH, **small))
    articles = [(document.id, document.text) for document in wikipedia_sample()][:30]
    texts = [text[:2000] for _, text in articles]
    whole = {"padding": "max_length", "truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
    ids = tokenizer(texts, **whole)["input_ids"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begun = time.process_time()
    monitor = None
    if watched:
        options = {"documents": articles, "out": folder / "run", "total_steps": steps}
        monitor = TopicStructureMonitor(model, tokenizer, topics=folder / "topics.npz", **options)
    for _ in range(steps):
        batch = ids[torch.randint(len(ids), (BATCH,))]
        hidden = batch.masked_fill(torch.rand(batch.shape) < 0.15, tokenizer.mask_token_id)
        model(hidden, labels=batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if monitor is not None:
            monitor.step()
    seconds = time.process_time() - begun
    found = {"seconds": seconds, "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if monitor is not None:
        history = monitor.finish()
        assert history is not None
        setup = history.runs[0]["setup_seconds"]
        each = history.measurements["seconds"]
        found |= {"measurements": len(each), "own": setup + float(each.sum()), "setup": setup}
        found |= {"each": float(each.median()), "documents": float(history.measurements["documents"].iloc[-1])}
        found |= {"layers_measured": float(len(history.layers))}
    return found


def run(folder: Path, steps: int, watched: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", str(folder), "--steps", str(steps)]
    done = subprocess.run(command + (["--watched"] if watched else []), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child, args.steps, args.watched)))
        return
    from tokenizers import BertWordPieceTokenizer

    from topicscope.text import wikipedia_sample
    from topicscope.topics import CorpusPassages, fit, save_topics

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_topics(folder / "topics.npz", fit(CorpusPassages(wikipedia_sample()), 20, sweeps=50, seed=0))
        words = BertWordPieceTokenizer()
        words.train_from_iterator((document.text for document in wikipedia_sample()), 8000, show_progress=False)
        words.save(str(folder / "tokenizer.json"))
        pairs = [(run(folder, args.steps, False), run(folder, args.steps, True)) for _ in range(args.repeats)]
    alone, watched = (np.array([pair[i]["seconds"] for pair in pairs]) for i in (0, 1))
    memory = np.array([[side["memory_mb"] for side in pair] for pair in pairs])
    last = pairs[-1][1]
    added = float(np.median(watched / alone) - 1)
    used = float(np.median([pair[1]["own"] / pair[1]["seconds"] for pair in pairs]))
    more = float(np.median(memory[:, 1] / memory[:, 0]) - 1)
    print(f"{args.steps} steps: {np.median(alone):.1f} CPU s alone, {np.median(watched):.1f} watched: {added:+.1%}")
    print(
        f"by the monitor's own clock {used:.1%}: set-up {last['setup']:.2f} s, {last['measurements']:.0f} measurements "
        f"of {last['each']:.2f} s, in the end on {last['documents']:.0f} documents"
    )
    print(f"peak memory {memory[:, 0].mean():.0f} MB alone, {memory[:, 1].mean():.0f} MB watched: {more:+.1%}")
    if args.json:
        print(json.dumps({"time": round(added, 4), "own_share": round(used, 4), "memory": round(more, 4)}))


if __name__ == "__main__":
    main()
