#include <fmt/format.h>

#include <thread>

#include "io/raw_files.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "text/golden_texts.h"

namespace drover {
namespace {

using test::encoded;
using test::example_tokenizer;
using test::expect_error;
using test::golden_path;
using test::shown;
using test::TemporaryFolder;
using test::write_raw;

constexpr std::string_view small_tokenizer =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

/// Loads a tokenizer.json with this text.
std::shared_ptr<const Tokenizer> load_text(std::string_view text) {
    const TemporaryFolder folder;
    write_raw(folder / "tokenizer.json", text);
    return load_tokenizer(folder.path());
}

TEST(LoadTokenizer, TheSmallestFile) {
    const auto tokenizer = load_text(small_tokenizer);
    EXPECT_EQ(encoded(*tokenizer, "abba"), (std::vector<TokenId>{2, 1, 0}));
    EXPECT_EQ(tokenizer->size(), 3);
    EXPECT_EQ(tokenizer->model_max_length(), 1e30);
    EXPECT_FALSE(tokenizer->bos() || tokenizer->eos() || tokenizer->pad() || tokenizer->unk());
}

/// As in Hugging Face's library: an unknown token is written only at the next known character, so bytes in
/// between precede it.
TEST(LoadTokenizer, BytesComeBeforeAnUnknownTokenThatWaits) {
    const auto tokenizer = load_text(
        R"({"model": {"type": "BPE", "unk_token": "u", "byte_fallback": true, "fuse_unk": true,
                      "vocab": {"u": 0, "a": 1, "<0x62>": 2, "<0x64>": 3}, "merges": []}})");
    EXPECT_EQ(encoded(*tokenizer, "cba"), (std::vector<TokenId>{2, 0, 1}));
    EXPECT_EQ(encoded(*tokenizer, "acbda"), (std::vector<TokenId>{1, 2, 3, 0, 1}));
    EXPECT_EQ(encoded(*tokenizer, "cb"), (std::vector<TokenId>{2, 0}));
    EXPECT_EQ(encoded(*tokenizer, "bca"), (std::vector<TokenId>{2, 0, 1}));
}

/// A long text is processed in parts if the pattern is known to allow it, with the same result as in one
/// piece: the same pattern in brackets is not known.
TEST(LoadTokenizer, LongTextsAreCutWhereItMakesNoDifference) {
    Json file = read_json_file(std::filesystem::path(example_tokenizer("shakespeare-4k")) / "tokenizer.json");
    const auto known = load_text(file.dump());
    int changed = 0;
    for (Json& step : file.at("pre_tokenizer").at("pretokenizers"))
        if (step.at("type") == "Split") {
            step["pattern"]["Regex"] = "(?:" + step["pattern"]["Regex"].get<std::string>() + ")";
            ++changed;
        }
    ASSERT_EQ(changed, 1);
    const auto whole = load_text(file.dump());
    const std::vector<std::string> lines =
        test::lines_of(DROVER_SOURCE_DIR "/examples/data/tinyshakespeare/text.txt");
    const std::vector<std::string> joints = {" ",  "  ",  "\n ", " \n", "'s a",
                                             " '", ". A", "a b", "9 b", "\u00e9 a"};
    std::string text;
    for (std::size_t i = 0; text.size() < (3U << 19); ++i)
        text += lines[i % lines.size()] + joints[i % joints.size()];
    EXPECT_EQ(encoded(*known, text), encoded(*whole, text));
}

TEST(LoadTokenizer, UnsupportedComponentsAreNamed) {
    const auto with = [](const char* key, const Json& value) {
        Json file = Json::parse(small_tokenizer);
        file[key] = value;
        return file.dump();
    };
    for (const auto& [key, type] :
         {std::pair{"normalizer", "Precompiled"}, std::pair{"pre_tokenizer", "UnicodeScripts"},
          std::pair{"post_processor", "Unheard"}, std::pair{"decoder", "CTC"}})
        expect_error([&] { load_text(with(key, {{"type", type}})); }, {"tokenizer.json", key, type});
    expect_error(
        [&] {
            load_text(with("pre_tokenizer",
                           {{"type", "Sequence"}, {"pretokenizers", Json::array({{{"type", "Other"}}})}}));
        },
        {"pre_tokenizer[0]", "Other"});
    expect_error([] { load_text(R"({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}})"); },
                 {"model", "Unigram"});
    expect_error(
        [] { load_text(R"({"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}})"); },
        {"dropout"});
    expect_error(
        [] {
            load_text(
                R"({"model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {}, "merges": []}})");
        },
        {"end_of_word_suffix"});
}

TEST(LoadTokenizer, BadFilesAreErrors) {
    expect_error([] { load_text("{"); }, {"tokenizer.json", "JSON"});
    expect_error([] { load_text("[]"); }, {"not an object"});
    expect_error([] { load_text("{}"); }, {"model"});
    expect_error([] { load_text(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})"); },
                 {"\"b\"", "vocabulary"});
    expect_error(
        [] { load_text(R"({"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}})"); },
        {"\"a\"", "99999999999"});
    expect_error(
        [] { load_text(R"({"model": {"type": "BPE", "unk_token": "u", "vocab": {"a": 0}, "merges": []}})"); },
        {"unk_token", "\"u\""});
    expect_error([] { load_text(R"({"model": {"vocab": {"a": 0}, "merges": ["abc"]}})"); }, {"abc"});
    expect_error([] { load_text(R"({"model": {"vocab": {"a": 0}}, "model": {}})"); }, {"twice"});
    expect_error([] { load_text("version https://git-lfs.github.com/spec/v1\n"); }, {"LFS"});
    expect_error(
        [] {
            load_text(R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior":
                                    "Isolated"}, "model": {"vocab": {}, "merges": []}})");
        },
        {"pre_tokenizer", "(a"});
    const TemporaryFolder folder;
    expect_error([&] { load_tokenizer(folder.path()); }, {"neither tokenizer.json nor tokenizer.model"});
    expect_error([&] { load_tokenizer(folder / "nowhere"); }, {"nowhere"});
    for (const char* bytes : {"", "\x0a\xff\xff\xff\xff", "\x0a\x05hello world", "not a model"}) {
        write_raw(folder / "tokenizer.model", bytes);
        expect_error([&] { load_tokenizer(folder.path()); },
                     {"tokenizer.model", "not a SentencePiece model"});
    }
    write_raw(folder / "tokenizer.model", "YQ== 0\nYg== 1\nbad\n");
    expect_error([&] { load_tokenizer(folder.path()); }, {"tokenizer.model", "line 3"});
    write_raw(folder / "tokenizer.model", "YQ== 0\nYg== 7\n");
    expect_error([&] { load_tokenizer(folder.path()); }, {"rank 1"});
}

TEST(LoadTokenizer, WhatCannotBeEncodedIsAnError) {
    const auto tokenizer = load_text(small_tokenizer);
    expect_error([&] { encoded(*tokenizer, "ab\xFF"); }, {"UTF-8", "byte 2"});
}

/// As in Hugging Face's tokenizers.
TEST(LoadTokenizer, IdsWithoutATokenHaveNoText) {
    const auto tokenizer = load_text(small_tokenizer);
    const std::vector<TokenId> known = {0, 1}, with_others = {0, 3, -1, 1 << 30, 1};
    EXPECT_NE(tokenizer->decode(known, false), "");
    EXPECT_EQ(tokenizer->decode(with_others, false), tokenizer->decode(known, false));
}

// A small version of Llama-3's ranks: every byte, then two merges.
std::string small_ranks() {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string ranks;
    for (unsigned byte = 0; byte < 256; ++byte)
        ranks += fmt::format("{}{}== {}\n", digits[byte >> 2], digits[(byte & 3) << 4], byte);
    return ranks + "YWI= 256\nYWJj 257\n";  // ab, abc
}

TEST(LoadTokenizer, RankFile) {
    const TemporaryFolder folder;
    write_raw(folder / "tokenizer.model", small_ranks());
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->size(), 258 + 256);
    EXPECT_EQ(tokenizer->bos(), 258);
    EXPECT_EQ(tokenizer->eos(), 259);
    EXPECT_EQ(encoded(*tokenizer, "abcab"), (std::vector<TokenId>{258, 257, 256}));
    EXPECT_EQ(encoded(*tokenizer, "<|eot_id|>"), (std::vector<TokenId>{258, 258 + 9}));
    EXPECT_EQ(encoded(*tokenizer, "<|reserved_special_token_250|>"), (std::vector<TokenId>{258, 258 + 255}));

    write_raw(folder / "config.json", R"({"rope_scaling": {"rope_type": "llama3"}})");
    const auto newer = load_tokenizer(folder.path());
    EXPECT_EQ(encoded(*newer, "<|eom_id|><|python_tag|>"), (std::vector<TokenId>{258, 258 + 8, 258 + 10}));
    EXPECT_NE(newer->fingerprint(), tokenizer->fingerprint());
}

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, AsTheReferenceHasIt) {
    const SafetensorsFile file(golden_path("text/bundled.safetensors"));
    const auto tokenizer = load_tokenizer(golden_path(fmt::format("text/{}.model", GetParam())));
    std::vector<std::string> hard;
    for (const std::string& text : test::hard_strings())
        if (text.find('\0') == text.npos) hard.push_back(text);
    auto lines =
        test::lines_of(std::filesystem::path(DROVER_SOURCE_DIR) / "examples/data/tinyshakespeare/text.txt");
    lines.resize(8000);
    for (const auto& [field, texts] : {std::pair{"hard", hard}, std::pair{"shakespeare", lines}}) {
        const Tensor expected = file.tensor(fmt::format("{}.{}", GetParam(), field));
        ASSERT_EQ(static_cast<std::size_t>(expected.numel()), texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i)
            ASSERT_EQ(test::hash_values(encoded(*tokenizer, texts[i])),
                      static_cast<std::uint32_t>(expected.data<std::int32_t>()[i]))
                << shown(texts[i]);
    }
    EXPECT_EQ(tokenizer->bos(), 1);
    EXPECT_EQ(tokenizer->eos(), 2);
    EXPECT_EQ(tokenizer->unk(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePiece, testing::Values("unigram-600", "bpe-600"));

TEST(LoadTokenizer, SentencePieceObeysItsConfig) {
    const TemporaryFolder folder;
    std::filesystem::copy(example_tokenizer("mistral-v1") / "tokenizer.model", folder / "tokenizer.model");
    const auto with = [&](const Json& config, TransformersRules rules = TransformersRules::v5) {
        write_raw(folder / "tokenizer_config.json", config.dump());
        return load_tokenizer(folder.path(), rules);
    };
    const std::string text = " a</s>b";
    const TokenId space = 28705, a = 264, space_b = 287, b = 28726;
    const auto bare = load_tokenizer(example_tokenizer("mistral-v1"));
    EXPECT_EQ(encoded(*bare, text), (std::vector<TokenId>{1, space, a, 2, space_b}));
    EXPECT_EQ(encoded(*with({{"legacy", true}}), text), (std::vector<TokenId>{1, a, 2, space_b}));
    EXPECT_EQ(encoded(*with({{"legacy", false}}), text), (std::vector<TokenId>{1, a, 2, b}));
    EXPECT_EQ(encoded(*with({{"legacy", true}}, TransformersRules::v4), text), encoded(*bare, text));
    EXPECT_EQ(encoded(*with({{"add_bos_token", false}, {"add_eos_token", true}}), "a"),
              (std::vector<TokenId>{a, 2}));
    EXPECT_EQ(encoded(*with({{"add_eos_token", true}}), "a", SpecialTokens::omit), std::vector<TokenId>{a});
    EXPECT_EQ(with({{"model_max_length", 1000000000000000019884624838656.0}})->model_max_length(), 1e30);
    EXPECT_EQ(with({{"model_max_length", 4096}})->model_max_length(), 4096);
}

TEST(LoadTokenizer, AddEosCountsForLlamaUnderOlderRules) {
    const TemporaryFolder folder;
    std::filesystem::copy(golden_path("text/metaspace-1k/tokenizer.json"), folder / "tokenizer.json");
    write_raw(folder / "tokenizer_config.json",
              R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true})");
    EXPECT_EQ(encoded(*load_tokenizer(folder.path(), TransformersRules::v4), ""), std::vector<TokenId>{2});
    EXPECT_EQ(encoded(*load_tokenizer(folder.path(), TransformersRules::v5), ""), std::vector<TokenId>{1});
}

TEST(SaveTokenizer, LoadsBackAsTheSame) {
    for (const std::filesystem::path& source :
         {example_tokenizer("shakespeare-4k"), example_tokenizer("mistral-v1"),
          example_tokenizer("mistral-v1") / "tokenizer.model", golden_path("text/gpt2-1k"),
          golden_path("text/metaspace-1k/tokenizer.json"), golden_path("text/unigram-600.model")}) {
        const auto tokenizer = load_tokenizer(source);
        const TemporaryFolder folder;
        save_tokenizer(*tokenizer, folder.path());
        const auto again = load_tokenizer(folder.path());
        for (const std::string& text : test::hard_strings())
            EXPECT_EQ(encoded(*again, text), encoded(*tokenizer, text)) << source << ": " << shown(text);
        EXPECT_EQ(again->size(), tokenizer->size());
        EXPECT_EQ(again->bos(), tokenizer->bos());
        EXPECT_EQ(again->eos(), tokenizer->eos());
        EXPECT_EQ(again->pad(), tokenizer->pad());
        EXPECT_EQ(again->unk(), tokenizer->unk());
        EXPECT_EQ(again->model_max_length(), tokenizer->model_max_length());
    }
}

TEST(SaveTokenizer, KeepsTheFilesOfAFolder) {
    const TemporaryFolder from, to;
    std::filesystem::copy(golden_path("text/gpt2-1k/tokenizer.json"), from / "tokenizer.json");
    write_raw(from / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    write_raw(from / "special_tokens_map.json", R"({"pad_token": "<pad>"})");
    write_raw(from / "chat_template.jinja", "{{ messages }}");
    write_raw(from / "config.json", "{}");
    save_tokenizer(*load_tokenizer(from.path()), to.path());
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(to.path())) {
        names.push_back(file.path().filename());
        EXPECT_EQ(read_text_file(file.path()), read_text_file(from.path() / file.path().filename()));
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"chat_template.jinja", "special_tokens_map.json",
                                               "tokenizer.json", "tokenizer_config.json"}));
}

TEST(Fingerprint, ChangesWithWhatEncodingUses) {
    const TemporaryFolder folder;
    write_raw(folder / "tokenizer.json", small_tokenizer);
    const std::string first = load_tokenizer(folder.path())->fingerprint();
    EXPECT_EQ(load_tokenizer(folder.path())->fingerprint(), first);
    write_raw(folder / "tokenizer_config.json", R"({"pad_token": "b"})");
    const std::string second = load_tokenizer(folder.path())->fingerprint();
    EXPECT_NE(second, first);
    write_raw(folder / "chat_template.jinja", "{{ messages }}");  // does not change the ids of any text
    EXPECT_EQ(load_tokenizer(folder.path())->fingerprint(), second);
    EXPECT_NE(load_tokenizer(folder.path(), TransformersRules::v4)->fingerprint(), second);
    write_raw(folder / "tokenizer.json",
              R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
    EXPECT_NE(load_tokenizer(folder.path())->fingerprint(), second);
}

TEST(Threads, EncodeAtTheSameTime) {
    const auto tokenizer = load_tokenizer(example_tokenizer("shakespeare-4k"));
    const auto texts = test::hard_strings();
    std::vector<std::vector<TokenId>> expected;
    for (const std::string& text : texts) expected.push_back(encoded(*tokenizer, text));
    std::vector<std::thread> threads;
    std::vector<int> differences(8);
    for (std::size_t t = 0; t < differences.size(); ++t)
        threads.emplace_back([&, t] {
            for (int round = 0; round < 5; ++round)
                for (std::size_t i = 0; i < texts.size(); ++i)
                    differences[t] += encoded(*tokenizer, texts[i]) != expected[i];
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(differences, std::vector<int>(differences.size()));
}

}  // namespace
}  // namespace drover
