#!/bin/sh
# tests/profile/tensorboard.sh DROVER
# Profiles a small run on two processes and opens it with TensorBoard's own profile plugin, over HTTP. The
# packages are taken from the python3 that $PROFILE_PYTHON names, or are installed into build/profile-venv.
# Exit status 77: skipped, because they cannot be had.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
drover=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
    echo "profile: skipped, because $1."
    exit 77
}

python=${PROFILE_PYTHON:-$source/build/profile-venv/bin/python3}
if [ -z "${PROFILE_PYTHON:-}" ] && ! "$python" -c 'import tensorboard, xprof' 2>/dev/null; then
    command -v python3 >/dev/null || skip 'python3 is not installed'
    python3 -m venv "$source/build/profile-venv" 2>/dev/null || skip 'python3 has no venv (package python3-venv)'
    "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 30 \
        tensorboard==2.21.0 tensorboard-plugin-profile==2.24.2 2>"$work/pip.log" ||
        skip "pip could not install tensorboard-plugin-profile ($(tail -n 1 "$work/pip.log"))"
fi
"$python" -c 'import tensorboard, xprof' 2>/dev/null || skip "$python has no tensorboard-plugin-profile"

for processes in 1 2; do
    "$drover" launch --nproc_per_node "$processes" run_clm --config_name "$source/examples/configs/llama-5m.json" \
        --tokenizer_name "$source/examples/tokenizers/shakespeare-4k" \
        --train_file "$source/examples/data/tinyshakespeare/text.txt" --do_train --max_steps 6 --block_size 64 \
        --per_device_train_batch_size 2 --save_strategy no --save_final_model no --use_cpu --fsdp full_shard \
        --profile --profile_logdir "$work/$processes" --output_dir "$work/out$processes" >"$work/log" 2>&1 || {
        cat "$work/log"
        exit 1
    }
    "$python" "$here/tensorboard_routes.py" "$work/$processes" "$processes"
done
