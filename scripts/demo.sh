#!/bin/sh
# Trains a small Llama on Shakespeare's plays, stops the run with a signal, and gives the same command
# again, which resumes it. Then generates text.
set -eu
cd "$(dirname "$0")/.."

train() {
    exec build/release/drover run_clm --use_cpu --config_name examples/configs/llama-5m.json \
        --tokenizer_name examples/tokenizers/shakespeare-4k --train_file examples/data/tinyshakespeare/text.txt \
        --do_train --do_eval --block_size 256 --max_steps 300 --learning_rate 2e-3 --lr_scheduler_type cosine \
        --warmup_steps 30 --logging_steps 25 --save_steps 100 --save_total_limit 1 --output_dir build/demo
}

echo "demo: trains for 300 steps, with a stop on the way. This takes two to three minutes on two cores."
rm -rf build/demo
train &
run=$!
sleep "${DEMO_STOP_SECONDS:-20}"
echo "demo: stopping the run (SIGTERM) …"
kill -TERM $run 2>/dev/null || true
wait $run || echo "demo: … and resuming it with the same command."
(train)
echo "demo: text from the trained model:"
build/release/drover generate --model build/demo --prompt "ROMEO:" --max_new_tokens 80 --temperature 0.8 --top_k 40
