"""The runs of run_clm.py that run_clm_runs.py makes: names, settings and command lines.

In the command lines {data}, {config}, {model}, {tokenizer} and {out} stand for folders.
"""

BF16_LOSS = 0.02  # what rounding to bf16 in another order may change a loss by
FP32_LOSS = 5e-4

TEXT = "--train_file {data}/train.txt --validation_file {data}/validation.txt"
SCRATCH = "--config_name {config}/llama.json --tokenizer_name {tokenizer}"
MIXTRAL = "--config_name {config}/mixtral.json --tokenizer_name {tokenizer}"
SAVED = "--model_name_or_path {model} --tokenizer_name {tokenizer}"
RUN = "--output_dir {out} --do_train --block_size 64 --logging_steps 1"
SMALL = "--per_device_train_batch_size 8 --learning_rate 2e-3"
NO_SAVE = "--save_strategy no"


def case(*parts, loss=FP32_LOSS):
    return {"loss_tolerance": loss, "arguments": " ".join(parts).split()}


CASES = {
    "adamw_linear": case(SCRATCH, TEXT, RUN, SMALL, "--do_eval --num_train_epochs 1"),
    "cosine_accumulation": case(
        SCRATCH, TEXT, RUN, NO_SAVE, "--do_eval --per_device_train_batch_size 6 --gradient_accumulation_steps 3",
        "--learning_rate 3e-3 --num_train_epochs 2 --lr_scheduler_type cosine --warmup_steps 4 --seed 7"),
    "adafactor_constant": case(
        SCRATCH, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --optim adafactor --lr_scheduler_type constant --max_steps 15"),
    "decay_clipping_eval": case(
        SCRATCH, TEXT, "--output_dir {out} --do_train --do_eval --block_size 64 --logging_steps 4 --logging_first_step",
        SMALL, NO_SAVE, "--weight_decay 0.1 --max_grad_norm 0.5 --eval_strategy steps --eval_steps 5 --max_steps 18"),
    "drop_last_split": case(
        SCRATCH, "--train_file {data}/train.txt --validation_split_percentage 5", RUN, NO_SAVE,
        "--do_eval --dataloader_drop_last True --per_device_train_batch_size 16 --per_device_eval_batch_size 4",
        "--learning_rate 2e-3 --num_train_epochs 1.5"),
    "epoch_strategies": case(
        SCRATCH, TEXT, "--output_dir {out} --do_train --do_eval --block_size 64 --logging_strategy epoch", NO_SAVE,
        "--per_device_train_batch_size 32 --eval_strategy epoch --learning_rate 2e-3 --num_train_epochs 3",
        "--adam_beta1 0.8 --adam_beta2 0.95 --adam_epsilon 1e-6 --lr_scheduler_type constant_with_warmup",
        "--warmup_steps 0.2 --max_grad_norm 0"),
    "mixtral_aux": case(MIXTRAL, TEXT, RUN, SMALL, NO_SAVE, "--max_steps 20"),
    "mixtral_aux_accumulation": case(
        MIXTRAL, TEXT, RUN, NO_SAVE, "--per_device_train_batch_size 4 --gradient_accumulation_steps 5",
        "--learning_rate 2e-3 --num_train_epochs 1"),
    "mixtral_aux_eval": case(MIXTRAL, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --max_steps 12"),
    "mixtral_aux_eval_loss_only": case(
        MIXTRAL, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --prediction_loss_only True --max_steps 12"),
    "mixtral_plain_eval": case(
        "--config_name {config}/mixtral_plain.json --tokenizer_name {tokenizer}", TEXT, RUN, SMALL, NO_SAVE,
        "--do_eval --max_steps 12"),
    "mixtral_adafactor": case(
        MIXTRAL, TEXT, RUN, SMALL, NO_SAVE, "--optim adafactor --max_steps 12"),
    "continued_float32": case(SAVED, TEXT, RUN, SMALL, NO_SAVE, "--dtype float32 --do_eval --max_steps 12"),
    "continued_auto": case(SAVED, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --max_steps 12", loss=BF16_LOSS),
    "continued_bfloat16": case(
        SAVED, TEXT, RUN, SMALL, NO_SAVE, "--dtype bfloat16 --do_eval --max_steps 12", loss=BF16_LOSS),
    "continued_torch_dtype": case(
        SAVED, TEXT, RUN, SMALL, NO_SAVE, "--torch_dtype bfloat16 --do_eval --max_steps 12", loss=BF16_LOSS),
    "eval_only": case(SAVED, TEXT, "--output_dir {out} --do_eval --block_size 64 --dtype float32"),
    "bf16_autocast": case(SCRATCH, TEXT, RUN, SMALL, NO_SAVE, "--bf16 --use_cpu --do_eval --max_steps 15", loss=BF16_LOSS),
    "scratch_config_bfloat16": case(
        "--config_name {config}/llama_bfloat16.json --tokenizer_name {tokenizer}", TEXT, RUN, SMALL, NO_SAVE,
        "--do_eval --max_steps 12", loss=BF16_LOSS),
    "json_file": case(
        SCRATCH, "--train_file {data}/../packing/speeches.json --validation_split_percentage 10", RUN, NO_SAVE,
        "--do_eval --per_device_train_batch_size 24 --learning_rate 2e-3 --num_train_epochs 1"),
    "csv_file": case(
        SCRATCH, "--train_file {data}/../packing/speeches.csv --validation_split_percentage 10", RUN, NO_SAVE,
        "--do_eval --per_device_train_batch_size 24 --learning_rate 2e-3 --num_train_epochs 1"),
    "max_samples": case(
        SCRATCH, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --max_train_samples 50 --max_eval_samples 7 --max_steps 12"),
    "label_smoothing": case(
        SCRATCH, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --label_smoothing_factor 0.1 --max_steps 15"),
    "preprocessing_workers": case(
        SCRATCH, TEXT, RUN, SMALL, NO_SAVE, "--do_eval --preprocessing_num_workers 4 --max_steps 12"),
    "streaming": case(
        SCRATCH, "--dataset_name {data}/streamed", RUN, SMALL, NO_SAVE,
        "--streaming --do_eval --max_train_samples 60 --max_eval_samples 13 --max_steps 20"),
    "streaming_split": case(
        SCRATCH, "--train_file {data}/train.txt --validation_split_percentage 5", RUN, SMALL, NO_SAVE,
        "--streaming --do_eval --eval_strategy steps --eval_steps 6 --max_eval_samples 10 --max_train_samples 96",
        "--gradient_accumulation_steps 2 --max_steps 14 --include_num_input_tokens_seen True"),
    "streaming_drop_last": case(
        SCRATCH, "--train_file {data}/../packing/speeches.json --validation_split_percentage 10", RUN, SMALL, NO_SAVE,
        "--streaming --do_eval --eval_strategy epoch --dataloader_drop_last True --max_train_samples 60",
        "--max_eval_samples 19 --max_steps 16"),
    "best_model": case(
        SCRATCH, TEXT, "--output_dir {out} --do_train --do_eval --block_size 64 --logging_steps 4 --logging_first_step", SMALL,
        "--eval_on_start --eval_strategy steps --eval_steps 3 --eval_delay 5 --save_strategy best --save_total_limit 1",
        "--save_only_model --metric_for_best_model accuracy --greater_is_better True --load_best_model_at_end",
        "--include_num_input_tokens_seen True --data_seed 11 --max_steps 14"),
}
