#include <gtest/gtest.h>

#include <cstdlib>

#include "core/content_hash.h"
#include "core/json.h"
#include "core/json_text.h"
#include "data/datasets/file_rows.h"
#include "data/packing/token_stream.h"
#include "support/golden.h"

namespace drover {
namespace {

/// Files of the repository or, with "shared:", of the folder of materials that are not committed.
std::filesystem::path locate(const std::string& name) {
    const std::filesystem::path root = DROVER_SOURCE_DIR;
    constexpr std::string_view prefix = "shared:";
    if (!name.starts_with(prefix)) return root / name;
    const char* shared = std::getenv("DROVER_SHARED");
    return (shared != nullptr ? std::filesystem::path(shared) : root / "../shared") /
           name.substr(prefix.size());
}

class PackingGolden : public ::testing::TestWithParam<Json> {};

TEST_P(PackingGolden, EqualsRunClmWithDatasets) {
    const Json& expected = GetParam();
    const std::filesystem::path file = locate(expected["file"]);
    if (!std::filesystem::exists(file))
        GTEST_SKIP() << "an extra test, which needs " << file << " (or DROVER_SHARED)";
    const FileRows rows({file}, {});
    EXPECT_EQ(rows.row_count(), expected["rows"].get<std::int64_t>());
    TokenStream stream(rows, load_tokenizer(locate(expected["tokenizer"])),
                       {.block_size = expected["block_size"], .workers = expected["workers"]}, 2);
    ContentHash hash;
    std::vector<TokenId> block;
    while (stream.next(block))
        hash.add_bytes({reinterpret_cast<const char*>(block.data()), block.size() * sizeof(TokenId)});
    EXPECT_EQ(stream.progress().rows, expected["blocks"].get<std::int64_t>());
    EXPECT_EQ(hash.hex(), expected["hash"].get<std::string>());
}

std::vector<Json> cases() {
    const Json all = read_json_file(test::golden_path("packing/blocks.json"))["cases"];
    return {all.begin(), all.end()};
}

std::string case_name(const ::testing::TestParamInfo<Json>& test) {
    const std::filesystem::path file = test.param["file"].get<std::string>();
    const bool with_bos = !test.param["tokenizer"].get<std::string>().ends_with("without_bos");
    return file.stem().string() + "_" + file.extension().string().substr(1) +
           (with_bos ? "_bos_" : "_plain_") + std::to_string(test.param["workers"].get<int>());
}

INSTANTIATE_TEST_SUITE_P(Corpora, PackingGolden, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace drover
