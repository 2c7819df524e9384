#include "run/sft_source.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "core/text_file.h"
#include "run/run_data.h"
#include "run/settings/run_settings.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

/// Runs of tests/golden/sft's tokenizer and data, with a cache of their own.
class SftSource : public ::testing::Test {
  protected:
    SftSource() {
        namespace fs = std::filesystem;
        fs::create_directory(folder_ / "model");
        fs::copy(test::golden_path("sft/qwen"), folder_ / "model");
        fs::copy(test::golden_path("text/qwen-1k") / "tokenizer.json", folder_ / "model");
        setenv("DROVER_CACHE", (folder_ / "cache").c_str(), 1);
        settings_.do_train = true;
        settings_.model.model_type = "llama";
        settings_.model.tokenizer_name = (folder_ / "model").string();
        settings_.data.sft.emplace();
        settings_.data.validation_split_percentage = 0;
        take("messages.jsonl");
    }
    ~SftSource() override { unsetenv("DROVER_CACHE"); }

    void take(const std::string& file) {
        settings_.data.train_file = test::golden_path("sft/data/" + file).string();
    }
    SftSettings& sft() { return *settings_.data.sft; }

    TokenSource find() {
        model_ = find_model_source(settings_.model, settings_.names);
        log_.reset(std::fopen((folder_ / "log").c_str(), "w"));
        return find_tokens_together({}, settings_, model_, Messages("info", log_.get()));
    }
    std::string log() const {
        std::fflush(log_.get());
        return read_text_file(folder_ / "log");
    }

    test::TemporaryFolder folder_;
    RunSettings settings_;
    ModelSource model_;
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> log_;  ///< streams warn while they are read
};

TEST_F(SftSource, ConversationsBecomeBatches) {
    sft().rows.assistant_only_loss = true;
    const TokenSource tokens = find();
    EXPECT_EQ(tokens.train.rows->size(), 24);
    EXPECT_EQ(tokens.row_length, tokens.train.rows->longest());
    EXPECT_EQ(tokens.pad_id, model_.tokenizer->pad());
    EXPECT_NE(log().find("train: Rows are conversations (column \"messages\").\n"), std::string::npos)
        << log();
    EXPECT_NE(log().find("tokens are learned ("), std::string::npos) << log();

    TrainerSettings loop;
    loop.per_device_train_batch_size = 3;
    const auto data = training_data(settings_, loop, model_, tokens, {});
    const auto batch = data->open({})->next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->rows, 3);
    EXPECT_GT(batch->target_count(), 0);
    EXPECT_LT(batch->target_count(), batch->attended_tokens());
    EXPECT_EQ(find().train.identity, tokens.train.identity);
    EXPECT_NE(log().find("found in"), std::string::npos) << "the second time it is in the cache: " << log();
}

TEST_F(SftSource, PackedDocumentsAreSequences) {
    sft().rows.packing = DocumentPacking::bfd;
    sft().rows.max_length = 500;
    const TokenSource tokens = find();
    EXPECT_EQ(tokens.train.rows->size(), 8);
    TrainerSettings loop;
    loop.per_device_train_batch_size = 8;
    const auto data = training_data(settings_, loop, model_, tokens, {});
    const auto batch = data->open({})->next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->sequence_begin.size(), 24u);
    const std::vector<std::int32_t> positions = batch->positions();
    for (const std::int32_t begin : batch->sequence_begin) {
        EXPECT_EQ(batch->labels[static_cast<std::size_t>(begin)], no_label);
        EXPECT_EQ(positions[static_cast<std::size_t>(begin)], 0);
    }
}

TEST_F(SftSource, EvaluationMayBePackedInAnotherWay) {
    settings_.do_eval = true;
    settings_.data.validation_file = settings_.data.train_file;
    sft().rows.packing = DocumentPacking::bfd;
    sft().rows.max_length = 500;
    EXPECT_EQ(find().validation.rows->size(), 8);
    sft().eval_packing = false;
    const TokenSource tokens = find();
    EXPECT_EQ(tokens.train.rows->size(), 8);
    EXPECT_EQ(tokens.validation.rows->size(), 24);
}

TEST_F(SftSource, SettingsThatMatterMakeOtherRows) {
    const std::string plain = find().train.identity;
    sft().rows.max_length = 40;
    const std::string shorter = find().train.identity;
    EXPECT_NE(shorter, plain);
    EXPECT_NE(log().find("have more than --max_length 40 tokens and are cut"), std::string::npos) << log();
    sft().rows.kept_end = KeptEnd::end;
    EXPECT_NE(find().train.identity, shorter);
    sft() = {};
    sft().pad_token = "<|im_start|>";
    const TokenSource padded = find();
    EXPECT_EQ(padded.train.identity, plain);
    EXPECT_EQ(padded.pad_id, model_.tokenizer->find("<|im_start|>"));
}

TEST_F(SftSource, RowsOfTokensAreUsedAsTheyAre) {
    const TokenSource made = find();
    settings_.data.train_file = (folder_ / "cache" / made.train.identity).string();
    const TokenSource again = find();
    ASSERT_EQ(again.train.rows->size(), made.train.rows->size());
    std::vector<TokenId> ids, labels, expected_ids, expected_labels;
    again.train.rows->read(3, ids, labels);
    made.train.rows->read(3, expected_ids, expected_labels);
    EXPECT_EQ(ids, expected_ids);
    EXPECT_EQ(labels, expected_labels);
    sft().rows.packing = DocumentPacking::bfd;
    test::expect_error([&] { find(); }, {"rows of token ids, which are not packed here"});
}

/// Batch by batch what the rows of the cache give in their order, pass after pass.
TEST_F(SftSource, StreamedExamplesAreThoseOfTheCache) {
    sft().rows.assistant_only_loss = true;
    sft().rows.max_length = 500;
    settings_.data.order = SampleOrder::sequential;
    TrainerSettings loop;
    loop.per_device_train_batch_size = 4;
    for (const DocumentPacking packing : {DocumentPacking::none, DocumentPacking::bfd}) {
        sft().rows.packing = packing;
        settings_.data.streaming = false;
        const TokenSource cached = find();
        const auto expected = training_data(settings_, loop, model_, cached, {});
        settings_.data.streaming = true;
        const TokenSource streamed = find();
        EXPECT_EQ(streamed.row_length, 500);
        EXPECT_EQ(streamed.pad_id, cached.pad_id);
        EXPECT_NE(log().find("Rows are conversations (column \"messages\")."), std::string::npos) << log();
        const auto data = training_data(settings_, loop, model_, streamed, {});
        const std::int64_t pass = cached.train.rows->size() / 4;
        const auto batches = data->open({}), from_second = data->open({0, 2});
        for (std::int64_t i = 0; i < pass + 1; ++i) {
            const auto got = batches->next();
            const auto wanted = expected->open({0, i % pass})->next();
            ASSERT_TRUE(got && wanted);
            EXPECT_EQ(got->ids, wanted->ids) << i;
            EXPECT_EQ(got->labels, wanted->labels) << i;
            EXPECT_EQ(got->sequence_begin, wanted->sequence_begin) << i;
            EXPECT_EQ(got->sequence_length, wanted->sequence_length) << i;
            if (i == 2 % pass) {
                EXPECT_EQ(from_second->next()->ids, got->ids) << "where a resumed run begins";
            }
        }
    }
}

TEST_F(SftSource, StreamsWarnOfTheFirstExampleOfEachKind) {
    sft().rows.assistant_only_loss = true;
    sft().rows.max_length = 20;
    const TokenSource cached = find();
    const std::string counted_once = log();
    ASSERT_NE(counted_once.find("have more than --max_length 20 tokens and are cut."), std::string::npos)
        << counted_once;
    ASSERT_NE(counted_once.find("left out"), std::string::npos) << counted_once;
    settings_.data.streaming = true;
    const TokenSource streamed = find();
    const auto data = training_data(settings_, {}, model_, streamed, {});
    EXPECT_EQ(log().find("max_length"), std::string::npos) << "before anything is read";
    for (int opened = 0; opened < 2; ++opened) {
        const auto batches = data->open({});
        for (std::int64_t i = 0; i < 3 * cached.train.rows->size(); ++i) ASSERT_TRUE(batches->next());
    }
    const std::string text = log();
    for (const char* words :
         {" has more than --max_length 20 tokens and is cut. Further ones are not reported.",
          " is left out, because nothing in its first 20 tokens is to be learned. "}) {
        const std::size_t found = text.find(words);
        ASSERT_NE(found, std::string::npos) << words << "\n" << text;
        EXPECT_EQ(text.find(words, found + 1), std::string::npos) << "said twice\n" << text;
    }
}

TEST_F(SftSource, WhatDoesNotFitIsRefused) {
    const auto refused = [&](const char* words) {
        test::expect_error([&] { find(); }, {words});
        sft() = {};
        settings_.data.streaming = false;
    };
    settings_.data.streaming = true;
    sft().rows.max_length = std::nullopt;
    refused("--streaming does not know how long the longest example is.");
    settings_.data.streaming = true;
    sft().rows.shuffle_seed = 1;
    refused("--streaming reads the examples in order, and cannot shuffle them.");
    sft().rows.packing = DocumentPacking::wrapped;
    sft().rows.max_length = std::nullopt;
    refused("Rows are packed, but --max_length is unset.");
    sft().rows.max_length = 1;
    refused("--max_length is 1");
    sft().pad_token = "<pad>";
    refused("--pad_token is \"<pad>\"");
    sft().chat_template_path = "nowhere";
    refused("--chat_template_path is \"nowhere\"");
    sft().rows.completion_only_loss = true;
    refused("--completion_only_loss is set, but the rows have no completions.");
    take("quote.jsonl");
    refused("The columns of train are of no format that is known: quote, number.");
}

}  // namespace
}  // namespace drover
