#include <functional>

#include "public/api_fixture.h"

namespace api {
namespace {

using drover::TrainerControl;
using drover::TrainerState;
using Numbers = std::map<std::string, double>;

/// Writes down what it is told, and does what the test wants at the end of a step.
class Witness : public drover::TrainerCallback {
  public:
    using Act = std::function<void(const TrainerState&, TrainerControl&)>;
    explicit Witness(Act at_step_end = [](const TrainerState&, TrainerControl&) {})
        : at_step_end_(std::move(at_step_end)) {}

    void on_train_begin(const TrainerState& state, TrainerControl&) override {
        note("train_begin", state);
        EXPECT_TRUE(state.log_history.empty());
    }
    void on_epoch_begin(const TrainerState& state, TrainerControl&) override { note("epoch_begin", state); }
    void on_step_begin(const TrainerState& state, TrainerControl&) override { note("step_begin", state); }
    void on_step_end(const TrainerState& state, TrainerControl& control) override {
        note("step_end", state);
        at_step_end_(state, control);
    }
    void on_epoch_end(const TrainerState& state, TrainerControl&) override { note("epoch_end", state); }
    void on_log(const TrainerState& state, TrainerControl&, const Numbers& logs) override {
        note("log", state);
        logged = logs;
        ASSERT_FALSE(state.log_history.empty());
        Numbers last = state.log_history.back();
        EXPECT_EQ(last.at("step"), static_cast<double>(state.global_step));
        last.erase("step");
        EXPECT_EQ(last, logs);
    }
    void on_evaluate(const TrainerState& state, TrainerControl&, const Numbers& metrics) override {
        note("evaluate", state);
        EXPECT_GT(metrics.at("eval_loss"), 0);
    }
    void on_save(const TrainerState& state, TrainerControl&, const std::string& checkpoint) override {
        note("save", state);
        EXPECT_TRUE(fs::exists(fs::path(checkpoint) / "model.safetensors")) << checkpoint;
        saved.push_back(fs::path(checkpoint).filename());
    }
    void on_train_end(const TrainerState& state, TrainerControl&) override {
        note("train_end", state);
        last_state = state;
    }

    std::string events;
    std::vector<std::string> saved;
    Numbers logged;
    TrainerState last_state;

  protected:
    void note(const char* event, const TrainerState& state) {
        events += std::string(event) + "@" + std::to_string(state.global_step) + " ";
    }
    Act at_step_end_;
};

class PublicCallback : public PublicApi {
  protected:
    drover::TrainerParts with(std::shared_ptr<drover::TrainerCallback> callback) const {
        drover::TrainerParts parts = quotes_run(model());
        parts.callbacks.push_back(std::move(callback));
        return parts;
    }
};

TEST_F(PublicCallback, IsToldOfTheEventsInOrder) {
    const auto witness = std::make_shared<Witness>();
    drover::TrainerParts parts = with(witness);
    parts.args.max_steps = 2;
    parts.args.logging_steps = 1;
    const auto second = std::make_shared<Witness>();
    drover::Trainer trainer{parts};
    trainer.add_callback(second);
    const drover::TrainOutput output = trainer.train();
    EXPECT_EQ(witness->events,
              "train_begin@0 epoch_begin@0 step_begin@0 step_end@1 log@1 step_begin@1 step_end@2 log@2 "
              "epoch_end@2 log@2 train_end@2 ");
    EXPECT_EQ(second->events, witness->events);
    EXPECT_EQ(witness->logged.at("train_loss"), output.training_loss);
    const TrainerState& state = witness->last_state;
    EXPECT_EQ(state.max_steps, 2);
    EXPECT_EQ(state.num_train_epochs, 1);
    EXPECT_EQ(state.epoch, 2.0 / 25);
    EXPECT_TRUE(state.is_world_process_zero);
    ASSERT_EQ(state.log_history.size(), 3u);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(state.log_history[i].at("loss"), output.losses.at(i));

    witness->events.clear();
    trainer.evaluate();
    EXPECT_EQ(witness->events, "log@2 evaluate@2 ");
    trainer.train();  // its records begin anew, as on_train_begin() checks
}

TEST_F(PublicCallback, AsksForRecordsEvaluationsCheckpointsAndTheEnd) {
    const auto witness = std::make_shared<Witness>([](const TrainerState& state, TrainerControl& control) {
        control.should_log = state.global_step == 1;
        control.should_evaluate = control.should_save = state.global_step == 2;
        control.should_training_stop = state.global_step == 4;
    });
    drover::TrainerParts parts = with(witness);
    parts.args.max_steps = 50;
    EXPECT_EQ(drover::Trainer{parts}.train().global_step, 4);
    EXPECT_EQ(witness->saved, (std::vector<std::string>{"checkpoint-2"}));
    for (const char* once : {" step_end@1 log@1 ", " step_end@2 log@2 evaluate@2 ", " train_end@4 "})
        expect_part(witness->events, once);
    EXPECT_EQ(witness->events.find("evaluate@3"), std::string::npos);
}

TEST_F(PublicCallback, PreventsWhatIsDue) {
    const auto witness = std::make_shared<Witness>([](const TrainerState& state, TrainerControl& control) {
        EXPECT_TRUE(control.should_save);
        if (state.global_step != 2) control.should_save = false;
    });
    drover::TrainerParts parts = with(witness);
    parts.args.save_strategy = "steps";
    parts.args.save_steps = 1;
    drover::Trainer{parts}.train();
    EXPECT_EQ(witness->saved, (std::vector<std::string>{"checkpoint-2"}));
    EXPECT_FALSE(fs::exists(fs::path(output()) / "checkpoint-1"));
}

TEST_F(PublicCallback, KnowsTheBestMetric) {
    const auto witness = std::make_shared<Witness>();
    drover::TrainerParts parts = with(witness);
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"eval_strategy", "steps"}, {"eval_steps", "1"}, {"metric_for_best_model", "loss"}})
        parts.args.more[name] = value;
    drover::Trainer{parts}.train();
    ASSERT_TRUE(witness->last_state.best_metric.has_value());
    EXPECT_EQ(*witness->last_state.best_metric, witness->last_state.log_history.at(2).at("eval_loss"));
}

TEST_F(PublicCallback, ItsExceptionEndsTraining) {
    struct Own {};
    int throws_at = 2;
    drover::TrainerParts parts =
        with(std::make_shared<Witness>([&](const TrainerState& state, TrainerControl& control) {
            control.should_save = true;
            if (state.global_step == throws_at) throw Own();
        }));
    const auto model = parts.model;
    drover::Trainer trainer{parts};
    EXPECT_THROW(trainer.train(), Own);
    EXPECT_FALSE(fs::exists(fs::path(output()) / "drover.lock"));
    trainer.save_model(folder_ / "saved");  // after one step, although checkpoint-1 may still be written
    EXPECT_EQ(said_by(model), said_by((folder_ / "saved").string()));
    throws_at = 0;
    EXPECT_EQ(trainer.train().global_step, 3);
    EXPECT_TRUE(fs::exists(fs::path(output()) / "checkpoint-3"));
}

TEST_F(PublicCallback, MayUseTheModel) {
    const auto model = this->model();
    std::vector<std::string> said;
    drover::TrainerParts parts =
        with(std::make_shared<Witness>([&](const TrainerState&, TrainerControl& control) {
            said.push_back(said_by(model));
            control.should_save = true;
        }));
    parts.model = model;
    drover::Trainer{parts}.train();
    ASSERT_EQ(said.size(), 3u);
    for (int step = 1; step <= 3; ++step)
        EXPECT_EQ(said[static_cast<std::size_t>(step - 1)],
                  said_by((fs::path(output()) / ("checkpoint-" + std::to_string(step))).string()));
    EXPECT_NE(said[0], said[2]);
}

TEST_F(PublicCallback, SaysWhatIsWrong) {
    drover::Trainer* itself = nullptr;
    drover::Trainer nested{
        with(std::make_shared<Witness>([&](const TrainerState&, TrainerControl&) { itself->evaluate(); }))};
    itself = &nested;
    expect_part(message_of([&] { nested.train(); }), "A callback calls the Trainer that called it.");

    drover::TrainerParts parts = with(std::make_shared<Witness>(
        [](const TrainerState&, TrainerControl& control) { control.should_evaluate = true; }));
    parts.eval_dataset.reset();
    expect_part(message_of([&] { drover::Trainer{parts}.train(); }), "has no eval_dataset");
    expect_part(message_of([&] { drover::Trainer{with(nullptr)}; }), "null callback");
}

}  // namespace
}  // namespace api
