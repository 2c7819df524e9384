#pragma once

#include <drover/drover.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

/// For tests of the public interface, which include only its headers, as a user has them.
namespace api {

namespace fs = std::filesystem;

/// The checkout; DROVER_SOURCE_DIR names another than the one this was built in.
inline const fs::path source =
    std::getenv("DROVER_SOURCE_DIR") != nullptr ? std::getenv("DROVER_SOURCE_DIR") : DROVER_SOURCE_DIR;
inline const std::string quotes = source / "examples/data/quotes.jsonl";

/// The message of the exception that `action` throws.
template <class Action>
std::string message_of(const Action& action) {
    try {
        action();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

inline void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// A small model with its tokenizer in a folder of its own.
class PublicApi : public ::testing::Test {
  protected:
    PublicApi() {
        fs::create_directories(folder_);
        for (const fs::path& from :
             {source / "tests/golden/run_clm/saved", source / "examples/tokenizers/shakespeare-4k"})
            fs::copy(from, folder_ / "model",
                     fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
    ~PublicApi() override { fs::remove_all(folder_); }

    std::string model_id() const { return folder_ / "model"; }
    std::string output() const { return folder_ / "output"; }
    drover::Tokenizer tokenizer() const {
        auto loaded = drover::Tokenizer::from_pretrained(model_id());
        loaded.add_special_tokens({{"pad_token", loaded.eos_token()}});
        return loaded;
    }
    drover::Dataset data(const drover::Tokenizer& with) const {
        return drover::Dataset::load(quotes).map([&](const drover::Row& row) { return with(row["quote"]); });
    }
    /// `given`, on the device that DROVER_TEST_DEVICE names, if it does.
    static std::map<std::string, std::string> on_device(std::map<std::string, std::string> given = {}) {
        if (const char* device = std::getenv("DROVER_TEST_DEVICE")) given["device"] = device;
        return given;
    }
    /// A Trainer of few steps on the quotes.
    drover::TrainerParts quotes_run(const drover::CausalLM& model,
                                    std::map<std::string, std::string> more = {}) const {
        const auto tokens = tokenizer();
        const auto rows = data(tokens);
        return {.model = model,
                .train_dataset = rows["train"],
                .args = {.output_dir = output(),
                         .max_steps = 3,
                         .learning_rate = 1e-2,
                         .save_strategy = "no",
                         .disable_tqdm = true,
                         .more = on_device(std::move(more))},
                .data_collator = drover::DataCollatorForLanguageModeling(tokens),
                .eval_dataset = rows["train"]};
    }
    drover::CausalLM model() const { return drover::CausalLM::from_pretrained(model_id()); }
    std::string said_by(const drover::CausalLM& model) const {
        return model.generate(tokenizer(), "To be", {.max_new_tokens = 24, .temperature = 1, .seed = 3});
    }
    std::string said_by(const std::string& folder, const std::string& dtype = "float32") const {
        return said_by(drover::CausalLM::from_pretrained(folder, {.torch_dtype = dtype}));
    }
    static std::string bytes_of(const fs::path& file) {
        std::ifstream stream(file, std::ios::binary);
        EXPECT_TRUE(stream) << file;
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    nlohmann::json json_of(const fs::path& file) const { return nlohmann::json::parse(std::ifstream(file)); }

    const fs::path folder_ = fs::temp_directory_path() / ("drover-api-" + std::to_string(getpid()));
};

}  // namespace api
