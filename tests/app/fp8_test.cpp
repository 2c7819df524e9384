#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/checkpoint_runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

/// Runs of a model whose matrices have sides of multiples of 16.
class Fp8Command : public test::CheckpointRuns {
  protected:
    std::string config() const {
        Json config = parse_json(read_text_file(test::golden_path("run_clm/configs/llama.json")), "config");
        config["head_dim"] = 16;
        const fs::path path = folder_ / "config.json";
        if (!fs::exists(path)) write_file_atomically(path, config.dump());
        return fmt::format(" --config_name '{}' ", path.string());
    }
};

TEST_F(Fp8Command, ARunGoesOnAsIfItHadNotBeenStopped) {
    const std::vector<std::string> runs = {"--bf16 --gradient_accumulation_steps 2",
                                           "--dtype float32 --recompute full"};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::string whole = fmt::format("whole-{}", i), resumed = fmt::format("resumed-{}", i);
        const std::string more = config() + runs[i] + " --max_steps 8 --save_steps 5 --fp8 tensorwise";
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
    const Outcome other = train("other", config() + runs[0] + " --max_steps 8 --save_steps 5");
    EXPECT_EQ(other.exit_code, 0) << other.output;
    EXPECT_NE(other.output.find("fp8: 'none' (now) != 'tensorwise'"), std::string::npos) << other.output;
}

TEST_F(Fp8Command, IsNamedBeforeTheFirstStep) {
    const auto planned = [&](const std::string& more) {
        const Outcome outcome = train("plan", config() + "--max_steps 1 --dry_run " + more);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.output;
    };
    const std::string named = ", blocks' products in FP8";
    EXPECT_NE(planned("--fp8 tensorwise").find(named), std::string::npos);
    EXPECT_EQ(planned("").find(named), std::string::npos);
}

/// The result is an ordinary model, whose evaluation in a run uses FP8 too.
TEST_F(Fp8Command, SavesAModelThatIsEvaluatedAndGenerates) {
    const std::string more = config() + fmt::format(
                                            "--max_steps 6 --learning_rate 3e-3 --do_eval --validation_file "
                                            "'{}' --max_eval_samples 4 ",
                                            test::golden_path("run_clm/train.txt").string());
    const Outcome plain = train("plain", more), fp8 = train("fp8", more + "--fp8 tensorwise");
    ASSERT_EQ(fp8.exit_code, 0) << fp8.output;
    ASSERT_EQ(plain.exit_code, 0) << plain.output;
    const auto result = [&](const std::string& run, const char* key) {
        const fs::path path = folder_ / run / "all_results.json";
        return parse_json(read_text_file(path), path.string()).at(key).get<double>();
    };
    for (const char* key : {"train_loss", "eval_loss"}) {
        EXPECT_NE(result("fp8", key), result("plain", key)) << key;
        EXPECT_NEAR(result("fp8", key), result("plain", key), 0.02 * result("plain", key)) << key;
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

}  // namespace
}  // namespace drover
