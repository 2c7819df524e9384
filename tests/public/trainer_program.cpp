// A C++ API program for tests that start it with mpirun: trainer_program SCENARIO MODEL QUOTES OUTPUT_DIR
#include <drover/drover.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace {

struct Scene {
    std::string model, quotes, output_dir;
    bool two_dimensions = false;  ///< also tensor parallelism, instead of FSDP v2
    bool sharded = true;          ///< false: whole weights in every process
};

int rank_here() {
    const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
    return text == nullptr ? 0 : std::atoi(text);
}

std::string in_one_line(std::string text) {
    for (char& letter : text)
        if (letter == '\n') letter = '|';
    return text;
}

drover::Trainer make_trainer(const Scene& scene, const std::string& model_id, const drover::CausalLM& model,
                             double learning_rate = 5e-3) {
    auto tokenizer = drover::Tokenizer::from_pretrained(model_id);
    tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    const auto data = drover::Dataset::load(scene.quotes).map([&](const drover::Row& row) {
        return tokenizer(row["quote"]);
    });
    std::map<std::string, std::string> more;
    if (scene.two_dimensions) more = {{"spmd_2d_sharding", "2"}, {"spmd_grad_chkpt", "True"}};
    if (const char* device = std::getenv("DROVER_TEST_DEVICE")) more["device"] = device;
    return drover::Trainer{
        {.model = model,
         .train_dataset = data["train"],
         .args = {.output_dir = scene.output_dir,
                  .per_device_train_batch_size = 22,  // 200 rows: the last batch has 2
                  .per_device_eval_batch_size = 30,
                  .max_steps = 12,
                  .learning_rate = learning_rate,
                  .logging_steps = 3,
                  .save_steps = 6,
                  .disable_tqdm = true,
                  .fsdp = scene.two_dimensions || !scene.sharded ? drover::FsdpTrainingArguments{}
                                                                 : drover::fsdp_v2_training_args(model),
                  .more = more},
         .data_collator = drover::DataCollatorForLanguageModeling(tokenizer),
         .eval_dataset = data["train"]}};
}

drover::Trainer make_trainer(const Scene& scene, const std::string& model_id, double learning_rate = 5e-3) {
    return make_trainer(scene, model_id, drover::CausalLM::from_pretrained(model_id), learning_rate);
}

void tell_evaluation(drover::Trainer& trainer, const char* when) {
    const auto metrics = trainer.evaluate();
    if (trainer.is_world_process_zero())
        std::printf("%s %.6f %.6f\n", when, metrics.at("eval_loss"), metrics.at("eval_accuracy"));
}

/// Trains, then evaluates the saved model with a second Trainer.
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

/// The output of the trained model: as it is, as saved, and once its Trainer is gone.
void speak(const Scene& scene) {
    const auto model = drover::CausalLM::from_pretrained(scene.model);
    const auto tokenizer = drover::Tokenizer::from_pretrained(scene.model);
    const auto said_by = [&](const drover::CausalLM& speaker) {
        return speaker.generate(tokenizer, "To be", {.max_new_tokens = 16});
    };
    const auto tell = [](const char* who, const std::string& text) {
        std::printf("rank %d, %s: %s\n", rank_here(), who, in_one_line(text).c_str());
    };
    tell("untrained", said_by(model));
    {
        auto trainer = make_trainer(scene, scene.model, model);
        trainer.train();
        trainer.save_model(scene.output_dir);
        tell("trained", said_by(model));
        if (!scene.sharded && rank_here() == 1) tell("alone", said_by(model));
    }
    tell("saved", said_by(drover::CausalLM::from_pretrained(scene.output_dir)));
    try {
        tell("left", said_by(model));
    } catch (const std::runtime_error& error) {
        tell("refused", error.what());
    }
}

void run(const std::string& scenario, const Scene& scene) {
    if (scenario == "train" || scenario == "train_2d") {
        train(scene);
    } else if (scenario.starts_with("speak")) {
        speak(scene);
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
                  .two_dimensions = std::string(argv[1]).ends_with("_2d"),
                  .sharded = std::string(argv[1]) != "speak_whole"});
    return 0;
} catch (const std::exception& error) {
    drover::report_failure("trainer_program", error);
    return 3;
}
