#!/usr/bin/env bash
# Pretrains Llama 2 70B. Start it once per node, with bin/ first in PATH. More flags may follow; they override
# those below. docs/guides/nxd.md has the whole way.
#
# sbatch --exclusive --nodes 32 --wrap="srun bash $(pwd)/run_llama2_70B_tp_pp.sh"
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MODEL=70B LLAMA_VERSION=2 BLOCK=4k
: "${TP_DEGREE:=32}" "${PP_DEGREE:=8}" "${VPP_DEGREE:=1}" "${KV_REPLICATOR:=4}" "${SEQ_LEN:=4096}"
: "${GPU_COMPATIBLE_PRECISION:=1}" "${CONFIG:=$here/${MODEL}_config_llama$LLAMA_VERSION}"
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
    --virtual_pipeline_size $VPP_DEGREE \
    --tensor_parallel_size $TP_DEGREE \
    --num_microbatches $NUM_MICROBATCHES \
    --lr 0.00015 \
    --min_lr 1e-05 \
    --beta1 0.9 \
    --beta2 0.95 \
    --weight_decay 0.1 \
    --warmup_steps 2000 \
    --constant_steps 0 \
    --use_zero1_optimizer 1 \
    --use_selective_checkpoint 1 \
    --use_gpu_compatible_precision $GPU_COMPATIBLE_PRECISION \
    --qkv_linear 1 \
    --kv_replicator $KV_REPLICATOR \
    --tb_dir "$tb_dir" "$@" |& tee "$LOG_PATH/log"
