#!/bin/sh
# bench/mesh.sh [PROGRAM] [UPDATES]
# Makes the table of bench/mesh.md: a small model trained in every mode on 1, 2 and 4 processes, with 8
# rows of 256 tokens per update whatever the number of processes. Prints one line per case: processes,
# mode, type, milliseconds of the median step, collectives per step, milliseconds that they took and that
# the process waited for them, and the percentage that overlapped with computing. Run it on a quiet
# machine.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$checkout/build/release/drover}
updates=${2:-12}
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Processes, rows per device, name, flags of the mode.
measure() {
    processes=$1 rows=$2 name=$3
    shift 3
    for type in float32 bfloat16; do
        mpirun --bind-to none --oversubscribe -n "$processes" "$program" run_clm --use_cpu --dtype $type \
            --config_name "$checkout/examples/configs/llama-5m.json" --tokenizer_name "$checkout/examples/tokenizers/shakespeare-4k" \
            --train_file "$checkout/examples/data/tinyshakespeare/text.txt" --do_train --block_size 256 \
            --per_device_train_batch_size "$rows" --max_steps "$updates" --save_strategy no --save_final_model no \
            --output_dir "$output/run" --comm_stats "$@" >"$output/log" 2>&1 || { cat "$output/log"; exit 1; }
        awk -v head="$processes | $name | $type" '
            /^Steps: /         { step = $4 * 1000 }
            /^Communication: / { count = $2; way = $4 * 1000; waited = $10 * 1000; hidden = $(NF - 3) }
            END { printf "%s | %.0f | %d | %.0f | %.0f | %s\n", head, step, count, way, waited, hidden }' "$output/log"
        rm -rf "$output/run"
    done
}

measure 1 8 'one process'
for processes in 2 4; do
    rows=$((8 / processes))
    measure $processes $rows 'data parallel'
    measure $processes $rows 'zero1' --use_zero1_optimizer
    measure $processes $rows 'shard_grad_op' --fsdp shard_grad_op
    measure $processes $rows 'full_shard' --fsdp full_shard
    measure $processes 8 '2d' --spmd_2d_sharding 2
    measure $processes 8 '2d, no sequence parallel' --spmd_2d_sharding 2 --sequence_parallel no
    measure $processes 8 'fsdp over dcn' --spmd_fsdp_sharding --spmd_dcn_parallelism 2
done
