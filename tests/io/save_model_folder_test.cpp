#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <set>

#include "io/model_folder.h"
#include "io/raw_files.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::expect_error;
using test::golden_path;
using test::read_raw;
using test::TemporaryFolder;
using test::write_raw;

/// The names of the golden models in the order of PyTorch's modules.
std::vector<std::string> module_order(const ModelWeights& weights) {
    std::vector<std::string> names{"model.embed_tokens.weight"};
    for (int layer = 0; weights.entry(fmt::format("model.layers.{}.input_layernorm.weight", layer));
         ++layer) {
        const std::string prefix = fmt::format("model.layers.{}.", layer);
        for (const char* part :
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
              "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"})
            for (const char* kind : {".weight", ".bias"})
                if (weights.entry(prefix + part + kind)) names.push_back(prefix + part + kind);
    }
    names.emplace_back("model.norm.weight");
    if (weights.entry("lm_head.weight")) names.emplace_back("lm_head.weight");
    return names;
}

std::set<std::string> files_in(const std::filesystem::path& folder) {
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(folder)) names.insert(file.path().filename());
    return names;
}

/// Saves `sizes[i]` bytes under the name "t<i>".
void save_sizes(const std::filesystem::path& folder, const std::vector<std::int64_t>& sizes,
                std::uint64_t max_bytes, std::uint8_t fill = 1) {
    std::vector<std::vector<std::uint8_t>> data;
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        data.emplace_back(static_cast<std::size_t>(sizes[i]), fill);
        tensors.push_back({fmt::format("t{}", i), Tensor::of(data.back().data(), {sizes[i]})});
    }
    save_model_folder(folder, fmt::format("{{\"fill\": {}}}\n", fill), tensors,
                      {.max_shard_bytes = max_bytes});
}

// Written by save_pretrained; the shard limit is the one that the golden folders were made with.
TEST(SaveModelFolder, WritesByteForByteWhatHuggingFaceWrites) {
    for (const auto& [name, limit] : std::vector<std::pair<std::string, std::uint64_t>>{
             {"llama-single", 5'000'000'000}, {"llama-tied", 5'000'000'000}, {"llama-sharded", 12'000}}) {
        SCOPED_TRACE(name);
        const TemporaryFolder folder;
        const std::filesystem::path golden = golden_path("hf/" + name);
        const ModelWeights weights(golden);
        std::vector<NamedTensor> tensors;
        for (const std::string& tensor : module_order(weights))
            tensors.push_back({tensor, weights.find(tensor)});
        ASSERT_EQ(tensors.size(), weights.names().size());
        save_model_folder(folder.path(), read_raw(golden / "config.json"), tensors,
                          {.max_shard_bytes = limit,
                           .generation_config_json = read_raw(golden / "generation_config.json")});
        auto expected = files_in(golden);
        expected.erase("expected.safetensors");
        EXPECT_EQ(files_in(folder.path()), expected);
        for (const std::string& file : expected)
            EXPECT_TRUE(read_raw(folder / file) == read_raw(golden / file)) << file;
    }
}

TEST(PlanShards, FollowsHuggingFacesRule) {
    using Numbers = std::vector<std::size_t>;
    const auto files = [](const std::vector<std::uint64_t>& sizes, std::uint64_t limit) {
        return plan_shards(sizes, limit).file_of;
    };
    EXPECT_EQ(files({6, 6, 2, 6, 2, 2}, 10), (Numbers{0, 1, 1, 2, 2, 2}));
    EXPECT_EQ(files({5, 5, 1}, 10), (Numbers{0, 0, 1}));
    // A tensor over the limit is numbered before the file that was open at that point, which continues after
    // it.
    EXPECT_EQ(files({3, 11, 3, 3, 3}, 10), (Numbers{1, 0, 1, 1, 2}));
    EXPECT_EQ(files({11, 12}, 10), (Numbers{0, 1}));
    EXPECT_EQ(files({0, 10, 0}, 10), (Numbers{0, 0, 0}));

    EXPECT_EQ(plan_shards({3, 3}, 10).file_names, std::vector<std::string>{"model.safetensors"});
    EXPECT_EQ(plan_shards({11}, 10).file_names, std::vector<std::string>{"model.safetensors"});
    EXPECT_EQ(plan_shards({}, 10).file_names, std::vector<std::string>{"model.safetensors"});
    EXPECT_EQ(
        plan_shards({6, 6}, 10).file_names,
        (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}));
}

TEST(SaveModelFolder, WritesTheIndexExactly) {
    const TemporaryFolder folder;
    const float numbers[3] = {};
    save_model_folder(
        folder / "new/folder", "",
        {{"z", Tensor::of(numbers, {3})}, {"é", Tensor::of(numbers, {1})}, {"a", Tensor::of(numbers, {2})}},
        {.max_shard_bytes = 16});
    EXPECT_EQ(read_raw(folder / "new/folder/model.safetensors.index.json"),
              "{\n"
              "  \"metadata\": {\n"
              "    \"total_parameters\": 6,\n"
              "    \"total_size\": 24\n"
              "  },\n"
              "  \"weight_map\": {\n"
              "    \"a\": \"model-00002-of-00002.safetensors\",\n"
              "    \"z\": \"model-00001-of-00002.safetensors\",\n"
              "    \"\\u00e9\": \"model-00001-of-00002.safetensors\"\n"
              "  }\n"
              "}\n");
    EXPECT_EQ(files_in(folder / "new/folder"),
              (std::set<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                     "model.safetensors.index.json"}));
}

TEST(SaveModelFolder, RemovesWhatAnEarlierSaveLeft) {
    const TemporaryFolder folder;
    const std::set<std::string> kept{"config.json",
                                     "model.safetensors.txt",
                                     "model-12",
                                     "model-1-of-2.safetensors",
                                     "model-0000a-of-00002.safetensors",
                                     "model-00001-of-00002.safetensors.bak",
                                     "model-00001of-00002.safetensors",
                                     "pytorch_model.bin",
                                     "notes-00001-of-00002.safetensors"};
    for (const std::string& name : kept) write_raw(folder / name, "mine");
    const auto with_kept = [&](std::set<std::string> names) {
        names.insert(kept.begin(), kept.end());
        return names;
    };
    save_sizes(folder.path(), {60, 60, 60}, 100);
    EXPECT_EQ(files_in(folder.path()),
              with_kept({"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                         "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
    write_raw(folder / "model-00007-of-00009.safetensors.partial", "of a save that was killed");
    save_sizes(folder.path(), {60, 60}, 100);
    EXPECT_EQ(files_in(folder.path()),
              with_kept({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                         "model.safetensors.index.json"}));
    save_sizes(folder.path(), {60, 60}, 1000, 2);
    EXPECT_EQ(files_in(folder.path()), with_kept({"model.safetensors"}));
    save_sizes(folder.path(), {60, 60}, 100, 3);
    EXPECT_EQ(files_in(folder.path()),
              with_kept({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                         "model.safetensors.index.json"}));
    EXPECT_EQ(ModelWeights(folder.path()).find("t1").data<std::uint8_t>()[59], 3);
    EXPECT_EQ(read_raw(folder / "config.json"), "{\"fill\": 3}\n");
}

/// While one of these lives, files of this process cannot grow beyond a limit: the closest thing to a full
/// disk.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        rlimit limited = before_;
        limited.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limited);
    }
    ~FileSizeLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    void (*handler_)(int);
    rlimit before_{};
};

TEST(SaveModelFolder, AFullDiskLeavesTheEarlierSaveAsItWas) {
    const TemporaryFolder folder;
    // Three files in both saves; in the second, the middle one is too large.
    save_sizes(folder.path(), {800, 800, 800}, 1000, 1);
    std::map<std::string, std::string> before;
    for (const std::string& name : files_in(folder.path())) before[name] = read_raw(folder / name);
    {
        const FileSizeLimit limit(8192);
        expect_error(
            [&] {
                save_sizes(folder.path(), {800, 800, 100'000}, 1000, 2);
            },
            {"model-00002-of-00003.safetensors", "97", "KiB", "File too large", "Free some space"});
        expect_error(
            [&] {
                const std::vector<std::uint8_t> data(100'000);
                write_safetensors(folder / "other.safetensors", {{"x", Tensor::of(data.data(), {100'000})}});
            },
            {"other.safetensors", "Free some space"});
    }
    std::map<std::string, std::string> after;
    for (const std::string& name : files_in(folder.path())) after[name] = read_raw(folder / name);
    EXPECT_EQ(after, before);
    EXPECT_EQ(before.size(), 5u);
}

TEST(SaveModelFolder, NamesAPlaceThatCannotBeAFolder) {
    const TemporaryFolder folder;
    write_raw(folder / "file", "x");
    expect_error([&] { save_sizes(folder / "file", {1}, 10); }, {(folder / "file").string()});
    expect_error([&] { save_sizes(folder / "file/below", {1}, 10); }, {(folder / "file/below").string()});
}

TEST(SaveModelFolder, CanSaveOverTheFolderItReadsFrom) {
    const TemporaryFolder folder;
    save_sizes(folder.path(), {1000, 1000}, 1500, 9);
    const ModelWeights weights(folder.path());
    save_model_folder(folder.path(), "", {{"t0", weights.find("t0")}, {"t1", weights.find("t1")}});
    const ModelWeights again(folder.path());
    EXPECT_EQ(again.files().size(), 1u);
    EXPECT_EQ(again.find("t1").data<std::uint8_t>()[999], 9);
}

}  // namespace
}  // namespace drover
