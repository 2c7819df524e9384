#include <gtest/gtest.h>

#include "core/batch.h"
#include "core/json.h"
#include "core/json_text.h"
#include "data/conversation/document_packer.h"
#include "data/conversation/example_stream.h"
#include "data/conversation/sft_rows.h"
#include "data/datasets/file_rows.h"
#include "data/packing/packing.h"
#include "data/sampling/collator.h"
#include "support/golden.h"

namespace drover {
namespace {

/// A folder of tests/golden/sft with the tokenizer.json that belongs to it.
class ModelFolder {
  public:
    explicit ModelFolder(const std::string& name) {
        namespace fs = std::filesystem;
        const std::string source = name == "qwen" ? "qwen-1k" : name == "gpt2" ? "gpt2-1k" : "llama-600";
        fs::copy(test::golden_path("sft/" + name), folder_.path());
        fs::copy(test::golden_path("text/" + source) / "tokenizer.json", folder_.path());
    }
    const std::filesystem::path& path() const { return folder_.path(); }

  private:
    test::TemporaryFolder folder_;
};

SftOptions options_of(const Json& given) {
    SftOptions options;
    for (const auto& [key, value] : given.items()) {
        if (key == "max_length")
            options.max_length = value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
        else if (key == "truncation_mode")
            options.kept_end = value == "keep_end" ? KeptEnd::end : KeptEnd::start;
        else if (key == "assistant_only_loss")
            options.assistant_only_loss = value;
        else if (key == "completion_only_loss")
            options.completion_only_loss = value.get<bool>();
        else if (key == "eos_token")
            options.eos_token = value;
        else if (key == "dataset_text_field")
            options.text_field = value;
        else if (key == "allow_special_tokens")
            options.allow_special_tokens = value;
        else if (key == "shuffle_dataset")
            options.shuffle_seed = given.value("seed", 42);
        else if (key == "packing")
            options.packing =
                document_packing_from_name(given.value("packing_strategy", "bfd"), "packing_strategy");
        else
            EXPECT_TRUE(key == "packing_strategy" || key == "first_rows" || key == "padding_free" ||
                        key == "pad_to_multiple_of" || key == "seed")
                << key;
    }
    return options;
}

Json all_cases() {
    return read_json_file(test::golden_path("sft/cases.json"));
}

class SftGolden : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const Json cases = all_cases();
        const auto named = [&](const std::string& name) {
            return *std::find_if(cases.begin(), cases.end(),
                                 [&](const Json& one) { return one["name"] == name; });
        };
        case_ = named(GetParam());
        rows_ = case_.contains("rows_of") ? named(case_["rows_of"])["rows"] : case_["rows"];
    }

    /// Writes the token file of the case. `streamed` gets the rows of a stream of the same examples.
    TokenFile make(std::size_t threads = 2, std::vector<TokenRow>* streamed = nullptr) {
        const ModelFolder model(case_["tokenizer"]);
        const auto tokenizer = load_tokenizer(model.path());
        const SftOptions options = options_of(case_["options"]);
        const FileRows dataset({test::golden_path("sft/data/" + case_["file"].get<std::string>())},
                               {.row_columns = example_columns(options.text_field)});
        const ExampleFormat format =
            find_example_format(dataset.column_names(), options.text_field, "the file");
        const auto shared = std::make_shared<const ExampleTokenizer>(
            tokenizer, find_example_template({}, model.path(), *tokenizer), format, options);
        const ExampleTokenizer& examples = *shared;
        if (streamed != nullptr) {
            ExampleStream stream(dataset, format, shared, options, threads);
            for (TokenRow row; stream.next(row);) streamed->push_back(row);
            TokenRow none;
            EXPECT_FALSE(stream.next(none)) << "after its end";
        }
        const auto path = folder_ / "rows.tokens";
        report_ = write_sft_file(path, dataset, format, examples, *tokenizer, options, threads);
        pad_id_ = tokenizer->pad() ? *tokenizer->pad() : *tokenizer->eos();
        return TokenFile(path);
    }

    test::TemporaryFolder folder_;
    Json case_, rows_;
    SftReport report_;
    TokenId pad_id_ = 0;
};

TEST_P(SftGolden, RowsAndLabelsEqualTrls) {
    const TokenFile file = make();
    const TokenRows& rows = file.rows();
    ASSERT_EQ(rows.size(), std::ssize(rows_));
    rows.verify();
    std::vector<TokenId> ids, labels;
    std::vector<std::int32_t> documents;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
        SCOPED_TRACE(row);
        const Json& expected = rows_[static_cast<std::size_t>(row)];
        rows.read(row, ids, labels);
        rows.documents(row, documents);
        EXPECT_EQ(ids, expected["ids"].get<std::vector<TokenId>>());
        std::vector<TokenId> wanted;
        bool learned = false;
        for (const auto& run : expected["runs"]) {
            for (std::int64_t i = 0; i < run.get<std::int64_t>(); ++i)
                wanted.push_back(learned ? expected["ids"][wanted.size()].get<TokenId>() : no_label);
            learned = !learned;
        }
        EXPECT_EQ(labels, wanted);
        const std::vector<std::int32_t> whole{static_cast<std::int32_t>(ids.size())};
        EXPECT_EQ(documents, expected.value("documents", whole));
    }
}

/// Cases that are not shuffled.
class SftGoldenStream : public SftGolden {};

/// Rows that are made while they are used are those of the file, whatever the threads.
TEST_P(SftGoldenStream, GivesTheRowsOfTheFile) {
    for (const std::size_t threads : {1, 3}) {
        std::vector<TokenRow> streamed;
        const TokenFile file = make(threads, &streamed);
        ASSERT_EQ(std::ssize(streamed), file.rows().size());
        for (std::int64_t row = 0; row < file.rows().size(); ++row) {
            TokenRow expected;
            file.rows().read(row, expected.ids, expected.labels);
            file.rows().documents(row, expected.documents);
            const TokenRow& got = streamed[static_cast<std::size_t>(row)];
            EXPECT_EQ(got.ids, expected.ids);
            EXPECT_EQ(got.labels, expected.labels);
            EXPECT_EQ(got.documents, expected.documents);
        }
    }
}

/// Cases with a batch.
class SftGoldenBatch : public SftGolden {};

TEST_P(SftGoldenBatch, EqualsTrls) {
    const TokenFile file = make(1);
    const bool padding_free = case_["batch"].contains("position_ids");
    const CausalCollator collator({.pad_id = pad_id_,
                                   .ignore_every_pad_id = false,
                                   .pad_to_multiple_of = case_["options"].value("pad_to_multiple_of", 1),
                                   .drops_first_labels = padding_free});
    constexpr std::int64_t count = 3;
    std::vector<std::vector<TokenId>> ids(count), labels(count);
    std::vector<std::vector<std::int32_t>> documents(count);
    for (std::size_t i = 0; i < count; ++i) {
        file.rows().read(static_cast<std::int64_t>(i), ids[i], labels[i]);
        file.rows().documents(static_cast<std::int64_t>(i), documents[i]);
    }
    const Batch batch = collator.collate(ids, labels, documents);
    const Json& expected = case_["batch"];
    const std::vector<std::int32_t> positions = batch.positions();
    std::vector<std::vector<std::int32_t>> got_ids(count), got_labels(count), got_positions(count);
    std::vector<std::vector<std::int32_t>> masks(count);
    for (std::int64_t row = 0; row < count; ++row) {
        const auto r = static_cast<std::size_t>(row);
        for (std::int64_t i = 0; i < batch.row_length; ++i) {
            const auto at = static_cast<std::size_t>(row * batch.row_length + i);
            const bool inside = i < std::ssize(ids[r]);
            if (padding_free && !inside) continue;
            got_ids[r].push_back(batch.ids[at]);
            got_labels[r].push_back(batch.labels[at]);
            got_positions[r].push_back(positions[at]);
            masks[r].push_back(inside);
        }
    }
    using Table = std::vector<std::vector<std::int32_t>>;
    if (padding_free) {  // TRL puts all rows into one
        const auto joined = [](const Table& rows) {
            Table all(1);
            for (const auto& row : rows) all[0].insert(all[0].end(), row.begin(), row.end());
            return all;
        };
        EXPECT_EQ(joined(got_ids), expected["input_ids"].get<Table>());
        EXPECT_EQ(joined(got_labels), expected["labels"].get<Table>());
        EXPECT_EQ(joined(got_positions), expected["position_ids"].get<Table>());
    } else {
        EXPECT_EQ(got_ids, expected["input_ids"].get<Table>());
        EXPECT_EQ(got_labels, expected["labels"].get<Table>());
        EXPECT_EQ(masks, expected["attention_mask"].get<Table>());
    }
}

/// Of the cases that have `key`.
std::vector<std::string> case_names(const char* key) {
    std::vector<std::string> names;
    for (const Json& one : all_cases())
        if (one.contains(key)) names.push_back(one["name"]);
    return names;
}

std::vector<std::string> unshuffled_cases() {
    std::vector<std::string> names;
    for (const Json& one : all_cases())
        if (!one["options"].contains("shuffle_dataset")) names.push_back(one["name"]);
    return names;
}

std::string name_of_case(const ::testing::TestParamInfo<std::string>& test) {
    return test.param;
}

INSTANTIATE_TEST_SUITE_P(Trl, SftGolden, ::testing::ValuesIn(case_names("name")), name_of_case);
INSTANTIATE_TEST_SUITE_P(Trl, SftGoldenStream, ::testing::ValuesIn(unshuffled_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Trl, SftGoldenBatch, ::testing::ValuesIn(case_names("batch")), name_of_case);

TEST(DocumentPacker, RowsEqualPackDatasets) {
    const Json golden = read_json_file(test::golden_path("sft/packings.json"));
    const auto lengths = golden["lengths"].get<std::vector<std::size_t>>();
    for (const Json& one : golden["packed"]) {
        SCOPED_TRACE(one["strategy"].get<std::string>() + " of " + one["workers"].dump());
        const DocumentPacking packing =
            document_packing_from_name(one["strategy"].get<std::string>(), "strategy");
        const Groups groups(std::ssize(lengths), one["workers"]);
        std::vector<std::vector<std::int64_t>> shapes;
        std::vector<TokenizedExample> group;
        for (std::int64_t i = 0; i < std::ssize(lengths); ++i) {
            const std::vector<TokenId> ids(lengths[static_cast<std::size_t>(i)], static_cast<TokenId>(i));
            const bool ends = groups.left_in_group(i) == 1 || i + 1 == std::ssize(lengths);
            group.push_back({ids, ids});
            if (!ends) continue;
            for (const TokenRow& row : pack_documents(packing, one["max_length"], group)) {
                std::vector<std::int64_t>& shape = shapes.emplace_back();
                std::size_t begin = 0;
                for (const std::int32_t length : row.documents) {
                    for (std::int32_t k = 0; k < length; ++k, ++begin) {
                        const bool joins = k > 0 && shape[shape.size() - 2] == row.ids[begin];
                        if (!joins) shape.insert(shape.end(), {row.ids[begin], 0});
                        ++shape.back();
                    }
                }
                EXPECT_EQ(row.ids, row.labels);
            }
            group.clear();
        }
        EXPECT_EQ(shapes, one["rows"].get<decltype(shapes)>());
    }
}

}  // namespace
}  // namespace drover
