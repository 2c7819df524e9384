#include "convert/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <map>

#include "core/json.h"
#include "core/json_text.h"
#include "io/raw_files.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using VocabularyType = GgufVocabulary::Type;

fs::path example_tokenizer(const std::string& name) {
    return fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers" / name;
}

std::int32_t number_of(VocabularyType type) {
    return static_cast<std::int32_t>(type);
}

TEST(GgufVocabulary, OfBytes) {
    const GgufVocabulary found = GgufVocabulary::of_folder(example_tokenizer("shakespeare-4k"), 5000);
    EXPECT_EQ(found.model, "gpt2");
    EXPECT_EQ(found.pre_tokenizer, "llama-bpe");
    ASSERT_EQ(found.tokens.size(), 5000u);
    EXPECT_EQ(found.tokens[0], "<|begin_of_text|>");
    EXPECT_EQ(found.types[0], number_of(VocabularyType::control));
    EXPECT_EQ(found.types[100], number_of(VocabularyType::normal));
    EXPECT_EQ(found.tokens[4999], "[PAD4999]");
    EXPECT_EQ(found.types[4999], number_of(VocabularyType::unused));
    EXPECT_EQ(found.bos, 0);
    EXPECT_EQ(found.eos, 1);
    EXPECT_EQ(found.padding, 2);
    EXPECT_EQ(found.add_bos, true);
    EXPECT_EQ(found.add_eos, false);
    EXPECT_TRUE(found.scores.empty());
    const Json file = read_json_file(example_tokenizer("shakespeare-4k") / "tokenizer.json");
    ASSERT_EQ(found.merges.size(), file["model"]["merges"].size());
    const Json& merge = file["model"]["merges"][7];
    EXPECT_EQ(found.merges[7], merge.is_string()
                                   ? merge.get<std::string>()
                                   : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
}

TEST(GgufVocabulary, TheWayOfSplittingHasAName) {
    const auto name = [](const char* folder) {
        return GgufVocabulary::of_folder(test::golden_path(folder), 1000).pre_tokenizer;
    };
    EXPECT_EQ(name("text/gpt2-1k"), "gpt-2");
    EXPECT_EQ(name("text/qwen-1k"), "qwen2");
    EXPECT_EQ(name("text/tekken-1k"), "tekken");
    test::TemporaryFolder folder;
    Json changed = read_json_file(test::golden_path("text/qwen-1k") / "tokenizer.json");
    changed["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\s+";
    test::write_raw(folder / "tokenizer.json", changed.dump());
    test::expect_error([&] { GgufVocabulary::of_folder(folder.path(), 1000); },
                       {"tokenizer.json splits text", "llama.cpp has no name", "token ids"});
}

TEST(GgufVocabulary, OfSentencePiece) {
    const GgufVocabulary found = GgufVocabulary::of_folder(example_tokenizer("mistral-v1"), 32000);
    EXPECT_EQ(found.model, "llama");
    EXPECT_EQ(found.tokens[0], "<unk>");
    EXPECT_EQ(found.types[0], number_of(VocabularyType::unknown));
    EXPECT_EQ(found.types[1], number_of(VocabularyType::control));
    EXPECT_EQ(found.tokens[3], "<0x00>");
    EXPECT_EQ(found.types[3], number_of(VocabularyType::byte));
    EXPECT_EQ(found.types[300], number_of(VocabularyType::normal));
    EXPECT_EQ(found.scores[301], -42);
    EXPECT_EQ(found.scores[300], -41);
    EXPECT_EQ(found.bos, 1);
    EXPECT_EQ(found.eos, 2);
    EXPECT_EQ(found.unknown, 0);
    EXPECT_EQ(found.add_bos, true);
    EXPECT_EQ(found.add_space_prefix, true);
    EXPECT_TRUE(found.merges.empty());
}

TEST(GgufVocabulary, OfLlamasTokenizerJsonHasTheRanksOfMergesAsScores) {
    const GgufVocabulary found = GgufVocabulary::of_folder(test::golden_path("text/llama-600"), 600);
    EXPECT_EQ(found.model, "llama");
    const Json file = read_json_file(test::golden_path("text/llama-600") / "tokenizer.json");
    const Json& merges = file["model"]["merges"];
    std::map<std::string, std::size_t> first;  // the rank of the first merge that makes a piece
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const Json& merge = merges[rank];
        std::string piece = merge.is_string() ? merge.get<std::string>()
                                              : merge[0].get<std::string>() + merge[1].get<std::string>();
        std::erase(piece, ' ');
        first.emplace(piece, rank);
    }
    EXPECT_GT(first.size(), 100u);
    for (const auto& [piece, rank] : first)
        EXPECT_EQ(found.scores[file["model"]["vocab"][piece].get<std::size_t>()], -static_cast<float>(rank))
            << piece;
    const auto byte = file["model"]["vocab"]["<0x0A>"].get<std::size_t>();
    EXPECT_EQ(found.types[byte], number_of(VocabularyType::byte));
}

TEST(GgufVocabulary, TheChatTemplateAndItsPlaces) {
    test::TemporaryFolder folder;
    fs::copy(example_tokenizer("shakespeare-4k"), folder.path());
    Json config = read_json_file(folder / "tokenizer_config.json");
    config["chat_template"] = {{{"name", "tool"}, {"template", "A"}},
                               {{"name", "default"}, {"template", "B"}}};
    test::write_raw(folder / "tokenizer_config.json", config.dump());
    EXPECT_EQ(GgufVocabulary::of_folder(folder.path(), 4096).chat_template, "B");
    config["chat_template"] = "C";
    test::write_raw(folder / "tokenizer_config.json", config.dump());
    EXPECT_EQ(GgufVocabulary::of_folder(folder.path(), 4096).chat_template, "C");
    test::write_raw(folder / "chat_template.jinja", "D");
    EXPECT_EQ(GgufVocabulary::of_folder(folder.path(), 4096).chat_template, "D");
}

TEST(GgufVocabulary, OfAFolderWithoutATokenizerIsEmpty) {
    test::TemporaryFolder folder;
    const GgufVocabulary found = GgufVocabulary::of_folder(folder.path(), 100);
    EXPECT_EQ(found.model, "no_vocab");
    EXPECT_TRUE(found.tokens.empty());
    fs::copy(test::golden_path("text/unigram-600.model"), folder / "tokenizer.model");
    test::expect_error([&] { GgufVocabulary::of_folder(folder.path(), 100); },
                       {"tokenizer.model is not a BPE model", "token ids"});
}

}  // namespace
}  // namespace drover
