// Fine-tunes a model on a file of quotes: the tutorial "Tuning Llama Model" with FSDP v2, line by line, in
// C++.
//
//     finetune_quotes MODEL [QUOTES.jsonl] [OUTPUT_DIR] [EPOCHS]
//
// MODEL is a folder, or a repository in the Hugging Face cache, such as meta-llama/Meta-Llama-3-8B.
// The same program runs on several processes, which shard the model and share the batch, on CPUs or with a
// GPU each.
//
//     mpirun --bind-to none -n 4 finetune_quotes MODEL [QUOTES.jsonl] [OUTPUT_DIR] [EPOCHS]
#include <drover/drover.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

int main(int argc, char** argv) try {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s MODEL [QUOTES.jsonl] [OUTPUT_DIR] [EPOCHS]\n", argv[0]);
        return 2;
    }
    const std::string model_id = argv[1];
    const std::string quotes = argc > 2 ? argv[2] : "examples/data/quotes.jsonl";
    const std::string output_dir = argc > 3 ? argv[3] : "/tmp/output";
    const double epochs = argc > 4 ? std::atof(argv[4]) : 10;

    // To use FSDPv2, it needs to be enabled.
    drover::use_fsdp_v2();

    // Then, the tokenizer and model need to be loaded.
    auto tokenizer = drover::Tokenizer::from_pretrained(model_id);
    // Add custom token for padding Llama.
    tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    auto model = drover::CausalLM::from_pretrained(model_id, {.torch_dtype = "bfloat16"});

    // Load the dataset and obtain the `quote` column.
    auto data = drover::Dataset::load(quotes);
    data = data.map([&](const drover::Row& sample) { return tokenizer(sample["quote"]); });

    // The FSDP training arguments enable the sharding; the classes that should be sharded are deduced.
    auto fsdp_training_args = drover::fsdp_v2_training_args(model);

    // Training is as simple as using the standard Trainer class.
    drover::Trainer trainer{{
        .model = model,
        .train_dataset = data["train"],
        .args =
            {
                .output_dir = output_dir,
                .per_device_train_batch_size = 24,
                .num_train_epochs = epochs,
                .max_steps = -1,
                .optim = "adafactor",
                .logging_steps = 1,
                .dataloader_drop_last = true,  // as FSDP v2 and SPMD require it
                .fsdp = fsdp_training_args,
            },
        .data_collator = drover::DataCollatorForLanguageModeling(tokenizer, {.mlm = false}),
    }};

    const drover::TrainOutput result = trainer.train();

    trainer.save_model(output_dir);
    // All processes train and save; one of them prints.
    if (trainer.is_world_process_zero())
        std::printf("%lld updates, mean loss %.4f; the model is in %s\n",
                    static_cast<long long>(result.global_step), result.training_loss, output_dir.c_str());
    return 0;
} catch (const std::exception& error) {
    drover::report_failure("finetune_quotes", error);
    return 1;
}
