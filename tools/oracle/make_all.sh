#!/bin/sh
# Writes every golden file. With the path of the Shakespeare text as first argument, also the tokenizers. With a
# folder that holds wikitext-2/ and Llama's tokenizers/ as second argument, also their golden files and the
# packed blocks. With the path of run_clm.py in RUN_CLM, also its runs.
set -eu
folder=$(dirname "$0")
python=${PYTHON:-python3}
for script in ops rng rope_tables schedules init optimizer_ops one_step mixtral_step lora fp8 fp8_experts jitter_step smoothed_step curve nxd_run published_runs hf_folder torch_weights nxd_shards gguf_files meta_shards dcp_folders resize configs loss_scaler samplers pipeline_schedules readers argument_names trainer_log event_records pickles trainer_checkpoint sharded_runs nxd_optimizer chat_templates sft_arguments generation sft_rows sft_runs peft_adapters quotes quotes_run chat_tokenizer dataset_splits; do
    echo "$script"
    "$python" "$folder/$script.py"
done
if [ $# -gt 0 ]; then
    echo tokenizers
    "$python" "$folder/tokenizer_ids.py" "$@"
    "$python" "$folder/tokenizer_parts.py"
fi
if [ $# -gt 1 ]; then
    echo packing
    "$python" "$folder/packing.py" "$2/wikitext-2/valid.txt"
    "$python" "$folder/sft_rows.py" "$2"
fi
if [ -n "${RUN_CLM:-}" ]; then
    echo run_clm
    "$python" "$folder/run_clm_runs.py" "$RUN_CLM" ${1:+--text "$1"}
fi
