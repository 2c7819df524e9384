#!/bin/sh
# scripts/test_gpu.sh BUNDLE [ptx]
# Tests an unpacked bundle (make bundle BUNDLE=--tests) on this machine's GPU: every operation, gradients,
# loss curves, generation, the C++ interface, what drover doctor sees, equal bits of repeated and resumed runs, and, where
# compute-sanitizer is installed, small operations under it. For several ranks see test_gpu_ranks.sh. Run it in a checkout.
# DROVER_CUDA_MODULE names a module to test in place of the bundle's. With "ptx" it must be one whose kernels the driver
# compiles, such as a build of drover_cuda with DROVER_CUDA_ARCHITECTURES=80-virtual (make test-gpu-ptx). It compiles during
# the first tests and keeps the result; LIMIT is how many times as long as usual a part may take.
# Results go to stdout, the tests' own output to $OUT or a temporary folder.
set -eu

bundle=$(cd "$1" && pwd)
checkout=$(cd "$(dirname "$0")/.." && pwd)
logs=${OUT:-$(mktemp -d)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DROVER_SOURCE_DIR="$checkout"
failed=0
expected=${2:-}
limit=${LIMIT:-1}
if [ "$expected" = ptx ]; then
    limit=${LIMIT:-3}
    export DROVER_TEST_CODE=ptx
fi

# name, seconds it may take, command
part() {
    name=$1 seconds=$(($2 * limit))
    shift 2
    begin=$(date +%s)
    if timeout "$seconds" "$@" >"$logs/$name.log" 2>&1; then result=passed; else result="FAILED (exit $?)" failed=1; fi
    printf '%-32s %-18s %4d s  %s\n' "$name" "$result" "$(($(date +%s) - begin))" \
        "$(grep -aE '^\[  (PASSED|FAILED)  \] [0-9]+ test' "$logs/$name.log" | tr '\n' ' ')"
}

if ! nvidia-smi >/dev/null 2>&1; then
    echo 'test-gpu: skipped, because nvidia-smi finds no GPU here.'
    exit 0
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
"$bundle/bin/drover" --version
if [ -n "${DROVER_CUDA_MODULE:-}" ]; then
    echo "module: $DROVER_CUDA_MODULE"
    export LD_LIBRARY_PATH="$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" # where the bundle's own finds its libraries
fi

export DROVER_TEST_DEVICE=cuda
for program in test_backend test_train test_generate test_api; do
    part $program 200 "$bundle/bin/$program" --gtest_brief=1
done
if command -v compute-sanitizer >/dev/null; then
    part memcheck 180 compute-sanitizer --error-exitcode 9 "$bundle/bin/test_backend" --gtest_brief=1 \
        --gtest_filter='RmsNorm.*:HeadNorm.*:Swiglu*:Rope*:CrossEntropy.*:Embedding*:General*:SumOfSquares*:Router*:SortByExpert*:OneStep/*gqa*:-RmsNorm.ManyAndWide*'
else
    echo 'memcheck                         skipped: compute-sanitizer is not installed'
fi
export DROVER_ATTENTION_BACKWARD=cudnn
part 'attention by cuDNN' 100 "$bundle/bin/test_backend" --gtest_brief=1 --gtest_filter='*Attention*'
unset DROVER_ATTENTION_BACKWARD
# As on a card whose blocks have less shared memory.
export DROVER_TEST_SHARED_MEMORY_KB=99
part 'test_backend with 99 KiB' 200 "$bundle/bin/test_backend" --gtest_brief=1
unset DROVER_TEST_SHARED_MEMORY_KB DROVER_TEST_DEVICE

# A run, the same run again, and the same run stopped and resumed: equal records and weights.
train() {
    "$bundle/bin/drover" run_clm --device cuda --config_name "$checkout/examples/configs/llama-5m.json" \
        --tokenizer_name "$checkout/examples/tokenizers/shakespeare-4k" \
        --train_file "$checkout/examples/data/tinyshakespeare/text.txt" --do_train --block_size 256 --learning_rate 1e-3 \
        --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --logging_steps 1 --save_steps 7 \
        --max_steps 20 --seed 1 "$@"
}
same_weights() {
    cmp "$1/model.safetensors" "$2/model.safetensors"
}
doctor_sees_the_gpu() {
    "$bundle/bin/drover" doctor --dir "$work" | tee "$work/doctor"
    grep -Eq '^  train on a GPU +yes' "$work/doctor"
}
# Which code runs: the machine code of this kind of card, or PTX.
code() {
    train --dtype float32 --output_dir "$work/code" --dry_run >"$logs/code.log" 2>&1 || return 1
    kind=machine
    ! grep -q 'its driver compiles the kernels' "$logs/code.log" || kind=ptx
    echo "code: $kind"
    [ "$expected" != ptx ] || [ $kind = ptx ]
}
# Name and function of a check.
check() {
    begin=$(date +%s)
    if $2 >"$logs/$(echo "$1" | tr -c 'a-zA-Z0-9\n' -).log" 2>&1; then result=passed; else result=FAILED failed=1; fi
    printf '%-32s %-18s %4d s\n' "$1" "$result" "$(($(date +%s) - begin))"
}
if ! code; then
    echo 'code: FAILED, see code.log'
    failed=1
fi
for precision in float32 bfloat16; do
    repeated() {
        train --dtype $precision --output_dir "$work/$precision-a" && train --dtype $precision --output_dir "$work/$precision-b" &&
            same_weights "$work/$precision-a" "$work/$precision-b"
    }
    resumed() {
        cp -r "$work/$precision-a" "$work/$precision-c" && rm -rf "$work/$precision-c"/checkpoint-14 "$work/$precision-c"/checkpoint-20 \
            "$work/$precision-c"/model.safetensors &&
            train --dtype $precision --output_dir "$work/$precision-c" --resume_from_checkpoint "$work/$precision-c/checkpoint-7" &&
            same_weights "$work/$precision-a" "$work/$precision-c"
    }
    check "repeated run, $precision" repeated
    check "resumed run, $precision" resumed
done

# One device continues what the other saved: losses agree to 1 in 1000 with those of a run on one device.
losses_from() {
    awk -v FS="'" '/^\{.loss/ { print $4 }' "$1" | tail -n "$2"
}
goes_on() {
    rm -rf "$work/moved" && mkdir "$work/moved" && cp -r "$work/$1/checkpoint-7" "$work/moved/" &&
        train --dtype float32 --save_strategy no --disable_tqdm True --output_dir "$work/moved" --device "$2" >"$work/moved.log" 2>&1 &&
        losses_from "$work/moved.log" 13 >"$work/moved.losses" && [ "$(wc -l <"$work/moved.losses")" -eq 13 ] &&
        losses_from "$work/cpu.log" 13 | paste - "$work/moved.losses" |
        awk '{ print; d = $1 - $2; if (d < 0) d = -d; if (d > 0.001 * $1) exit 1 }'
}
cpu_run() {
    train --dtype float32 --disable_tqdm True --output_dir "$work/cpu" --device cpu >"$work/cpu.log" 2>&1
}
cpu_to_gpu() { cpu_run && goes_on cpu cuda; }
gpu_to_cpu() { goes_on float32-a cpu; }
check 'doctor sees the GPU' doctor_sees_the_gpu
check 'saved on the CPU, resumed here' cpu_to_gpu
check 'saved here, resumed on the CPU' gpu_to_cpu
exit $failed
