#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "app/checkpoint_runs.h"
#include "core/json_text.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

/// Runs of a model whose matrices have sides of multiples of 16.
class Fp8Command : public test::CheckpointRuns {
  protected:
    std::string config(int intermediate_size = 48) const {
        Json config = parse_json(read_text_file(test::golden_path("run_clm/configs/llama.json")), "config");
        config["head_dim"] = 16;
        config["intermediate_size"] = intermediate_size;
        const fs::path path = folder_ / "config.json";
        if (!fs::exists(path)) write_file_atomically(path, config.dump());
        return fmt::format(" --config_name '{}' ", path.string());
    }
};

TEST_F(Fp8Command, ARunGoesOnAsIfItHadNotBeenStopped) {
    const std::string bf16 = "--bf16 --gradient_accumulation_steps 2";
    const std::vector<std::string> runs = {bf16 + " --fp8 tensorwise",
                                           "--dtype float32 --recompute full --fp8 tensorwise",
                                           bf16 + " --fp8 blockwise"};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::string whole = fmt::format("whole-{}", i), resumed = fmt::format("resumed-{}", i);
        const std::string more = config() + runs[i] + " --max_steps 8 --save_steps 5";
        const Outcome first = train(whole, more);
        ASSERT_EQ(first.exit_code, 0) << first.output;
        fs::create_directories(folder_ / resumed);
        fs::copy(checkpoint(whole, 5), checkpoint(resumed, 5), fs::copy_options::recursive);
        const Outcome second = train(resumed, more);
        ASSERT_EQ(second.exit_code, 0) << second.output;
        EXPECT_EQ(second.output.find("Warning"), std::string::npos) << second.output;
        test::expect_equal_state(checkpoint(resumed, 8), checkpoint(whole, 8));
    }
    // Another recipe is not the same run, and is named.
    fs::create_directories(folder_ / "other");
    fs::copy(checkpoint("whole-0", 5), checkpoint("other", 5), fs::copy_options::recursive);
    const Outcome other = train("other", config() + runs[2] + " --max_steps 8 --save_steps 5");
    EXPECT_EQ(other.exit_code, 0) << other.output;
    EXPECT_NE(other.output.find("fp8: 'blockwise' (now) != 'tensorwise'"), std::string::npos) << other.output;
}

TEST_F(Fp8Command, IsNamedBeforeTheFirstStep) {
    const auto planned = [&](const std::string& more) {
        const Outcome outcome = train("plan", config() + "--max_steps 1 --dry_run " + more);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.output;
    };
    const std::string named = ", blocks' products in FP8";
    EXPECT_NE(planned("--fp8 tensorwise").find(named + "\n"), std::string::npos);
    EXPECT_NE(planned("--fp8 blockwise").find(named + " with a scale for every 128 numbers\n"),
              std::string::npos);
    EXPECT_EQ(planned("").find(named), std::string::npos);
}

/// The result is an ordinary model, whose evaluation in a run uses FP8 too.
TEST_F(Fp8Command, SavesAModelThatIsEvaluatedAndGenerates) {
    const std::string more = config() + fmt::format(
                                            "--max_steps 6 --learning_rate 3e-3 --do_eval --validation_file "
                                            "'{}' --max_eval_samples 4 ",
                                            test::golden_path("run_clm/train.txt").string());
    const Outcome plain = train("plain", more), fp8 = train("fp8", more + "--fp8 tensorwise"),
                  blocks = train("blocks", more + "--fp8 blockwise");
    ASSERT_EQ(fp8.exit_code, 0) << fp8.output;
    ASSERT_EQ(blocks.exit_code, 0) << blocks.output;
    ASSERT_EQ(plain.exit_code, 0) << plain.output;
    const auto result = [&](const std::string& run, const char* key) {
        const fs::path path = folder_ / run / "all_results.json";
        return parse_json(read_text_file(path), path.string()).at(key).get<double>();
    };
    for (const char* key : {"train_loss", "eval_loss"}) {
        EXPECT_NE(result("fp8", key), result("plain", key)) << key;
        EXPECT_NE(result("fp8", key), result("blocks", key)) << key;
        for (const char* run : {"fp8", "blocks"})
            EXPECT_NEAR(result(run, key), result("plain", key), 0.02 * result("plain", key)) << key;
    }
    EXPECT_EQ(fs::file_size(folder_ / "fp8/model.safetensors"),
              fs::file_size(folder_ / "plain/model.safetensors"));

    const std::string model = (folder_ / "fp8").string();
    const Outcome generated =
        test::run(fmt::format("generate --model '{}' --prompt First --max_new_tokens 3", model));
    EXPECT_EQ(generated.exit_code, 0) << generated.output;
    const Outcome evaluated = test::run(fmt::format("eval --model '{}' --data '{}' --block_size 32", model,
                                                    test::golden_path("run_clm/train.txt").string()));
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
}

/// The amount after `words`, in bytes; 0 if they are missing.
double bytes_behind(const std::string& words, const std::string& text) {
    const std::size_t at = text.find(words);
    if (at == std::string::npos) return 0;
    std::istringstream rest(text.substr(at + words.size()));
    double amount = 0;
    std::string unit;
    rest >> amount >> unit;
    for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
        amount *= 1024;
        if (unit.starts_with(next)) return amount;
    }
    return 0;
}

/// Adapters beside frozen weights in FP8: resumed runs, and memory that has no room for the copies.
TEST_F(Fp8Command, TrainsAdaptersOfAFrozenModel) {
    const std::string base = (folder_ / "base").string();
    // So wide that the copies are more than a few percent of what the run needs.
    ASSERT_EQ(train("base", config(192) + "--max_steps 1 --dtype bfloat16").exit_code, 0);
    const std::string more = fmt::format(
        " --config_name '{0}' --model_name_or_path '{0}' --fp8 tensorwise --use_peft --lora_r 4 "
        "--lora_target_modules all-linear --learning_rate 1e-2 --max_steps 6 --save_steps 3 ",
        base);
    const Outcome whole = train("whole", more);
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    fs::create_directories(folder_ / "resumed");
    fs::copy(checkpoint("whole", 3), checkpoint("resumed", 3), fs::copy_options::recursive);
    const Outcome resumed = train("resumed", more);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    const auto adapter = [&](const std::string& run) {
        return read_text_file(folder_ / run / "adapter_model.safetensors");
    };
    EXPECT_TRUE(adapter("resumed") == adapter("whole"));

    const std::string copies = "The copies of the frozen weights in FP8 (";
    EXPECT_EQ(whole.output.find(copies), std::string::npos) << whole.output;
    const std::string refusal = train("none", more + "--memory_fraction 1e-9").output;
    EXPECT_EQ(refusal.find(copies), std::string::npos) << "they are not why it does not fit\n" << refusal;
    const double needed = bytes_behind("The run needs ", refusal),
                 device = bytes_behind("bytes of the ", refusal);
    ASSERT_TRUE(needed > 0 && device > 0) << refusal;
    // Enough without the copies.
    const std::string little = fmt::format("--memory_fraction {} ", 1.02 * needed / device);
    const Outcome tight = train("tight", more + little);
    ASSERT_EQ(tight.exit_code, 0) << tight.output;
    EXPECT_NE(tight.output.find(copies), std::string::npos) << tight.output;
    EXPECT_TRUE(adapter("tight") == adapter("whole"));
    // A smaller batch leaves room for them.
    const Outcome smaller = train("smaller", more + little + "--auto_find_batch_size ");
    ASSERT_EQ(smaller.exit_code, 0) << smaller.output;
    EXPECT_NE(smaller.output.find("--auto_find_batch_size takes "), std::string::npos) << smaller.output;
    EXPECT_EQ(smaller.output.find(copies), std::string::npos) << smaller.output;
}

}  // namespace
}  // namespace drover
