#!/usr/bin/env bash
# Pretrains Llama 3 70B, or 3.1 70B with LLAMA_CONFIG_VERSION=3.1. Start it once per node, with bin/ first in
# PATH. More flags may follow; they override those below. docs/guides/nxd.md has the whole way.
#
# sbatch --exclusive --nodes 32 --wrap="srun bash $(pwd)/run_llama3_70B_tp_pp.sh"
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MODEL=70B LLAMA_VERSION=3 BLOCK=8k
: "${LLAMA_CONFIG_VERSION:=${LLAMA_CONFIG_VERISON:-3}}" # the second spelling is the original script's
: "${TP_DEGREE:=32}" "${PP_DEGREE:=8}" "${KV_REPLICATOR:=4}" "${SEQ_LEN:=8192}"
: "${CONFIG:=$here/${MODEL}_config_llama$LLAMA_CONFIG_VERSION}"
. "$here/job.sh"

torchrun $DISTRIBUTED_ARGS run_llama_nxd.py \
    --metrics_file "$METRICS_FILE" \
    --train_batch_size $BS \
    --use_meta_device_init 1 \
    --training_dir "$DATA_PATH" \
    --training_config "$CONFIG" \
    --max_steps $max_steps \
    --seq_len $SEQ_LEN \
    --pipeline_parallel_size $PP_DEGREE \
    --tensor_parallel_size $TP_DEGREE \
    --num_microbatches $NUM_MICROBATCHES \
    --lr 0.000015 \
    --min_lr 1e-06 \
    --beta1 0.9 \
    --beta2 0.95 \
    --weight_decay 0.1 \
    --warmup_steps 2000 \
    --constant_steps 0 \
    --use_zero1_optimizer 1 \
    --use_selective_checkpoint 1 \
    --use_flash_attention 1 \
    --qkv_linear 1 \
    --kv_replicator $KV_REPLICATOR \
    --pretrained_weight 0 \
    --save_load_xser 1 \
    --checkpoint_dir "$SHARED_DIR/llama${LLAMA_VERSION}_$MODEL/" \
    --checkpoint_freq $checkpoint_freq \
    --num_kept_checkpoint -1 \
    --loading_step -1 \
    --tb_dir "$tb_dir" "$@" |& tee "$LOG_PATH/log"
