#!/usr/bin/env bash
# Llama 2 with 2-D sharding. The flags are those of PyTorch/XLA's guide to Llama 2 training on TPUs. The
# words before them start the processes. The batch is that of all processes together.
#
# NPROC=4 SHARDING="--spmd_2d_sharding 2" CONFIG=llama2_7B.json examples/commands/llama2_spmd.sh
# More flags may follow; they override those below.
set -euo pipefail

: "${DROVER:=drover}" "${MPIRUN:=mpirun --bind-to none}" "${NPROC:=2}"
: "${CONFIG:=$HOME/config.json}" "${TOKENIZER:=hf-internal-testing/llama-tokenizer}"
: "${DATA:=--dataset_name wikitext --dataset_config_name wikitext-2-raw-v1}"
: "${GLOBAL_BATCH_SIZE:=256}" "${BLOCK_SIZE:=1024}" "${OUTPUT:=/tmp/output}"
: "${SHARDING:=--spmd_2d_sharding 1}"

export PJRT_DEVICE=${PJRT_DEVICE:-TPU}
export XLA_USE_BF16=1
export XLA_IR_DEBUG=1
export XLA_HLO_DEBUG=1

export PROFILE_EPOCH=0
export PROFILE_STEP=3
export PROFILE_DURATION_MS=20000
export PROFILE_LOGDIR=${PROFILE_LOGDIR:-/tmp/home/}

# shellcheck disable=SC2086  # MPIRUN, DATA and SHARDING are several words
exec $MPIRUN -n "$NPROC" "$DROVER" run_clm \
  --tokenizer_name "$TOKENIZER" \
  $DATA \
  --per_device_train_batch_size "$GLOBAL_BATCH_SIZE" \
  --per_device_eval_batch_size 8 \
  --num_train_epochs 1 \
  --do_train \
  --output_dir "$OUTPUT" \
  --overwrite_output_dir \
  --config_name "$CONFIG" \
  --save_strategy no \
  --logging_strategy no \
  --remove_unused_columns no \
  --optim adafactor \
  --torch_dtype bfloat16 \
  --dataloader_drop_last yes \
  --block_size "$BLOCK_SIZE" \
  $SHARDING \
  --spmd_grad_chkpt \
  "$@"
