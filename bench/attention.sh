#!/bin/sh
# bench/attention.sh [PROGRAM]
# Attention's backward on a GPU, by cuDNN and by the kernel of our own, inside the steps of models: TFLOP/s of the
# operation (5 products, causal), its share of the step, tokens per second and the memory that libraries and
# workspaces take beyond the plan. Both methods run a case one after the other, so they share a card.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$checkout/build/release/drover}

# name, flags of drover bench
measure() {
    name=$1
    shift
    for method in cudnn kernel; do
        if ! DROVER_ATTENTION_BACKWARD=$method timeout 300 "$program" bench --device cuda --init counter --json "$@" \
            >"$output/report.json" 2>"$output/log"; then
            printf '%-36s %-7s failed: %s\n' "$name" "$method" "$(tail -n 1 "$output/log")"
            continue
        fi
        python3 - "$name" "$method" "$output/report.json" <<'PYTHON'
import json, sys
name, method, report = sys.argv[1:]
report = json.load(open(report))
own = next(o for o in report["operations"] if o["name"] == "attention backward")
print(f"{name:36} {method:7} {own['gflops'] / 1000:7.1f} TFLOP/s {own['ms']:9.2f} ms {100 * own['share']:5.1f} % "
      f"{report['tokens_per_second']:10.0f} tok/s {report['library_memory_bytes'] / 2**30:6.2f} GiB, loss {report['loss']:.5f}",
      flush=True)
PYTHON
    done
}

output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
measure 'd 128, 4 x 4096 (8B, 8 layers)' --model llama3-8b --layers 8 --batch 4 --seq 4096 --steps 12
measure 'd 128, 1 x 32768 (8B, 4 layers)' --model llama3-8b --layers 4 --batch 1 --seq 32768 --steps 6
measure 'd 128, 8 x 1024 (7B, 8 layers)' --model llama2-7b --layers 8 --batch 8 --seq 1024 --steps 12
measure 'd 64, 4 x 4096 (1B)' --model llama3-1b --batch 4 --seq 4096 --steps 12
measure 'd 64, 16 x 1024 (124 M)' --model llama-124m --batch 16 --seq 1024 --steps 30
measure 'd 64, 1 x 131072 (1B, 2 layers)' --model llama3-1b --layers 2 --batch 1 --seq 131072 --steps 4 --recompute full
measure 'window 4096, 2 x 8192 (Mistral)' --model mistral-7b-v0.1 --layers 8 --batch 2 --seq 8192 --steps 8
measure 'packed, mean 500, 4 x 2048 (1B)' --model llama3-1b --batch 4 --seq 2048 --steps 12 --example_length 500 --packed
measure 'packed, mean 8000, 1 x 32768 (8B)' --model llama3-8b --layers 4 --batch 1 --seq 32768 --steps 8 \
    --example_length 8000 --packed
