#include <algorithm>
#include <chrono>
#include <thread>

#include "public/api_fixture.h"

namespace api {
namespace {

TEST_F(PublicApi, TrainsWithTheLossesOfTransformers) {
    const auto golden = nlohmann::json::parse(std::ifstream(source / "tests/golden/quotes_run.json"));
    drover::use_fsdp_v2();
    const auto tokens = tokenizer();
    const auto model = drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = "float32"});
    const auto rows = data(tokens);
    EXPECT_EQ(rows["train"].size(), 200);
    EXPECT_EQ(rows["train"].input_ids()[0], golden.at("first_ids").get<std::vector<std::int32_t>>());
    const std::string output_dir = folder_ / "output";
    drover::Trainer trainer{{.model = model,
                             .train_dataset = rows["train"],
                             .args = {.output_dir = output_dir,
                                      .per_device_train_batch_size = 24,
                                      .num_train_epochs = 2,
                                      .learning_rate = 1e-2,
                                      .optim = "adafactor",
                                      .logging_steps = 1,
                                      .save_strategy = "no",
                                      .dataloader_drop_last = true,
                                      .disable_tqdm = true,
                                      .fsdp = drover::fsdp_v2_training_args(model)},
                             .data_collator = drover::DataCollatorForLanguageModeling(tokens, {.mlm = false}),
                             .eval_dataset = rows["train"]}};
    const double before = trainer.evaluate().at("eval_loss");
    const drover::TrainOutput result = trainer.train();
    const auto expected = golden.at("losses").get<std::vector<double>>();
    ASSERT_EQ(result.losses.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(result.losses[i], expected[i], 5e-4) << i;
    EXPECT_EQ(result.global_step, 16);
    EXPECT_LT(trainer.evaluate().at("eval_loss"), before - 0.5);

    trainer.save_model(output_dir);
    const auto trained = drover::CausalLM::from_pretrained(output_dir);
    EXPECT_EQ(trained.num_parameters(), model.num_parameters());
    const auto saved = drover::Tokenizer::from_pretrained(output_dir);
    const drover::GenerationOptions sampling{.max_new_tokens = 8, .temperature = 1, .seed = 3};
    const std::string text = trained.generate(saved, "To be", sampling);
    EXPECT_EQ(trained.generate(saved, "To be", sampling), text);
    EXPECT_EQ(text, model.generate(tokens, "To be", sampling));
}

/// The standard error of a Trainer with a bfloat16 model.
TEST_F(PublicApi, UpdatesThatBfloat16LosesAreAnnounced) {
    const auto tokens = tokenizer();
    const auto rows = data(tokens);
    const auto said = [&](const std::map<std::string, std::string>& more) {
        drover::Trainer trainer{
            {.model = drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = "bfloat16"}),
             .train_dataset = rows["train"],
             .args = {.output_dir = folder_ / "output",
                      .max_steps = 1,
                      .save_strategy = "no",
                      .disable_tqdm = true,
                      .more = more},
             .data_collator = drover::DataCollatorForLanguageModeling(tokens)}};
        testing::internal::CaptureStderr();
        trainer.save_model(folder_ / "untrained");
        EXPECT_EQ(testing::internal::GetCapturedStderr().find("will be lost"), std::string::npos);
        testing::internal::CaptureStderr();
        trainer.train();
        return testing::internal::GetCapturedStderr();
    };
    const std::string lost = said({});
    EXPECT_NE(lost.find("most updates will be lost"), std::string::npos) << lost;
    EXPECT_NE(lost.find("5e-05"), std::string::npos) << lost;
    for (const char* remedy : {"master_weights", "stochastic_rounding"})
        EXPECT_EQ(said({{remedy, "yes"}}).find("will be lost"), std::string::npos) << remedy;
}

/// A model's output before it is trained, from its Trainer, and after it was saved.
class TrainedModel : public PublicApi {
  protected:
    drover::Trainer trainer(const drover::CausalLM& model,
                            std::map<std::string, std::string> more = {}) const {
        return drover::Trainer{quotes_run(model, std::move(more))};
    }
};

TEST_F(TrainedModel, SpeaksWithItsNewWeights) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
        const auto model = drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = dtype});
        const drover::CausalLM copy = model;
        const std::string before = said_by(model);
        {
            auto training = trainer(model);
            training.evaluate();
            EXPECT_EQ(said_by(model), before);
            training.train();
            training.save_model(output());
            EXPECT_NE(said_by(output(), dtype), before);
            EXPECT_EQ(said_by(model), said_by(output(), dtype)) << dtype;
        }
        EXPECT_EQ(said_by(copy), said_by(output(), dtype)) << "without its Trainer, in " << dtype;
    }
    EXPECT_NE(said_by(model_id()), said_by(output()));  // the original folder is unchanged
}

TEST_F(TrainedModel, IsReportedOnAndStoppedEarlyAsByTheCommand) {
    const auto model = drover::CausalLM::from_pretrained(model_id());
    const std::string events = folder_ / "events";
    auto training = trainer(model, {{"report_to", "tensorboard"},
                                    {"logging_dir", events},
                                    {"max_steps", "6"},
                                    {"eval_strategy", "steps"},
                                    {"eval_steps", "1"},
                                    {"metric_for_best_model", "loss"},
                                    {"early_stopping_patience", "1"},
                                    {"early_stopping_threshold", "1000"}});
    EXPECT_EQ(training.train().global_step, 2);  // the second evaluation is not better by enough
    ASSERT_TRUE(std::filesystem::is_directory(events));
    const std::filesystem::directory_iterator files(events);
    ASSERT_NE(files, std::filesystem::directory_iterator());
    EXPECT_NE(files->path().filename().string().find("tfevents"), std::string::npos);
    EXPECT_GT(files->file_size(), 200u);
}

TEST_F(TrainedModel, IsWhatASecondTrainerBeginsWith) {
    const auto model = drover::CausalLM::from_pretrained(model_id());
    double untrained = 0, trained = 0;
    {
        auto first = trainer(model);
        untrained = first.evaluate().at("eval_loss");
        first.train();
        trained = first.evaluate().at("eval_loss");
        EXPECT_NEAR(trainer(model).evaluate().at("eval_loss"), trained, 1e-6);
    }
    auto second = trainer(model);
    EXPECT_NEAR(second.evaluate().at("eval_loss"), trained, 1e-6);
    EXPECT_LT(trained, untrained - 0.1);
    second.train();
    second.save_model(output());
    EXPECT_EQ(said_by(model), said_by(output()));

    auto third = trainer(model);
    third.train();
    second.train();
    second.save_model(output());
    EXPECT_EQ(said_by(model), said_by(output())) << "the last one that trained";
}

TEST_F(TrainedModel, IsTheBestOneWhereThatIsLoadedAtTheEnd) {
    const auto model = drover::CausalLM::from_pretrained(model_id());
    // The learning rate rises with every step until it destroys the model: the first checkpoint is the best.
    auto training = trainer(model, {{"save_strategy", "steps"},
                                    {"save_steps", "1"},
                                    {"eval_strategy", "steps"},
                                    {"eval_steps", "1"},
                                    {"warmup_steps", "3"},
                                    {"learning_rate", "3"},
                                    {"load_best_model_at_end", "True"}});
    training.train();
    const auto state = nlohmann::json::parse(std::ifstream(fs::path(output()) / "trainer_state.json"));
    const std::string best = state.at("best_model_checkpoint"), last = fs::path(output()) / "checkpoint-3";
    ASSERT_NE(best, last);
    EXPECT_EQ(said_by(model), said_by(best));
    EXPECT_NE(said_by(model), said_by(last));
}

TEST_F(PublicApi, TakesItsFolderBeforeItTrains) {
    const auto tokens = tokenizer();
    const auto model = drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = "float32"});
    const auto rows = data(tokens);
    std::ofstream(folder_ / "file") << "x";
    const auto train_into = [&](const std::string& output_dir) {
        return message_of([&] {
            drover::Trainer trainer{
                {.model = model,
                 .train_dataset = rows["train"],
                 .args = {.output_dir = output_dir,
                          .per_device_train_batch_size = 8,
                          .max_steps = 1,
                          .save_strategy = "no",
                          .disable_tqdm = true},
                 .data_collator = drover::DataCollatorForLanguageModeling(tokens, {.mlm = false})}};
            trainer.train();
        });
    };
    testing::internal::CaptureStdout();
    const std::string refusal = train_into(folder_ / "file/output");
    EXPECT_TRUE(refusal.starts_with("output_dir ")) << refusal;
    EXPECT_NE(refusal.find("cannot be made"), std::string::npos) << refusal;
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << "records of training";
    EXPECT_NE(train_into("/").find("--output_dir is /"), std::string::npos);
    testing::internal::CaptureStdout();
    EXPECT_EQ(train_into(folder_ / "output"), "nothing was thrown");
    EXPECT_NE(testing::internal::GetCapturedStdout().find("train_loss"), std::string::npos);
    EXPECT_TRUE(fs::exists(folder_ / "output/trainer_state.json"));
    EXPECT_FALSE(fs::exists(folder_ / "output/drover.lock"));
    // A lock file without content counts as taken for a moment, then as free.
    std::ofstream(folder_ / "output/drover.lock").close();
    EXPECT_EQ(train_into(folder_ / "output"), "nothing was thrown");
    EXPECT_FALSE(fs::exists(folder_ / "output/drover.lock"));
}

TEST_F(PublicApi, WritesNoMoreIntoAFolderThatWasTaken) {
    const auto tokens = tokenizer();
    const auto rows = data(tokens);
    const fs::path output = folder_ / "output", lock = output / "drover.lock";
    const auto trainer = [&](std::int64_t steps) {
        return drover::Trainer{
            {.model = drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = "float32"}),
             .train_dataset = rows["train"],
             .args = {.output_dir = output,
                      .max_steps = steps,
                      .save_strategy = "steps",
                      .save_steps = 2,
                      .disable_tqdm = true,
                      .more = {{"save_total_limit", "1"}}},
             .data_collator = drover::DataCollatorForLanguageModeling(tokens, {.mlm = false})}};
    };
    std::thread thief([&] {
        // Once the run has saved, the lock is certainly its own.
        while (!fs::exists(output) ||
               std::none_of(fs::directory_iterator(output), fs::directory_iterator(), [](const auto& entry) {
                   return entry.path().filename().string().starts_with("checkpoint-");
               }))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        nlohmann::json record = nlohmann::json::parse(std::ifstream(lock));
        record["token"] = "another";
        record["host"] = "elsewhere";
        std::ofstream(folder_ / "lock") << record.dump();
        fs::rename(folder_ / "lock", lock);
    });
    auto robbed = trainer(1'000'000);  // the theft ends it
    const std::string said = message_of([&] { robbed.train(); });
    thief.join();
    EXPECT_NE(said.find("was taken from this run by process"), std::string::npos) << said;
    EXPECT_FALSE(fs::exists(output / "trainer_state.json"));
    EXPECT_TRUE(fs::exists(lock));
    // When the other run has ended, the folder is available again.
    fs::remove(lock);
    EXPECT_EQ(message_of([&] { trainer(1).train(); }), "nothing was thrown");
}

TEST_F(PublicApi, FsdpArgumentsNameTheBlock) {
    const auto arguments = drover::fsdp_v2_training_args(drover::CausalLM::from_pretrained(model_id()));
    EXPECT_EQ(arguments.fsdp, "full_shard");
    const auto config = nlohmann::json::parse(arguments.fsdp_config);
    EXPECT_EQ(config, (nlohmann::json{{"transformer_layer_cls_to_wrap", {"LlamaDecoderLayer"}},
                                      {"xla", true},
                                      {"xla_fsdp_v2", true},
                                      {"xla_fsdp_grad_ckpt", true}}));
    const auto mixtral = drover::CausalLM::from_pretrained(source / "tests/golden/generate/mixtral");
    EXPECT_NE(drover::fsdp_v2_training_args(mixtral).fsdp_config.find("MixtralDecoderLayer"),
              std::string::npos);
}

TEST_F(PublicApi, RowsHaveColumns) {
    int row = 0;
    std::string last;
    drover::Dataset::load(quotes).map([&](const drover::Row& sample) {
        if (++row % 50 == 0) last = std::string(sample["author"]);  // a column that is not read for every row
        EXPECT_FALSE(sample["quote"].empty());
        return std::vector<std::int32_t>{1};
    });
    EXPECT_EQ(row, 200);
    EXPECT_EQ(last, "William Shakespeare");
}

TEST_F(PublicApi, SaysWhatIsWrong) {
    const auto plain = drover::Tokenizer::from_pretrained(model_id());
    const auto rows = drover::Dataset::load(quotes);
    const auto model = drover::CausalLM::from_pretrained(model_id());
    expect_part(message_of([] { drover::CausalLM::from_pretrained("no/such-model"); }), "no/such-model");
    expect_part(message_of([&] { rows["test"]; }), "no split \"test\"");
    expect_part(message_of([&] { rows["train"].input_ids(); }), "no token ids yet");
    expect_part(message_of([&] {
                    rows.map([](const drover::Row& row) { return row["x"], std::vector<std::int32_t>{}; });
                }),
                "\"x\"");
    expect_part(message_of([&] { drover::DataCollatorForLanguageModeling(plain, {.mlm = true}); }), "mlm");
    expect_part(message_of([&] {
                    drover::Tokenizer(plain).add_special_tokens({{"bos_token", "x"}});
                }),
                "bos_token");
    const auto mapped = data(plain);
    const auto trainer = [&](drover::TrainingArguments arguments) {
        return message_of([&] {
            drover::Trainer{{.model = model,
                             .train_dataset = mapped["train"],
                             .args = arguments,
                             .data_collator = drover::DataCollatorForLanguageModeling(plain)}};
        });
    };
    expect_part(trainer({.optim = "adamq"}), "adamq");
    expect_part(trainer({.more = {{"no_such_argument", "1"}}}), "no_such_argument");
    expect_part(trainer({.more = {{"resume_from_checkpoint", "out/checkpoint-5"}}}),
                "a Trainer does not act on");
    expect_part(trainer({.more = {{"comm-stats", "yes"}}}), "comm_stats is set");
}

}  // namespace
}  // namespace api
