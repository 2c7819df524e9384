#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/python_json.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover::test {

/// Small runs of `drover run_clm` in their own folder.
class CheckpointRuns : public ::testing::Test {
  protected:
    void SetUp() override {
        setenv("DROVER_CACHE", (folder_ / "cache").c_str(), 1);
        setenv("OMP_NUM_THREADS", "1", 1);  // the models are too small for more
    }
    void TearDown() override {
        unsetenv("DROVER_CACHE");
        unsetenv("OMP_NUM_THREADS");
    }

    /// The words after the program's name; `more` may override any of them.
    std::string words(const std::string& output, const std::string& more = "") const {
        const std::filesystem::path data = golden_path("run_clm");
        const std::string defaults = fmt::format(
            " --tokenizer_name '{}/examples/tokenizers/shakespeare-4k' --train_file '{}' --do_train "
            "--block_size "
            "32 --per_device_train_batch_size 2 --max_train_samples 20 --logging_steps 3 --disable_tqdm yes "
            "--output_dir '{}' ",
            DROVER_SOURCE_DIR, (data / "train.txt").string(), (folder_ / output).string());
        const std::string config =
            more.find("--config_name") == std::string::npos
                ? fmt::format(" --config_name '{}'", (data / "configs/llama.json").string())
                : "";
        return "run_clm" + config + defaults + more;
    }
    Outcome train(const std::string& output, const std::string& more = "") const {
        return run_in(folder_.path().string(), words(output, more));
    }

    std::filesystem::path checkpoint(const std::string& output, std::int64_t step) const {
        return folder_ / output / fmt::format("checkpoint-{}", step);
    }
    /// The numbers of the checkpoints in a folder, ascending.
    std::vector<std::int64_t> steps_in(const std::string& output) const {
        std::vector<std::int64_t> steps;
        std::error_code absent;
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / output, absent)) {
            const std::string name = entry.path().filename().string();
            if (name.starts_with("checkpoint-") && name.find('.') == std::string::npos)
                steps.push_back(std::stoll(name.substr(11)));
        }
        std::sort(steps.begin(), steps.end());
        return steps;
    }

    TemporaryFolder folder_;
};

/// log_history of a trainer_state.json without values that depend on a clock.
inline std::string timeless_history(const std::filesystem::path& state_file) {
    const Json state = parse_python_json(read_text_file(state_file), state_file.string());
    Json kept = Json::array();
    for (const Json& record : state.at("log_history")) {
        Json without = Json::object();
        for (const auto& [key, value] : record.items())
            if (!key.ends_with("_runtime") && !key.ends_with("_per_second")) without[key] = value;
        kept.push_back(without);
    }
    return python_json(kept, 2);
}

/// Weights, optimizer and counters are bit-identical.
inline void expect_equal_state(const std::filesystem::path& actual, const std::filesystem::path& expected) {
    EXPECT_EQ(find_damage(actual), std::nullopt);
    const CheckpointManifest a = CheckpointManifest::read(actual), b = CheckpointManifest::read(expected);
    EXPECT_EQ(a.state, b.state);
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json"})
        EXPECT_EQ(a.files.at(name).hash, b.files.at(name).hash) << name;
    EXPECT_EQ(timeless_history(actual / "trainer_state.json"),
              timeless_history(expected / "trainer_state.json"));
}

}  // namespace drover::test
