#!/bin/sh
# bench/llama3_commands.sh [PROGRAM] [UPDATES] [MORE FLAGS]
# Makes the table of bench/llama3_commands.md: the three commands of
# examples/commands/llama3_sharded.sh with Llama-3-8B on one GPU, with 1, 2 and 3 rows of 4096 tokens.
# Prints one line per case: tokens per second from the median step, or the error. The text is a small
# one (examples/data), which does not change the time of a step.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$checkout/build/release/drover}
updates=${2:-8}
[ $# -lt 1 ] || shift
[ $# -lt 1 ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$checkout/examples/configs/llama3-8b.json" config.json
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DROVER="$program" NPROC=1 OUTPUT="$work/out" CACHE="$work/cache"
export MODEL="$work/config.json" DATA="--train_file $checkout/examples/data/tinyshakespeare/text.txt"

for BS in 1 2 3; do
    export BS
    for mode in native deepspeed torchacc; do
        "$checkout/examples/commands/llama3_sharded.sh" $mode --tokenizer_name "$checkout/examples/tokenizers/shakespeare-4k" \
            --max_steps "$updates" --save_final_model no "$@" >"$work/log" 2>&1 || true
        awk -v head="$BS | $mode" -v tokens=$((BS * 4096)) '
            /^  total / { memory = $2 " " $3 }
            /^Steps: /  { printf "%s | %.0f tok/s | plan %s\n", head, tokens / $4, memory; said = 1 }
            /^drover: The run needs / { printf "%s | OOM | plan %s | %s\n", head, memory, $0; said = 1 }
            END { if (!said) { printf "%s | failed\n", head; exit 1 } }' "$work/log" || tail -n 20 "$work/log"
        rm -rf "$OUTPUT"
    done
done
