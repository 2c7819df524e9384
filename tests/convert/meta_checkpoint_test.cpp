#include "convert/meta_checkpoint.h"

#include <gtest/gtest.h>

#include "convert/checkpoints.h"
#include "io/raw_files.h"
#include "model/config.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

TEST(MetaCheckpoint, IsTheModelThatWasCut) {
    for (const auto& [name, dtype] :
         {std::pair{"meta/llama2", DType::f32}, std::pair{"meta/llama3", DType::bf16}}) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(MetaCheckpoint::is_one(test::golden_path(name)));
        const MetaCheckpoint meta(test::golden_path(name));
        test::TemporaryFolder folder;
        write_conversion(plan_model(meta.tensors(), ModelFormat::safetensors, 1 << 20), meta,
                         folder / "found", {}, {.buffer_bytes = 100, .flush_bytes = 1000});
        const FullCheckpoint model(test::golden_path("generate/llama"), {});
        write_conversion(plan_model(whole_model(model, dtype), ModelFormat::safetensors, 1 << 20), model,
                         folder / "expected");
        EXPECT_EQ(test::content_of_model(folder / "found"), test::content_of_model(folder / "expected"));
    }
}

TEST(MetaCheckpoint, TheConfigIsMadeOfTheParameters) {
    const Json second = MetaCheckpoint(test::golden_path("meta/llama2")).config();
    const ModelConfig expected = ModelConfig::from_path(test::golden_path("generate/llama"));
    const ModelConfig found = ModelConfig::parse(second.dump(), "config.json");
    EXPECT_EQ(found.vocab_size, expected.vocab_size);
    EXPECT_EQ(found.hidden_size, expected.hidden_size);
    EXPECT_EQ(found.intermediate_size, expected.intermediate_size);
    EXPECT_EQ(found.num_hidden_layers, expected.num_hidden_layers);
    EXPECT_EQ(found.num_attention_heads, expected.num_attention_heads);
    EXPECT_EQ(found.num_key_value_heads, expected.num_key_value_heads);
    EXPECT_EQ(found.head_dim, expected.head_dim);
    EXPECT_EQ(found.rms_norm_eps, expected.rms_norm_eps);
    EXPECT_EQ(found.rope.theta, 10000);
    EXPECT_FALSE(found.tie_word_embeddings);
    EXPECT_EQ(found.max_position_embeddings, 2048);
    const ModelConfig third =
        ModelConfig::parse(MetaCheckpoint(test::golden_path("meta/llama3")).config().dump(), "config.json");
    EXPECT_EQ(third.max_position_embeddings, 131'072);
    EXPECT_EQ(third.rope.type, RopeConfig::Type::llama3);
    EXPECT_EQ(third.rope.theta, 500'000);
    EXPECT_EQ(third.dtype, DType::bf16);
    EXPECT_EQ(third.vocab_size, expected.vocab_size);
}

TEST(MetaCheckpoint, SaysWhatDoesNotFit) {
    test::TemporaryFolder folder;
    fs::copy(test::golden_path("meta/llama2"), folder.path());
    const auto expect = [&](const std::string& params, std::initializer_list<std::string_view> parts) {
        test::write_raw(folder / "params.json", params);
        test::expect_error([&] { MetaCheckpoint(folder.path()).tensors(); }, parts);
    };
    expect(R"({"dim": 16, "n_layers": 3, "n_heads": 4})", {"has 2 layers", "params.json says 3"});
    expect(R"({"dim": 16, "n_layers": 2})", {"params.json has no positive number \"n_heads\""});
    expect(R"({"dim": 16, "n_layers": 2, "n_heads": 4})",
           {"wk.weight has 4 rows in each of 2 parts", "4 heads of 4 rows"});
    expect("[]", {"params.json is not an object"});
    fs::remove(folder / "consolidated.01.pth");
    expect(R"({"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2})",
           {"wk.weight has 4 rows in each of 1 parts"});
}

}  // namespace
}  // namespace drover
