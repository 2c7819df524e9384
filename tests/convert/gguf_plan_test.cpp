#include "convert/gguf_plan.h"

#include <gtest/gtest.h>

#include "convert/checkpoints.h"
#include "convert/dcp_checkpoint.h"
#include "convert/gguf_reader.h"
#include "convert/meta_checkpoint.h"
#include "convert/q8_0.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::GgufContent;

fs::path generating(const std::string& name) {
    return test::golden_path("generate/" + name);
}

ConversionPlan plan_of(const FullCheckpoint& model, const ModelConfig& config, GgufSettings settings = {}) {
    settings.name = "model";
    return plan_gguf(whole_model(model, {}), config, {}, settings);
}

GgufContent written(const std::string& name, GgufSettings settings = {}) {
    test::TemporaryFolder folder;
    const FullCheckpoint model(generating(name), {});
    write_conversion(plan_of(model, ModelConfig::from_path(generating(name)), settings), model, folder.path(),
                     {}, {.buffer_bytes = 100, .flush_bytes = 1000});
    return GgufContent(folder / "model.gguf");
}

std::string bytes_in(const FullCheckpoint& model, const std::string& name) {
    for (std::size_t i = 0; i < model.items().size(); ++i)
        if (model.items()[i].name == name) {
            const StridedTensor view = model.view(i);
            return std::string(
                reinterpret_cast<const char*>(view.data),
                static_cast<std::size_t>(view.rows() * view.columns() * (bits_of(view.dtype) / 8)));
        }
    throw std::runtime_error("no tensor " + name);
}

/// Row h·D + 2i + half of llama.cpp's matrix is row h·D + half·D/2 + i of Hugging Face's.
std::string turned(const std::string& rows, std::int64_t heads, std::int64_t head_dim) {
    const std::size_t row = rows.size() / static_cast<std::size_t>(heads * head_dim);
    std::string result;
    for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < head_dim / 2; ++i)
            for (const std::int64_t half : {0, 1})
                result +=
                    rows.substr(static_cast<std::size_t>(h * head_dim + half * head_dim / 2 + i) * row, row);
    return result;
}

TEST(GgufPlan, RowsOfLlamasHeadsAreTurnedAndQwensAreNot) {
    const FullCheckpoint llama(generating("llama"), {}), qwen(generating("qwen2"), {});
    const GgufContent found = written("llama"), plain = written("qwen2");
    const std::string layer = "model.layers.1.self_attn.";
    EXPECT_EQ(found.tensors.at("blk.1.attn_q.weight").bytes,
              turned(bytes_in(llama, layer + "q_proj.weight"), 4, 4));
    EXPECT_EQ(found.tensors.at("blk.1.attn_k.weight").bytes,
              turned(bytes_in(llama, layer + "k_proj.weight"), 2, 4));
    EXPECT_NE(found.tensors.at("blk.1.attn_k.weight").bytes, bytes_in(llama, layer + "k_proj.weight"));
    EXPECT_EQ(found.tensors.at("blk.1.attn_v.weight").bytes, bytes_in(llama, layer + "v_proj.weight"));
    EXPECT_EQ(plain.tensors.at("blk.1.attn_q.weight").bytes, bytes_in(qwen, layer + "q_proj.weight"));
    EXPECT_EQ(plain.tensors.at("blk.1.attn_k.bias").bytes, bytes_in(qwen, layer + "k_proj.bias"));
}

TEST(GgufPlan, ABiasIsTurnedLikeItsRows) {
    test::TemporaryFolder folder;
    std::vector<float> bias(12), matrix(48);
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i);
    write_safetensors(
        folder / "model.safetensors",
        {{"model.layers.0.self_attn.q_proj.bias", Tensor(bias.data(), DType::f32, {12})},
         {"model.layers.0.self_attn.q_proj.weight", Tensor(matrix.data(), DType::f32, {12, 4})}});
    ModelConfig config;
    config.hidden_size = 4;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 2;
    config.head_dim = 6;
    const FullCheckpoint model(folder / "model.safetensors", {});
    write_conversion(plan_of(model, config), model, folder / "out");
    const GgufContent found(folder / "out/model.gguf");
    EXPECT_EQ(found.tensors.at("blk.0.attn_q.bias").floats(),
              (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
    EXPECT_EQ(found.tensors.at("blk.0.attn_q.bias").shape, std::vector<std::int64_t>{12});
    EXPECT_EQ(found.tensors.at("blk.0.attn_q.weight").shape, (std::vector<std::int64_t>{12, 4}));
    EXPECT_EQ(found.tensors.at("blk.0.attn_q.weight").floats()[4], 12);  // the second row was the fourth
}

TEST(GgufPlan, ExpertsAreStackedAndRoutersAreFloat32) {
    const FullCheckpoint model(generating("mixtral"), {});
    const GgufContent found = written("mixtral", {.dtype = DType::bf16});
    const auto& down = found.tensors.at("blk.1.ffn_down_exps.weight");
    EXPECT_EQ(down.shape, (std::vector<std::int64_t>{4, 16, 24}));
    EXPECT_EQ(down.type, GgmlType::bf16);
    EXPECT_EQ(found.tensors.at("blk.1.ffn_gate_inp.weight").type, GgmlType::f32);
    const GgufContent full = written("mixtral");
    std::string stacked;
    for (int e = 0; e < 4; ++e)
        stacked += bytes_in(model, fmt::format("model.layers.1.block_sparse_moe.experts.{}.w3.weight", e));
    EXPECT_EQ(full.tensors.at("blk.1.ffn_up_exps.weight").bytes, stacked);
    EXPECT_EQ(full.keys.at("llama.expert_count"), 4);
    EXPECT_EQ(full.keys.at("llama.expert_used_count"), 2);
}

TEST(GgufPlan, ATiedModelHasNoHeadAndItsScalingIsATensor) {
    const GgufContent found = written("llama_tied");
    EXPECT_FALSE(found.tensors.contains("output.weight"));
    EXPECT_EQ(found.tensors.at("token_embd.weight").type, GgmlType::bf16);
    EXPECT_EQ(found.tensors.at("output_norm.weight").type, GgmlType::f32);
    EXPECT_EQ(found.keys.at("general.file_type"), 32);
    // Frequencies 1, 0.1, 0.01, 0.001, with factor 4 and 32 positions: only the first turns often enough.
    EXPECT_EQ(found.tensors.at("rope_freqs.weight").floats(), (std::vector<float>{1, 4, 4, 4}));
    EXPECT_FALSE(written("llama").tensors.contains("rope_freqs.weight"));
}

TEST(GgufPlan, TheConfigBecomesKeys) {
    const std::map<std::string, Json> keys = written("qwen3").keys;
    EXPECT_EQ(keys.at("general.architecture"), "qwen3");
    EXPECT_EQ(keys.at("general.name"), "model");
    EXPECT_EQ(keys.at("general.file_type"), 0);
    EXPECT_EQ(keys.at("qwen3.block_count"), 2);
    EXPECT_EQ(keys.at("qwen3.context_length"), 128);
    EXPECT_EQ(keys.at("qwen3.embedding_length"), 16);
    EXPECT_EQ(keys.at("qwen3.feed_forward_length"), 24);
    EXPECT_EQ(keys.at("qwen3.attention.head_count"), 4);
    EXPECT_EQ(keys.at("qwen3.attention.head_count_kv"), 2);
    EXPECT_EQ(keys.at("qwen3.attention.key_length"), 12);
    EXPECT_EQ(keys.at("qwen3.vocab_size"), 258);
    EXPECT_EQ(keys.at("qwen3.rope.dimension_count"), 12);
    EXPECT_EQ(keys.at("qwen3.rope.freq_base"), 10000.0f);
    EXPECT_EQ(keys.at("tokenizer.ggml.model"), "no_vocab");
}

TEST(GgufPlan, ScalingsOfRopeBecomeKeys) {
    const FullCheckpoint model(generating("llama"), {});
    const auto keys_with = [&](RopeConfig rope) {
        test::TemporaryFolder folder;
        ModelConfig config = ModelConfig::from_path(generating("llama"));
        config.rope = rope;
        write_conversion(plan_of(model, config), model, folder.path());
        return GgufContent(folder / "model.gguf").keys;
    };
    const auto linear = keys_with({.type = RopeConfig::Type::linear, .factor = 3});
    EXPECT_EQ(linear.at("llama.rope.scaling.type"), "linear");
    EXPECT_EQ(linear.at("llama.rope.scaling.factor"), 3.0f);
    const auto yarn = keys_with({.type = RopeConfig::Type::yarn,
                                 .factor = 4,
                                 .original_max_position_embeddings = 32,
                                 .attention_factor = 2});
    EXPECT_EQ(yarn.at("llama.rope.scaling.type"), "yarn");
    EXPECT_EQ(yarn.at("llama.rope.scaling.original_context_length"), 32);
    EXPECT_NEAR(yarn.at("llama.rope.scaling.attn_factor").get<double>(), 2 / (1 + 0.1 * std::log(4.0)), 1e-6);
    EXPECT_FALSE(keys_with({}).contains("llama.rope.scaling.type"));
}

TEST(GgufPlan, Q8IsWhatThePackageGgufMakes) {
    const SafetensorsFile golden(test::golden_path("gguf/q8_0.safetensors"));
    const Tensor from = golden.tensor(*golden.find("from")), to = golden.tensor(*golden.find("to"));
    std::string found(to.bytes(), '\0');
    quantize_q8_0(static_cast<const float*>(from.raw()), from.numel(),
                  reinterpret_cast<std::byte*>(found.data()));
    EXPECT_EQ(found, std::string(static_cast<const char*>(to.raw()), to.bytes()));
}

TEST(GgufPlan, MatricesAreQuantizedWhereTheirRowsAllowIt) {
    const fs::path golden = test::golden_path("hf/llama-single");
    const FullCheckpoint model(golden, {});
    const ModelConfig config = ModelConfig::from_path(golden);
    ASSERT_EQ(config.hidden_size, 32);
    ASSERT_NE(config.intermediate_size % 32, 0);
    test::TemporaryFolder folder;
    const ConversionPlan plan = plan_of(model, config, {.q8_0 = true});
    for (const std::uint64_t buffer : {1, 1 << 20})
        write_conversion(plan, model, folder / std::to_string(buffer), {}, {.buffer_bytes = buffer});
    EXPECT_EQ(test::read_raw(folder / "1/model.gguf"), test::read_raw(folder / "1048576/model.gguf"));
    write_conversion(plan_of(model, config, {.dtype = DType::f32}), model, folder / "full");
    const GgufContent found(folder / "1/model.gguf"), full(folder / "full/model.gguf");
    EXPECT_EQ(found.keys.at("general.file_type"), 7);
    EXPECT_EQ(found.tensors.at("blk.0.ffn_down.weight").type, GgmlType::f16);
    EXPECT_EQ(found.tensors.at("blk.0.ffn_norm.weight").type, GgmlType::f32);
    for (const char* name : {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_gate.weight"}) {
        const auto& tensor = found.tensors.at(name);
        EXPECT_EQ(tensor.type, GgmlType::q8_0) << name;
        const std::vector<float> floats = full.tensors.at(name).floats();
        std::string expected(tensor.bytes.size(), '\0');
        quantize_q8_0(floats.data(), static_cast<std::int64_t>(floats.size()),
                      reinterpret_cast<std::byte*>(expected.data()));
        EXPECT_EQ(tensor.bytes, expected) << name;
    }
}

TEST(GgufPlan, IsTheSameFromPartsOfEveryKind) {
    const FullCheckpoint model(generating("llama"), {});
    const ModelConfig config = ModelConfig::from_path(generating("llama"));
    test::TemporaryFolder folder;
    const auto file = [&](const std::vector<PlannedTensor>& tensors, const TensorSource& source,
                          const ModelConfig& of, const std::string& name) {
        write_conversion(plan_gguf(tensors, of, {}, {.name = "model"}), source, folder / name, {},
                         {.buffer_bytes = 100});
        return test::read_raw(folder / name / "model.gguf");
    };
    const std::string expected = file(whole_model(model, {}), model, config, "full");
    const MetaCheckpoint meta(test::golden_path("meta/llama2"));
    EXPECT_EQ(file(meta.tensors(), meta, config, "meta"), expected);
    const DcpCheckpoint chunks(test::golden_path("dcp/fsdp"), "model");
    EXPECT_EQ(file(chunks.tensors(), chunks, config, "dcp"), expected);
    const test::NxdCase mixtral("mixtral");
    const FullCheckpoint full(mixtral.full(), {});
    const ShardedCheckpoint shards = test::open_shards(mixtral.folder);
    EXPECT_EQ(file(model_of_shards(shards, mixtral.settings), shards, *mixtral.settings.config, "shards"),
              file(whole_model(full, {}), full, *mixtral.settings.config, "experts"));
}

TEST(GgufPlan, AnInterruptedFileIsContinued) {
    const FullCheckpoint model(generating("mixtral"), {});
    const ConversionPlan plan = plan_of(model, ModelConfig::from_path(generating("mixtral")));
    test::TemporaryFolder folder;
    write_conversion(plan, model, folder / "whole");
    struct Stop {};
    std::uint64_t first = 0;
    const auto write = [&](std::uint64_t stop) {
        first = 0;
        write_conversion(plan, model, folder / "out",
                         [&](std::uint64_t now, std::uint64_t) {
                             if (first == 0) first = now;
                             if (now > stop) throw Stop();
                         },
                         {.buffer_bytes = 100, .flush_bytes = 1000});
    };
    EXPECT_THROW(write(plan.bytes() / 2), Stop);
    EXPECT_FALSE(fs::exists(folder / "out/model.gguf"));
    write(plan.bytes());
    EXPECT_GT(first, plan.bytes() / 3);
    EXPECT_EQ(test::read_raw(folder / "out/model.gguf"), test::read_raw(folder / "whole/model.gguf"));
}

TEST(GgufPlan, SaysWhatDoesNotFit) {
    const FullCheckpoint model(generating("llama"), {}), experts(generating("mixtral"), {});
    ModelConfig config = ModelConfig::from_path(generating("llama"));
    config.num_attention_heads = 2;
    test::expect_error([&] { plan_of(model, config); }, {"self_attn.q_proj.weight has the shape [16, 16]",
                                                         "it would have 8 rows", "config.json"});
    config.num_hidden_layers = 3;
    test::expect_error([&] { plan_of(model, config); }, {"The model has 2 layers", "its config says 3"});
    ModelConfig fewer = ModelConfig::from_path(generating("mixtral"));
    fewer.moe.experts = 3;
    test::expect_error([&] { plan_of(experts, fewer); }, {"The config has 3 experts", "experts.3.w1.weight"});
    fewer.moe.experts = 5;
    test::expect_error([&] { plan_of(experts, fewer); },
                       {"Expert 4 of blk.0.ffn_gate_exps.weight is missing"});
    ModelConfig yarn = ModelConfig::from_path(generating("llama"));
    yarn.rope.type = RopeConfig::Type::yarn;
    yarn.rope.truncate = false;
    test::expect_error([&] { plan_of(model, yarn); }, {"YaRN", "llama.cpp"});
}

}  // namespace
}  // namespace drover
