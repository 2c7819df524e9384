#include <gtest/gtest.h>

#include "core/json.h"
#include "core/json_text.h"
#include "io/model_folder.h"
#include "io/raw_files.h"
#include "io/torch_archive.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::expect_error;
using test::golden_path;
using test::TemporaryFolder;
using test::write_raw;

constexpr float eight_numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};

void write_shard(const std::filesystem::path& path, std::initializer_list<std::string> names,
                 std::int64_t size = 2) {
    std::map<std::string, Tensor> tensors;
    for (const auto& name : names) tensors.emplace(name, Tensor::of(eight_numbers, {size}));
    write_safetensors(path, tensors);
}

void write_pickle(const std::filesystem::path& path, std::initializer_list<std::string> names) {
    PickleWriter pickle;
    pickle.begin_dict();
    for (const auto& name : names) {
        pickle.text(name);
        pickle.tensor(DType::f32, {2});
    }
    pickle.end_dict();
    write_torch_file(path, pickle, std::vector<Tensor>(names.size(), Tensor::of(eight_numbers, {2})));
}

void write_index(const TemporaryFolder& folder, std::string_view weight_map) {
    write_raw(folder / "model.safetensors.index.json",
              "{\"metadata\": {}, \"weight_map\": " + std::string(weight_map) + "}");
}

TEST(ModelWeights, OpensGoldenFoldersOfEveryKind) {
    const ModelWeights single(golden_path("hf/llama-single"));
    EXPECT_EQ(single.files().size(), 1u);
    EXPECT_EQ(single.find("model.embed_tokens.weight").dtype(), DType::f32);
    EXPECT_EQ(single.find("model.embed_tokens.weight").size(0), 67);
    EXPECT_TRUE(single.find("lm_head.weight"));

    const ModelWeights sharded(golden_path("hf/llama-sharded"));
    EXPECT_EQ(sharded.files().size(), 4u);
    const Json index = read_json_file(golden_path("hf/llama-sharded/model.safetensors.index.json"));
    std::int64_t parameters = 0;
    for (const std::string& name : sharded.names()) {
        EXPECT_TRUE(index["weight_map"].contains(name)) << name;
        parameters += sharded.find(name).numel();
    }
    EXPECT_EQ(sharded.names().size(), index["weight_map"].size());
    EXPECT_EQ(parameters, index["metadata"]["total_parameters"].get<std::int64_t>());
    EXPECT_EQ(sharded.find("model.layers.1.self_attn.q_proj.bias").dtype(), DType::bf16);

    const ModelWeights tied(golden_path("hf/llama-tied"));
    EXPECT_FALSE(tied.find("lm_head.weight"));
    EXPECT_EQ(tied.entry("lm_head.weight"), nullptr);
}

TEST(ModelWeights, OpensASingleFileOfAnyName) {
    const TemporaryFolder folder;
    write_shard(folder / "adapter.safetensors", {"a"});
    const ModelWeights weights(folder / "adapter.safetensors");
    EXPECT_EQ(weights.names(), std::vector<std::string>{"a"});
    EXPECT_EQ(weights.find("a").data<float>()[1], 2);
}

TEST(ModelWeights, TheSingleFileGoesBeforeTheIndexAndThatBeforePickles) {
    const TemporaryFolder folder;
    write_raw(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"from_shard": "part.bin"}})");
    write_pickle(folder / "part.bin", {"from_shard"});
    EXPECT_EQ(ModelWeights(folder.path()).names(), std::vector<std::string>{"from_shard"});
    write_pickle(folder / "pytorch_model.bin", {"from_pickle"});
    EXPECT_EQ(ModelWeights(folder.path()).names(), std::vector<std::string>{"from_pickle"});
    write_index(folder, R"({"from_index": "part.safetensors"})");
    write_shard(folder / "part.safetensors", {"from_index"});
    EXPECT_EQ(ModelWeights(folder.path()).names(), std::vector<std::string>{"from_index"});
    write_shard(folder / "model.safetensors", {"from_single"});
    EXPECT_EQ(ModelWeights(folder.path()).names(), std::vector<std::string>{"from_single"});
}

TEST(ModelWeights, ReadsWhatTorchSavedAsItReadsSafetensors) {
    for (const auto& [pickles, safetensors] : {std::pair{"hf/llama-tied-bin", "hf/llama-tied"},
                                               std::pair{"hf/llama-sharded-bin", "hf/llama-sharded"}}) {
        SCOPED_TRACE(pickles);
        const ModelWeights read(golden_path(pickles));
        const ModelWeights expected(golden_path(safetensors));
        for (const std::string& name : expected.names()) {
            SCOPED_TRACE(name);
            ASSERT_TRUE(read.find(name));
            EXPECT_EQ(read.find(name).dtype(), expected.find(name).dtype());
            EXPECT_EQ(read.find(name).shape(), expected.find(name).shape());
            EXPECT_EQ(
                std::memcmp(read.find(name).raw(), expected.find(name).raw(), expected.find(name).bytes()),
                0);
            EXPECT_EQ(read.find(name).raw(), read.find(name).raw());
        }
    }
    const ModelWeights tied(golden_path("hf/llama-tied-bin"));
    EXPECT_EQ(tied.find("lm_head.weight").raw(), tied.find("model.embed_tokens.weight").raw());
    EXPECT_EQ(tied.view("model.layers.0.self_attn.o_proj.weight").column_stride(), 32);
    EXPECT_EQ(ModelWeights(golden_path("hf/llama-sharded-bin")).files().size(), 2u);
}

TEST(ModelWeights, NamesWhatIsWrongWithAPickle) {
    const TemporaryFolder folder;
    const auto expect = [&](std::initializer_list<std::string_view> parts) {
        expect_error([&] { ModelWeights weights(folder.path()); }, parts);
    };
    write_raw(folder / "pytorch_model.bin", "pickle of an old release");
    expect({"pytorch_model.bin is not a zip archive", "since version 1.6"});
    PickleWriter number;
    number.integer(3);
    write_torch_file(folder / "pytorch_model.bin", number, {});
    expect({"pytorch_model.bin holds an integer instead of a dict of tensors", "state_dict()"});
    PickleWriter nested;
    nested.begin_dict();
    nested.text("epoch");
    nested.integer(3);
    nested.end_dict();
    write_torch_file(folder / "pytorch_model.bin", nested, {});
    expect({"its entry \"epoch\" is an integer"});
    PickleWriter numbered;
    numbered.begin_dict();
    numbered.integer(7);
    numbered.text("seven");
    numbered.end_dict();
    write_torch_file(folder / "pytorch_model.bin", numbered, {});
    expect({"its entry 7 is a text"});
}

TEST(ModelWeights, ADictOfTensorsMayBeAnEntryOfAnother) {
    const TemporaryFolder folder;
    PickleWriter pickle;
    pickle.begin_dict();
    pickle.text("model");
    pickle.begin_dict();
    pickle.text("a");
    pickle.tensor(DType::f32, {2});
    pickle.end_dict();
    pickle.text("epoch");
    pickle.integer(3);
    pickle.end_dict();
    write_torch_file(folder / "checkpoint.pt", pickle, {Tensor::of(eight_numbers, {2})});
    EXPECT_EQ(ModelWeights(folder / "checkpoint.pt", "model").find("a").data<float>()[1], 2);
    expect_error([&] { ModelWeights weights(folder / "checkpoint.pt"); }, {"its entry \"model\" is a dict"});
}

TEST(ModelWeights, NamesAFolderOrFileThatHoldsNothing) {
    const TemporaryFolder folder;
    expect_error([&] { ModelWeights weights(folder.path()); },
                 {folder.path().string(), "model.safetensors.index.json"});
    expect_error([&] { ModelWeights weights(folder / "absent"); }, {"absent", "No such file"});
}

TEST(ModelWeights, RefusesFileNamesThatLeaveTheFolder) {
    const TemporaryFolder folder;
    write_shard(folder / "secret.safetensors", {"a"});
    std::filesystem::create_directory(folder / "model");
    write_shard(folder / "model/inside.safetensors", {"a"});
    std::filesystem::create_directory(folder / "model/sub");
    write_shard(folder / "model/sub/deep.safetensors", {"a"});
    const std::string absolute = (folder / "secret.safetensors").string();
    for (const std::string& name :
         {std::string("../secret.safetensors"), absolute, std::string("sub/deep.safetensors"),
          std::string(".."), std::string("."), std::string(), std::string("./inside.safetensors"),
          std::string("sub\\\\deep"), std::string("inside.safetensors\\u0000.txt")}) {
        SCOPED_TRACE(name);
        write_raw(folder / "model/model.safetensors.index.json",
                  "{\"weight_map\": {\"a\": \"" + name + "\"}}");
        expect_error([&] { ModelWeights weights(folder / "model"); },
                     {"model.safetensors.index.json", "\"a\"", "not a file name inside the folder"});
    }
    write_raw(folder / "model/model.safetensors.index.json",
              R"({"weight_map": {"a": "inside.safetensors"}})");
    EXPECT_EQ(ModelWeights(folder / "model").names().size(), 1u);
}

TEST(ModelWeights, FollowsLinksAsTheHubCacheHasThem) {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "blobs");
    std::filesystem::create_directory(folder / "snapshot");
    write_shard(folder / "blobs/0123", {"a"});
    std::filesystem::create_symlink("../blobs/0123", folder / "snapshot/model.safetensors");
    EXPECT_EQ(ModelWeights(folder / "snapshot").names(), std::vector<std::string>{"a"});
}

TEST(ModelWeights, NamesWhatIsWrongWithAnIndex) {
    const TemporaryFolder folder;
    const auto expect_refused = [&](std::initializer_list<std::string_view> parts) {
        expect_error([&] { ModelWeights weights(folder.path()); }, parts);
    };
    for (const std::string_view text :
         {"{}", "[]", "3", R"({"weight_map": []})", R"({"weight_map": null})"}) {
        SCOPED_TRACE(text);
        write_raw(folder / "model.safetensors.index.json", text);
        expect_refused({"model.safetensors.index.json", "weight_map"});
    }
    write_raw(folder / "model.safetensors.index.json", "{");
    expect_refused({"model.safetensors.index.json", "not valid JSON"});
    write_raw(folder / "model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\n");
    expect_refused({"model.safetensors.index.json", "Git LFS pointer", "git lfs pull"});
    write_index(folder, "{}");
    expect_refused({"model.safetensors.index.json", "no tensors"});
    write_index(folder, R"({"a": 1})");
    expect_refused({"model.safetensors.index.json", "file name", "\"a\""});
    write_index(folder, R"({"a": "1.safetensors", "a": "2.safetensors"})");
    expect_refused({"model.safetensors.index.json", "\"a\" twice"});
}

TEST(ModelWeights, NamesWhatIsWrongWithShards) {
    const TemporaryFolder folder;
    const auto expect_refused = [&](std::initializer_list<std::string_view> parts) {
        expect_error([&] { ModelWeights weights(folder.path()); }, parts);
    };
    write_index(folder, R"({"a": "1.safetensors", "b": "2.safetensors"})");
    write_shard(folder / "1.safetensors", {"a"});
    expect_refused({"model.safetensors.index.json", "\"2.safetensors\"", "not in the folder"});
    write_shard(folder / "2.safetensors", {"c"});
    expect_refused({"model.safetensors.index.json", "\"b\"", "\"2.safetensors\"", "does not have it"});
    write_shard(folder / "2.safetensors", {"a", "b"});
    expect_refused({folder.path().string(), "\"a\" in two shards", "1.safetensors", "2.safetensors"});
    write_raw(folder / "2.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    expect_refused({"2.safetensors", "git lfs pull"});
    // Exchanged: each tensor exists, but not in the file that the index names.
    write_shard(folder / "1.safetensors", {"b"});
    write_shard(folder / "2.safetensors", {"a"});
    expect_refused({"\"a\"", "\"1.safetensors\"", "does not have it"});
    write_shard(folder / "1.safetensors", {"a"});
    write_shard(folder / "2.safetensors", {"b"});
    EXPECT_EQ(ModelWeights(folder.path()).names(), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace drover
