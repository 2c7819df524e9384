// A program of the C++ API for tests that start it with mpirun: trainer_program SCENARIO MODEL QUOTES
// OUTPUT_DIR
#include <drover/drover.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace {

struct Scene {
    std::string model, quotes, output_dir;
    bool two_dimensions = false;  ///< tensor parallelism too, in place of FSDP v2
};

int rank_here() {
    const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
    return text == nullptr ? 0 : std::atoi(text);
}

drover::Trainer make_trainer(const Scene& scene, const std::string& model_id, double learning_rate = 5e-3) {
    auto tokenizer = drover::Tokenizer::from_pretrained(model_id);
    tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    const auto model = drover::CausalLM::from_pretrained(model_id, {.torch_dtype = "float32"});
    const auto data = drover::Dataset::load(scene.quotes).map([&](const drover::Row& row) {
        return tokenizer(row["quote"]);
    });
    std::map<std::string, std::string> more;
    if (scene.two_dimensions) more = {{"spmd_2d_sharding", "2"}, {"spmd_grad_chkpt", "True"}};
    if (const char* device = std::getenv("DROVER_TEST_DEVICE")) more["device"] = device;
    return drover::Trainer{{.model = model,
                            .train_dataset = data["train"],
                            .args = {.output_dir = scene.output_dir,
                                     .per_device_train_batch_size = 22,  // 200 rows: the last batch has 2
                                     .per_device_eval_batch_size = 30,
                                     .max_steps = 12,
                                     .learning_rate = learning_rate,
                                     .logging_steps = 3,
                                     .save_steps = 6,
                                     .disable_tqdm = true,
                                     .fsdp = scene.two_dimensions ? drover::FsdpTrainingArguments{}
                                                                  : drover::fsdp_v2_training_args(model),
                                     .more = more},
                            .data_collator = drover::DataCollatorForLanguageModeling(tokenizer),
                            .eval_dataset = data["train"]}};
}

void tell_evaluation(drover::Trainer& trainer, const char* when) {
    const auto metrics = trainer.evaluate();
    if (trainer.is_world_process_zero())
        std::printf("%s %.6f %.6f\n", when, metrics.at("eval_loss"), metrics.at("eval_accuracy"));
}

/// Trains, and lets a second Trainer evaluate what was saved.
void train(const Scene& scene) {
    {
        auto trainer = make_trainer(scene, scene.model);
        tell_evaluation(trainer, "before");
        trainer.train();
        tell_evaluation(trainer, "after");
        trainer.save_model(scene.output_dir);
    }
    auto trained = make_trainer(scene, scene.output_dir);
    tell_evaluation(trained, "again");
}

void run(const std::string& scenario, const Scene& scene) {
    if (scenario == "train" || scenario == "train_2d") {
        train(scene);
    } else if (scenario == "unlike") {
        make_trainer(scene, scene.model, rank_here() == 1 ? 1e-3 : 5e-3);
    } else if (scenario == "save_on_one") {
        const auto trainer = make_trainer(scene, scene.model);
        if (trainer.is_world_process_zero()) trainer.save_model(scene.output_dir);
    } else if (scenario == "own_error") {
        auto trainer = make_trainer(scene, scene.model);
        if (rank_here() == 1) throw std::runtime_error("something that rank 1 alone does not like");
        trainer.train();
    } else {
        throw std::runtime_error("There is no scenario " + scenario + ".");
    }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5) throw std::runtime_error("The arguments are SCENARIO MODEL QUOTES OUTPUT_DIR.");
    drover::use_fsdp_v2();
    run(argv[1], {.model = argv[2],
                  .quotes = argv[3],
                  .output_dir = argv[4],
                  .two_dimensions = std::string(argv[1]) == "train_2d"});
    return 0;
} catch (const std::exception& error) {
    drover::report_failure("trainer_program", error);
    return 3;
}
