#include "peft/adapter_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/text_file.h"
#include "model/params.h"
#include "peft/adapter_cases.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

class SavedAdapter : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Cases, SavedAdapter, ::testing::ValuesIn(test::adapter_cases),
                         [](const auto& item) { return std::string(item.param); });

TEST_P(SavedAdapter, MergesAsPeftDoes) {
    const test::AdapterCase item(GetParam());
    const std::vector<AdapterWeights> adapters = [&] {
        std::vector<AdapterWeights> one;
        one.emplace_back(item.folder, item.model);
        return one;
    }();
    const ModelConfig model = merged_config(item.model, adapters);
    EXPECT_EQ(model.head_from_embedding, std::string(GetParam()).starts_with("tied_"));
    EXPECT_FALSE(model.tie_word_embeddings);
    const MergedWeights merged(item.base, model, adapters);
    const ModelWeights expected(item.folder / "merged.safetensors"), base(item.base);
    std::size_t changed = 0;
    make_param_spec(model).for_each_leaf([&](const LeafSpec& leaf) {
        const std::vector<float> ours = merged.read(leaf.name, leaf.shape);
        const bool is_changed = expected.entry(leaf.name) != nullptr;
        changed += is_changed;
        EXPECT_TRUE(adapters[0].changes(leaf.name) || !is_changed) << leaf.name;
        const bool is_embedding = leaf.name == head_leaf && model.head_from_embedding;
        const std::vector<double> theirs =
            test::values(is_changed ? expected.find(leaf.name)
                                    : base.find(is_embedding ? std::string(embedding_leaf) : leaf.name));
        for (std::size_t i = 0; i < ours.size(); ++i)
            ASSERT_NEAR(ours[i], theirs[i], 2e-6 * std::max(1.0F, std::fabs(ours[i])))
                << leaf.name << " " << i;
    });
    EXPECT_EQ(changed, expected.names().size());
}

TEST_P(SavedAdapter, CountsWhatPeftCounts) {
    const test::AdapterCase item(GetParam());
    const AdapterWeights adapter(item.folder, item.model);
    if (!adapter.resolved().fused.empty()) return;  // are only used and merged
    const TrainedCounts counts = count_trained(adapter.resolved().adapters, item.model);
    EXPECT_EQ(counts.trained, item.expected.at("trained").get<std::int64_t>());
    EXPECT_EQ(counts.all, item.expected.at("all").get<std::int64_t>());
}

/// An adapter that leaves the embedding and the head alone leaves them one.
TEST(AdapterWeights, ATiedModelStaysTiedWhereNothingOfItIsAdapted) {
    const test::AdapterCase item("tied_embedding");
    const test::TemporaryFolder folder;
    Json config = read_json_file(item.folder / adapter_config_file);
    config["target_modules"] = Json::array({"v_proj"});
    write_file_atomically(folder / adapter_config_file, config.dump());
    const ModelWeights all(item.folder / adapter_weights_file);
    std::map<std::string, Tensor> kept;
    for (const std::string& name : all.names())
        if (name.find("v_proj") != std::string::npos) kept[name] = all.find(name);
    write_safetensors(folder / adapter_weights_file, kept);
    std::vector<AdapterWeights> adapters;
    adapters.emplace_back(folder.path(), item.model);
    EXPECT_TRUE(merged_config(item.model, adapters).tie_word_embeddings);

    // An embedding that PEFT saved beside them is the head's, too.
    kept["base_model.model.model.embed_tokens.weight"] =
        all.find("base_model.model.model.embed_tokens.base_layer.weight");
    write_safetensors(folder / adapter_weights_file, kept);
    const AdapterWeights resized(folder.path(), item.model);
    EXPECT_TRUE(resized.changes(embedding_leaf));
    EXPECT_TRUE(resized.changes(head_leaf));
}

TEST(AdapterWeights, TwoAreMergedOneAfterTheOther) {
    const test::AdapterCase item("llama_default");
    std::vector<AdapterWeights> twice;
    twice.emplace_back(item.folder, item.model);
    twice.emplace_back(item.folder, item.model);
    const std::string leaf = "model.layers.0.self_attn.q_proj.weight";
    const Shape shape = {16, 16};
    const auto read = [&](std::span<const AdapterWeights> adapters) {
        return MergedWeights(item.base, item.model, adapters).read(leaf, shape);
    };
    const std::vector<float> base = read({}), one = read({twice.data(), 1}), two = read(twice);
    for (std::size_t i = 0; i < base.size(); ++i) EXPECT_NEAR(two[i] - base[i], 2 * (one[i] - base[i]), 1e-5);
}

TEST(AdapterWeights, RefusesAnAdapterOfAnotherModel) {
    const test::AdapterCase item("llama_default");
    test::expect_error([&] { AdapterWeights(item.base, item.model); },
                       {"is no adapter", "adapter_config.json"});

    const test::TemporaryFolder folder;
    const auto copy = [&] {
        fs::copy(item.folder, folder.path(),
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
        return folder.path();
    };
    Json config = read_json_file(item.folder / adapter_config_file);
    const auto with = [&](const std::string& key, const Json& value) {
        Json changed = config;
        changed[key] = value;
        write_file_atomically(copy() / adapter_config_file, changed.dump());
    };
    with("r", 5);
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); },
                       {"self_attn.q_proj.lora_A.weight is [4, 16], but it must be [5, 16]"});
    with("target_modules", Json::array({"q_proj", "k_proj"}));
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); },
                       {"has no tensor base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight"});
    with("target_modules", Json::array({"q_proj"}));
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); },
                       {"self_attn.v_proj.lora_A.weight, which belongs to no weight"});
    with("modules_to_save", Json::array({"lm_head"}));
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); },
                       {"has no tensor base_model.model.lm_head.weight"});
    with("use_dora", true);
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); }, {"lora_magnitude_vector"});
    copy();
    fs::remove(folder.path() / adapter_weights_file);
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); },
                       {"holds no weights of an adapter"});
}

TEST(AdapterWeights, RefusesNumbersThatAreNotFinite) {
    const test::AdapterCase item("llama_default");
    const test::TemporaryFolder folder;
    fs::copy(item.folder, folder.path(), fs::copy_options::recursive);
    const fs::path file = folder.path() / adapter_weights_file;
    std::string bytes = read_text_file(file);
    bytes.replace(bytes.size() - 4, 4, std::string("\0\0\xC0\x7F", 4));
    write_file_atomically(file, bytes);
    test::expect_error([&] { AdapterWeights(folder.path(), item.model); },
                       {"adapter_model.safetensors: the tensor base_model.model.",
                        "holds a number that is not finite (nan)"});
}

}  // namespace
}  // namespace drover
