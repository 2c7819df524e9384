"""Loads every checkpoint of a run of Drover in transformers and compares what it computes with what Drover logged.

    check_checkpoints.py OUTPUT_DIR --text FILE [--drover PROGRAM] [--block_size N] [--batch_size N] [--tolerance X]

The run evaluated on FILE whenever it saved (--eval_steps equal to --save_steps): each checkpoint's trainer_state.json then ends with
the evaluation of just these weights. Then `drover generate --logits` is asked for the logits behind some texts. Exit status 1 when a
loss differs by more than --tolerance, logits by more than that relative to their norm, an accuracy at all, or when weights are missing or left over.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from check_saved_model import evaluate, packed
from common import REPOSITORY

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def logged_evaluation(checkpoint):
    """The record of the evaluation at the step of the checkpoint."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    records = [record for record in state["log_history"] if "eval_loss" in record and record["step"] == state["global_step"]]
    if not records:
        sys.exit(f"{checkpoint} was saved without an evaluation: run with --eval_steps equal to --save_steps.")
    return records[-1]


@torch.no_grad()
def logits_difference(model, checkpoint, blocks, program):
    """The largest relative difference of the logits behind the first texts, of several lengths."""
    largest = 0.0
    for length, block in zip((1, 7, len(blocks[0])), blocks):
        ids = block[:length]
        theirs = model(input_ids=ids[None]).logits[0, -1].double()
        command = [program, "generate", "--model", checkpoint, "--prompt_ids", ",".join(map(str, ids.tolist()))]
        printed = subprocess.run([*command, "--max_new_tokens", "1", "--json", "--logits"], check=True, capture_output=True, text=True)
        ours = torch.tensor(json.loads(printed.stdout)["logits"], dtype=torch.float64)
        largest = max(largest, ((ours - theirs).norm() / theirs.norm()).item())
    return largest


def check(checkpoint, options):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model, loading = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto", output_loading_info=True)
    model.eval()
    blocks = packed(tokenizer, options.text.read_text(encoding="utf-8"), options.block_size)
    found, logged = evaluate(model, blocks, options.batch_size), logged_evaluation(checkpoint)
    wrong = {key: sorted(map(str, names)) for key, names in loading.items() if names}
    difference = abs(found["eval_loss"] - logged["eval_loss"])
    of_logits = logits_difference(model, checkpoint, blocks, options.drover)
    close = max(difference, of_logits) <= options.tolerance
    agrees = not wrong and close and found["eval_accuracy"] == logged["eval_accuracy"]
    differences = {"difference_of_loss": difference, "difference_of_logits": of_logits}
    print(json.dumps({"checkpoint": checkpoint.name, **found, **differences, "agrees": agrees, **wrong}))
    return agrees


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--drover", type=Path, default=REPOSITORY / "build" / "release" / "drover")
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    checkpoints = sorted(options.output_dir.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    if not checkpoints:
        sys.exit(f"{options.output_dir} has no checkpoints.")
    results = [check(checkpoint, options) for checkpoint in checkpoints]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
