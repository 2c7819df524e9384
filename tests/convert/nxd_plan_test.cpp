#include "convert/nxd_plan.h"

#include <gtest/gtest.h>

#include "convert/checkpoints.h"
#include "convert/dcp_checkpoint.h"
#include "convert/meta_checkpoint.h"
#include "support/errors.h"

namespace drover {
namespace {

using test::content_of_model;
using test::content_of_rank;
using test::expect_error;
using test::NxdCase;
using test::open_shards;
using test::TemporaryFolder;

class NxdPlan : public ::testing::TestWithParam<const char*> {
  protected:
    const NxdCase golden_{GetParam()};
    TemporaryFolder folder_;

    static void expect_same_ranks(const ShardedCheckpoint& found, const ShardedCheckpoint& expected) {
        ASSERT_EQ(found.sizes(), expected.sizes());
        ShardRank rank;
        for (rank.tensor = 0; rank.tensor < expected.sizes().tensor; ++rank.tensor)
            for (rank.pipeline = 0; rank.pipeline < expected.sizes().pipeline; ++rank.pipeline)
                for (rank.experts = 0; rank.experts < expected.sizes().experts; ++rank.experts) {
                    SCOPED_TRACE(ShardedCheckpoint::file_name(rank, expected.sizes()));
                    EXPECT_EQ(content_of_rank(found, rank), content_of_rank(expected, rank));
                }
    }
};

TEST_P(NxdPlan, AFullModelIsCutAsTheReferenceCutsIt) {
    const FullCheckpoint model(golden_.full(), "model");
    write_conversion(plan_shards_of_model(model, golden_.settings), model, folder_.path());
    const ShardedCheckpoint found = open_shards(folder_.path());
    EXPECT_EQ(found.is_xser(), golden_.settings.xser);
    expect_same_ranks(found, open_shards(golden_.folder));
}

TEST_P(NxdPlan, RanksAreJoinedToTheFullModel) {
    const ShardedCheckpoint shards = open_shards(golden_.folder);
    NxdSettings settings{.kv_multiplier = golden_.settings.kv_multiplier,
                         .pads_heads = golden_.settings.pads_heads,
                         .config = golden_.settings.config};
    for (const bool order_is_given : {true, false}) {
        if (order_is_given) settings.order = golden_.settings.order.value_or(KvSlots::Order::interleaved);
        const auto format = order_is_given ? ModelFormat::safetensors : ModelFormat::checkpoint;
        write_conversion(plan_model(model_of_shards(shards, settings), format, 5'000'000'000), shards,
                         folder_.path());
        EXPECT_EQ(content_of_model(folder_ / (order_is_given ? "model.safetensors" : "checkpoint.pt")),
                  content_of_model(golden_.full()));
        settings.order.reset();
    }
}

TEST_P(NxdPlan, TheOtherFormHasTheSameTensors) {
    const ShardedCheckpoint shards = open_shards(golden_.folder);
    NxdSettings settings{.xser = !shards.is_xser()};
    write_conversion(plan_same_shards(shards, settings), shards, folder_.path());
    const ShardedCheckpoint found = open_shards(folder_.path());
    EXPECT_NE(found.is_xser(), shards.is_xser());
    expect_same_ranks(found, shards);
}

INSTANTIATE_TEST_SUITE_P(Cases, NxdPlan,
                         ::testing::Values("mha_coalesced", "gqa_plain_old_names", "gqa_trn1",
                                           "gqa_trn1_fused", "megatron", "megatron_linear", "gqa_trn2",
                                           "gqa_padded_trn1", "gqa_padded_trn2", "mixtral_rounded",
                                           "mixtral"),
                         [](const auto& name) { return std::string(name.param); });

/// Cuts a golden model folder and joins it again.
void expect_round_trip(const std::string& name, const NxdSettings& settings) {
    SCOPED_TRACE(name);
    TemporaryFolder folder;
    const auto path = test::golden_path(name);
    const FullCheckpoint model(path, {});
    write_conversion(plan_shards_of_model(model, settings), model, folder / "shards");
    const ShardedCheckpoint shards = open_shards(folder / "shards");
    EXPECT_EQ(shards.sizes(), settings.sizes);
    std::vector<PlannedTensor> joined =
        model_of_shards(shards, {.kv_multiplier = settings.kv_multiplier, .config = settings.config});
    const auto expected = content_of_model(path);
    if (settings.config->tie_word_embeddings)  // the ranks have a head in any case
        std::erase_if(joined, [&](const PlannedTensor& tensor) { return !expected.contains(tensor.name); });
    write_conversion(plan_model(std::move(joined), ModelFormat::safetensors, 10'000), shards,
                     folder / "joined");
    EXPECT_EQ(content_of_model(folder / "joined"), expected);
}

TEST(NxdRoundTrip, GivesEveryFamilyBackBitForBit) {
    for (const std::string name : {"generate/llama", "generate/mixtral", "generate/qwen2", "generate/qwen3",
                                   "generate/llama_tied", "hf/llama-tied", "hf/llama-tied-bin"}) {
        const ModelConfig config = ModelConfig::from_path(test::golden_path(name));
        const std::int64_t group = config.num_attention_heads / config.num_key_value_heads;
        for (const bool qkv_linear : {false, true})
            for (const bool xser : {false, true})
                expect_round_trip(name,
                                  {.sizes = {.tensor = 2, .pipeline = config.num_hidden_layers > 1 ? 2 : 1},
                                   .qkv_linear = qkv_linear,
                                   .fuse_qkv = qkv_linear && xser,
                                   .kv_multiplier = qkv_linear ? group : 1,
                                   .order = xser ? KvSlots::Order::adjacent : KvSlots::Order::interleaved,
                                   .xser = xser,
                                   .config = config});
    }
    for (const char* name : {"hf/mixtral-fused", "hf/mixtral-published"})
        expect_round_trip(
            name, {.sizes = {.experts = 3}, .config = ModelConfig::from_path(test::golden_path(name))});
}

TEST(NxdRoundTrip, PartsOfMetaAndFsdpAreCutLikeAFolder) {
    const auto path = test::golden_path("generate/llama");
    const FullCheckpoint model(path, {});
    const MetaCheckpoint meta(test::golden_path("meta/llama2"));
    const DcpCheckpoint chunks(test::golden_path("dcp/fsdp"), "model");
    const NxdSettings settings{.sizes = {.tensor = 2, .pipeline = 2},
                               .qkv_linear = true,
                               .kv_multiplier = 2,
                               .config = ModelConfig::from_path(path)};
    TemporaryFolder folder;
    write_conversion(plan_shards_of_model(model, settings), model, folder / "folder");
    write_conversion(plan_shards_of_model(meta.tensors(), settings), meta, folder / "meta", {},
                     {.buffer_bytes = 64, .flush_bytes = 1000});
    write_conversion(plan_shards_of_model(chunks.tensors(), settings), chunks, folder / "fsdp");
    const ShardedCheckpoint expected = open_shards(folder / "folder");
    for (const char* name : {"meta", "fsdp"}) {
        const ShardedCheckpoint found = open_shards(folder / name);
        for (std::int64_t tensor = 0; tensor < 2; ++tensor)
            for (std::int64_t pipeline = 0; pipeline < 2; ++pipeline)
                EXPECT_EQ(content_of_rank(found, {.tensor = tensor, .pipeline = pipeline}),
                          content_of_rank(expected, {.tensor = tensor, .pipeline = pipeline}))
                    << name;
    }
}

TEST(NxdRoundTrip, SeparateProjectionsAreJoinedWhereTheFlagsSpeakOfOneLayer) {
    const NxdCase golden("gqa_plain_old_names");
    const ShardedCheckpoint shards = open_shards(golden.folder);
    TemporaryFolder folder;
    write_conversion(
        plan_model(model_of_shards(
                       shards, {.qkv_linear = true, .kv_multiplier = 4, .config = golden.settings.config}),
                   ModelFormat::checkpoint, 0),
        shards, folder.path());
    EXPECT_EQ(content_of_model(folder / "checkpoint.pt"), content_of_model(golden.full()));
}

TEST(NxdPadding, SaysWhatDoesNotFit) {
    const NxdCase heads("gqa_padded_trn1"), experts("mixtral_rounded"), plain("gqa_plain_old_names");
    const ShardedCheckpoint padded = open_shards(heads.folder), rounded = open_shards(experts.folder),
                            separate = open_shards(plain.folder);
    NxdSettings settings = heads.settings;
    settings.pads_heads = false;
    settings.kv_multiplier = 1;
    expect_error([&] { model_of_shards(padded, settings); }, {"2 key/value heads", "4 tensor ranks"});
    settings.kv_multiplier = 2;
    expect_error([&] { model_of_shards(padded, settings); },
                 {"4, which do not divide the 6 query heads", "--pad_attn_heads"});
    expect_error([&] { model_of_shards(separate, {.pads_heads = true}); },
                 {"--pad_attn_heads is given", "no layer with q, k and v"});
    const FullCheckpoint model(heads.full(), {});
    expect_error(
        [&] {
            plan_shards_of_model(model, {.sizes = {.tensor = 4}, .qkv_linear = true, .pads_heads = true});
        },
        {"--pad_attn_heads the numbers of heads are needed", "--config"});
    settings = heads.settings;
    settings.inner_multiple = 4;
    expect_error([&] { plan_shards_of_model(model, settings); },
                 {"--i_tp_round_factor", "the model has none"});
    expect_error([&] { model_of_shards(padded, settings); }, {"--i_tp_round_factor", "the model has none"});
    settings = experts.settings;
    settings.inner_multiple = 7;
    expect_error([&] { model_of_shards(rounded, settings); },
                 {"has a width of 6 on a rank", "--i_tp_round_factor it would have 7"});
    settings.config.reset();
    expect_error([&] { model_of_shards(rounded, settings); }, {"intermediate_size is needed", "--config"});
}

TEST(NxdRoundTrip, ATiedModelHasItsHeadOnTheLastStage) {
    TemporaryFolder folder;
    const auto path = test::golden_path("generate/llama_tied");
    const FullCheckpoint model(path, {});
    const NxdSettings settings{.sizes = {.tensor = 2, .pipeline = 2}, .config = ModelConfig::from_path(path)};
    write_conversion(plan_shards_of_model(model, settings), model, folder.path());
    const ShardedCheckpoint shards = open_shards(folder.path());
    for (std::int64_t rank = 0; rank < 2; ++rank)
        EXPECT_EQ(content_of_rank(shards, {.tensor = rank, .pipeline = 1}).at("lm_head.weight"),
                  content_of_rank(shards, {.tensor = rank, .pipeline = 0}).at("model.embed_tokens.weight"));
}

TEST(NxdPlanErrors, SayWhatDoesNotFit) {
    const NxdCase golden("gqa_trn1");
    const FullCheckpoint model(golden.full(), {});
    const auto expect = [&](const NxdSettings& settings, std::initializer_list<std::string_view> parts) {
        expect_error([&] { plan_shards_of_model(model, settings); }, parts);
    };
    expect({.sizes = {.tensor = 3}},
           {"--tp_size 3 does not divide the rows of model.embed_tokens.weight (8)"});
    expect({.sizes = {.pipeline = 3}, .virtual_pipeline = 2}, {"5 layers", "--pp_size 3", "6 stages"});
    expect({.sizes = {.tensor = 4}, .qkv_linear = true, .kv_multiplier = 2},
           {"numbers of heads", "--config"});
    expect({.sizes = {.tensor = 4}, .coalesce_qkv = true}, {"--coalesce_qkv", "16", "4", "--qkv_linear"});
    NxdSettings settings{
        .sizes = {.tensor = 8}, .qkv_linear = true, .kv_multiplier = 2, .config = golden.settings.config};
    expect(settings, {"4 key/value heads", "8 tensor ranks"});
    settings.kv_multiplier = 3;
    expect(settings, {"--kv_size_multiplier 3", "do not divide the 8 query heads"});
    settings.kv_multiplier = 8;
    settings.config->num_key_value_heads = 1;
    expect(settings, {"k_proj.weight has 4 rows", "config's heads have 2"});
}

TEST(NxdPlanErrors, SayWhichTensorsDoNotFitTogether) {
    TemporaryFolder folder;
    const std::vector<float> zeros(1024);
    const std::string layer = "model.layers.0.";
    const auto expect = [&](std::map<std::string, Shape> shapes, const NxdSettings& settings,
                            std::initializer_list<std::string_view> parts) {
        std::map<std::string, Tensor> tensors;
        for (const auto& [name, shape] : shapes)
            tensors.emplace(layer + name, Tensor::of(zeros.data(), shape));
        write_safetensors(folder / "model.safetensors", tensors);
        const FullCheckpoint model(folder / "model.safetensors", {});
        expect_error([&] { plan_shards_of_model(model, settings); }, parts);
    };
    expect({{"mlp.gate_proj.weight", {8, 4}}, {"mlp.up_proj.weight", {8, 6}}}, {},
           {"up_proj.weight is float32 [8, 6]", "gate_up_proj.weight"});
    expect({{"self_attn.q_proj.weight", {8, 4, 2}}}, {}, {"[8, 4, 2]", "cannot be cut"});
    expect({{"self_attn.o_proj.weight", {}}}, {}, {"o_proj.weight has the shape []", "cannot be cut"});
    const std::string experts = "block_sparse_moe.experts.";
    expect({{experts + "0.w1.weight", {8, 4}}}, {}, {"experts.0 does not have w1, w2 and w3"});
    expect({{experts + "9999999999999.w1.weight", {8, 4}}}, {}, {"the number of no expert"});
    expect({{experts + "0.w1.weight", {8, 4}},
            {experts + "0.w2.weight", {8, 4}},
            {experts + "0.w3.weight", {8, 4}}},
           {}, {"w2.weight does not have the shape of the layer's other experts, [4, 8]"});
    expect({{experts + "0.w1.weight", {8, 4}},
            {experts + "0.w2.weight", {4, 8}},
            {experts + "0.w3.weight", {8, 4}}},
           {.sizes = {.experts = 2}}, {"--ep_size 2 does not divide the experts"});
    NxdSettings settings{.qkv_linear = true, .config = NxdCase("gqa_trn1").settings.config};
    expect({{"self_attn.q_proj.weight", {16, 4}},
            {"self_attn.k_proj.weight", {4, 4}},
            {"self_attn.o_proj.weight", {4, 15}}},
           settings, {"o_proj.weight has 15 columns", "16"});
}

TEST(NxdPlanErrors, SayWhatIsWrongWithRanks) {
    const NxdCase golden("gqa_trn1");
    const auto expect = [&](const NxdSettings& settings, std::initializer_list<std::string_view> parts) {
        const ShardedCheckpoint shards = open_shards(golden.folder);
        expect_error([&] { model_of_shards(shards, settings); }, parts);
    };
    expect({.kv_multiplier = 2}, {"do not tell the numbers of heads", "--config"});
    expect({.kv_multiplier = 2, .order = KvSlots::Order::adjacent, .config = golden.settings.config},
           {"Copies of a key head differ", "--hw_backend"});
    expect({.kv_multiplier = 4, .config = golden.settings.config},
           {"model.layers.0.self_attn.qkv_proj.weight_k", "[2, 16]", "--kv_size_multiplier 4", "4 rows"});
}

/// A copy of a case that can be damaged.
struct DamagedCase {
    TemporaryFolder folder;
    std::filesystem::path model;

    explicit DamagedCase(const std::string& name) : model(folder / "model") {
        std::filesystem::copy(NxdCase(name).folder / "model", model,
                              std::filesystem::copy_options::recursive);
    }
};

TEST(ShardedCheckpoint, SaysWhichRankIsMissing) {
    const DamagedCase damaged("gqa_trn1");
    std::filesystem::remove(damaged.model / "dp_rank_00_tp_rank_02_pp_rank_01.pt");
    expect_error([&] { open_shards(damaged.model); }, {"no file for tensor rank 2, pipeline rank 1"});
    expect_error([&] { open_shards(damaged.folder.path()); }, {"no file for tensor rank 2, pipeline rank 1"});
    expect_error([&] { ShardedCheckpoint(damaged.model, 2, {}, {}, ""); },
                 {"--tp_size is 2", "4 such ranks"});
    expect_error([&] { ShardedCheckpoint(damaged.model, {}, 4, {}, ""); },
                 {"--pp_size is 4", "2 such ranks"});
    TemporaryFolder empty;
    expect_error([&] { open_shards(empty.path()); },
                 {"no files of ranks", "dp_rank_00_tp_rank_00_pp_rank_00.pt"});
}

TEST(ShardedCheckpoint, SaysWhichRanksDoNotFitTogether) {
    const DamagedCase damaged("gqa_trn1");
    const auto first = damaged.model / "dp_rank_00_tp_rank_00_pp_rank_00.pt";
    const NxdSettings settings{.kv_multiplier = 2, .config = NxdCase("gqa_trn1").settings.config};
    PickleWriter pickle;
    pickle.begin_dict();
    pickle.text("model.embed_tokens.weight");
    pickle.tensor(DType::f32, {1});
    pickle.end_dict();
    const float one = 1;
    write_torch_file(first, pickle, {Tensor::of(&one, {1})});
    const ShardedCheckpoint shards = open_shards(damaged.model);
    expect_error([&] { model_of_shards(shards, settings); }, {"float32 [1] on one rank", "bfloat16 [2, 16]"});
    PickleWriter other;
    other.begin_dict();
    other.text("step");
    other.integer(3);
    other.end_dict();
    write_torch_file(first, other, {});
    expect_error([&] { open_shards(damaged.model); },
                 {"its entry \"step\" is an integer", "not the optimizer's"});
}

TEST(ShardedCheckpoint, SaysWhichTensorFileIsMissing) {
    const DamagedCase damaged("gqa_trn1_fused");
    std::filesystem::remove(damaged.model / "dp_rank_00_tp_rank_01_pp_rank_00.pt.tensors/tensor_2.pt");
    expect_error([&] { open_shards(damaged.model); }, {"tensor_2.pt", "No such file"});
}

}  // namespace
}  // namespace drover
