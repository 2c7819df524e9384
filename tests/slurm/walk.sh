#!/usr/bin/env bash
# The guide of neuronx-distributed for Llama 3 70B, command by command and under its names, with sizes cut, in
# a Slurm of this machine: dataset, rehearsal, training, checkpoints, conversion. Then a task per rank.
#
# walk.sh PROGRAM [FOLDER]    PROGRAM: drover; FOLDER: where everything goes (else a temporary one)
# Exits with 77 where Slurm cannot run, after saying why.
set -euo pipefail

program=$(realpath "$1")
source=$(cd "$(dirname "$0")/../.." && pwd)
work=${2:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)

fail() {
    echo "walk: $1" >&2
    tail -n 40 "$work"/home/examples/tp_pp_llama_hf_pretrain/slurm-*.out >&2 2>/dev/null || true
    exit 1
}
step() { echo "walk: $*"; }

trap '"$source/tests/slurm/cluster.sh" stop "$work/slurm"' EXIT
"$source/tests/slurm/cluster.sh" start "$work/slurm"
export SLURM_CONF=$work/slurm/slurm.conf

# What a user of the guide has: a home, a shared folder, the scripts, the tokenizer; and here a small model.
export HOME=$work/home SHARED_DIR=$work/shared HF_HOME=$work/home/.cache/huggingface OMP_NUM_THREADS=1
export DROVER=$program PATH=$source/examples/nxd/bin:$(dirname "$program"):$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
example=$HOME/examples/tp_pp_llama_hf_pretrain
mkdir -p "$example" "$SHARED_DIR" "$HF_HOME/datasets/downloads"
cp -rL "$source/examples/nxd/." "$example"
rm -rf "$example/bin"
cat >"$example/70B_config_llama3/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4096,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "hidden_act": "silu",
 "initializer_range": 0.02, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
 "torch_dtype": "bfloat16"}
JSON
cp "$source"/examples/tokenizers/shakespeare-4k/*.json "$example"
sed -i 's/"model_max_length": *[0-9.e+]*/"model_max_length": 128/' "$example/tokenizer_config.json"
grep -q '"model_max_length": 128' "$example/tokenizer_config.json" ||
    sed -i 's/^{/{"model_max_length": 128,/' "$example/tokenizer_config.json"
echo '{}' >"$example/special_tokens_map.json"
# The corpus as the datasets library keeps what it downloads.
mkdir -p "$work/raw.en"
{
    echo '<doc id="1" title="Plays" nonfiltered="1" processed="1" dbindex="1">'
    head -n 6000 "$source/examples/data/tinyshakespeare/text.txt"
    printf 'ENDOFARTICLE.\n</doc>\n'
} >"$work/raw.en/englishText_0_10000"
tar czf "$HF_HOME/datasets/downloads/0123abcd" -C "$work/raw.en" .
echo '{"url": "https://www.cs.upc.edu/~nlp/wikicorpus/raw.en.tgz", "etag": null}' >"$HF_HOME/datasets/downloads/0123abcd.json"

# Sizes, all by variables that the scripts read.
export PROCESSES_PER_NODE=4 TP_DEGREE=2 PP_DEGREE=2 KV_REPLICATOR=1 GBS=4 SEQ_LEN=128
# Curves of different meshes are compared, so without bfloat16's rounding.
export XLA_DOWNCAST_BF16=0
cpus=$(nproc)

cd "$example"
step "python3 get_dataset.py --llama-version 3"
python3 get_dataset.py --llama-version 3
[ -f "$HOME/examples_datasets/wikicorpus_llama3_tokenized_8k/state.json" ] || fail 'no dataset where the scripts look'

step "sbatch … srun neuron_parallel_compile bash run_llama3_70B_tp_pp.sh"
sbatch --wait --exclusive --nodes 1 --cpus-per-task "$cpus" \
    --wrap="srun neuron_parallel_compile bash $(pwd)/run_llama3_70B_tp_pp.sh" || fail 'the rehearsal failed'
grep -q '^step 9 ' logs/*/0/log || fail 'the rehearsal did not train ten steps'
[ ! -e "$SHARED_DIR/llama3_70B" ] || fail 'the rehearsal wrote a checkpoint'
rm -r logs

step "training, without checkpoints (PERF_TEST=1)"
PERF_TEST=1 EARLY_EXIT_STEPS=8 sbatch --wait --exclusive --nodes 1 --cpus-per-task "$cpus" \
    --wrap="srun bash $(pwd)/run_llama3_70B_tp_pp.sh" || fail 'training failed'
# `step N … step loss L grad norm G` without times, which differ.
curve() { sed -n 's/^step \([0-9]*\) .* step loss \([0-9.e+-]*\) grad norm \([0-9.e+-]*\).*/\1 \2 \3/p' "$1"; }
curve logs/*/0/log >"$work/mesh"
[ "$(wc -l <"$work/mesh")" = 8 ] || fail 'not one line for each of eight steps'
[ -f results.json ] || fail 'no results.json'
rm -r logs

step "the same on one process"
curves_agree() {
    paste -d ' ' "$1" "$2" | awk -v least="$3" '{ d = $2 - $5; g = ($3 - $6) / $3
        if ($1 != $4 || d * d > 1e-6 || g * g > 1e-4) wrong = 1 } END { exit wrong || NR < least }'
}
PROCESSES_PER_NODE=1 TP_DEGREE=1 PP_DEGREE=1 PERF_TEST=1 EARLY_EXIT_STEPS=8 bash ./run_llama3_70B_tp_pp.sh
curve logs/log >"$work/one"
curves_agree "$work/mesh" "$work/one" 8 || fail "other losses than one process: $(paste "$work/mesh" "$work/one")"
rm -r logs

step "checkpoints: the flags that the guide says to add"
cp run_llama3_70B_tp_pp.sh run_llama_70b_tp_pp.sh
sed -i 's/--tb_dir "\$tb_dir" "\$@"/& --max_steps 8 --checkpoint_freq 2 --num_kept_checkpoint 2 --async_checkpoint_saving 1 $MORE/' \
    run_llama_70b_tp_pp.sh
MORE='' sbatch --wait --exclusive --nodes 1 --cpus-per-task "$cpus" --wrap="srun bash $(pwd)/run_llama_70b_tp_pp.sh" ||
    fail 'training with checkpoints failed'
[ "$(ls "$SHARED_DIR/llama3_70B" | sort -V | paste -sd ' ')" = 'step_6 step_8' ] || fail "kept: $(ls "$SHARED_DIR/llama3_70B")"
rm -rf "$SHARED_DIR/llama3_70B/step_8" logs
MORE='--loading_step latest_if_exists' sbatch --wait --exclusive --nodes 1 --cpus-per-task "$cpus" \
    --wrap="srun bash $(pwd)/run_llama_70b_tp_pp.sh" || fail 'resuming failed'
curve logs/*/0/log >"$work/resumed"
[ "$(cut -d ' ' -f 1 "$work/resumed" | paste -sd ' ')" = '6 7' ] || fail "resumed steps: $(cat "$work/resumed")"
rm -r logs

step "a task per rank: srun --mpi=pmix"
if srun --mpi=list 2>&1 | grep -q pmix; then
    srun --mpi=pmix --overcommit --ntasks 4 "$program" run_llama_nxd --training_config "$example/70B_config_llama3" \
        --training_dir "$HOME/examples_datasets/wikicorpus_llama3_tokenized_8k" --tensor_parallel_size 2 \
        --pipeline_parallel_size 2 --train_batch_size 4 --num_microbatches 4 --seq_len 128 --max_steps 8 --lr 0.000015 \
        --min_lr 1e-06 --weight_decay 0.1 --warmup_steps 2000 --constant_steps 0 --use_zero1_optimizer 1 \
        --use_selective_checkpoint 1 --tb_dir "$work/tb" >"$work/ranks.log" 2>&1 || { cat "$work/ranks.log" >&2; fail 'srun --mpi=pmix failed'; }
    curve "$work/ranks.log" >"$work/ranks"
    curves_agree "$work/mesh" "$work/ranks" 8 || fail "other losses: $(paste "$work/mesh" "$work/ranks")"
else
    echo 'walk: skipped, because this Slurm has no PMIx.'
fi

step "python3 convert_checkpoints.py … --convert_from_full_model"
python3 convert_checkpoints.py --tp_size 2 --pp_size 2 --n_layers 4 --input_dir "$SHARED_DIR/llama3_70B/step_8" \
    --output_dir "$work/sharded" --convert_from_full_model
MORE="--max_steps 2 --checkpoint_freq 2 --checkpoint_format nxd --checkpoint_dir $work/nxd --pretrained_weight_dir $work/sharded" \
    sbatch --wait --exclusive --nodes 1 --cpus-per-task "$cpus" --wrap="srun bash $(pwd)/run_llama_70b_tp_pp.sh" ||
    fail 'training from the shards failed'

step "python3 convert_checkpoints.py … --convert_to_full_model"
python3 convert_checkpoints.py --tp_size 2 --pp_size 2 --n_layers 4 --input_dir "$work/nxd/step_2/model" \
    --output_dir "$work/full" --convert_to_full_model --kv_size_multiplier 1 --config 70B_config_llama3/config.json \
    --qkv_linear True --load_xser True
[ -f "$work/full/checkpoint.pt" ] || fail 'no checkpoint.pt'

echo 'walk: everything passed.'
[ $# -gt 1 ] || rm -rf "$work"
