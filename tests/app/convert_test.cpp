#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "core/json_text.h"
#include "io/model_folder.h"
#include "io/raw_files.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::run;

std::string nxd(const std::string& name) {
    return test::golden_path("nxd/" + name).string();
}

void expect_same_weights(const fs::path& found, const fs::path& expected) {
    const ModelWeights a(found), b(expected);
    ASSERT_EQ(a.names(), b.names());
    for (const std::string& name : a.names()) {
        const Tensor left = a.find(name), right = b.find(name);
        EXPECT_EQ(left.dtype(), right.dtype()) << name;
        ASSERT_EQ(left.shape(), right.shape()) << name;
        EXPECT_EQ(std::memcmp(left.raw(), right.raw(), left.bytes()), 0) << name;
    }
}

TEST(ConvertCommand, TakesTheTwoPublishedCommands) {
    test::TemporaryFolder folder;
    const auto run_here = [&](const std::string& words) {
        const test::Outcome outcome = test::run_in(folder.path().string(), "convert " + words);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    };
    fs::copy(nxd("gqa_trn1") + "/full.safetensors", folder / "full.safetensors");
    fs::copy(nxd("gqa_trn1") + "/config.json", folder / "config.json");
    // A file of torch.save, without a config beside it.
    run_here("--input_dir full.safetensors --output_dir merged/ --output_format checkpoint");
    run_here(
        "--tp_size 4 --pp_size 2 --n_layers 5  --input_dir  merged/checkpoint.pt --output_dir sharded "
        "--convert_from_full_model ");
    EXPECT_TRUE(fs::exists(folder / "sharded/model/dp_rank_00_tp_rank_03_pp_rank_01.pt"));
    // The fused layer is recognised without --fuse_qkv, and the form without --load_xser.
    run_here(
        "--tp_size 4 --pp_size 2 --n_layers 5  --input_dir  sharded/model --output_dir full "
        "--convert_to_full_model --kv_size_multiplier 1 --config config.json --qkv_linear True --load_xser "
        "True");
    expect_same_weights(folder / "full/checkpoint.pt", folder / "full.safetensors");
    const std::string fused = nxd("gqa_trn1_fused");
    run_here("--tp_size 2 --pp_size 1 --n_layers 1  --input_dir  " + fused +
             "/model --output_dir fused --convert_to_full_model --kv_size_multiplier 2 --config " + fused +
             "/config.json --qkv_linear True --load_xser True");
    expect_same_weights(folder / "fused/checkpoint.pt", fused + "/full.safetensors");
}

TEST(ConvertCommand, BooleansMayHaveAValue) {
    test::TemporaryFolder folder;
    const std::string start = "convert --convert_from_full_state --tp_size 2 --input_dir " + nxd("gqa_trn1") +
                              "/full.safetensors --output_dir " + folder.path().string();
    const auto is_xser = [&](const std::string& name, const std::string& flag) {
        const test::Outcome outcome = run(start + "/" + name + " " + flag);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return fs::exists(folder / (name + "/model/dp_rank_00_tp_rank_00_pp_rank_00.pt.tensors"));
    };
    EXPECT_TRUE(is_xser("bare", "--save_xser"));
    EXPECT_TRUE(is_xser("true", "--save_xser True"));
    EXPECT_TRUE(is_xser("one", "--save_xser 1"));
    EXPECT_FALSE(is_xser("false", "--save_xser False"));
    EXPECT_FALSE(is_xser("zero", "--save_xser=0"));
    EXPECT_FALSE(is_xser("none", ""));
    const test::Outcome wrong = run(start + "/wrong --save_xser maybe");
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_NE(wrong.output.find("--save_xser is \"maybe\""), std::string::npos) << wrong.output;
}

TEST(ConvertCommand, BetweenFormatsOfFullModels) {
    test::TemporaryFolder folder;
    const std::string out = folder.path().string();
    const auto expect_done = [&](const std::string& words) {
        const test::Outcome outcome = run("convert " + words);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    };
    const fs::path golden = test::golden_path("generate/qwen2");
    expect_done("--input_dir " + golden.string() +
                " --output_format bin --max_shard_size 20KB --output_dir " + out + "/bin");
    EXPECT_TRUE(fs::exists(folder / "bin/pytorch_model.bin.index.json"));
    EXPECT_TRUE(fs::exists(folder / "bin/config.json"));
    expect_done("--input_dir " + out + "/bin --output_format safetensors --output_dir " + out + "/again");
    expect_same_weights(folder / "again", golden);
    // The result is a model: it gives what the original gives.
    const std::string ids = " --prompt_ids 1,2,3 --max_new_tokens 4 --json --dtype float32 2>/dev/null";
    EXPECT_EQ(test::run_drover("generate --model " + out + "/bin" + ids).output,
              test::run_drover("generate --model " + golden.string() + ids).output);
    expect_done("--input_dir " + out + "/bin --output_format safetensors --dtype bfloat16 --output_dir " +
                out + "/half");
    EXPECT_EQ(ModelWeights(folder / "half").find("model.norm.weight").dtype(), DType::bf16);
    const Json config = read_json_file(folder / "half/config.json");
    EXPECT_EQ(config.value("dtype", config.value("torch_dtype", std::string())), "bfloat16");
}

TEST(ConvertCommand, AModelOfMetaBecomesAFolder) {
    test::TemporaryFolder folder;
    const std::string out = folder.path().string(), meta = test::golden_path("meta/llama2").string();
    const test::Outcome outcome =
        run("convert --input_dir " + meta + " --output_format safetensors --output_dir " + out);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("max_position_embeddings; 2048 is assumed"), std::string::npos)
        << outcome.output;
    expect_same_weights(out, test::golden_path("generate/llama"));
    const std::string ids = " --prompt_ids 1,2,3 --max_new_tokens 8 --json 2>/dev/null";
    EXPECT_EQ(
        test::run_drover("generate --model " + out + ids).output,
        test::run_drover("generate --model " + test::golden_path("generate/llama").string() + ids).output);
    // It is cut without a folder between.
    const std::string cut =
        "convert --convert_from_full_state --tp_size 2 --qkv_linear --kv_size_multiplier 1 ";
    ASSERT_EQ(run(cut + "--input_dir " + meta + " --output_dir " + out + "/cut").exit_code, 0);
    ASSERT_EQ(run("convert --convert_to_full_state --config " + out + " --input_dir " + out +
                  "/cut --output_dir " + out + "/joined --output_format safetensors")
                  .exit_code,
              0);
    expect_same_weights(folder / "joined", test::golden_path("generate/llama"));
}

TEST(ConvertCommand, AShardedStateDictOfFsdpBecomesAFolder) {
    test::TemporaryFolder folder;
    fs::create_directory(folder / "checkpoint-7");
    fs::copy(test::golden_path("dcp/fsdp"), folder / "checkpoint-7/pytorch_model_fsdp_0");
    const std::string config = test::golden_path("generate/llama/config.json").string();
    const test::Outcome outcome =
        test::run_in(folder.path().string(), "convert --input_dir checkpoint-7 --config " + config +
                                                 " --output_format safetensors --output_dir full");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    expect_same_weights(folder / "full", test::golden_path("generate/llama"));
    EXPECT_TRUE(fs::exists(folder / "full/config.json"));
}

TEST(ConvertCommand, WritesGguf) {
    test::TemporaryFolder folder;
    const std::string model = test::golden_path("generate/llama").string();
    const auto size_of = [&](const std::string& words, const std::string& name) {
        const test::Outcome outcome = run("convert --output_format gguf --input_dir " + model +
                                          " --output_dir " + (folder / name).string() + " " + words);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_NE(outcome.output.find("There is no tokenizer"), std::string::npos) << outcome.output;
        return fs::file_size(folder / (name + "/model.gguf"));
    };
    const auto full = size_of("", "full"), half = size_of("--dtype float16", "half");
    EXPECT_LT(half, full);
    EXPECT_EQ(size_of("--dtype q8_0", "eighth"), half);  // rows of 16 and 24 elements are not quantized
    EXPECT_EQ(std::distance(fs::directory_iterator(folder / "full"), fs::directory_iterator()), 1);
    const test::Outcome meta =
        run("convert --output_format gguf --input_dir " + test::golden_path("meta/llama2").string() +
            " --output_dir " + (folder / "meta").string());
    EXPECT_EQ(meta.exit_code, 0) << meta.output;
}

TEST(ConvertCommand, ATiedHeadIsNotInSafetensors) {
    test::TemporaryFolder folder;
    const std::string out = folder.path().string();
    ASSERT_EQ(run("convert --input_dir " + test::golden_path("hf/llama-tied-bin").string() +
                  " --output_format safetensors --output_dir " + out)
                  .exit_code,
              0);
    expect_same_weights(out, test::golden_path("hf/llama-tied"));
}

TEST(ConvertCommand, OneFormOfRanksToTheOther) {
    test::TemporaryFolder folder;
    const std::string out = folder.path().string();
    ASSERT_EQ(run("convert --convert_to_xser --input_dir " + nxd("gqa_trn1") + "/model --output_dir " + out +
                  "/xser")
                  .exit_code,
              0);
    ASSERT_EQ(
        run("convert --convert_from_xser --input_dir " + out + "/xser/model --output_dir " + out + "/torch")
            .exit_code,
        0);
    EXPECT_TRUE(fs::exists(folder / "xser/model/dp_rank_00_tp_rank_00_pp_rank_00.pt.info.pt"));
    for (const std::string form : {"xser", "torch"}) {
        const test::Outcome outcome =
            run("convert --convert_to_full_state --kv_size_multiplier 2 --config " + nxd("gqa_trn1") +
                " --input_dir " + out + "/" + form + " --output_format safetensors --output_dir " + out +
                "/full-" + form);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        expect_same_weights(folder / ("full-" + form), nxd("gqa_trn1") + "/full.safetensors");
    }
}

TEST(ConvertCommand, PadsHeadsAndTakesTheirNumbersFromAConfigurationOfNxdTraining) {
    test::TemporaryFolder folder;
    const std::string out = folder.path().string(), golden = nxd("gqa_padded_trn1");
    test::write_raw(folder / "run.yaml",
                    "name: llama\ntrainer:\n  odd: {a: 1}\nmodel:  # sizes\n  # of a run\n  num_layers: 1\n"
                    "  hidden_size: 12\n  num_attention_heads: 6\n  num_kv_heads: 2\n  fusions:\n"
                    "    softmax: True\nprecision:\n  type: mixed\n");
    const std::string flags =
        " --pad_attn_heads True --kv_replicator 2 --qkv_linear True --nxdt_yaml_config " + out + "/run.yaml";
    const test::Outcome cut = run("convert --convert_from_full_state --tp_size 4 --input_dir " + golden +
                                  "/full.safetensors --output_dir " + out + "/cut" + flags);
    EXPECT_EQ(cut.exit_code, 0) << cut.output;
    const test::Outcome joined = run("convert --convert_to_full_state --input_dir " + out +
                                     "/cut --output_dir " + out + "/full" + flags);
    EXPECT_EQ(joined.exit_code, 0) << joined.output;
    expect_same_weights(folder / "full/checkpoint.pt", golden + "/full.safetensors");
    EXPECT_GT(fs::file_size(folder / "cut/model/dp_rank_00_tp_rank_03_pp_rank_00.pt"), 0u);
}

TEST(ConvertCommand, RefusesWhatItCannotDoAndWritesNothing) {
    test::TemporaryFolder folder;
    const std::string full = nxd("gqa_trn1") + "/full.safetensors", ranks = nxd("gqa_trn1") + "/model";
    const auto expect = [&](int code, const std::string& words, const std::string& part) {
        const test::Outcome outcome = run("convert --output_dir " + (folder / "out").string() + " " + words);
        EXPECT_EQ(outcome.exit_code, code) << words;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << words << "\n" << outcome.output;
        EXPECT_FALSE(fs::exists(folder / "out")) << words;
    };
    expect(2, "--input_dir " + full, "No --convert_… flag and no --output_format");
    expect(2, "--convert_from_full_state --convert_to_xser --input_dir " + full, "More than one --convert_");
    expect(2, "--convert_from_full_state --output_format bin --input_dir " + full,
           "--output_format is given");
    expect(2, "--convert_from_full_state", "Neither --input_dir nor --hf_model_name");
    expect(2, "--convert_from_full_state --fuse_qkv --input_dir " + full,
           "--fuse_qkv is given without --qkv_linear");
    expect(2, "--convert_from_full_state --kv_size_multiplier 2 --input_dir " + full,
           "--kv_size_multiplier is given without --qkv_linear");
    expect(2, "--convert_from_full_state --pad_attn_heads --input_dir " + full,
           "--pad_attn_heads is given without --qkv_linear");
    expect(2, "--output_format bin --i_tp_round_factor 4 --input_dir " + full, "no ranks are cut or joined");
    expect(1, "--convert_from_full_state --i_tp_round_factor 4 --input_dir " + full, "the model has none");
    expect(
        2,
        "--convert_from_full_state --model_style megatron --qkv_linear --kv_size_multiplier 2 --input_dir " +
            full,
        "megatron");
    expect(2, "--convert_from_full_state --config a.json --nxdt_yaml_config a.yaml --input_dir " + full,
           "Both --config and --nxdt_yaml_config");
    expect(2, "--convert_to_full_state --output_format gguf --nxdt_yaml_config a.yaml --input_dir " + ranks,
           "a GGUF file needs the whole config");
    test::write_raw(folder / "a.yaml", "model:\n  num_layers: many\n");
    expect(1,
           "--convert_from_full_state --nxdt_yaml_config " + (folder / "a.yaml").string() + " --input_dir " +
               full,
           "a.yaml, model, has no positive number \"num_layers\"");
    expect(2, "--output_format bin --max_shard_size 5 --input_dir " + full, "--max_shard_size is \"5\"");
    expect(2, "--output_format gguf --max_shard_size 5GB --input_dir " + full, "--max_shard_size is given");
    expect(2, "--output_format bin --dtype q8_0 --input_dir " + full, "--dtype q8_0 is given");
    expect(1, "--output_format gguf --input_dir " + test::golden_path("dcp/fsdp").string(), "Add --config");
    expect(2, "--convert_from_full_state --hw_backend trn3 --input_dir " + full, "--hw_backend");
    expect(1, "--convert_from_full_state --input_dir missing", "no such file or folder");
    expect(1, "--convert_from_full_state --n_layers 4 --input_dir " + full, "the model has 5 layers");
    expect(1, "--convert_from_full_state --tp_size 3 --input_dir " + full, "--tp_size 3 does not divide");
    expect(1, "--convert_to_full_state --tp_size 2 --input_dir " + ranks, "--tp_size is 2");
    expect(1, "--convert_to_full_state --kv_size_multiplier 2 --input_dir " + ranks, "Add --config");
    expect(1,
           "--convert_to_full_state --n_layers 6 --kv_size_multiplier 2 --config " + nxd("gqa_trn1") +
               " --input_dir " + ranks,
           "the model has 5 layers");
}

}  // namespace
}  // namespace drover
