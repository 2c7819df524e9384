#include <atomic>
#include <numeric>
#include <thread>

#include "public/api_fixture.h"

namespace api {
namespace {

/// Rows that can be told apart.
drover::Split numbered(std::int64_t count) {
    std::vector<drover::TokenRow> rows;
    for (std::int32_t i = 0; i < count; ++i) rows.push_back({.input_ids = {i, i + 1}});
    return drover::Split::from_rows(rows);
}

std::vector<std::int64_t> numbers_of(const drover::Split& split) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < split.size(); ++i) numbers.push_back(split[i].input_ids[0]);
    return numbers;
}

/// Rows made when they are asked for.
class RowsOnDemand final : public drover::TokenDataset {
  public:
    RowsOnDemand(drover::Split rows, std::int64_t max_length)
        : rows_(std::move(rows)), max_length_(max_length) {}

    std::int64_t size() const override { return rows_.size(); }
    drover::TokenRow row(std::int64_t index) const override {
        ++reads;
        if (index == fails_at) throw std::invalid_argument("no such luck");
        if (std::this_thread::get_id() != maker_) read_on_another_thread = true;
        return rows_[index];
    }
    std::int64_t max_length() const override { return max_length_; }

    mutable std::atomic<int> reads = 0;
    mutable std::atomic<bool> read_on_another_thread = false;
    std::atomic<std::int64_t> fails_at = -1;

  private:
    drover::Split rows_;
    std::int64_t max_length_;
    std::thread::id maker_ = std::this_thread::get_id();
};

TEST(PublicSplit, ShufflesAndSplitsAsHuggingFace) {
    const auto golden = nlohmann::json::parse(std::ifstream(source / "tests/golden/dataset_splits.json"));
    using Numbers = std::vector<std::int64_t>;
    for (const auto& one : golden.at("cases")) {
        const drover::Split rows = numbered(one.at("count"));
        const std::uint64_t seed = one.at("seed");
        EXPECT_EQ(numbers_of(rows.shuffle(seed)), one.at("shuffled").get<Numbers>()) << one.dump();
        if (!one.contains("split")) continue;
        const double test_size = one.at("test_size");
        const drover::Dataset split = rows.train_test_split(test_size, seed),
                              in_order = rows.train_test_split(test_size, seed, false);
        for (const char* name : {"train", "test"}) {
            EXPECT_EQ(numbers_of(split[name]), one.at("split").at(name).get<Numbers>()) << one.dump();
            EXPECT_EQ(numbers_of(in_order[name]), one.at("in_order").at(name).get<Numbers>()) << one.dump();
        }
    }
    const auto& many = golden.at("many");
    const Numbers order =
        numbers_of(numbered(many.at("count")).shuffle(many.at("seed").get<std::uint64_t>()));
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < order.size(); ++i) sum += order[i] * static_cast<std::int64_t>(i) % 1'000'003;
    EXPECT_EQ(sum, many.at("weighted_sum"));
}

TEST(PublicSplit, SelectsRows) {
    const drover::Split rows = numbered(6);
    EXPECT_EQ(numbers_of(rows.select({4, 0, 4})), (std::vector<std::int64_t>{4, 0, 4}));
    EXPECT_EQ(numbers_of(rows.select(2, 5)), (std::vector<std::int64_t>{2, 3, 4}));
    EXPECT_EQ(rows.select({5, 3}).select({1}).input_ids(), (std::vector<std::vector<std::int32_t>>{{3, 4}}));
    EXPECT_EQ(rows.select(3, 3).size(), 0);
    const drover::Split own(std::make_shared<RowsOnDemand>(rows, 0));
    EXPECT_EQ(numbers_of(own.select({5, 3, 1}).select(1, 3)), (std::vector<std::int64_t>{3, 1}));
    expect_part(message_of([&] { rows.select({6}); }), "row 6");
    expect_part(message_of([&] { rows.select(-1, 2); }), "row -1");
    expect_part(message_of([&] { rows[6]; }), "no row 6");
    expect_part(message_of([&] { own.input_ids(); }), "own dataset");
    expect_part(message_of([&] { rows.train_test_split(6); }), "6 of 6");
    expect_part(message_of([&] { rows.train_test_split(1.5); }), "test_size is 1.5");
    expect_part(message_of([&] { drover::Split(std::shared_ptr<const drover::TokenDataset>()); }), "null");
}

class PublicDataset : public PublicApi {
  protected:
    drover::TrainerParts run_on(const drover::Split& rows, std::map<std::string, std::string> more = {}) {
        drover::TrainerParts parts = quotes_run(model(), std::move(more));
        parts.train_dataset = rows;
        parts.eval_dataset = rows;
        parts.args.logging_steps = 1;
        return parts;
    }
    double loss_on(const drover::TokenRow& row) {
        return drover::Trainer{run_on(drover::Split::from_rows({row}))}.evaluate().at("eval_loss");
    }
};

TEST_F(PublicDataset, TextMayBeSelectedBeforeItIsMapped) {
    const auto tokens = tokenizer();
    const auto tokenize = [&](const drover::Row& row) { return tokens(row["quote"]); };
    const drover::Dataset text = drover::Dataset::load(quotes);
    const auto expected = text.map(tokenize)["train"].train_test_split(0.1, 3);
    const auto found = text["train"].train_test_split(0.1, 3).map(tokenize);
    EXPECT_EQ(found.split_names(), (std::vector<std::string>{"test", "train"}));
    for (const char* name : {"train", "test"}) EXPECT_EQ(found[name].input_ids(), expected[name].input_ids());
    EXPECT_EQ(found["test"].size(), 20);
    expect_part(message_of([&] { numbered(4).train_test_split().map(tokenize); }), "token ids already");
}

TEST_F(PublicDataset, OnlyLabelsAreTargets) {
    const std::vector<std::int32_t> ids = tokenizer()("To be, or not to be: that is the question.");
    double sum = 0;
    for (std::size_t target = 1; target < ids.size(); ++target) {
        drover::TokenRow masked{.input_ids = ids, .labels = std::vector<std::int32_t>(ids.size(), -100)};
        masked.labels[target] = ids[target];
        sum += loss_on(masked);
    }
    const double whole = loss_on({.input_ids = ids});
    EXPECT_NEAR(sum / static_cast<double>(ids.size() - 1), whole, 1e-5);
    // A label need not be the id, and a label that is the pad token's is a target.
    const std::int32_t pad = tokenizer().pad_token_id();
    const auto with_last = [&](std::int32_t id, std::int32_t label) {
        drover::TokenRow row{.input_ids = ids, .labels = std::vector<std::int32_t>(ids.size(), -100)};
        row.input_ids.back() = id;
        row.labels.back() = label;
        return loss_on(row);
    };
    EXPECT_EQ(with_last(ids[1], pad), with_last(ids[2], pad));
    EXPECT_NE(with_last(ids[1], pad), with_last(ids[1], ids[1]));
}

TEST_F(PublicDataset, TrainingSeesTheLabels) {
    const auto tokens = tokenizer();
    const drover::Split masked = drover::Dataset::load(quotes)
                                     .map([&](const drover::Row& row) {
                                         drover::TokenRow made{.input_ids = tokens(row["quote"])};
                                         made.labels = made.input_ids;
                                         for (std::size_t i = 0; i < made.labels.size() / 2; ++i)
                                             made.labels[i] = -100;
                                         return made;
                                     })["train"]
                                     .select(0, 8);
    drover::Trainer trainer{run_on(masked, {{"max_steps", "1"}})};
    const double loss = trainer.evaluate().at("eval_loss");
    EXPECT_NEAR(trainer.train().losses.at(0), loss, 1e-5);
    drover::TrainerParts whole = run_on(drover::Split::from_rows([&] {
        std::vector<drover::TokenRow> rows;
        for (const auto& ids : masked.input_ids()) rows.push_back({.input_ids = ids});
        return rows;
    }()));
    EXPECT_GT(std::abs(drover::Trainer{whole}.evaluate().at("eval_loss") - loss), 1e-3);
}

TEST_F(PublicDataset, RowsOfTheProgramTrainAsRowsInMemory) {
    const drover::Split rows = data(tokenizer())["train"].select(0, 30);
    std::int64_t longest = 0;
    for (const auto& ids : rows.input_ids()) longest = std::max<std::int64_t>(longest, std::ssize(ids));
    const std::vector<double> expected = drover::Trainer{run_on(rows)}.train().losses;
    ASSERT_EQ(expected.size(), 3u);
    for (const std::int64_t max_length : {std::int64_t{0}, longest, longest + 5}) {
        const auto own = std::make_shared<RowsOnDemand>(rows, max_length);
        drover::Trainer trainer{run_on(drover::Split(own))};
        // Without a length, every row was read for the plan, in both splits; with one, the first and last.
        EXPECT_EQ(own->reads, max_length == 0 ? 60 : 4);
        EXPECT_EQ(trainer.train().losses, expected) << max_length;
        EXPECT_TRUE(own->read_on_another_thread);
    }
}

TEST_F(PublicDataset, ExceptionsOfRowsReachTheProgram) {
    const auto own = std::make_shared<RowsOnDemand>(data(tokenizer())["train"].select(0, 16), 64);
    drover::Trainer trainer{run_on(drover::Split(own))};
    own->fails_at = 7;
    EXPECT_THROW(trainer.train(), std::invalid_argument);
    EXPECT_THROW(trainer.evaluate(), std::invalid_argument);
    own->fails_at = -1;
    EXPECT_EQ(trainer.train().global_step, 3);
}

TEST_F(PublicDataset, SaysWhatIsWrongWithARow) {
    const auto refusal = [&](const drover::Split& rows) {
        return message_of([&] { drover::Trainer{run_on(rows)}; });
    };
    const drover::TokenRow good{.input_ids = {5, 6, 7}};
    const auto one = [&](const drover::TokenRow& row) { return drover::Split::from_rows({good, row}); };
    expect_part(refusal(one({.input_ids = {5, 4096}})), "Row 1 of the train_dataset holds token id 4096");
    expect_part(refusal(one({.input_ids = {5, -1}})), "token id -1");
    expect_part(refusal(one({.input_ids = {5, 6}, .labels = {5}})), "has 2 ids and 1 labels");
    expect_part(refusal(one({.input_ids = {5, 6}, .labels = {5, -1}})), "has the label -1");
    expect_part(refusal(drover::Split::from_rows({{.input_ids = {5}}})), "nothing to predict");
    expect_part(refusal(drover::Dataset::load(quotes)["train"]), "no token ids yet");
    EXPECT_EQ(refusal(one({})), "nothing was thrown");  // left out
    const auto own = [&](const drover::Split& rows, std::int64_t max_length) {
        return drover::Split(std::make_shared<RowsOnDemand>(rows, max_length));
    };
    expect_part(refusal(own(one({}), 0)), "Row 1 of the train_dataset has no ids");
    expect_part(refusal(own(one({}), -1)), "max_length() is -1");
    expect_part(refusal(own(one({.input_ids = {1, 2, 3, 4}}), 3)), "has 4 ids, but max_length() is 3");
}

}  // namespace
}  // namespace api
