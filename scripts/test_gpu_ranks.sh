#!/bin/sh
# scripts/test_gpu_ranks.sh BUNDLE
# Tests several ranks of an unpacked bundle (make bundle BUNDLE=--tests) with NCCL between them: every
# collective, what happens when a rank fails, and training on a mesh and through the C++ interface against
# one process. Ranks may share GPUs, so one GPU is enough. Results go to stdout, the programs' own output to
# $OUT or a temporary folder.
set -eu

bundle=$(cd "$1" && pwd)
logs=${OUT:-$(mktemp -d)}
failed=0
export DROVER_TEST_DEVICE=cuda OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none

skip() {
    echo "ranks                            skipped: $1"
    exit 0
}

# Name, seconds it may take, ranks, what the output must contain, program and its argument. Ranks that are
# meant to fail do so by themselves.
part() {
    name=$1 seconds=$2 ranks=$3 expected=$4
    shift 4
    log="$logs/$name.log"
    begin=$(date +%s) status=0
    timeout -k 5 "$seconds" mpirun -n "$ranks" "$bundle/bin/$@" >"$log" 2>&1 || status=$?
    case $expected in *' ranks: '*) passes='-eq' ;; *) passes='-ne' ;; esac
    result=passed
    if [ "$status" -eq 124 ]; then
        result='FAILED (too late)' failed=1
    elif ! [ "$status" $passes 0 ]; then
        result="FAILED (exit $status)" failed=1
    elif ! grep -qaF "$expected" "$log"; then
        result='FAILED (output)' failed=1
    fi
    printf '%-32s %-18s %4d s  %s\n' "$name" "$result" "$(($(date +%s) - begin))" "$(grep -aF "$expected" "$log" | head -n 1)"
}

# The C++ interface on this many ranks: evaluations before and after training, of the saved model (train) and
# of one that two Trainers train one after the other (twice), as on one rank.
evaluations() {
    log="$logs/api-$2-$1-ranks.log"
    timeout -k 5 180 mpirun -n "$1" "$bundle/bin/trainer_program" "$2" "$work/model" "$source/examples/data/quotes.jsonl" \
        "$work/out" >"$log" 2>&1 || echo "exit $?"
    awk '$1 == "before" || $1 == "between" || $1 == "after" || $1 == "again" { print $1, $2 }' "$log"
    rm -rf "$work/out"
}
api_part() {
    begin=$(date +%s) result=passed
    evaluations 1 "${2%_2d}" >"$work/one"
    evaluations "$1" "$2" >"$work/several"
    paste -d ' ' "$work/one" "$work/several" |
        awk '{ d = $2 - $4; if (NF != 4 || $1 != $3 || d * d > 0.0005 ^ 2) wrong = 1 } END { exit wrong || NR < 3 }' || {
        result='FAILED (numbers)' failed=1
    }
    printf '%-32s %-18s %4d s  %s\n' "api-$2-$1-ranks" "$result" "$(($(date +%s) - begin))" "$(tr '\n' ' ' <"$work/several")"
}

nvidia-smi >/dev/null 2>&1 || skip 'nvidia-smi finds no GPU here.'
command -v mpirun >/dev/null || skip 'mpirun is not installed (package openmpi-bin).'
[ -e "$bundle/bin/drover_nccl.so" ] || skip 'the bundle was built without NCCL.'
absent=$(ldd "$bundle/bin/drover_nccl.so" "$bundle/bin/drover_mpi.so" "$bundle/bin/test_comm_nccl" | grep -m 1 'not found' || true)
[ -z "$absent" ] || skip "a library is missing:$absent."

for ranks in 2 4; do
    part nccl-$ranks-ranks 180 $ranks "$ranks ranks: all is well" test_comm_nccl
done
part nccl-alone 90 1 '1 ranks: all is well' test_comm_nccl alone
part nccl-debug-mode 180 2 '2 ranks: all is well' test_comm_nccl debug_checks
part nccl-hang 90 3 'in barrier number 2 on axis data; received nothing from rank 1.' test_comm_nccl hang
part nccl-throw 60 3 'test_comm_nccl: The disk is full. Make room.' test_comm_nccl throw
part nccl-throw-under-way 60 2 'test_comm_nccl: The disk is full. Make room.' test_comm_nccl throw_under_way
part nccl-kill 60 3 'signal 9' test_comm_nccl kill
part nccl-other-call 60 2 'rank 1 calls all_reduce of 8 float32 (sum) (collective 2 on axis data).' test_comm_nccl other_call
for ranks in 2 4; do
    part mesh-$ranks-ranks 400 $ranks "$ranks ranks: " test_parallel_mpi
done
part mesh-hang 120 2 'received nothing from rank 1' test_parallel_mpi hang

source=${DROVER_SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/tests/golden/run_clm/saved" "$work/model"
cp -r "$source/examples/tokenizers/shakespeare-4k/." "$work/model"
api_part 2 train
api_part 4 train_2d
api_part 2 twice
part api-failure 60 3 'something that rank 1 alone does not like' trainer_program own_error "$work/model" \
    "$source/examples/data/quotes.jsonl" "$work/out"
exit $failed
