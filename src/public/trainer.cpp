#include "drover/trainer.h"

#include <fmt/format.h>

#include "public/trainer_run.h"

namespace drover::v1 {
struct Trainer::Run : TrainerRun {
    using TrainerRun::TrainerRun;
};

Trainer::Trainer(const TrainerParts& parts) {
    in_all_processes("the constructor of a Trainer", [&] { run_ = std::make_unique<Run>(parts); });
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

TrainOutput Trainer::train(const TrainOptions& options) {
    TrainOutput output;
    const auto* folder = std::get_if<std::string>(&options.resume_from_checkpoint);
    const std::string from = folder != nullptr                                ? *folder
                             : std::get<bool>(options.resume_from_checkpoint) ? "the newest checkpoint"
                                                                              : "";
    in_all_processes(from.empty() ? "train()" : fmt::format("train() from {}", from), [&] {
        output.metrics = numbers_in(run_->train(options));
        const drover::TrainerState& state = run_->state();
        output.global_step = state.global_step;
        output.interrupted = run_->is_interrupted();
        if (const auto loss = output.metrics.find("train_loss"); loss != output.metrics.end())
            output.training_loss = loss->second;
        for (const Json& record : state.log_history)
            if (record.contains("loss")) output.losses.push_back(record.at("loss").get<double>());
    });
    return output;
}

std::map<std::string, double> Trainer::evaluate() {
    std::map<std::string, double> metrics;
    in_all_processes("evaluate()", [&] { metrics = numbers_in(run_->evaluate()); });
    return metrics;
}

void Trainer::save_model(const std::string& folder) const {
    in_all_processes(fmt::format("save_model(\"{}\")", folder), [&] { run_->save_model(folder); });
}

void Trainer::add_callback(std::shared_ptr<TrainerCallback> callback) {
    run_->add_callback(std::move(callback));
}

bool Trainer::is_world_process_zero() const {
    return run_->is_first();
}

}  // namespace drover::v1
