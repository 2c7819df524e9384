#!/usr/bin/env python3
"""Held-out losses with FP8 products and without, from the same command lines and seeds.

    bench/fp8_loss.py TEXT [--program build/release/drover] [--hidden 768] [--layers 12] [--steps 2000] …

Trains a Llama on TEXT, once with bf16 and once with bf16 and --fp8 for every seed, and evaluates each on the end of
TEXT, which is not trained on. Prints a line per run as soon as it is done, then the means, the spread
between seeds (largest less smallest) and the gap between the two: the mean of FP8 less that of bf16, and the same for
each seed. A gap within the spread is one that another seed would make, too. Each run keeps its log in OUTPUT, and one
that is there already is not run again.

TEXT is any plain text of tens of megabytes. Debian's documentation packages are a free source of it. The kernel's gives
42 MB (24 MB with -path '*/Documentation/*.rst.gz'):

    apt-get download linux-doc-6.1 && dpkg-deb -x linux-doc-6.1_*.deb doc
    find doc -path '*/Documentation/*' -type f | sort | xargs zcat -f > text.txt

With --try the sizes are tiny, to see that everything works without a GPU."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=CHECKOUT / "build/release/drover")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=CHECKOUT / "examples/tokenizers/mistral-v1")
    parser.add_argument("--vocab", type=int, default=32000, help="at least the tokenizer's")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("fp8_loss"))
    parser.add_argument("--fp8", choices=["tensorwise", "blockwise"], default="tensorwise")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--hidden", type=int, default=768, help="a multiple of 64; heads have 64 columns")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--intermediate", type=int, default=2048)
    parser.add_argument("--block_size", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16, help="blocks of a step")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learning_rate", type=float, default=6e-4)
    parser.add_argument("--held_out", type=float, default=0.02, help="share of the text")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--try", dest="trial", action="store_true")
    given = parser.parse_args()
    if given.trial:
        given.hidden, given.layers, given.intermediate = 64, 2, 128
        given.block_size, given.batch, given.steps = 64, 4, 20
        given.tokenizer, given.vocab = CHECKOUT / "examples/tokenizers/shakespeare-4k", 4096
    return given


def write_inputs(given):
    """The config and the two parts of the text; returns the words of a command that all runs share."""
    given.output.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": given.vocab,
        "hidden_size": given.hidden,
        "intermediate_size": given.intermediate,
        "num_hidden_layers": given.layers,
        "num_attention_heads": given.hidden // 64,
        "num_key_value_heads": given.hidden // 64,
        "max_position_embeddings": given.block_size,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (given.output / "config.json").write_text(json.dumps(config, indent=1))
    lines = given.text.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept = max(1, int(len(lines) * (1 - given.held_out)))
    (given.output / "train.txt").write_text("".join(lines[:kept]), encoding="utf-8")
    (given.output / "held_out.txt").write_text("".join(lines[kept:]), encoding="utf-8")
    return [
        str(given.program), "run_clm", "--do_train", "--do_eval", "--bf16",
        "--config_name", str(given.output / "config.json"), "--tokenizer_name", str(given.tokenizer),
        "--train_file", str(given.output / "train.txt"), "--validation_file", str(given.output / "held_out.txt"),
        "--block_size", str(given.block_size), "--per_device_train_batch_size", str(given.batch),
        "--per_device_eval_batch_size", str(given.batch), "--max_steps", str(given.steps),
        "--learning_rate", str(given.learning_rate), "--lr_scheduler_type", "cosine",
        "--warmup_steps", str(max(1, given.steps // 20)), "--weight_decay", "0.1",
        "--logging_steps", str(max(1, given.steps // 20)), "--save_strategy", "no", "--disable_tqdm", "yes",
        "--device", given.device,
    ]  # fmt: skip


def held_out_loss(command, folder, recipe, seed):
    """The loss of a run of bf16 or of an FP8 recipe, which is started unless its results are there."""
    results = folder / "all_results.json"
    begin = time.monotonic()
    if not results.exists():
        fp8 = [] if recipe == "bf16" else ["--fp8", recipe]
        words = [*command, *fp8, "--seed", str(seed), "--output_dir", str(folder)]
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            if subprocess.run(words, stdout=log, stderr=log, check=False).returncode != 0:
                sys.exit(f"{recipe}, seed {seed} failed: see {folder / 'log.txt'}")
    loss = json.loads(results.read_text())["eval_loss"]
    print(f"{recipe:<10} seed {seed}: held-out loss {loss:.5f}  ({time.monotonic() - begin:.0f} s)", flush=True)
    return loss


def main():
    given = arguments()
    command = write_inputs(given)
    losses = {recipe: [] for recipe in ("bf16", given.fp8)}
    for seed in given.seeds:
        for recipe in losses:
            losses[recipe].append(held_out_loss(command, given.output / f"{recipe}-{seed}", recipe, seed))
    for recipe, found in losses.items():
        print(f"{recipe:<10} mean {statistics.mean(found):.5f}, spread {max(found) - min(found):.5f}")
    gaps = [fp8 - bf16 for fp8, bf16 in zip(losses[given.fp8], losses["bf16"])]
    each = ", ".join(f"{gap:+.5f}" for gap in gaps)
    print(f"gap        {statistics.mean(gaps):+.5f} (per seed {each})")


if __name__ == "__main__":
    main()
