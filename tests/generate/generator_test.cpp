#include "generate/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "peft/adapter_cases.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/test_backend.h"

namespace drover {
namespace {

/// A model of tests/golden/generate, ready to use.
struct LoadedModel {
    std::filesystem::path folder;
    std::unique_ptr<Backend> backend = test::make_test_backend();
    InferenceModel model;

    LoadedModel(const std::string& name, DType dtype, std::int64_t sequences = 1,
                std::int64_t new_tokens = 64)
        : folder(test::golden_path("generate/" + name)),
          model(ModelConfig::from_path(folder),
                {.dtype = dtype,
                 .sequences = sequences,
                 .capacity = 128,
                 .new_tokens = new_tokens,
                 .logits = 64},
                *backend) {
        model.allocate();
        EXPECT_EQ(load_weights(model, *backend, folder).text(), "");
    }

    std::vector<std::int32_t> greedy(const std::vector<std::int32_t>& prompt, std::int64_t count) {
        return Generator(model, *backend)
            .generate(prompt,
                      {.sampling = {}, .max_new_tokens = count, .ends = end_ids(model.config(), folder)});
    }
};

class Generate : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, Generate,
                         ::testing::Values("llama", "llama_tied", "mixtral", "qwen2", "qwen3"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(Generate, GreedyIdsAreThoseOfTransformers) {
    LoadedModel loaded(GetParam(), DType::f32);
    const Json expected = read_json_file(loaded.folder / "expected.json");
    ASSERT_FALSE(expected.at("cases").empty());
    for (const Json& item : expected.at("cases"))
        EXPECT_EQ(loaded.greedy(item.at("prompt").get<std::vector<std::int32_t>>(),
                                expected.at("max_new_tokens").get<std::int64_t>()),
                  item.at("ids").get<std::vector<std::int32_t>>())
            << item.at("prompt") << ", margin " << item.at("margin");
}

TEST_P(Generate, AConversationGoesOnFromTheCache) {
    LoadedModel loaded(GetParam(), DType::f32);
    Generator generator(loaded.model, *loaded.backend);
    GenerationSettings settings{.sampling = {}, .max_new_tokens = 8, .ends = {}};
    settings.keep_common_start = true;
    std::vector<std::int32_t> prompt{3, 14, 15, 92};
    for (int turn = 0; turn < 3; ++turn) {
        const auto made = generator.generate(prompt, settings);
        LoadedModel fresh(GetParam(), DType::f32);
        const auto expected = Generator(fresh.model, *fresh.backend).generate(prompt, settings);
        EXPECT_EQ(made, expected) << turn;
        prompt.insert(prompt.end(), made.begin(), made.end());
        for (const std::int32_t id : {65, 35 + turn}) prompt.push_back(id);
    }
    // A prompt that goes back, and one that repeats the last.
    for (const std::vector<std::int32_t>& other :
         {std::vector<std::int32_t>{3, 14, 15}, {3, 14, 7, 7}, {3, 14, 7, 7}}) {
        LoadedModel fresh(GetParam(), DType::f32);
        EXPECT_EQ(generator.generate(other, settings), fresh.greedy(other, 8));
    }
}

TEST(Generator, StopsWhenAsked) {
    LoadedModel loaded("llama", DType::f32);
    int told = 0;
    GenerationSettings settings{.sampling = {}, .max_new_tokens = 50, .ends = {}};
    settings.is_stopped = [&] { return told == 5; };
    EXPECT_EQ(Generator(loaded.model, *loaded.backend)
                  .generate(std::vector<std::int32_t>{1, 2}, settings, [&](std::int32_t) { ++told; })
                  .size(),
              5u);
}

std::vector<NewToken> tokens_of(const std::vector<std::int32_t>& ids, std::int32_t sequence = 0) {
    std::vector<NewToken> tokens;
    for (const std::int32_t id : ids)
        tokens.push_back(
            {.id = id, .sequence = sequence, .position = static_cast<std::int32_t>(tokens.size())});
    return tokens;
}

std::vector<double> as_doubles(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

TEST_P(Generate, LogitsAreThoseOfTransformers) {
    LoadedModel loaded(GetParam(), DType::f32, 1, 80);
    const Json expected = read_json_file(loaded.folder / "expected.json");
    const Json& last = expected.at("cases").back();
    auto ids = last.at("prompt").get<std::vector<std::int32_t>>();
    const auto made = last.at("ids").get<std::vector<std::int32_t>>();
    ids.insert(ids.end(), made.begin(), made.end() - 1);
    const std::vector<float> logits = loaded.model.logits(loaded.backend->main_stream(), tokens_of(ids), 1);
    EXPECT_LE(test::relative_error(as_doubles(logits), expected.at("last_logits").get<std::vector<double>>()),
              1e-5);
}

TEST_P(Generate, TheCacheEqualsComputingEverythingAgain) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        LoadedModel loaded(GetParam(), dtype);
        const Stream stream = loaded.backend->main_stream();
        std::vector<std::int32_t> ids(40);
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>((i * 37 + 11) % 250);
        const std::vector<NewToken> all = tokens_of(ids);
        const std::vector<float> whole = loaded.model.logits(stream, all, 40);
        const std::size_t vocab = whole.size() / 40;
        // A prefix at once, the other tokens one by one.
        loaded.model.forward(stream, {all.data(), 13}, 1);
        for (std::size_t i = 13; i < all.size(); ++i) {
            const std::vector<float> step = loaded.model.logits(stream, {&all[i], 1}, 1);
            const std::vector<float> expected(whole.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                                              whole.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
            EXPECT_LE(test::relative_error(as_doubles(step), as_doubles(expected)), dtype != DType::f32 ? 0.02
                                                                                    : test::tests_use_cuda()
                                                                                        ? 1e-5
                                                                                        : 1e-6)
                << i << " " << name_of(dtype);
        }
    }
}

TEST_P(Generate, PiecesOfThePromptDoNotMatter) {
    const Json expected =
        read_json_file(test::golden_path(std::string("generate/") + GetParam() + "/expected.json"));
    const Json& last = expected.at("cases").back();
    LoadedModel loaded(GetParam(), DType::f32, 1, 7);
    EXPECT_EQ(loaded.greedy(last.at("prompt").get<std::vector<std::int32_t>>(), 32),
              last.at("ids").get<std::vector<std::int32_t>>());
}

TEST(Generator, SequencesSideBySideDoNotSeeEachOther) {
    LoadedModel loaded("mixtral", DType::f32, 3);
    const Stream stream = loaded.backend->main_stream();
    const std::vector<std::vector<std::int32_t>> texts = {{1, 2, 3, 4}, {9, 8, 7, 6}, {5, 5, 50, 5}};
    std::vector<std::vector<float>> alone;
    for (const auto& text : texts) alone.push_back(loaded.model.logits(stream, tokens_of(text), 1));
    // Prompts of three tokens one after the other, then one token of each at once.
    std::vector<NewToken> last;
    for (std::int32_t s = 0; s < 3; ++s) {
        const std::vector<NewToken> tokens = tokens_of(texts[static_cast<std::size_t>(s)], s);
        loaded.model.forward(stream, {tokens.data(), 3}, 1);
        last.push_back(tokens.back());
    }
    const std::vector<float> together = loaded.model.logits(stream, last, 3);
    const std::size_t vocab = together.size() / 3;
    for (std::size_t s = 0; s < 3; ++s) {
        const std::vector<float> own(together.begin() + static_cast<std::ptrdiff_t>(s * vocab),
                                     together.begin() + static_cast<std::ptrdiff_t>((s + 1) * vocab));
        EXPECT_LE(test::relative_error(as_doubles(own), as_doubles(alone[s])), 1e-6);
    }
}

TEST(Generator, StopsWhereTheCacheIsFull) {
    const auto folder = test::golden_path("generate/llama");
    const auto backend = test::make_test_backend();
    InferenceModel model(ModelConfig::from_path(folder), {.capacity = 9, .new_tokens = 4}, *backend);
    model.allocate();
    load_weights(model, *backend, folder);
    Generator generator(model, *backend);
    const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5};
    EXPECT_EQ(generator.generate(prompt, {.sampling = {}, .max_new_tokens = 100, .ends = {}}).size(), 5u);
    const std::vector<std::int32_t> full(9, 1), foreign = {258};
    test::expect_error([&] { generator.generate(full, {}); }, {"9 tokens", "room for "});
    test::expect_error([&] { generator.generate({}, {}); }, {"prompt has no tokens"});
    test::expect_error([&] { generator.generate(foreign, {}); }, {"token id 258"});
}

TEST(Generator, ThePlanHasNoGradients) {
    const auto backend = test::make_test_backend();
    const auto config = ModelConfig::from_path(test::golden_path("generate/llama"));
    const InferenceModel model(config, {.capacity = 64}, *backend);
    EXPECT_EQ(model.memory_plan()[MemoryUse::gradients], 0u);
    EXPECT_EQ(model.memory_plan()[MemoryUse::moments], 0u);
}

TEST(EndIds, GenerationConfigComesFirst) {
    const test::TemporaryFolder folder;
    ModelConfig config;
    config.eos_token_ids = {2, 3};
    EXPECT_EQ(end_ids(config, folder.path()), (std::vector<std::int32_t>{2, 3}));
    write_file_atomically(folder / "generation_config.json", R"({"eos_token_id": [7, 8]})");
    EXPECT_EQ(end_ids(config, folder.path()), (std::vector<std::int32_t>{7, 8}));
    write_file_atomically(folder / "generation_config.json", R"({"eos_token_id": 7})");
    EXPECT_EQ(end_ids(config, folder.path()), std::vector<std::int32_t>{7});
    write_file_atomically(folder / "generation_config.json", R"({"eos_token_id": null})");
    EXPECT_EQ(end_ids(config, folder.path()), std::vector<std::int32_t>{}) << "null is none";
    write_file_atomically(folder / "generation_config.json", R"({"top_k": 5})");
    EXPECT_EQ(end_ids(config, folder.path()), (std::vector<std::int32_t>{2, 3}));
    write_file_atomically(folder / "generation_config.json", R"({"eos_token_id": "x"})");
    test::expect_error([&] { end_ids(config, folder.path()); },
                       {"generation_config.json", "eos_token_id is \"x\""});
}

TEST(GenerateWithAdapters, LogitsAreThoseOfPeft) {
    for (const char* name : test::adapter_cases) {
        SCOPED_TRACE(name);
        const test::AdapterCase item(name);
        const std::unique_ptr<Backend> backend = test::make_test_backend();
        std::vector<AdapterWeights> adapters;
        adapters.emplace_back(item.folder, item.model);
        InferenceModel model(merged_config(item.model, adapters), {.capacity = 64, .new_tokens = 64},
                             *backend);
        model.allocate();
        EXPECT_EQ(load_weights(model, *backend, item.base, adapters).text(), "");
        const auto prompt = item.expected.at("prompt").get<std::vector<std::int32_t>>();
        const std::vector<float> ours = model.logits(backend->main_stream(), tokens_of(prompt), 1);
        const auto theirs = item.expected.at("logits").get<std::vector<float>>();
        ASSERT_EQ(ours.size(), theirs.size());
        double squares = 0, norm = 0;
        for (std::size_t i = 0; i < ours.size(); ++i) {
            squares += std::pow(ours[i] - theirs[i], 2);
            norm += std::pow(theirs[i], 2);
        }
        EXPECT_LE(std::sqrt(squares / norm), 1e-5);
    }
}

}  // namespace
}  // namespace drover
