#include "train/state/trainer_state.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "core/python_json.h"
#include "support/errors.h"
#include "support/golden.h"
#include "train/callbacks/early_stop.h"
#include "train/checkpoint/model_card.h"
#include "train/replayed_model.h"

namespace drover {
namespace {

/// Trains without a loss.
class SilentModel final : public TrainingModel {
  public:
    UpdateResult update(std::span<const Batch>, double) override { return {.loss = 1}; }
    std::vector<BatchEvaluation> evaluate(const Batch& batch) override {
        return {{.loss = 1, .rows = batch.rows, .targets = 1, .correct = 1}};
    }
    void save(const std::filesystem::path&) override {}
    void load(const std::filesystem::path&) override {}
    void save_checkpoint(const CheckpointRequest&) override {}
    std::optional<CheckpointOutcome> checkpoint_outcome(bool) override { return std::nullopt; }
    ParameterCounts parameters() const override { return {.total = 1, .active = 1, .without_embeddings = 1}; }
};

/// Resumes from a state with everything that reads it: a schedule and a callback that look back, and the
/// model card.
void go_on_from(const TrainerState& state) {
    TrainerSettings settings{.max_steps = 6,
                             .per_device_train_batch_size = 2,
                             .per_device_eval_batch_size = 2,
                             .learning_rate = 1,
                             .lr_scheduler_type = "reduce_lr_on_plateau",
                             .logging_steps = 1.0,
                             .eval_strategy = IntervalStrategy::steps,
                             .eval_steps = 2.0,
                             .save_strategy = IntervalStrategy::no};
    settings.metric_for_best_model = "loss";
    settings.finish();
    SilentModel model;
    test::BlankData training{{.samples = 10, .batch_size = 2}, 16, StreamEnd::never};
    test::BlankData evaluation{
        {.samples = 4, .batch_size = 2, .order = SampleOrder::sequential}, 16, StreamEnd::after_one_epoch};
    Trainer trainer(settings, model, &training, &evaluation);
    EarlyStop early_stop(100, 0);
    trainer.add_callback(early_stop);
    trainer.train(&state);
    model_card({.name = "out", .datasets = {"data"}, .optimizer = "adamw_torch"}, settings, trainer.state());
    TrainerState::parse(trainer.state().text(), "what was written");
}

/// A state of Hugging Face's Trainer, with an evaluation and a callback.
Json sound_state() {
    Json state = parse_python_json(
        read_text_file(test::golden_path("trainer_checkpoint/llama_adamw/checkpoint-4/trainer_state.json")),
        "golden");
    state["log_history"].push_back(
        {{"epoch", 0.5}, {"eval_loss", 3.5}, {"eval_accuracy", 0.5}, {"eval_runtime", 1.5}, {"step", 4}});
    state["stateful_callbacks"]["EarlyStoppingCallback"] = {
        {"args", {{"early_stopping_patience", 3}}}, {"attributes", {{"early_stopping_patience_counter", 1}}}};
    return state;
}

/// Calls `visit` with copies of the document in which the value at `place`, or one inside it, is replaced.
void change_everything(const Json& document, const Json::json_pointer& place,
                       const std::function<void(const Json&, const std::string&)>& visit) {
    const Json& value = document.at(place);
    static const std::vector<Json> bad = {nullptr,
                                          -1,
                                          0,
                                          1.5,
                                          -1.5,
                                          "x",
                                          "",
                                          true,
                                          Json::array(),
                                          Json::object(),
                                          1e300,
                                          NAN,
                                          {{1}},
                                          {{"step", {}}},
                                          18446744073709551615u};
    for (const Json& other : bad) {
        Json changed = document;
        changed[place] = other;
        visit(changed, place.to_string() + " = " + python_repr(other));
    }
    if (!place.empty() && document.at(place.parent_pointer()).is_object()) {
        Json changed = document;
        changed[place.parent_pointer()].erase(place.back());
        visit(changed, place.to_string() + " is absent");
    }
    if (value.is_object())
        for (const auto& [key, ignored] : value.items()) change_everything(document, place / key, visit);
    if (value.is_array())
        for (std::size_t i = 0; i < value.size(); ++i) change_everything(document, place / i, visit);
}

TEST(TrainerStates, OfOthersAreUsedOrRefusedWithASentence) {
    go_on_from(TrainerState::parse(python_json(sound_state(), 2), "sound"));
    int used = 0, refused = 0;
    change_everything(sound_state(), Json::json_pointer(), [&](const Json& changed, const std::string& what) {
        SCOPED_TRACE(what);
        try {
            go_on_from(TrainerState::parse(python_json(changed, 2), "trainer_state.json"));
            ++used;
        } catch (const Error& error) {
            EXPECT_FALSE(error.cause().empty() || error.remedy().empty());
            ++refused;
        } catch (const std::exception& other) {
            ADD_FAILURE() << other.what();
        }
    });
    EXPECT_GT(used, 100);
    EXPECT_GT(refused, 100);
}

TEST(TrainerStates, ThatCannotBeAreRefused) {
    const auto refuses = [](const char* key, const Json& value) {
        Json state = sound_state();
        state[key] = value;
        try {
            TrainerState::parse(python_json(state, 2), "file");
            return false;
        } catch (const Error& error) {
            return error.cause().find(key) != std::string::npos;
        }
    };
    EXPECT_TRUE(refuses("global_step", -1));
    EXPECT_TRUE(refuses("global_step", nullptr));
    EXPECT_TRUE(refuses("global_step", 1.5));
    EXPECT_TRUE(refuses("log_history", Json::object()));
    EXPECT_TRUE(refuses("log_history", {{{"loss", 1}}}));
    EXPECT_TRUE(refuses("logging_steps", nullptr));
    EXPECT_TRUE(refuses("stateful_callbacks", 3));
    EXPECT_TRUE(refuses("save_steps", NAN));
    EXPECT_FALSE(refuses("eval_steps", nullptr));
    EXPECT_FALSE(refuses("eval_steps", -4));
    EXPECT_FALSE(refuses("save_steps", -1.5));
    EXPECT_FALSE(refuses("num_train_epochs", std::numeric_limits<std::int64_t>::max()));
    EXPECT_FALSE(refuses("global_step", 4.0));
    test::expect_error([&] { TrainerState::parse("null", "file"); },
                       {"file is not the state of a training run"});
}

}  // namespace
}  // namespace drover
