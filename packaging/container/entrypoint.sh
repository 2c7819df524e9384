#!/bin/sh
# What a container runs. A command of drover ("run_clm …", "launch …") is run as it is. Without one, the model
# /config.json is trained with the command of PyTorch/XLA's guide to Llama 2 in Docker; flags are added to it and
# override it. NPROC, TOKENIZER, DATA and OUTPUT change it too, and DROVER_ variables act as always.
set -eu

case ${1-} in
    -h | --help | --version) exec drover "$@" ;;
    '' | -*) ;;
    *) exec drover "$@" ;;
esac

: "${NPROC:=auto}" "${TOKENIZER:=hf-internal-testing/llama-tokenizer}" "${OUTPUT:=/tmp/output}"
: "${DATA:=--dataset_name wikitext --dataset_config_name wikitext-2-raw-v1}"

# shellcheck disable=SC2086  # DATA and SPMD_SHARDING_FLAG are several words
exec drover launch --nproc_per_node "$NPROC" run_clm \
    --tokenizer_name "$TOKENIZER" \
    $DATA \
    --per_device_train_batch_size "$GLOBAL_BATCH_SIZE" \
    --per_device_eval_batch_size 8 \
    --num_train_epochs 3 \
    --do_train \
    --output_dir "$OUTPUT" \
    --overwrite_output_dir \
    --config_name /config.json \
    --save_strategy no --logging_strategy no \
    --remove_unused_columns no \
    --optim adafactor \
    --torch_dtype bfloat16 \
    --dataloader_drop_last yes \
    --spmd_grad_chkpt \
    --spmd_defer_init \
    $SPMD_SHARDING_FLAG "$@"
