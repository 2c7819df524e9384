#include "data/datasets/hub_dataset.h"

#include <gtest/gtest.h>

#include "core/text_file.h"
#include "data/datasets/resolve_dataset.h"
#include "hub/hub_server.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class HubDataset : public testing::Test {
  protected:
    void SetUp() override {
        if (!server_.runs()) GTEST_SKIP() << "python3, which plays the Hub, is not there";
    }

    std::vector<std::string> paths(const ResolvedDataset& dataset) const {
        std::vector<std::string> found;
        for (const DatasetSplit& split : dataset.splits)
            for (const fs::path& file : split.files)
                found.push_back(split.name + ":" +
                                fs::path(file).lexically_relative(dataset.origin).string());
        return found;
    }

    test::TemporaryFolder folder_;
    test::HubServer server_{folder_ / "server"};
    test::Variables variables_{test::hub_variables(server_, folder_ / "home")};
};

TEST_F(HubDataset, HasTheFilesOfOneConfig) {
    server_.add(
        "datasets/org/quotes/main/README.md",
        "---\nconfigs:\n- config_name: english\n  data_files:\n  - split: train\n    path: en/train-*\n"
        "  - split: validation\n    path: en/valid.jsonl\n- config_name: german\n"
        "  data_files:\n  - split: train\n    path: de.jsonl\n---\n");
    for (const char* name : {"en/train-00000-of-00002.jsonl", "en/train-00001-of-00002.jsonl",
                             "en/valid.jsonl", "de.jsonl", "picture.png"})
        server_.add(fmt::format("datasets/org/quotes/main/{}", name), "{\"text\": \"a\"}\n");
    const ResolvedDataset english =
        resolve_dataset({.dataset_name = "org/quotes", .dataset_config_name = "english"});
    EXPECT_EQ(paths(english),
              (std::vector<std::string>{"train:en/train-00000-of-00002.jsonl",
                                        "train:en/train-00001-of-00002.jsonl", "validation:en/valid.jsonl"}));
    EXPECT_TRUE(server_.requests("de.jsonl").empty());
    EXPECT_TRUE(server_.requests("picture").empty());
    // Another config of the same snapshot is fetched when it is asked for.
    const ResolvedDataset german =
        resolve_dataset({.dataset_name = "org/quotes", .dataset_config_name = "german"});
    EXPECT_EQ(paths(german), std::vector<std::string>{"train:de.jsonl"});
    const std::size_t before = server_.requests().size();
    resolve_dataset({.dataset_name = "org/quotes", .dataset_config_name = "english"});
    EXPECT_EQ(server_.requests().size(), before) << "the cache is asked first";
    expect_error([] { resolve_dataset({.dataset_name = "org/quotes", .dataset_config_name = "french"}); },
                 {"org/quotes", "french", "english, german"});
}

TEST_F(HubDataset, FindsSplitsByNames) {
    server_.add("datasets/Salesforce/wikitext/main/wikitext-2-raw-v1/train-00000-of-00001.txt", "a\n");
    server_.add("datasets/Salesforce/wikitext/main/wikitext-2-raw-v1/test-00000-of-00001.txt", "b\n");
    server_.add("datasets/Salesforce/wikitext/main/wikitext-103-raw-v1/train-00000-of-00001.txt", "c\n");
    const ResolvedDataset dataset =
        resolve_dataset({.dataset_name = "wikitext", .dataset_config_name = "wikitext-2-raw-v1"});
    EXPECT_EQ(paths(dataset), (std::vector<std::string>{"train:wikitext-2-raw-v1/train-00000-of-00001.txt",
                                                        "test:wikitext-2-raw-v1/test-00000-of-00001.txt"}));
    EXPECT_TRUE(server_.requests("wikitext-103").empty());
}

TEST_F(HubDataset, SaysWhereItLooked) {
    expect_error(
        [] { resolve_dataset({.dataset_name = "org/none"}); },
        {"org/none", "looked at: the folder org/none", server_.address(), "has no dataset org/none"});
    const test::Variables offline("HF_DATASETS_OFFLINE", "1");
    const std::size_t before = server_.requests().size();
    expect_error([] { resolve_dataset({.dataset_name = "org/none"}); }, {"HF_DATASETS_OFFLINE"});
    EXPECT_EQ(server_.requests().size(), before);
}

TEST_F(HubDataset, WikicorpusComesFromItsAuthors) {
    server_.add("raw.en.tgz", "an archive");
    const DatasetRequest request{.dataset_name = "wikicorpus",
                                 .dataset_config_name = "raw_en",
                                 .wikicorpus_address = server_.address() + "/web/wikicorpus/"};
    expect_error([&] { resolve_dataset(request); }, {"raw.en.tgz", "404", "give its path"});
    server_.add("wikicorpus/raw.en.tgz", "an archive");
    const ResolvedDataset dataset = resolve_dataset(request);
    ASSERT_EQ(dataset.splits.size(), 1u);
    EXPECT_EQ(read_text_file(dataset.splits[0].files.at(0)), "an archive");
    EXPECT_EQ(dataset.splits[0].options.format, RowFormat::wikicorpus);
    const std::size_t before = server_.requests().size();
    EXPECT_EQ(resolve_dataset(request).splits[0].files, dataset.splits[0].files);
    EXPECT_EQ(server_.requests().size(), before) << "it is found among the downloads";
}

}  // namespace
}  // namespace drover
