#include "hub/repository.h"

#include <gtest/gtest.h>

#include "hub/blob_hash.h"
#include "hub/model_files.h"
#include "support/errors.h"

namespace drover {
namespace {

using test::expect_error;

const std::string small(40, 'a'), large(64, 'b');

RepositoryListing listing_of(std::initializer_list<const char*> paths) {
    RepositoryListing listing{.commit = std::string(40, '1'), .files = {}};
    for (const char* path : paths) listing.files.push_back({path, 1, small});
    return listing;
}

std::vector<std::string> paths_of(const std::vector<RepositoryFile>& files) {
    std::vector<std::string> paths;
    for (const RepositoryFile& file : files) paths.push_back(file.path);
    return paths;
}

TEST(Repository, HasItsPlaceInTheCacheAndOnTheHub) {
    const Repository model{.id = "org/name"};
    EXPECT_EQ(model.folder_name(), "models--org--name");
    EXPECT_EQ(model.api_path(), "/api/models/org/name");
    EXPECT_EQ(model.file_path("main", "a b/c.json"), "/org/name/resolve/main/a%20b/c.json");
    const Repository data{.kind = RepositoryKind::dataset, .id = "org/name", .revision = "refs/pr/1"};
    EXPECT_EQ(data.folder_name(), "datasets--org--name");
    EXPECT_EQ(data.file_path("refs/pr/1", "x"), "/datasets/org/name/resolve/refs%2Fpr%2F1/x");
    EXPECT_EQ(data.shown(), "dataset org/name (revision refs/pr/1)");
}

TEST(Repository, KnowsIds) {
    for (const char* id : {"gpt2", "meta-llama/Llama-3.2-1B", "a/b.c_d"}) EXPECT_TRUE(is_hub_id(id)) << id;
    for (const char* id : {"", "/", "a/", "/a", "a/b/c", "..", "a/..", "../b", "a--b", "a b", "a/.b", ".a/b",
                           "a\nb", "https://x"})
        EXPECT_FALSE(is_hub_id(id)) << id;
    EXPECT_FALSE(is_hub_id(std::string(97, 'a')));
}

TEST(Repository, RefusesNamesThatLeaveTheFolder) {
    for (const char* path : {"a", "a/b", "a/..b", ".gitattributes", "ü/x y.txt"})
        EXPECT_TRUE(is_safe_file_path(path)) << path;
    for (const std::string path : {"", "/", "/etc/passwd", "..", "../x", "a/../x", "a/..", "a//b", "a/",
                                   "./a", "a/./b", "a\\b", "a\nb"})
        EXPECT_FALSE(is_safe_file_path(path)) << path;
    EXPECT_FALSE(is_safe_file_path(std::string("a\0b", 3)));
}

TEST(Repository, ReadsPagesOfATree) {
    RepositoryListing listing;
    parse_tree_page(R"([{"type": "file", "path": "b.txt", "size": 3, "oid": ")" + small + R"("},
                        {"type": "directory", "path": "../x", "size": 0, "oid": "1"}])",
                    "the page", listing);
    parse_tree_page(R"([{"type": "file", "path": "a.bin", "size": 3, "oid": ")" + small +
                        R"(", "lfs": {"oid": ")" + large + R"(", "size": 999}}])",
                    "the page", listing);
    ASSERT_EQ(listing.files.size(), 2u);
    EXPECT_EQ(listing.files[0].path, "a.bin");
    EXPECT_EQ(listing.files[0].size, 999u);
    EXPECT_TRUE(listing.files[0].is_large());
    EXPECT_EQ(listing.find("b.txt")->hash, small);
    EXPECT_EQ(listing.find("c"), nullptr);
    const RepositoryListing again = parse_listing(listing_text(listing), listing.commit, "the text");
    ASSERT_EQ(again.files.size(), 2u);
    EXPECT_EQ(again.files[0].hash, large);
    EXPECT_EQ(again.files[1].size, 3u);
}

TEST(Repository, RefusesTreesOfHostileServers) {
    const auto page = [](const std::string& path, const std::string& oid, const std::string& size) {
        return R"([{"type": "file", "path": ")" + path + R"(", "size": )" + size + R"(, "oid": ")" + oid +
               R"("}])";
    };
    const auto refused = [](const std::string& text, std::string_view why) {
        RepositoryListing listing;
        expect_error([&] { parse_tree_page(text, "the page", listing); }, {"the page", why});
    };
    refused(page("../../.ssh/authorized_keys", small, "1"), "outside its folder");
    refused(page("/etc/passwd", small, "1"), "outside its folder");
    refused(page("a\\u0000b", small, "1"), "outside its folder");
    refused(page("a", "../x", "1"), "without a checksum");
    refused(page("a", small, "-1"), "without its size");
    refused(page("a", small, "\"1\""), "without its size");
    refused("{}", "no list of files");
    refused("[1]", "something else");
    refused("<html>", "not JSON");
    const auto refused_after_a = [&](const std::string& path, std::string_view why) {
        RepositoryListing listing;
        parse_tree_page(page("a", small, "1"), "the page", listing);
        parse_tree_page(page("a.b", small, "1"), "the page", listing);
        expect_error([&] { parse_tree_page(page(path, small, "1"), "the page", listing); }, {why});
    };
    refused_after_a("a", "twice");
    refused_after_a("a/b", "lists a as a file and as a folder");
    expect_error([] { parse_commit(R"({"sha": "../x"})", "here"); }, {"here", "names no commit"});
    expect_error([] { parse_commit("[]", "here"); }, {"names no commit"});
}

TEST(Repository, FindsTheNextPage) {
    EXPECT_EQ(next_page(R"(<https://x/a?b>; rel="next")"), "https://x/a?b");
    EXPECT_EQ(next_page(R"(<https://x/1>; rel="prev", <https://x/2>; rel="next")"), "https://x/2");
    for (const char* none : {"", "<", "<>", "x", R"(<https://x>; rel="prev")", "<https://x"})
        EXPECT_EQ(next_page(none), "") << none;
}

TEST(BlobHash, NamesFilesAsGitAndLfsDo) {
    EXPECT_EQ(git_blob_name("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");  // git hash-object
    EXPECT_EQ(git_blob_name(""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    BlobHash right("ce013625030ba8dba906f756967f9e9ca394464a", 6);
    right.add("hel");
    right.add("lo\n");
    EXPECT_TRUE(right.matches());
    BlobHash wrong("ce013625030ba8dba906f756967f9e9ca394464a", 6);
    wrong.add("hello!");
    EXPECT_FALSE(wrong.matches());
    BlobHash sha256("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", 6);
    sha256.add("hello\n");
    EXPECT_TRUE(sha256.matches());
}

TEST(ModelFiles, TakesOneFormOfTheWeights) {
    const auto weights = [](std::initializer_list<const char*> paths) {
        return paths_of(model_weights(listing_of(paths)));
    };
    using Paths = std::vector<std::string>;
    EXPECT_EQ(weights({"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"}),
              Paths{"model.safetensors"});
    EXPECT_EQ(weights({"model.safetensors.index.json", "pytorch_model.bin"}),
              Paths{"model.safetensors.index.json"});
    EXPECT_EQ(weights({"pytorch_model.bin.index.json"}), Paths{"pytorch_model.bin.index.json"});
    EXPECT_EQ(weights({"adapter_model.bin", "adapter_model.safetensors"}),
              Paths{"adapter_model.safetensors"});
    EXPECT_EQ(weights({"tf_model.h5", "consolidated.00.pth"}), Paths{});
    EXPECT_EQ(
        paths_of(model_texts(listing_of({"config.json", "README.md", "additional_chat_templates/x.jinja",
                                         "onnx/config.json", "tokenizer.json", "run.py"}))),
        (Paths{"config.json", "additional_chat_templates/x.jinja", "tokenizer.json"}));
}

TEST(ModelFiles, TakesTheShardsThatTheIndexNames) {
    const RepositoryListing listing =
        listing_of({"model-1.safetensors", "model-2.safetensors", "old.safetensors"});
    EXPECT_EQ(
        paths_of(shards_of_index(
            listing, R"({"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}})", "it")),
        (std::vector<std::string>{"model-1.safetensors", "model-2.safetensors"}));
    expect_error([&] { shards_of_index(listing, R"({"weight_map": {"a": "../x"}})", "the index"); },
                 {"the index", "../x", "does not have"});
    expect_error([&] { shards_of_index(listing, "{}", "the index"); }, {"names no files"});
}

}  // namespace
}  // namespace drover
