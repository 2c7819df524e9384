#include "public/api_fixture.h"

// What the Python module uses of the interface beside what C++ programs do.
namespace {

using namespace api;

class TextRows : public PublicApi {};

TEST_F(TextRows, AreReadInTheOrderOfTheFilesWithTheirIndices) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(quotes);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    const auto split = drover::Dataset::load(quotes)["train"];
    const std::vector<std::string> columns = split.column_names();
    EXPECT_EQ(columns.size(), lines[0].size());
    for (const std::string& name : columns) EXPECT_TRUE(lines[0].contains(name)) << name;

    std::vector<std::pair<std::int64_t, std::string>> read;
    split.select({5, 2}).for_each_row(
        [&](std::int64_t index, const drover::Row& row) { read.emplace_back(index, row["quote"]); });
    const std::vector<std::pair<std::int64_t, std::string>> expected{{1, lines[2].at("quote")},
                                                                     {0, lines[5].at("quote")}};
    EXPECT_EQ(read, expected);

    const auto ids = drover::Split::from_rows({{.input_ids = {1, 2}}});
    EXPECT_TRUE(ids.column_names().empty());
    expect_part(message_of([&] { ids.for_each_row([](std::int64_t, const drover::Row&) {}); }),
                "token ids already");
}

TEST_F(TextRows, ErrorsHaveTwoSentences) {
    const auto text_of = [](const std::function<void()>& action) -> std::optional<drover::ErrorText> {
        try {
            action();
        } catch (const std::exception& error) {
            return drover::error_text(error);
        }
        return std::nullopt;
    };
    const auto absent = text_of([] { drover::CausalLM::from_pretrained("no/such-model"); });
    ASSERT_TRUE(absent);
    expect_part(absent->cause, "no/such-model");
    EXPECT_FALSE(absent->remedy.empty());
    EXPECT_FALSE(absent->is_usage);
    const auto unknown = text_of([&] {
        const auto tokens = tokenizer();
        drover::Trainer{{.model = drover::CausalLM::from_pretrained(model_id()),
                         .train_dataset = drover::Split::from_rows({{.input_ids = {1, 2}}}),
                         .args = {.output_dir = output(), .more = {{"no_such_argument", "1"}}},
                         .data_collator = drover::DataCollatorForLanguageModeling(tokens)}};
    });
    ASSERT_TRUE(unknown);
    EXPECT_TRUE(unknown->is_usage);
    EXPECT_FALSE(text_of([] { throw std::runtime_error("of the program itself"); }));
}

}  // namespace
