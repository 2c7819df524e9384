#pragma once

#include <memory>
#include <vector>

#include "drover/callback.h"
#include "run/process_group.h"
#include "train/loop/trainer_callback.h"

namespace drover::v1 {

/// The callbacks that a program gives to a Trainer, as one callback of the loop. All processes have one, so
/// that what the callbacks of one process ask for reaches all.
class UserCallbacks final : public drover::TrainerCallback {
  public:
    /// `ranks` must outlive this object.
    explicit UserCallbacks(const ProcessGroup& ranks) : ranks_(ranks) {}

    /// Error if it is null.
    void add(std::shared_ptr<v1::TrainerCallback> callback);
    /// Before the loop trains or evaluates; `can_evaluate`: it has rows for that. Collective.
    void begin(bool can_evaluate);

    void on_train_begin(TrainerView& view) override;
    void on_epoch_begin(TrainerView& view) override;
    void on_step_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;
    void on_epoch_end(TrainerView& view) override;
    void on_evaluate(TrainerView& view, const Json& metrics) override;
    void on_log(TrainerView& view, const Json& record) override;
    void on_save(TrainerView& view, const std::filesystem::path& folder) override;
    void on_train_end(TrainerView& view) override;

  private:
    /// Calls `event` of every callback, and does what all ranks' callbacks ask for.
    template <class... Parameters, class... Arguments>
    void tell(TrainerView& view,
              void (v1::TrainerCallback::*event)(const v1::TrainerState&, v1::TrainerControl&, Parameters...),
              const Arguments&... arguments);
    void look_at(const drover::TrainerState& state);

    const ProcessGroup& ranks_;
    std::vector<std::shared_ptr<v1::TrainerCallback>> given_;
    std::vector<std::shared_ptr<v1::TrainerCallback>> called_;  // those given before the loop began
    bool any_rank_has_some_ = false;
    bool can_evaluate_ = false;
    v1::TrainerState state_;
};

/// The numbers of a record.
std::map<std::string, double> numbers_in(const Json& record);

}  // namespace drover::v1
