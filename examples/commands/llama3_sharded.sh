#!/usr/bin/env bash
# Llama 3 8B sharded in one of three ways, with the flags of TorchAcc's guide, which compares them. The words
# before the flags start the processes. The batch (BS) is that of each process. The DeepSpeed file takes it
# and the number of processes from here ("auto"), where the guide's file has 1 and 8.
#
# NPROC=8 MODEL=./Meta-Llama-3-8B/ examples/commands/llama3_sharded.sh native|deepspeed|torchacc
# More flags may follow; they override those below.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-}
: "${DROVER:=drover}" "${MPIRUN:=mpirun --bind-to none}" "${NPROC:=8}"
: "${MODEL:=./Meta-Llama-3-8B/}" "${OUTPUT:=/tmp/test-clm}" "${CACHE:=./cache}"
: "${DATA:=--dataset_name wikitext --dataset_config_name wikitext-103-raw-v1}"
: "${SEQLEN:=4096}" "${PRECISION:=bf16=true}"

case $mode in
native)
    export USE_TORCH_XLA=0
    : "${BS:=1}" "${FSDP_CONFIG:=$here/llama3_fsdp_native.json}"
    sharding=(--fsdp "auto_wrap" --fsdp_config "$FSDP_CONFIG")
    ;;
deepspeed)
    export USE_TORCH_XLA=0
    : "${BS:=1}" "${FSDP_CONFIG:=$here/llama3_fsdp_ds.json}"
    sharding=(--deepspeed "$FSDP_CONFIG")
    ;;
torchacc)
    export PJRT_ALLOCATOR_FRACTION=0.97
    export PJRT_DEVICE=${PJRT_DEVICE:-CUDA}
    : "${BS:=3}" "${FSDP_CONFIG:=$here/llama3_fsdp_acc.json}"
    sharding=(--fsdp "auto_wrap" --fsdp_config "$FSDP_CONFIG")
    ;;
*)
    echo "usage: $0 native|deepspeed|torchacc [more flags]" >&2
    exit 2
    ;;
esac
shift
: "${JOB_NAME:=LLAMA3_${mode^^}_N${NPROC}_BS${BS}_SEQLEN${SEQLEN}_BF16}"

# shellcheck disable=SC2086  # MPIRUN and DATA are several words
$MPIRUN -n "$NPROC" "$DROVER" run_clm \
    --num_train_epochs 2 \
    $DATA \
    --use_fast_tokenizer false \
    --per_device_train_batch_size $BS \
    --per_device_eval_batch_size $BS \
    --do_train \
    --output_dir "$OUTPUT" \
    --overwrite_output_dir \
    --config_name "$MODEL" \
    --tokenizer_name "$MODEL" \
    --trust_remote_code true \
    --cache_dir "$CACHE" \
    --block_size $SEQLEN \
    --optim adamw_torch \
    --save_strategy no \
    --logging_strategy steps \
    --gradient_checkpointing no \
    --logging_steps 100 \
    --$PRECISION \
    "${sharding[@]}" "$@" 2>&1 | tee "./$JOB_NAME.log"
