#!/usr/bin/env bash
# Mixtral 8x7B with FSDPv2. The flags are those of PyTorch/XLA's guide to Mixtral training on TPUs. The
# words before them start the processes. The batch is that of all processes together.
#
# NPROC=8 CONFIG=mixtral87.json examples/commands/mixtral_fsdp.sh
# More flags may follow; they override those below.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
: "${DROVER:=drover}" "${MPIRUN:=mpirun --bind-to none}" "${NPROC:=2}"
: "${CONFIG:=$HOME/config.json}" "${TOKENIZER:=mistralai/Mixtral-8x7B-v0.1}"
: "${FSDP_CONFIG:=$here/mixtral_fsdp_config.json}"
: "${DATA:=--dataset_name wikitext --dataset_config_name wikitext-2-raw-v1}"
: "${GLOBAL_BATCH_SIZE:=32}" "${BLOCK_SIZE:=4096}" "${OUTPUT:=/tmp/test-clm}" "${CACHE:=/tmp}"

export PJRT_DEVICE=${PJRT_DEVICE:-TPU}
export XLA_USE_SPMD=1
export XLA_IR_DEBUG=1
export XLA_HLO_DEBUG=1

export PROFILE_EPOCH=0
export PROFILE_STEP=3
export PROFILE_DURATION_MS=20000
export PROFILE_LOGDIR=${PROFILE_LOGDIR:-/tmp/home/}

# shellcheck disable=SC2086  # MPIRUN and DATA are several words
exec $MPIRUN -n "$NPROC" "$DROVER" run_clm \
  $DATA \
  --per_device_train_batch_size "$GLOBAL_BATCH_SIZE" \
  --do_train \
  --output_dir "$OUTPUT" \
  --overwrite_output_dir \
  --config_name "$CONFIG" \
  --cache_dir "$CACHE" \
  --tokenizer_name "$TOKENIZER" \
  --block_size "$BLOCK_SIZE" \
  --optim adafactor \
  --save_strategy no \
  --logging_strategy no \
  --fsdp "full_shard" \
  --fsdp_config "$FSDP_CONFIG" \
  --torch_dtype bfloat16 \
  --dataloader_drop_last yes \
  --flash_attention \
  --max_steps 10 \
  --gmm \
  "$@"
