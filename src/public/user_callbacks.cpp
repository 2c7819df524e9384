#include "public/user_callbacks.h"

#include <array>

#include "core/error.h"
#include "public/program_code.h"

namespace drover::v1 {

// -------------------------------------------------------------------------------------------------------
// the public class

TrainerCallback::~TrainerCallback() = default;
void TrainerCallback::on_train_begin(const TrainerState&, TrainerControl&) {}
void TrainerCallback::on_epoch_begin(const TrainerState&, TrainerControl&) {}
void TrainerCallback::on_step_begin(const TrainerState&, TrainerControl&) {}
void TrainerCallback::on_step_end(const TrainerState&, TrainerControl&) {}
void TrainerCallback::on_epoch_end(const TrainerState&, TrainerControl&) {}
void TrainerCallback::on_log(const TrainerState&, TrainerControl&, const std::map<std::string, double>&) {}
void TrainerCallback::on_evaluate(const TrainerState&, TrainerControl&,
                                  const std::map<std::string, double>&) {}
void TrainerCallback::on_save(const TrainerState&, TrainerControl&, const std::string&) {}
void TrainerCallback::on_train_end(const TrainerState&, TrainerControl&) {}

std::map<std::string, double> numbers_in(const Json& record) {
    std::map<std::string, double> numbers;
    for (const auto& [key, value] : record.items())
        if (value.is_number()) numbers[key] = value.get<double>();
    return numbers;
}

namespace {

/// A switch of the loop, and the public one that shows it.
struct Switch {
    bool drover::TrainerControl::*loop;
    bool TrainerControl::*shown;
};

constexpr std::array switches{
    Switch{&drover::TrainerControl::should_training_stop, &TrainerControl::should_training_stop},
    Switch{&drover::TrainerControl::should_epoch_stop, &TrainerControl::should_epoch_stop},
    Switch{&drover::TrainerControl::should_save, &TrainerControl::should_save},
    Switch{&drover::TrainerControl::should_evaluate, &TrainerControl::should_evaluate},
    Switch{&drover::TrainerControl::should_log, &TrainerControl::should_log}};

/// Which switches a rank's callbacks have set (the low bits) and cleared (the others).
std::uint32_t changes(const drover::TrainerControl& before, const TrainerControl& after) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < switches.size(); ++i) {
        const bool was = before.*switches[i].loop, is = after.*switches[i].shown;
        if (is && !was) bits |= 1u << i;
        if (was && !is) bits |= 1u << (switches.size() + i);
    }
    return bits;
}

/// What one rank sets is set; what one clears is cleared, unless another sets it.
void change(drover::TrainerControl& control, std::uint32_t bits) {
    for (std::size_t i = 0; i < switches.size(); ++i) {
        if ((bits >> (switches.size() + i) & 1) != 0) control.*switches[i].loop = false;
        if ((bits >> i & 1) != 0) control.*switches[i].loop = true;
    }
}

}  // namespace

// -------------------------------------------------------------------------------------------------------
// the loop's callback

void UserCallbacks::add(std::shared_ptr<v1::TrainerCallback> callback) {
    if (!callback) throw Error("A Trainer is given a null callback.", "Leave it out.");
    given_.push_back(std::move(callback));
}

void UserCallbacks::begin(bool can_evaluate) {
    called_ = given_;
    can_evaluate_ = can_evaluate;
    any_rank_has_some_ = ranks_.largest(called_.empty() ? 0 : 1) != 0;
}

void UserCallbacks::look_at(const drover::TrainerState& state) {
    state_.global_step = state.global_step;
    state_.max_steps = state.max_steps;
    state_.epoch = state.epoch.value_or(0);
    state_.num_train_epochs = state.num_train_epochs;
    state_.best_metric = state.best_metric;
    state_.best_global_step = state.best_global_step;
    state_.best_model_checkpoint = state.best_model_checkpoint;
    state_.is_world_process_zero = state.is_world_process_zero;
    // Records are only added, until another run begins.
    if (state_.log_history.size() > state.log_history.size()) state_.log_history.clear();
    for (std::size_t i = state_.log_history.size(); i < state.log_history.size(); ++i)
        state_.log_history.push_back(numbers_in(state.log_history[i]));
}

template <class... Parameters, class... Arguments>
void UserCallbacks::tell(TrainerView& view,
                         void (v1::TrainerCallback::*event)(const v1::TrainerState&, v1::TrainerControl&,
                                                            Parameters...),
                         const Arguments&... arguments) {
    if (!any_rank_has_some_) return;
    v1::TrainerControl control;
    for (const Switch& one : switches) control.*one.shown = view.control.*one.loop;
    if (!called_.empty()) look_at(view.state);
    ranks_.together([&] {
        call_program("A callback", ranks_.size() > 1, [&] {
            for (const auto& callback : called_) ((*callback).*event)(state_, control, arguments...);
        });
    });
    const bool evaluated_anyway = view.control.should_evaluate;
    change(view.control, ranks_.united(changes(view.control, control)));
    if (view.control.should_evaluate && !evaluated_anyway && !can_evaluate_)
        throw AgreedError("A callback asks for an evaluation, but the Trainer has no eval_dataset.",
                          "Give it one, or leave should_evaluate as it is.");
}

void UserCallbacks::on_train_begin(TrainerView& view) {
    state_.log_history.clear();
    tell(view, &v1::TrainerCallback::on_train_begin);
}

void UserCallbacks::on_epoch_begin(TrainerView& view) {
    tell(view, &v1::TrainerCallback::on_epoch_begin);
}

void UserCallbacks::on_step_begin(TrainerView& view) {
    tell(view, &v1::TrainerCallback::on_step_begin);
}

void UserCallbacks::on_step_end(TrainerView& view, const StepReport&) {
    tell(view, &v1::TrainerCallback::on_step_end);
}

void UserCallbacks::on_epoch_end(TrainerView& view) {
    tell(view, &v1::TrainerCallback::on_epoch_end);
}

void UserCallbacks::on_evaluate(TrainerView& view, const Json& metrics) {
    tell(view, &v1::TrainerCallback::on_evaluate, numbers_in(metrics));
}

void UserCallbacks::on_log(TrainerView& view, const Json& record) {
    tell(view, &v1::TrainerCallback::on_log, numbers_in(record));
}

/// The loop hears of a checkpoint before or after it decides what to do after a step, depending on the disk;
/// so only an end is taken from here, which counts in both cases.
void UserCallbacks::on_save(TrainerView& view, const std::filesystem::path& folder) {
    const drover::TrainerControl before = view.control;
    tell(view, &v1::TrainerCallback::on_save, folder.string());
    view.control.should_save = before.should_save;
    view.control.should_evaluate = before.should_evaluate;
    view.control.should_log = before.should_log;
}

void UserCallbacks::on_train_end(TrainerView& view) {
    tell(view, &v1::TrainerCallback::on_train_end);
}

}  // namespace drover::v1
