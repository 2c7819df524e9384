// A C++ API program for tests that start it with mpirun: trainer_program SCENARIO MODEL QUOTES OUTPUT_DIR
#include <drover/drover.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
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

bool is_last_rank() {
    const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
    return size == nullptr || rank_here() == std::atoi(size) - 1;
}

std::string in_one_line(std::string text) {
    for (char& letter : text)
        if (letter == '\n') letter = '|';
    return text;
}

drover::TrainerParts parts_of(const Scene& scene, const std::string& model_id, const drover::CausalLM& model,
                              double learning_rate = 5e-3) {
    auto tokenizer = drover::Tokenizer::from_pretrained(model_id);
    tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    const auto data = drover::Dataset::load(scene.quotes).map([&](const drover::Row& row) {
        return tokenizer(row["quote"]);
    });
    std::map<std::string, std::string> more;
    if (scene.two_dimensions) more = {{"spmd_2d_sharding", "2"}, {"spmd_grad_chkpt", "True"}};
    if (const char* device = std::getenv("DROVER_TEST_DEVICE")) more["device"] = device;
    return {.model = model,
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
            .eval_dataset = data["train"]};
}

drover::TrainerParts parts_of(const Scene& scene) {
    return parts_of(scene, scene.model, drover::CausalLM::from_pretrained(scene.model));
}

drover::Trainer make_trainer(const Scene& scene, const std::string& model_id, const drover::CausalLM& model,
                             double learning_rate = 5e-3) {
    return drover::Trainer{parts_of(scene, model_id, model, learning_rate)};
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

/// Two Trainers, one after the other, train one model; a third, on rows in memory, evaluates it.
void train_twice(const Scene& scene) {
    const auto model = drover::CausalLM::from_pretrained(scene.model);
    {
        auto first = make_trainer(scene, scene.model, model);
        tell_evaluation(first, "before");
        first.train();
        tell_evaluation(first, "between");
    }
    {
        auto second = make_trainer(scene, scene.model, model);
        second.train();
        tell_evaluation(second, "after");
    }
    drover::TrainerParts third = parts_of(scene, scene.model, model);
    std::vector<drover::TokenRow> rows;
    for (const auto& ids : third.eval_dataset->input_ids()) rows.push_back({.input_ids = ids, .labels = ids});
    third.eval_dataset = drover::Split::from_rows(rows);
    drover::Trainer trainer{third};
    tell_evaluation(trainer, "again");
    model.save_pretrained(scene.output_dir);
}

/// Does something at the end of a step.
class AtStepEnd : public drover::TrainerCallback {
  public:
    using Act = std::function<void(std::int64_t step, drover::TrainerControl&)>;
    explicit AtStepEnd(
        Act act, Act at_end = [](std::int64_t, drover::TrainerControl&) {})
        : act_(std::move(act)), at_end_(std::move(at_end)) {}
    void on_step_end(const drover::TrainerState& state, drover::TrainerControl& control) override {
        act_(state.global_step, control);
    }
    void on_train_end(const drover::TrainerState& state, drover::TrainerControl& control) override {
        at_end_(state.global_step, control);
    }

  private:
    Act act_, at_end_;
};

/// Only the last rank has a callback, which asks for a checkpoint, an evaluation and the end.
void ask(const Scene& scene) {
    drover::TrainerParts parts = parts_of(scene);
    if (is_last_rank())
        parts.callbacks.push_back(
            std::make_shared<AtStepEnd>([](std::int64_t step, drover::TrainerControl& control) {
                if (step == 2) control.should_save = control.should_evaluate = true;
                if (step == 6) control.should_save = false;
                control.should_training_stop = step == 7;
            }));
    const auto output = drover::Trainer{parts}.train();
    std::printf("rank %d ended after step %d\n", rank_here(), static_cast<int>(output.global_step));
}

/// A callback throws on the last rank, or on all.
void fail_in_callback(const Scene& scene, bool everywhere) {
    drover::TrainerParts parts = parts_of(scene);
    parts.callbacks.push_back(std::make_shared<AtStepEnd>([=](std::int64_t step, drover::TrainerControl&) {
        if (step == 2 && (everywhere || is_last_rank())) throw std::runtime_error("enough of this");
    }));
    drover::Trainer{parts}.train();
}

/// A dataset of the program's own fails on the last rank once training has begun.
void fail_in_rows(const Scene& scene) {
    class Rows : public drover::TokenDataset {
      public:
        explicit Rows(drover::Split rows) : rows_(std::move(rows)) {}
        std::int64_t size() const override { return rows_.size(); }
        drover::TokenRow row(std::int64_t index) const override {
            if (index == 50 && is_last_rank()) throw std::runtime_error("out of rows");
            return rows_[index];
        }
        std::int64_t max_length() const override { return 64; }

      private:
        drover::Split rows_;
    };
    drover::TrainerParts parts = parts_of(scene);
    parts.train_dataset = drover::Split(std::make_shared<Rows>(parts.train_dataset));
    drover::Trainer{parts}.train();
}

volatile std::sig_atomic_t own_signals = 0;

/// The last rank gets a SIGTERM after step 5, in which no checkpoint is due, and later one that is too late.
void stop_by_signal(const Scene& scene) {
    std::signal(SIGTERM, [](int) { own_signals = own_signals + 1; });
    drover::TrainerParts parts = parts_of(scene);
    parts.args.enable_jit_checkpoint = true;
    bool early = true;
    const auto send_if = [&](bool now) {
        if (now && is_last_rank()) kill(getpid(), SIGTERM);
    };
    parts.callbacks.push_back(std::make_shared<AtStepEnd>(
        [&](std::int64_t step, drover::TrainerControl&) { send_if(early && step == 5); },
        [&](std::int64_t, drover::TrainerControl&) { send_if(!early); }));
    drover::Trainer trainer{parts};
    const auto tell = [&](const drover::TrainOutput& output) {
        std::printf("rank %d: step %d, interrupted %d, own signals %d\n", rank_here(),
                    static_cast<int>(output.global_step), output.interrupted ? 1 : 0,
                    static_cast<int>(own_signals));
        std::fflush(stdout);
    };
    tell(trainer.train());
    early = false;
    tell(trainer.train({.resume_from_checkpoint = true}));
    std::raise(SIGTERM);
    tell({});
    trainer.save_model(scene.output_dir);
}

/// Trains until a SIGTERM comes from outside.
void train_until_signal(const Scene& scene) {
    drover::TrainerParts parts = parts_of(scene);
    parts.args.enable_jit_checkpoint = true;
    parts.args.max_steps = 1'000'000;
    parts.args.logging_steps = 1'000'000;
    parts.args.save_strategy = "no";
    parts.callbacks.push_back(std::make_shared<AtStepEnd>([](std::int64_t step, drover::TrainerControl&) {
        if (step == 3) std::puts("well under way");
        std::fflush(stdout);
    }));
    const drover::TrainOutput output = drover::Trainer{parts}.train();
    std::printf("interrupted %d after step %d\n", output.interrupted ? 1 : 0,
                static_cast<int>(output.global_step));
}

/// A SIGTERM that the program did not ask the library to catch.
void end_by_signal(const Scene& scene) {
    drover::TrainerParts parts = parts_of(scene);
    parts.callbacks.push_back(
        std::make_shared<AtStepEnd>([](std::int64_t, drover::TrainerControl&) { kill(getpid(), SIGTERM); }));
    drover::Trainer{parts}.train();
    std::puts("not ended");
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
    tell("left", said_by(model));
}

void run(const std::string& scenario, const Scene& scene) {
    if (scenario == "train" || scenario == "train_2d") {
        train(scene);
    } else if (scenario.starts_with("speak")) {
        speak(scene);
    } else if (scenario.starts_with("twice")) {
        train_twice(scene);
    } else if (scenario == "ask") {
        ask(scene);
    } else if (scenario == "callback_error" || scenario == "callback_errors") {
        fail_in_callback(scene, scenario == "callback_errors");
    } else if (scenario == "rows_error") {
        fail_in_rows(scene);
    } else if (scenario == "sigterm") {
        stop_by_signal(scene);
    } else if (scenario == "until_signal") {
        train_until_signal(scene);
    } else if (scenario == "own_sigterm") {
        end_by_signal(scene);
    } else if (scenario == "from_config") {
        drover::CausalLM::from_config(scene.model, {.seed = 7}).save_pretrained(scene.output_dir);
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
                  .sharded = !std::string(argv[1]).ends_with("_whole")});
    return 0;
} catch (const std::exception& error) {
    drover::report_failure("trainer_program", error);
    return 3;
}
