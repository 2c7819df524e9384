// Every tokenizer compared with Hugging Face's libraries on the same files (tools/oracle/tokenizer_ids.py).
#include <fmt/format.h>

#include "io/safetensors.h"
#include "text/golden_texts.h"

namespace drover {
namespace {

using test::encoded;
using test::example_tokenizer;
using test::golden_path;
using test::shown;
using test::TemporaryFolder;

class Reference {
  public:
    Reference(const char* file, std::string name)
        : file_(golden_path(fmt::format("text/{}.safetensors", file))), name_(std::move(name)) {}

    std::vector<std::int32_t> numbers(std::string_view field) const {
        const Tensor tensor = file_.tensor(fmt::format("{}.{}", name_, field));
        const auto* data = tensor.data<std::int32_t>();
        return {data, data + tensor.numel()};
    }
    std::vector<std::uint32_t> hashes(std::string_view field) const {
        const auto found = numbers(field);
        return {found.begin(), found.end()};
    }

  private:
    SafetensorsFile file_;
    std::string name_;
};

void expect_texts(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                  const std::vector<std::uint32_t>& hashes) {
    ASSERT_EQ(texts.size(), hashes.size());
    int failures = 0;
    for (std::size_t i = 0; i < texts.size() && failures < 10; ++i) {
        const auto ids = encoded(tokenizer, texts[i]);
        if (test::hash_values(ids) == hashes[i]) continue;
        ++failures;
        ADD_FAILURE() << "text " << i << ": " << shown(texts[i]) << " -> "
                      << fmt::format("{}", fmt::join(ids, " "));
    }
}

void expect_decoded(const Tokenizer& tokenizer, const Reference& reference) {
    const auto texts = test::hard_strings();
    for (const bool skip : {false, true}) {
        const auto hashes = reference.hashes(skip ? "decoded_skip" : "decoded");
        ASSERT_EQ(hashes.size(), texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const std::string text = tokenizer.decode(encoded(tokenizer, texts[i]), skip);
            EXPECT_EQ(test::hash_text(text), hashes[i]) << shown(texts[i]) << " -> " << shown(text);
        }
    }
    const auto ids = reference.numbers("random_ids");
    const auto hashes = reference.hashes("random_decoded");
    const std::size_t each = ids.size() / hashes.size();
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        const std::string text = tokenizer.decode(std::span(ids).subspan(i * each, each), false);
        EXPECT_EQ(test::hash_text(text), hashes[i]) << "random ids " << i << " -> " << shown(text);
    }
}

void expect_equal(const Tokenizer& tokenizer, const Reference& reference) {
    EXPECT_EQ(tokenizer.size(), reference.numbers("size")[0]);
    expect_texts(tokenizer, test::hard_strings(), reference.hashes("hard"));
    expect_texts(tokenizer, {test::long_word(1'000'000)}, reference.hashes("long_word"));
    expect_decoded(tokenizer, reference);
}

void expect_equal_ids(const Tokenizer& tokenizer, const Reference& reference) {
    const auto ids = reference.numbers("hard_ids"), lengths = reference.numbers("hard_lengths");
    const auto texts = test::hard_strings();
    ASSERT_EQ(texts.size(), lengths.size());
    EXPECT_GE(texts.size(), 400u);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto length = static_cast<std::size_t>(lengths[i]);
        const std::vector<TokenId> expected(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                            ids.begin() + static_cast<std::ptrdiff_t>(begin + length));
        EXPECT_EQ(encoded(tokenizer, texts[i]), expected) << shown(texts[i]);
        begin += length;
    }
}

std::vector<std::string> shakespeare() {
    auto lines =
        test::lines_of(std::filesystem::path(DROVER_SOURCE_DIR) / "examples/data/tinyshakespeare/text.txt");
    lines.resize(8000);
    return lines;
}

std::vector<std::string> wikitext() {
    auto lines = test::lines_of(test::shared_data() / "wikitext-2/valid.txt");
    const auto more = test::lines_of(test::shared_data() / "wikitext-2/test.txt");
    lines.insert(lines.end(), more.begin(), more.end());
    return lines;
}

class Bundled : public testing::TestWithParam<const char*> {
  protected:
    std::shared_ptr<const Tokenizer> tokenizer() const {
        const std::filesystem::path own = golden_path(fmt::format("text/{}/tokenizer.json", GetParam()));
        return load_tokenizer(std::filesystem::exists(own) ? own : example_tokenizer(GetParam()));
    }
    Reference reference_{"bundled", GetParam()};
};

TEST_P(Bundled, HardStrings) {
    const auto loaded = tokenizer();
    expect_equal_ids(*loaded, reference_);
    expect_equal(*loaded, reference_);
}

TEST_P(Bundled, EightThousandLines) {
    expect_texts(*tokenizer(), shakespeare(), reference_.hashes("shakespeare"));
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Bundled,
                         testing::Values("shakespeare-4k", "gpt2-1k", "metaspace-1k", "qwen-1k", "tekken-1k",
                                         "mistral-v1"));

/// A folder with a tokenizer.json like Llama-2's and a tokenizer_config.json.
void make_llama2_folder(const TemporaryFolder& folder, const std::filesystem::path& tokenizer, bool legacy) {
    std::filesystem::copy(tokenizer, folder / "tokenizer.json");
    write_file_atomically(folder / "tokenizer_config.json",
                          Json{{"tokenizer_class", "LlamaTokenizer"}, {"legacy", legacy}}.dump());
    write_file_atomically(folder / "config.json", R"({"model_type": "llama"})");
}

/// Llama's tokenizers, as they are and under the rules of transformers' classes. Small ones of the same kinds
/// are bundled. Meta's own may not be, so they are tested if ../shared/data (or DROVER_SHARED) has them, also
/// on wikitext-2.
class Llama : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        if (metas_own() && test::shared_data().empty())
            GTEST_SKIP() << "an extra test, which needs tokenizers/ and wikitext-2/ in ../shared/data or "
                            "DROVER_SHARED";
    }
    static bool metas_own() { return GetParam(); }
    static std::filesystem::path llama2_json() {
        return metas_own() ? test::shared_data() / "tokenizers/llama2.tokenizer.json"
                           : golden_path("text/llama-600/tokenizer.json");
    }
    static std::filesystem::path llama2_model() {
        return metas_own() ? test::shared_data() / "tokenizers/llama2.tokenizer.model"
                           : golden_path("text/bpe-600.model");
    }
    static std::filesystem::path llama3_ranks() {
        return metas_own() ? test::shared_data() / "tokenizers/llama3.tiktoken"
                           : golden_path("text/ranks-1k.tiktoken");
    }
    static Reference reference(const char* name) {
        return Reference(metas_own() ? "llama" : "small_llama", name);
    }
    static void expect_llama(const Tokenizer& tokenizer, const char* name) {
        expect_equal(tokenizer, reference(name));
        if (metas_own()) expect_texts(tokenizer, wikitext(), reference(name).hashes("wikitext"));
    }
    /// Llama-3's special tokens follow its ranks.
    static void expect_llama3_specials(const Tokenizer& tokenizer) {
        const TokenId first = metas_own() ? 128000 : 999;
        EXPECT_EQ(tokenizer.bos(), first);
        EXPECT_EQ(tokenizer.eos(), first + 1);
        EXPECT_EQ(encoded(tokenizer, "<|eot_id|>", SpecialTokens::omit), std::vector<TokenId>{first + 9});
    }
};

INSTANTIATE_TEST_SUITE_P(Tokenizers, Llama, testing::Bool(),
                         [](const auto& own) { return own.param ? "MetasOwn" : "Bundled"; });

TEST_P(Llama, Llama2JsonAsItIs) {
    expect_llama(*load_tokenizer(llama2_json()), "llama2-v4");
}

TEST_P(Llama, Llama2ClassOfTransformers4) {
    const TemporaryFolder folder;
    make_llama2_folder(folder, llama2_json(), false);
    expect_llama(*load_tokenizer(folder.path(), TransformersRules::v4), "llama2-v4");
}

TEST_P(Llama, Llama2ClassOfTransformers5) {
    const TemporaryFolder folder;
    make_llama2_folder(folder, llama2_json(), false);
    expect_llama(*load_tokenizer(folder.path()), "llama2-v5");
}

TEST_P(Llama, Llama2LegacyClassOfTransformers5) {
    const TemporaryFolder folder;
    make_llama2_folder(folder, llama2_json(), true);
    expect_llama(*load_tokenizer(folder.path()), "llama2-v5-legacy");
}

TEST_P(Llama, Llama2SentencePiece) {
    expect_llama(*load_tokenizer(llama2_model()), "llama2-v4");
}

TEST_P(Llama, Llama3Ranks) {
    const auto tokenizer = load_tokenizer(llama3_ranks());
    expect_llama(*tokenizer, "llama3");
    expect_llama3_specials(*tokenizer);
}

TEST_P(Llama, Llama3SavedAsJson) {
    const TemporaryFolder folder;
    save_tokenizer(*load_tokenizer(llama3_ranks()), folder.path());
    EXPECT_FALSE(std::filesystem::exists(folder / "tokenizer.model"));
    const auto again = load_tokenizer(folder.path());
    expect_equal(*again, reference("llama3"));
    expect_llama3_specials(*again);
}

/// In addition to Bundled.EightThousandLines: more text, of another kind.
TEST(SharedData, MistralAndQwenOnWikitext) {
    if (test::shared_data().empty())
        GTEST_SKIP() << "an extra test, which needs wikitext-2/ in ../shared/data or DROVER_SHARED";
    expect_texts(*load_tokenizer(example_tokenizer("mistral-v1")), wikitext(),
                 Reference("bundled", "mistral-v1").hashes("wikitext"));
    for (const char* small : {"qwen-1k", "tekken-1k"})
        expect_texts(*load_tokenizer(golden_path(fmt::format("text/{}/tokenizer.json", small))), wikitext(),
                     Reference("bundled", small).hashes("wikitext"));
}

}  // namespace
}  // namespace drover
