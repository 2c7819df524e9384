// Single components of a tokenizer.json and the files next to it, compared with Hugging Face's libraries
// (tools/oracle/tokenizer_parts.py).
#include <fmt/format.h>

#include "text/golden_texts.h"

namespace drover {
namespace {

using test::encoded;
using test::golden_path;
using test::shown;
using test::TemporaryFolder;

/// Writes the tokenizer.json that a case describes.
void write_tokenizer(const Json& test_case, const std::filesystem::path& path) {
    const std::string base = test_case.at("base");
    Json tokenizer = Json::parse(read_text_file(golden_path(fmt::format("text/{}/tokenizer.json", base))));
    for (const auto& [key, value] : test_case.at("changes").items()) {
        if (key.starts_with("model."))
            tokenizer["model"][key.substr(6)] = value;
        else
            tokenizer[key] = value;
    }
    write_file_atomically(path, tokenizer.dump());
}

void expect_case(const Tokenizer& tokenizer, const Json& golden, const Json& test_case, bool skip_special) {
    const std::string name = test_case.at("name");
    for (std::size_t i = 0; i < golden.at("texts").size(); ++i) {
        const std::string text = golden["texts"][i];
        const std::vector<TokenId> expected = test_case.at("ids")[i];
        EXPECT_EQ(encoded(tokenizer, text), expected) << name << ": " << shown(text);
        const std::string decoded = test_case.at("decoded")[i];
        EXPECT_EQ(tokenizer.decode(expected, skip_special), decoded) << name << ": " << shown(text);
    }
}

TEST(Parts, OfTokenizerJson) {
    const Json golden = read_json_file(golden_path("text/parts.json"));
    const TemporaryFolder folder;
    for (const Json& test_case : golden.at("cases")) {
        write_tokenizer(test_case, folder / "tokenizer.json");
        expect_case(*load_tokenizer(folder / "tokenizer.json"), golden, test_case, false);
    }
    EXPECT_GE(golden.at("cases").size(), 55u);
}

TEST(Parts, FilesBesideTokenizerJson) {
    const Json golden = read_json_file(golden_path("text/folders.json"));
    for (const Json& test_case : golden.at("cases")) {
        const TemporaryFolder folder;
        write_tokenizer(test_case, folder / "tokenizer.json");
        for (const auto& [name, content] : test_case.at("files").items())
            write_file_atomically(folder / name, content.dump());
        const auto tokenizer = load_tokenizer(folder.path());
        expect_case(*tokenizer, golden, test_case, true);
        EXPECT_EQ(tokenizer->size(), test_case.at("size")) << test_case.at("name");
        EXPECT_EQ(tokenizer->model_max_length(), test_case.at("model_max_length")) << test_case.at("name");
        const auto expect_id = [&](const char* role, std::optional<TokenId> id) {
            EXPECT_EQ(id ? Json(*id) : Json(), test_case.at(role)) << test_case.at("name") << " " << role;
        };
        expect_id("bos", tokenizer->bos());
        expect_id("eos", tokenizer->eos());
        expect_id("pad", tokenizer->pad());
        expect_id("unk", tokenizer->unk());
    }
    EXPECT_GE(golden.at("cases").size(), 20u);
}

}  // namespace
}  // namespace drover
