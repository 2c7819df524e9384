"""Loads a folder that Drover wrote in transformers, and prints its evaluation loss and some logits as JSON.

    check_saved_model.py FOLDER [--text FILE] [--tokenizer FOLDER] [--block_size N] [--batch_size N] [--dtype NAME]

The text is packed as run_clm.py packs lines. If FOLDER has an eval_results.json, its eval_loss and eval_accuracy are compared
with those found here; exit status 1 when they differ by more than --tolerance, or when weights are missing or left over.
"""

import argparse
import json
import math
import sys
from pathlib import Path

from common import GOLDEN, REPOSITORY

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = 1000  # run_clm.py packs this many lines at a time and drops the rest of each


def packed(tokenizer, text, block_size):
    """The blocks of `text` as [samples, block_size]."""
    lines = text.splitlines(keepends=True)
    blocks = []
    for begin in range(0, len(lines), ROWS):
        ids = [id for row in tokenizer(lines[begin : begin + ROWS])["input_ids"] for id in row]
        blocks += [ids[at : at + block_size] for at in range(0, len(ids) - block_size + 1, block_size)]
    return torch.tensor(blocks)


@torch.no_grad()
def evaluate(model, blocks, batch_size):
    """Mean loss over samples as the Trainer takes it (auxiliary loss included), and accuracy."""
    loss, right = 0.0, 0
    for batch in blocks.split(batch_size):
        output = model(input_ids=batch, labels=batch)
        loss += output.loss.double().item() * len(batch)
        right += (output.logits[:, :-1].argmax(-1) == batch[:, 1:]).sum().item()
    return {"eval_loss": loss / len(blocks), "eval_accuracy": right / blocks[:, 1:].numel()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", type=Path, default=GOLDEN / "run_clm" / "validation.txt")
    parser.add_argument("--tokenizer", help="where the folder has none")
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()

    has_tokenizer = any((options.folder / name).exists() for name in ["tokenizer.json", "tokenizer.model"])
    bundled = REPOSITORY / "examples" / "tokenizers" / "shakespeare-4k"
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer or (options.folder if has_tokenizer else bundled))
    model, loading = AutoModelForCausalLM.from_pretrained(options.folder, dtype=options.dtype, output_loading_info=True)
    model.eval()
    blocks = packed(tokenizer, options.text.read_text(encoding="utf-8"), options.block_size)
    found = evaluate(model, blocks, options.batch_size)
    with torch.no_grad():
        logits = model(input_ids=blocks[:1]).logits[0].double()

    wrong = {key: sorted(map(str, names)) for key, names in loading.items() if names}
    report = {
        "model": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": model.num_parameters(),
        "samples": len(blocks),
        **found,
        "perplexity": math.exp(found["eval_loss"]),
        "input_ids": blocks[0, :8].tolist(),
        "logits_of_first_token": logits[0, :8].tolist(),
        "logits_of_last_token": logits[-1, :8].tolist(),
        "sum_of_logits": logits.sum().item(),
        **wrong,
    }
    failed = bool(wrong)
    results = options.folder / "eval_results.json"
    if results.exists():
        written = json.loads(results.read_text())
        differences = {key: abs(found[key] - written[key]) for key in found if key in written}
        report["differences"] = differences
        failed = failed or any(difference > options.tolerance for difference in differences.values())
    print(json.dumps(report, indent=1))
    sys.exit(failed)


if __name__ == "__main__":
    main()
