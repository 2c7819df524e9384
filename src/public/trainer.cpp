#include "drover/trainer.h"

#include <fmt/format.h>

#include "public/parts.h"
#include "public/trainer_inputs.h"
#include "public/trainer_processes.h"
#include "public/trainer_settings.h"
#include "run/training_run.h"

namespace drover::v1 {
namespace {

std::map<std::string, double> numbers_in(const Json& record) {
    std::map<std::string, double> numbers;
    for (const auto& [key, value] : record.items())
        if (value.is_number()) numbers[key] = value.get<double>();
    return numbers;
}

}  // namespace

/// A TrainingRun of the objects that the Trainer was given.
struct Trainer::Run {
    std::shared_ptr<const CausalLM::Parts> model;
    StartedRun started;
    std::optional<GpusOfProcesses> gpus;
    TrainingRun run;
    bool is_prepared = false;
    std::shared_ptr<TrainedWeights> trained;  ///< null until training begins

    /// The folder is this run's until the last checkpoint is written, also when training fails.
    struct Unlock {
        TrainingRun& run;
        ~Unlock() { run.unlock_output_folder(); }
    };

    explicit Run(const TrainerParts& parts)
        : model(parts.model.parts()), started(start_run(parts)), run(started.settings, started.processes) {
        RunInputs inputs;
        started.processes.group.together([&] { inputs = inputs_of(parts); });
        run.take(std::move(inputs));
        run.choose_device();
        started.processes.group.together([&] {
            if (!started.processes.alone() && run.backend().device() == Device::cuda) gpus.emplace();
        });
        run.plan();
        started.processes.group.together([&] { run.check_memory(); });
    }
    ~Run() {
        if (trained) trained->leave_engine(run, model.use_count() > 1 && model->trained == trained);
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    void prepare() {
        if (is_prepared) return;
        run.describe_mesh();
        run.prepare(weights_in_memory(model->trained, run));
        is_prepared = true;
    }

    Json train() {
        run.lock_output_folder();
        const Unlock unlock{run};
        run.warn_of_little_space();
        prepare();
        if (!trained) trained = TrainedWeights::of(run);
        model->trained = trained;  // also when another Trainer has trained it in between
        Json metrics = run.train();
        run.save_state();
        return metrics;
    }
};

Trainer::Trainer(const TrainerParts& parts) {
    in_all_processes("the constructor of a Trainer", [&] { run_ = std::make_unique<Run>(parts); });
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

TrainOutput Trainer::train() {
    TrainOutput output;
    in_all_processes("train()", [&] {
        output.metrics = numbers_in(run_->train());
        const TrainerState& state = run_->run.loop().state();
        output.global_step = state.global_step;
        if (const auto loss = output.metrics.find("train_loss"); loss != output.metrics.end())
            output.training_loss = loss->second;
        for (const Json& record : state.log_history)
            if (record.contains("loss")) output.losses.push_back(record.at("loss").get<double>());
    });
    return output;
}

std::map<std::string, double> Trainer::evaluate() {
    std::map<std::string, double> metrics;
    in_all_processes("evaluate()", [&] {
        if (!run_->run.has_rows_to_evaluate())
            throw AgreedError("There is nothing to evaluate on: the trainer has no eval_dataset.",
                              "Give one.");
        run_->prepare();
        metrics = numbers_in(run_->run.evaluate());
    });
    return metrics;
}

void Trainer::save_model(const std::string& folder) const {
    in_all_processes(fmt::format("save_model(\"{}\")", folder), [&] {
        run_->prepare();
        run_->run.engine_model().save(folder);
    });
}

bool Trainer::is_world_process_zero() const {
    return run_->started.processes.is_first();
}

}  // namespace drover::v1
