#include <gtest/gtest.h>

#include "io/model_folder.h"
#include "io/raw_files.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::expect_error;
using test::golden_path;
using test::TemporaryFolder;

using Names = std::vector<std::string>;

constexpr float zeros[24] = {};

/// A file with zeros of the given shapes.
ModelWeights weights_of(const TemporaryFolder& folder, const std::vector<ExpectedTensor>& tensors) {
    std::map<std::string, Tensor> written;
    for (const auto& [name, shape] : tensors) written.emplace(name, Tensor::of(zeros, shape));
    write_safetensors(folder / "model.safetensors", written);
    return ModelWeights(folder.path());
}

const std::vector<ExpectedTensor> small_model{{"model.embed_tokens.weight", {4, 2}},
                                              {"model.layers.0.mlp.up_proj.weight", {3, 2}},
                                              {"model.norm.weight", {2}},
                                              {"lm_head.weight", {4, 2}}};

TEST(MatchNames, ANameThatFitsIsFound) {
    const TemporaryFolder folder;
    const LoadReport report = match_names(small_model, weights_of(folder, small_model));
    EXPECT_EQ(report.found.size(), 4u);
    EXPECT_EQ(report.found.at("model.norm.weight"), "model.norm.weight");
    EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.mismatched.empty());
    EXPECT_EQ(report.text(), "");
}

TEST(MatchNames, ReportsMissingAndUnexpectedByName) {
    const TemporaryFolder folder;
    const LoadReport report = match_names(
        small_model,
        weights_of(folder, {small_model[0], small_model[3], {"model.extra", {1}}, {"value_head", {2}}}));
    EXPECT_EQ(report.missing, (Names{"model.layers.0.mlp.up_proj.weight", "model.norm.weight"}));
    EXPECT_EQ(report.unexpected, (Names{"model.extra", "value_head"}));
    EXPECT_EQ(
        report.text(),
        "Not in the folder, so newly initialised (2): model.layers.0.mlp.up_proj.weight, model.norm.weight.\n"
        "In the folder, but not part of the model (2): model.extra, value_head.");
}

TEST(MatchNames, IgnoresStoredFrequencies) {
    const TemporaryFolder folder;
    auto stored = small_model;
    stored.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
    stored.push_back({"model.rotary_emb.inv_freq", {2}});
    stored.push_back({"model.other_rotary_emb.inv_freq", {2}});
    const LoadReport report = match_names(small_model, weights_of(folder, stored));
    EXPECT_EQ(report.ignored,
              (Names{"model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"}));
    EXPECT_EQ(report.unexpected, Names{"model.other_rotary_emb.inv_freq"});
}

TEST(MatchNames, ATiedHeadNeedNotBeThere) {
    const TemporaryFolder folder;
    const std::vector<ExpectedTensor> without_head(small_model.begin(), small_model.end() - 1);
    const NameRules tied{.tied_head = true};
    EXPECT_EQ(match_names(small_model, weights_of(folder, without_head), tied).text(), "");
    EXPECT_EQ(match_names(without_head, weights_of(folder, without_head), tied).text(), "");
    EXPECT_EQ(match_names(small_model, weights_of(folder, without_head)).missing, Names{"lm_head.weight"});

    const LoadReport stored_too = match_names(without_head, weights_of(folder, small_model), tied);
    EXPECT_EQ(stored_too.ignored, Names{"lm_head.weight"});
    EXPECT_EQ(stored_too.text(), "");
    EXPECT_EQ(match_names(without_head, weights_of(folder, small_model)).unexpected, Names{"lm_head.weight"});
}

TEST(MatchNames, AcceptsAModelSavedWithoutItsHead) {
    const TemporaryFolder folder;
    const LoadReport report =
        match_names(small_model, weights_of(folder, {{"embed_tokens.weight", {4, 2}},
                                                     {"layers.0.mlp.up_proj.weight", {3, 2}},
                                                     {"norm.weight", {2}},
                                                     {"rotary_emb.inv_freq", {2}}}));
    EXPECT_EQ(report.found.at("model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
    EXPECT_EQ(report.found.size(), 3u);
    EXPECT_EQ(report.missing, Names{"lm_head.weight"});
    EXPECT_TRUE(report.unexpected.empty());
    EXPECT_EQ(report.ignored, Names{"rotary_emb.inv_freq"});
}

TEST(MatchNames, APrefixAnywhereMeansThatAllNamesHaveIt) {
    const TemporaryFolder folder;
    const LoadReport report = match_names(
        small_model, weights_of(folder, {{"embed_tokens.weight", {4, 2}}, {"model.norm.weight", {2}}}));
    EXPECT_EQ(report.unexpected, Names{"embed_tokens.weight"});
    EXPECT_EQ(report.missing.size(), 3u);
}

TEST(MatchNames, ListsEveryShapeThatDiffers) {
    const TemporaryFolder folder;
    const ModelWeights weights = weights_of(folder, {{"model.embed_tokens.weight", {5, 2}},
                                                     {"model.layers.0.mlp.up_proj.weight", {3, 2}},
                                                     {"model.norm.weight", {1, 2}},
                                                     {"lm_head.weight", {4, 2}}});
    expect_error(
        [&] { match_names(small_model, weights); },
        {folder.path().string(), "model.embed_tokens.weight is [5, 2] in the folder and [4, 2] in the model",
         "model.norm.weight is [1, 2] in the folder and [2] in the model"});
    const LoadReport report = match_names(small_model, weights, {.ignore_mismatched_sizes = true});
    ASSERT_EQ(report.mismatched.size(), 2u);
    EXPECT_EQ(report.mismatched[0].name, "model.embed_tokens.weight");
    EXPECT_EQ(report.found.size(), 2u);
    EXPECT_NE(report.text().find("Of another shape, so newly initialised (2)"), std::string::npos);
}

TEST(MatchNames, RefusesElementsThatAreNoFloatingPointNumbers) {
    const TemporaryFolder folder;
    test::write_raw(folder / "model.safetensors",
                    test::raw_safetensors(
                        R"({"model.norm.weight":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2));
    expect_error([&] { match_names(small_model, ModelWeights(folder.path())); },
                 {folder.path().string(), "\"model.norm.weight\"", "F8_E4M3"});
}

TEST(MatchNames, ManyDimensionsOfAnUnwantedTensorDoNoHarm) {
    const TemporaryFolder folder;
    test::write_raw(
        folder / "model.safetensors",
        test::raw_safetensors(R"({"x":{"dtype":"U8","shape":[1,1,1,1,1,2],"data_offsets":[0,2]}})", 2));
    EXPECT_EQ(match_names({}, ModelWeights(folder.path())).unexpected, Names{"x"});
}

}  // namespace
}  // namespace drover
