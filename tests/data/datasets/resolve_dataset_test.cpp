#include "data/datasets/resolve_dataset.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/program_module.h"
#include "core/text_file.h"
#include "data/datasets/glob.h"
#include "data/read_all.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::cause_of;
using test::read_all;
using TextRows = std::vector<std::string>;

/// Sets an environment variable for the object's lifetime.
class Variable {
  public:
    Variable(const char* name, const std::string& value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        setenv(name, value.c_str(), 1);
    }
    ~Variable() {
        if (before_)
            setenv(name_, before_->c_str(), 1);
        else
            unsetenv(name_);
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

class ResolveDataset : public ::testing::Test {
  protected:
    void write(const std::string& path, std::string_view bytes) { test::write_bytes(folder_ / path, bytes); }
    std::string at(std::string_view path) const { return (folder_ / path).string(); }
    static TextRows rows(const ResolvedDataset& dataset, std::string_view split) {
        const DatasetSplit* found = dataset.find(split);
        return found == nullptr ? TextRows{"no such split"}
                                : read_all(FileRows(found->files, found->options));
    }
    static void says(const std::string& error, std::string_view part) {
        EXPECT_NE(error.find(part), std::string::npos) << error;
    }

    test::TemporaryFolder folder_;
    Variable home_{"HF_HOME", (folder_ / "hf").string()};
    Variable hub_{"HF_HUB_CACHE", ""};
    Variable old_hub_{"HUGGINGFACE_HUB_CACHE", ""};
    Variable datasets_{"HF_DATASETS_CACHE", ""};
};

TEST_F(ResolveDataset, FilesAndPatterns) {
    write("b.txt", "b\n");
    write("a.txt", "a\n");
    write("v.txt", "v\n");
    const auto dataset = resolve_dataset({.train_files = {at("b.txt"), at("[ab].txt")},
                                          .validation_files = {at("v*")},
                                          .keep_linebreaks = false});
    EXPECT_EQ(rows(dataset, "train"), (TextRows{"b", "a", "b"}));
    EXPECT_EQ(rows(dataset, "validation"), (TextRows{"v"}));
    says(cause_of([&] { resolve_dataset({.train_files = {at("x*.txt")}}); }), "No file matches the pattern");
    says(cause_of([&] { resolve_dataset({.train_files = {at("[ab.txt")}}); }),
         "has a \"[\" that is never closed");
    says(cause_of([&] { resolve_dataset({}); }), "There is no data to work with.");
}

TEST_F(ResolveDataset, HubCacheBySnapshotOfTheBranch) {
    const std::string commit = "b08601e04326c79dfdd32d625aee71d232d685c3";
    const std::string repository = "hf/hub/datasets--Salesforce--wikitext/";
    write(repository + "refs/main", commit);
    write(repository + "blobs/1", "new\n");
    write(repository + "snapshots/" + commit + "/small/validation.txt", "v\n");
    write(repository + "snapshots/older/small/train.txt", "old\n");
    std::filesystem::create_symlink("../../../blobs/1",
                                    folder_ / (repository + "snapshots/" + commit + "/small/train.txt"));
    for (const std::string name : {"wikitext", "Salesforce/wikitext"}) {
        const auto dataset = resolve_dataset({.dataset_name = name, .dataset_config_name = "small"});
        EXPECT_EQ(rows(dataset, "train"),
                  TextRows{"new"});  // no line breaks: datasets by name do not keep them
        EXPECT_EQ(rows(dataset, "validation"), TextRows{"v"});
    }
    EXPECT_EQ(rows(resolve_dataset(
                       {.dataset_name = "wikitext", .dataset_config_name = "small", .revision = "older"}),
                   "train"),
              TextRows{"old"});
    says(cause_of([&] { resolve_dataset({.dataset_name = "wikitext", .dataset_config_name = "large"}); }),
         "has no config \"large\"");
}

TEST_F(ResolveDataset, AMissSaysWhereItLooked) {
    const std::string error = cause_of([&] { resolve_dataset({.dataset_name = "owner/name"}); });
    says(error, "The dataset owner/name was not found; looked at: the folder owner/name, the Hub cache " +
                    at("hf/hub"));
    says(error, at("hf/datasets"));
    says(cause_of([&] { resolve_dataset({.dataset_name = "./no/such/folder"}); }),
         "There is no file or folder ./no/such/folder");
    says(cause_of([&] { resolve_dataset({.dataset_name = "wikicorpus", .dataset_config_name = "raw_en"}); }),
         "Wikicorpus (raw_en) was not found");
    says(cause_of(
             [&] { resolve_dataset({.dataset_name = "wikicorpus", .dataset_config_name = "tagged_en"}); }),
         "The config \"tagged_en\" of Wikicorpus cannot be read.");
}

TEST_F(ResolveDataset, DatasetsCacheOfTheLibrary) {
    const std::string folder = "hf/datasets/owner___my_http_data2_go/plain/0.0.0/abc/";
    write(folder + "dataset_info.json", "{}");
    const std::string file = read_text_file(test::golden_path("readers/saved/data-00000-of-00002.arrow"));
    write(folder + "my_http_data2_go-train-00000-of-00002.arrow", file);
    write(folder + "my_http_data2_go-train-00001-of-00002.arrow", file);
    write(folder + "my_http_data2_go-validation.arrow", file);
    write(folder + "cache-0123.arrow", "not this one");
    const DatasetRequest request{.dataset_name = "owner/MyHTTPData2Go"};
    const auto dataset = resolve_dataset(request);
    ASSERT_EQ(dataset.splits.size(), 2U);
    EXPECT_EQ(dataset.find("train")->files.size(), 2U);
    write("hf/datasets/owner___my_http_data2_go/other/0.0.0/abc/dataset_info.json", "{}");
    says(cause_of([&] { resolve_dataset(request); }), "has several configs: other, plain.");
    if (load_module("arrow").handle == nullptr) GTEST_SKIP() << "drover_arrow.so was not built";
    EXPECT_EQ(rows(dataset, "validation").size(), 20U);
}

TEST_F(ResolveDataset, WikicorpusAmongTheDownloads) {
    write("hf/datasets/downloads/0abc", read_text_file(test::golden_path("readers/raw.en.tgz")));
    write("hf/datasets/downloads/0abc.json",
          R"({"url": "https://example.org/wikicorpus/raw.en.tgz", "etag": "x"})");
    const auto dataset = resolve_dataset({.dataset_name = "wikicorpus", .dataset_config_name = "raw_en"});
    EXPECT_EQ(rows(dataset, "train").size(), 4U);
}

TEST_F(ResolveDataset, IncompleteAndUnusableFoldersAreErrors) {
    write("shards/train-00000-of-00002.txt", "a\n");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("shards")}); }), "only 1 are there");
    write("script/name.py", "print()");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("script")}); }),
         "is a Python script without data files");
    write("mixed/train.txt", "a\n");
    write("mixed/test.csv", "text\na\n");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("mixed")}); }),
         "has csv files, but another split has text");
    write("saved/state.json", R"({"_data_files": [{"filename": "../x.arrow"}]})");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("saved")}); }),
         "names a data file outside its folder");
    write("card/README.md", "---\nconfigs:\n- config_name: a\n  data_files: ../x.txt\n---\n");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("card")}); }), "which is not inside the folder");
    write("setting/README.md", "---\nconfigs:\n- config_name: a\n  data_files: x.csv\n  skiprows: 3\n---\n");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("setting")}); }),
         "sets \"skiprows\", which is not known");
}

TEST_F(ResolveDataset, NothingLeadsOutOfADatasetOrTheCache) {
    write("secret/train.txt", "secret\n");
    write("box/data/README.md", "---\nconfigs:\n- config_name: a\n  data_dir: ../../secret\n---\n");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("box/data")}); }),
         "names data_dir ../../secret, which is not inside the folder");
    write("box/absolute/README.md",
          "---\nconfigs:\n- config_name: a\n  data_dir: " + at("secret") + "\n---\n");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("box/absolute")}); }),
         "which is not inside the folder");
    write("box/plain/train.txt", "a\n");
    for (const std::string& config : {std::string("../../secret"), std::string(".."), at("secret")})
        says(cause_of(
                 [&] { resolve_dataset({.dataset_name = at("box/plain"), .dataset_config_name = config}); }),
             "which leads out of the dataset");
    write("box/saved/dataset_dict.json", R"({"splits": [".."]})");
    write("box/state.json", R"({"_data_files": [{"filename": "x.arrow"}]})");
    says(cause_of([&] { resolve_dataset({.dataset_name = at("box/saved")}); }), "lists no splits");

    write("hf/hub/datasets--owner--name/refs/main", "../../../../secret");
    says(cause_of([&] { resolve_dataset({.dataset_name = "owner/name"}); }), "which is not a commit");
    write("hf/hub/datasets--owner--name/refs/main", "..");
    says(cause_of([&] { resolve_dataset({.dataset_name = "owner/name"}); }), "which is not a commit");
    says(cause_of([&] { resolve_dataset({.dataset_name = "owner/name", .revision = "../../../../secret"}); }),
         "leads out of the cache");
    write("hf/hub/datasets--owner--name/refs/feature/one", "abc\n");
    write("hf/hub/datasets--owner--name/snapshots/abc/train.txt", "a\n");
    EXPECT_EQ(rows(resolve_dataset({.dataset_name = "owner/name", .revision = "feature/one"}), "train"),
              TextRows{"a"})
        << "branches may have a slash";
}

TEST_F(ResolveDataset, TrainAndValidation) {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += std::to_string(i) + "\n";
    write("t.txt", lines);
    const DatasetRequest only_train{.train_files = {at("t.txt")}, .keep_linebreaks = false};
    const auto parts = load_train_and_validation(only_train, {.validation_percent = 10});
    EXPECT_EQ(read_all(*parts.validation), (TextRows{"0", "1", "2", "3"}));
    EXPECT_EQ(parts.train->row_count(), 36);
    const auto streamed =
        load_train_and_validation(only_train, {.validation_percent = 10, .streaming = true});
    EXPECT_EQ(read_all(*streamed.train).front(), "11");
    EXPECT_EQ(streamed.validation->row_count(), 10);

    // Train's column is used for both; with evaluation only, validation's.
    write("t.csv", "body,text\nb1,t1\n");
    write("v.csv", "text,body\nt2,b2\n");
    write("w.csv", "body\nb3\n");
    const auto columns = [&](const std::string& train, const std::string& validation, bool do_train) {
        const auto both = load_train_and_validation(
            {.train_files = {at(train)}, .validation_files = {at(validation)}}, {.do_train = do_train});
        return read_all(*both.train).front() + " " + read_all(*both.validation).front();
    };
    EXPECT_EQ(columns("t.csv", "v.csv", true), "t1 t2");
    EXPECT_EQ(columns("t.csv", "w.csv", false), "b1 b3");
    says(cause_of([&] { columns("t.csv", "w.csv", true); }),
         "w.csv has no column \"text\"; its columns are: body.");
    says(cause_of([&] { load_train_and_validation({.validation_files = {at("v.csv")}}, {}); }),
         "has no split \"train\"");
    const auto only = load_train_and_validation({.validation_files = {at("v.csv")}}, {.do_train = false});
    EXPECT_EQ(only.train, nullptr);
    EXPECT_EQ(read_all(*only.validation), TextRows{"t2"});
}

TEST_F(ResolveDataset, Globs) {
    for (const char* path :
         {"x/a1.txt", "x/a2.txt", "x/y/a3.txt", "x/y/z/b.txt", "x/.h/a4.txt", "x/__p/a5.txt"})
        write(path, "");
    const auto names = [&](std::string_view pattern) {
        TextRows found;
        for (const auto& file : glob_files(folder_ / "x", pattern))
            found.push_back(file.lexically_relative(folder_ / "x").string());
        return found;
    };
    EXPECT_EQ(names("*.txt"), (TextRows{"a1.txt", "a2.txt"}));
    EXPECT_EQ(names("a[!1].txt"), TextRows{"a2.txt"});
    EXPECT_EQ(names("**/a?.txt"), (TextRows{"a1.txt", "a2.txt", "y/a3.txt"}));
    EXPECT_EQ(names("**"), (TextRows{"a1.txt", "a2.txt", "y/a3.txt", "y/z/b.txt"}));
    EXPECT_EQ(names("*/*.txt"), TextRows{"y/a3.txt"});
    EXPECT_EQ(names("y/**"), (TextRows{"y/a3.txt", "y/z/b.txt"}));
    EXPECT_EQ(names(".h/*"), TextRows{".h/a4.txt"});
    EXPECT_EQ(names("__*/*"), TextRows{"__p/a5.txt"});
    EXPECT_EQ(names("a1.txt"), TextRows{"a1.txt"});
    EXPECT_EQ(names("none/**"), TextRows{});
}

}  // namespace
}  // namespace drover
