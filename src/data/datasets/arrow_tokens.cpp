#include "data/datasets/arrow_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text_file.h"
#include "data/readers/arrow_library.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<const char*, const char*>, 3> token_columns{
    {{"input_ids", "int32"}, {"attention_mask", "int8"}, {"labels", "int64"}}};

Json features() {
    Json features;
    for (const auto& [name, type] : token_columns)
        features[name] = {{"feature", {{"dtype", type}, {"_type", "Value"}}}, {"_type", "List"}};
    return features;
}

/// Writes the data files one by one. Their final names contain the number of files, which is known only at
/// the end.
class ShardWriter {
  public:
    explicit ShardWriter(const fs::path& folder) : folder_(folder), module_(arrow_library(folder.string())) {
        metadata_ = Json{{"info", {{"features", features()}}}}.dump();
    }
    ~ShardWriter() {
        if (writer_ != nullptr) module_.finish(writer_, message_.data());
    }
    ShardWriter(const ShardWriter&) = delete;
    ShardWriter& operator=(const ShardWriter&) = delete;

    void begin() {
        path_ = folder_ / fmt::format("data-{:05}.partial", shards_++);
        writer_ = module_.create(path_.c_str(), metadata_.c_str(), message_.data());
        if (writer_ == nullptr) fail();
    }
    void add(std::span<const std::int32_t> ids) {
        if (writer_ == nullptr) begin();
        if (module_.add_tokens(writer_, ids.data(), static_cast<std::int64_t>(ids.size()), message_.data()) !=
            0)
            fail();
    }
    void end() {
        if (writer_ != nullptr && module_.finish(std::exchange(writer_, nullptr), message_.data()) != 0)
            fail();
    }
    /// Renames the files to their final names.
    std::vector<std::string> finish() {
        if (shards_ == 0) begin();
        end();
        std::vector<std::string> names;
        for (int i = 0; i < shards_; ++i) {
            names.push_back(fmt::format("data-{:05}-of-{:05}.arrow", i, shards_));
            fs::rename(folder_ / fmt::format("data-{:05}.partial", i), folder_ / names.back());
        }
        return names;
    }

  private:
    [[noreturn]] void fail() const {
        throw Error(fmt::format("Cannot write {}: {}.", path_.string(), message_.data()),
                    "Check the folder's permissions and the free space.");
    }

    fs::path folder_;
    fs::path path_;
    const DroverArrowModule& module_;
    std::string metadata_;
    DroverArrowWriter* writer_ = nullptr;
    int shards_ = 0;
    std::array<char, drover_arrow_message_size> message_{};
};

}  // namespace

std::int64_t write_arrow_token_dataset(const fs::path& folder, const NextBlock& next,
                                       const std::string& split, std::int64_t shard_bytes) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure || !fs::is_empty(folder, failure))
        throw Error(fmt::format("The folder {} {}.", folder.string(),
                                failure ? "cannot be made" : "is not empty, and nothing is overwritten"),
                    "Name another folder, or empty this one.");
    ShardWriter writer(folder);
    ContentHash hash;
    std::int64_t blocks = 0, bytes = 0;
    for (std::span<const std::int32_t> ids = next(); !ids.empty(); ids = next(), ++blocks) {
        if (bytes >= shard_bytes) {
            writer.end();
            bytes = 0;
        }
        writer.add(ids);
        hash.add({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
        constexpr std::int64_t bytes_per_token = 4 + 1 + 8;
        bytes += static_cast<std::int64_t>(ids.size()) * bytes_per_token;
    }
    Json files = Json::array();
    for (const std::string& name : writer.finish()) files.push_back({{"filename", name}});
    const Json state{{"_data_files", files},
                     {"_fingerprint", hash.hex().substr(0, 16)},
                     {"_format_columns", nullptr},
                     {"_format_kwargs", Json::object()},
                     {"_format_type", nullptr},
                     {"_output_all_columns", false},
                     {"_split", split}};
    const Json info{
        {"citation", ""}, {"description", ""}, {"features", features()}, {"homepage", ""}, {"license", ""}};
    write_file_atomically(folder / "dataset_info.json", info.dump(2));
    // Written last: a folder with a state.json is complete.
    write_file_atomically(folder / "state.json", state.dump(2));
    return blocks;
}

struct ArrowTokenDataset::Shard {
    explicit Shard(const fs::path& source) : file(source), path(source) {}
    ArrowFile file;
    fs::path path;
    std::int64_t begin = 0;
};

ArrowTokenDataset::ArrowTokenDataset(const std::vector<fs::path>& files) {
    for (const fs::path& path : files) {
        auto shard = std::make_unique<Shard>(path);
        shard->begin = size_;
        size_ += shard->file.row_count();
        shards_.push_back(std::move(shard));
    }
}

ArrowTokenDataset::~ArrowTokenDataset() = default;

void ArrowTokenDataset::read(std::int64_t index, Block& block) {
    require(index >= 0 && index < size_, "a token block that is not there");
    const auto behind =
        std::upper_bound(shards_.begin(), shards_.end(), index,
                         [](std::int64_t row, const auto& shard) { return row < shard->begin; });
    Shard& shard = **std::prev(behind);
    const DroverArrowTokens tokens = shard.file.read_tokens(index - shard.begin);
    const auto fail = [&](std::string_view what) {
        throw Error(fmt::format("{}, row {}: {}.", shard.path.string(), index - shard.begin, what),
                    "Make the dataset again, in whole blocks of token ids.");
    };
    block.ids.clear();
    block.labels.clear();
    const auto is_id = [](std::int64_t id) {
        return id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    };
    for (std::int64_t i = 0; i < tokens.count; ++i) {
        const std::int64_t id = tokens.ids[i];
        const std::int64_t label = tokens.labels != nullptr ? tokens.labels[i] : id;
        if (!is_id(id)) fail(fmt::format("{} is not a token id", id));
        if (tokens.mask != nullptr && tokens.mask[i] != 1) fail("the block is padded");
        if (!is_id(label) && label != no_label) fail(fmt::format("{} is not a label", label));
        block.ids.push_back(static_cast<std::int32_t>(id));
        if (tokens.labels != nullptr) block.labels.push_back(static_cast<std::int32_t>(label));
    }
}

}  // namespace drover
