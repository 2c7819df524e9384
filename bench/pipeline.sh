#!/bin/sh
# bench/pipeline.sh [PROGRAM] [PROCESSES…]
# Makes the pipeline table of bench/mesh.md: a model of 32 equal layers in a pipeline of 2 processes (or
# the numbers given), with every schedule. Prints one line per case: processes, schedule, micro-batches,
# the measured bubble, that of equal stages on paper, and that of the measured stage times on paper, in
# percent of the time; then the seconds of the median step. Run it on a quiet machine with a core for each
# process.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$checkout/build/release/drover}
[ $# -eq 0 ] || shift
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >"$output/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 704,
 "num_hidden_layers": 32, "num_attention_heads": 4, "max_position_embeddings": 256}
JSON

# Processes, micro-batches, name, flags of the schedule.
measure() {
    processes=$1 micro_batches=$2 name=$3
    shift 3
    mpirun --bind-to none --oversubscribe -n "$processes" "$program" run_clm --use_cpu --dtype float32 \
        --config_name "$output/config.json" --tokenizer_name "$checkout/examples/tokenizers/shakespeare-4k" \
        --train_file "$checkout/examples/data/tinyshakespeare/text.txt" --do_train --block_size 256 \
        --per_device_train_batch_size 1 --gradient_accumulation_steps "$micro_batches" --max_steps 4 \
        --save_strategy no --save_final_model no --pipeline_parallel_size "$processes" \
        --trace_file_path "$output/trace.json" --output_dir "$output/run" "$@" >"$output/log" 2>&1 ||
        { cat "$output/log"; exit 1; }
    awk -v head="$processes | $name | $micro_batches" '
        /pipeline.s bubble is/ { measured = $7; equal = $12; paper = $17 }
        /^Steps: /             { step = $4 }
        END { printf "%s | %s | %s | %s | %s\n", head, measured, equal, paper, step }' "$output/log"
    rm -rf "$output/run"
}

for processes in ${*:-2}; do
    for turns in 2 4; do
        micro_batches=$((processes * turns))
        measure $processes $micro_batches '1F1B' --pipeline_schedule 1f1b
        measure $processes $micro_batches 'interleaved, 2 chunks' --virtual_pipeline_size 2
        measure $processes $micro_batches 'zero bubble' --pipeline_schedule zero_bubble
    done
done
