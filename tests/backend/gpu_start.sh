#!/bin/sh
# gpu_start.sh DROVER FAKE-GPU CHECKOUT
# What drover says of GPUs that it cannot use, or whose driver has to compile its kernels, shown on one that is not
# there.
set -eu
drover=$1 fake=$2 checkout=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$fake" "$work/libcuda.so.1"
failed=0

# expect STATUS SENTENCE VARIABLE=VALUE... -- FLAG...: the exit status of a dry run, and what it says
expect() {
    status=$1 sentence=$2
    shift 2
    variables=
    while [ "$1" != -- ]; do variables="$variables $1" && shift; done
    shift
    result=0
    env $variables DROVER_CACHE="$work/cache" LD_LIBRARY_PATH="$work" LD_PRELOAD="$fake" "$drover" run_clm "$@" \
        --config_name "$checkout/examples/configs/llama-5m.json" \
        --tokenizer_name "$checkout/examples/tokenizers/shakespeare-4k" \
        --train_file "$checkout/examples/data/tinyshakespeare/text.txt" --do_train --block_size 256 --dry_run \
        --output_dir "$work/out" >"$work/log" 2>&1 || result=$?
    if [ $result -ne $status ] || ! tr '\n' ' ' <"$work/log" | grep -qF "$sentence"; then
        echo "$variables $*: exit status $result instead of $status, or not \"$sentence\", but:"
        tail -n 5 "$work/log"
        failed=1
    fi
}

no_code=209 old_driver=222 # as cudaError_t numbers them
expect 1 'The Fake GPU (compute capability 7.5) is too old for drover, which needs compute capability 8.0 or later.' \
    FAKE_CAPABILITY=75 -- --device cuda
expect 0 'This machine has a GPU, but the run takes the CPU. The Fake GPU (compute capability 7.5) is too old' \
    FAKE_CAPABILITY=75 -- --device auto
expect 1 'no code for the Fake GPU (compute capability 8.0). Build with -DDROVER_CUDA_ARCHITECTURES=80 ' \
    FAKE_CAPABILITY=80 FAKE_ERROR=$no_code -- --device cuda
expect 1 '(compute capability 9.0). Build with -DDROVER_CUDA_ARCHITECTURES=90a ' \
    FAKE_CAPABILITY=90 FAKE_ERROR=$no_code -- --device cuda
expect 1 'the driver cannot compile its kernels' FAKE_CAPABILITY=120 FAKE_ERROR=$old_driver -- --device cuda

# Nothing but the kernels is there, so the run itself ends with an error of cuBLASLt.
expect 1 'no machine code for the Fake GPU (compute capability 12.0), so its driver compiles the kernels.' \
    FAKE_CAPABILITY=120 FAKE_CODE=900 -- --device cuda
expect 1 'cuBLASLt failed' FAKE_CAPABILITY=86 FAKE_CODE=860 -- --device cuda
if grep -q compiles "$work/log"; then
    echo 'machine code is taken for PTX:' && tail -n 5 "$work/log"
    failed=1
fi
exit $failed
