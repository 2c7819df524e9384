#!/bin/sh
# Trains a small Llama on Shakespeare's plays, is stopped on the way, and goes on: the same command, twice. Then lets it speak.
set -eu
cd "$(dirname "$0")/.."

train() {
    exec build/release/drover run_clm --use_cpu --config_name examples/configs/llama-5m.json \
        --tokenizer_name examples/tokenizers/shakespeare-4k --train_file examples/data/tinyshakespeare/text.txt \
        --do_train --do_eval --block_size 256 --max_steps 300 --learning_rate 2e-3 --lr_scheduler_type cosine \
        --warmup_steps 30 --logging_steps 25 --save_steps 100 --save_total_limit 1 --output_dir build/demo
}

rm -rf build/demo
train &
run=$!
sleep "${DEMO_STOP_SECONDS:-20}"
echo "demo: the run is told to stop (SIGTERM) …"
kill -TERM $run 2>/dev/null || true
wait $run || echo "demo: … and goes on."
(train)
echo "demo: what it has learned to say:"
build/release/drover generate --model build/demo --prompt "ROMEO:" --max_new_tokens 80 --temperature 0.8 --top_k 40
