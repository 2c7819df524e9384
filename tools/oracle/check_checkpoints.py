"""Loads every checkpoint of a run of Drover in transformers and compares what it computes with what Drover logged.

    check_checkpoints.py OUTPUT_DIR --text FILE [--block_size N] [--batch_size N] [--tolerance X]

The run evaluated on FILE whenever it saved (--eval_steps equal to --save_steps): each checkpoint's trainer_state.json then ends with
the evaluation of just these weights. The loss is a mean over the logits of every position, so it agrees only where they do. Exit
status 1 when a loss differs by more than --tolerance, an accuracy at all, or when weights are missing or left over.
"""

import argparse
import json
import sys
from pathlib import Path

from check_saved_model import evaluate, packed

from transformers import AutoModelForCausalLM, AutoTokenizer


def logged_evaluation(checkpoint):
    """The record of the evaluation at the step of the checkpoint."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    records = [record for record in state["log_history"] if "eval_loss" in record and record["step"] == state["global_step"]]
    if not records:
        sys.exit(f"{checkpoint} was saved without an evaluation: run with --eval_steps equal to --save_steps.")
    return records[-1]


def check(checkpoint, options):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model, loading = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto", output_loading_info=True)
    model.eval()
    blocks = packed(tokenizer, options.text.read_text(encoding="utf-8"), options.block_size)
    found, logged = evaluate(model, blocks, options.batch_size), logged_evaluation(checkpoint)
    wrong = {key: sorted(map(str, names)) for key, names in loading.items() if names}
    difference = abs(found["eval_loss"] - logged["eval_loss"])
    agrees = not wrong and difference <= options.tolerance and found["eval_accuracy"] == logged["eval_accuracy"]
    print(json.dumps({"checkpoint": checkpoint.name, **found, "difference_of_loss": difference, "agrees": agrees, **wrong}))
    return agrees


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--text", type=Path, required=True)
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
