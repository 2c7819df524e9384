#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

/// A valid command line for training, with changes.
class RunClmRefuses : public ::testing::Test {
  protected:
    void SetUp() override {
        setenv("DROVER_CACHE", (folder_ / "cache").c_str(), 1);
        setenv("HF_HOME", (folder_ / "huggingface").c_str(), 1);
        setenv("OMP_NUM_THREADS", "1", 1);
    }
    void TearDown() override {
        for (const char* name : {"DROVER_CACHE", "HF_HOME", "OMP_NUM_THREADS"}) unsetenv(name);
    }

    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(folder_ / name, std::ios::binary) << content;
        return " '" + (folder_ / name).string() + "'";
    }

    Outcome run(const std::string& changes) const {
        const fs::path data = test::golden_path("run_clm");
        return test::run("run_clm --config_name " + (data / "configs/llama.json").string() +
                         " --tokenizer_name " + std::string(DROVER_SOURCE_DIR) +
                         "/examples/tokenizers/shakespeare-4k --train_file " + (data / "train.txt").string() +
                         " --do_train --block_size 64 --max_steps 1 --output_dir " +
                         (folder_ / "out").string() + " " + changes);
    }

    /// Ends with this code, prints these words in one or two sentences, and writes no model.
    void expect_refused(const std::string& changes, int exit_code, const std::string& words) const {
        const Outcome outcome = run(changes);
        EXPECT_EQ(outcome.exit_code, exit_code) << changes << "\n" << outcome.output;
        EXPECT_NE(outcome.output.find(words), std::string::npos) << changes << "\n" << outcome.output;
        EXPECT_EQ(outcome.output.find("terminate called"), std::string::npos) << outcome.output;
        EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors")) << changes;
    }

    test::TemporaryFolder folder_;
};

TEST_F(RunClmRefuses, NothingWhenThereIsNothingToDo) {
    const Outcome outcome =
        test::run("run_clm --model_name_or_path /nowhere --output_dir " + (folder_ / "out").string());
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.output, "Neither --do_train nor --do_eval is given, so there is nothing to do.\n");
    EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(RunClmRefuses, WrongCommandLines) {
    expect_refused("--learning_rte 1e-3", 2, "learning_rate");
    expect_refused("--learning_rate fast", 2, "learning_rate");
    expect_refused("--spmd_2d_sharding 2 --spmd_fsdp_sharding", 2, "spmd_2d_sharding");
    expect_refused("--gmm --static", 2, "static");
    expect_refused("--optim lion", 2, "optim");
    expect_refused("--fp16 --bf16", 2, "fp16");
    expect_refused("--optim_args momentum=0.9", 2, "momentum");
    expect_refused("--fp8 fast", 2,
                   "--fp8 is \"fast\", which is not one of its choices. Use none, tensorwise or "
                   "blockwise.");
    expect_refused("--fp8 tensorwise", 2,
                   "head_dim is 8, but FP8 products take multiples of 16. Train without --fp8.");
    expect_refused("--config_overrides hidden=3", 2, "config_overrides");
    expect_refused("--streaming --max_steps -1", 2, "--max_steps must be a positive number");
    expect_refused("--streaming --packing none", 2, "streaming");
    expect_refused("--streaming --group_by_length", 2, "group them by length");
    expect_refused("--eval_on_start", 2, "do_eval");
    expect_refused("--early_stopping_patience 2", 2, "eval_strategy");
    expect_refused("--early_stopping_patience 2 --eval_strategy epoch", 2, "metric_for_best_model");
    expect_refused("--early_stopping_threshold 2", 2, "early_stopping_patience");
}

/// Products of such numbers used to overflow.
TEST_F(RunClmRefuses, NumbersThatCannotBeCountedWith) {
    expect_refused("--max_steps 9223372036854775807", 2,
                   "--max_steps is 9223372036854775807, which is too large");
    expect_refused("--max_steps 9223372036854775808", 2,
                   "--max_steps is 9223372036854775808, which is too large");
    expect_refused("--warmup_steps 1e19", 2, "--warmup_steps is 1e19, which is too large");
    expect_refused("--per_device_train_batch_size 1000000000000000", 2, "which is too large");
    expect_refused("--block_size 4611686018427387904", 2, "which is too large");
    expect_refused("--gradient_accumulation_steps 9223372036854775807", 2, "which is too large");
    expect_refused("--threads 1000000000", 2, "--threads is 1000000000, which is too large");
    expect_refused("--ddp_timeout 9223372036854775807", 2, "which is too large");
    // Each is allowed, but not all together.
    expect_refused(
        "--per_device_train_batch_size 2147483647 --gradient_accumulation_steps 2147483647 "
        "--streaming --max_steps 1000000000000",
        2, "more samples than can be counted");
    // A prime, for which the search for a smaller batch used to take minutes.
    expect_refused("--per_device_train_batch_size 2147483647", 1,
                   "--per_device_train_batch_size 1 --gradient_accumulation_steps 2147483647");
}

TEST_F(RunClmRefuses, TextThatIsNotUtf8) {
    for (const char* flag : {"--output_dir", "--train_file", "--text_column", "--pad_token", "--config_name"})
        expect_refused(std::string(flag) + " \"$(printf 'caf\\351')\"", 2, "which is not UTF-8");
    setenv("PROFILE_LOGDIR", "caf\xe9", 1);
    expect_refused("", 2, "which is not UTF-8");
    unsetenv("PROFILE_LOGDIR");
}

TEST_F(RunClmRefuses, MissingFiles) {
    expect_refused("--train_file /nowhere/text.txt", 1, "/nowhere/text.txt");
    expect_refused("--config_name nobody/nothing", 1, "nobody/nothing");
    expect_refused("--tokenizer_name nobody/nothing", 1, "nobody/nothing");
    expect_refused("--model_name_or_path nobody/nothing", 1, "nobody/nothing");
    expect_refused("--text_column body", 1, "body");
}

TEST_F(RunClmRefuses, BadFiles) {
    expect_refused("--config_name" + write("config.json", "{\"model_type\": \"llama\","), 1, "config.json");
    expect_refused("--config_name" + write("other.json", "{\"model_type\": \"bert\"}"), 1, "bert");
    expect_refused("--train_file" + write("text.txt", "good\nbad \xFF\n"), 1, "line 2");
    expect_refused("--train_file" + write("empty.txt", ""), 1, "empty.txt");
    expect_refused("--train_file" + write("text.xyz", "words\n"), 1, "text.xyz");
    expect_refused("--deepspeed" + write("ds.json", "{\"zero_optimization\": {\"stage\": 7}}"), 2, "stage");
}

TEST_F(RunClmRefuses, AFolderThatHoldsAModel) {
    ASSERT_EQ(run("--save_strategy no").exit_code, 0);
    ASSERT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
    const auto before = fs::last_write_time(folder_ / "out/model.safetensors");
    const Outcome again = run("--save_strategy no");
    EXPECT_EQ(again.exit_code, 1) << again.output;
    EXPECT_NE(again.output.find("--overwrite_output_dir"), std::string::npos) << again.output;
    EXPECT_EQ(fs::last_write_time(folder_ / "out/model.safetensors"), before);
    EXPECT_EQ(run("--save_strategy no --overwrite_output_dir").exit_code, 0);
}

TEST_F(RunClmRefuses, NothingInADryRunButSaysThePlan) {
    const Outcome outcome = run("--dry_run");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    for (const char* words : {"Memory:", "total", "1 update of ", "weights float32"})
        EXPECT_NE(outcome.output.find(words), std::string::npos) << words << "\n" << outcome.output;
    EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(RunClmRefuses, NothingInADryRunThatListsSettings) {
    const Outcome changed = run("--dry_run --learning_rate 1e-4 --seed 42"), all = run("--dry_run -v");
    const auto has = [](const Outcome& outcome, const char* words) {
        return outcome.output.find(words) != std::string::npos;
    };
    EXPECT_TRUE(has(changed, "Settings that differ from their defaults")) << changed.output;
    EXPECT_TRUE(has(changed, "= 0.0001  (command line; default 5e-05)")) << changed.output;
    EXPECT_FALSE(has(changed, "\nseed ")) << "it was given its default";
    EXPECT_FALSE(has(changed, "\nweight_decay "));
    for (const char* words : {"All settings:\n", "\nseed ", "\nweight_decay ", "\nlearning_rate "})
        EXPECT_TRUE(has(all, words)) << words << "\n" << all.output;
    EXPECT_TRUE(has(all, "(command line; default -1)")) << "max_steps";
}

TEST_F(RunClmRefuses, NothingOfAFileThatFlagsChange) {
    const std::string file = write("run.yaml", "max_steps: 9\nlearning_rate: 3e-4\noutput_dir: elsewhere\n");
    const Outcome outcome = test::run_in(
        folder_.path().string(),
        "run_clm" + file + " --config_name " + test::golden_path("run_clm/configs/llama.json").string() +
            " --tokenizer_name " + std::string(DROVER_SOURCE_DIR) +
            "/examples/tokenizers/shakespeare-4k --train_file " +
            test::golden_path("run_clm/train.txt").string() +
            " --do_train --block_size 64 --max_steps 1 --output_dir out --save_strategy no");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const Json arguments = read_json_file(folder_ / "out/training_args.json");
    EXPECT_EQ(arguments.at("max_steps"), 1);
    EXPECT_EQ(arguments.at("learning_rate"), 3e-4);
    EXPECT_FALSE(fs::exists(folder_ / "elsewhere"));
    const Outcome unknown = test::run("run_clm" + write("y.json", "{\n\"lerning_rate\": 1}"));
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.output.find("y.json:2: \"lerning_rate\" is no argument"), std::string::npos)
        << unknown.output;
}

TEST_F(RunClmRefuses, NothingButWarnsOfMorePositionsThanTheModelHas) {
    const Outcome outcome = run("--block_size 256 --save_strategy no");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("max_position_embeddings, 128"), std::string::npos) << outcome.output;
}

TEST_F(RunClmRefuses, ADeepSpeedFileThatCountsOtherSteps) {
    const std::string file = write("ds.json", R"({"scheduler": {"type": "WarmupDecayLR",
        "params": {"total_num_steps": 77, "warmup_num_steps": 0, "warmup_min_lr": 0, "warmup_max_lr": 5e-5}},
        "zero_optimization": {"stage": 1}})");
    expect_refused("--deepspeed" + file, 2, "77");
}

TEST_F(RunClmRefuses, MoreMemoryThanItMayTake) {
    expect_refused("--memory_fraction 0.0000001", 1, "needs 13.57 MiB");
}

TEST_F(RunClmRefuses, NumbersThatAreNotFinite) {
    const Outcome stopped = run("--learning_rate 1e30 --max_grad_norm 0 --max_steps 8 --save_strategy no");
    EXPECT_EQ(stopped.exit_code, 1) << stopped.output;
    EXPECT_NE(stopped.output.find("not a finite number"), std::string::npos) << stopped.output;
    const Outcome skipped =
        run("--learning_rate 1e30 --max_grad_norm 0 --max_steps 8 --save_strategy no --on_nan skip");
    EXPECT_EQ(skipped.exit_code, 0) << skipped.output;
    EXPECT_NE(skipped.output.find("skipped"), std::string::npos) << skipped.output;
}

TEST_F(RunClmRefuses, NothingInARowWiseRun) {
    const std::string quotes =
        write("quotes.csv", "quote,author\n\"To be, or not to be\",W\nshort,X\nlonger than that,Y\n");
    const Outcome outcome = run("--train_file" + quotes +
                                " --text_column quote --packing none --pad_token eos --max_steps 2 "
                                "--per_device_train_batch_size 2 --save_strategy no");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
}

}  // namespace
}  // namespace drover
