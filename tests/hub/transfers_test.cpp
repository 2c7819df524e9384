#include <gtest/gtest.h>

#include <thread>

#include "core/file_lock.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "hub/blob_hash.h"
#include "hub/cache_report.h"
#include "hub/find_model.h"
#include "hub/hub_server.h"
#include "hub/places.h"
#include "hub/snapshot.h"
#include "hub/upload.h"
#include "hub/web_file.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::noise;

class HubTransfers : public testing::Test {
  protected:
    void SetUp() override {
        if (!server_.runs()) GTEST_SKIP() << "python3, which plays the Hub, is not there";
        server_.add("models/org/tiny/main/config.json", "{}\n");
        server_.add("models/org/tiny/main/tokenizer.json", "{\"a\": 1}\n");
        server_.add("models/org/tiny/main/model.safetensors", weights_);
        server_.add("models/org/tiny/main/pytorch_model.bin", noise(1000, 5));
        server_.add("models/org/tiny/main/sub/folder/note.txt", "note\n");
    }

    HubSettings settings(const std::string& token = "") const {
        HubSettings settings = HubSettings::from_environment(token);
        settings.retry.first_wait = std::chrono::milliseconds(10);
        settings.silence_limit = std::chrono::seconds(1);
        return settings;
    }
    fs::path fetch(const std::string& id = "org/tiny", const std::string& token = "") {
        HubClient client(settings(token));
        const Repository repository{.id = id};
        const RepositoryListing listing = client.list(repository);
        return fetch_to_cache(client, RepositoryCache(cache_, repository), listing, listing.files);
    }
    std::size_t pieces_left() const {
        std::size_t count = 0;
        for (const auto& entry : fs::directory_iterator(cache_ / "models--org--tiny" / "blobs"))
            count += entry.path().filename().string().ends_with(".incomplete") ? 1 : 0;
        return count;
    }

    const std::string weights_ = noise(300'000);
    test::TemporaryFolder folder_;
    test::HubServer server_{folder_ / "server"};
    test::Variables variables_{test::hub_variables(server_, folder_ / "home")};
    fs::path cache_ = folder_ / "home" / "hub";
};

TEST_F(HubTransfers, FillTheCacheAsHuggingFaceHubDoes) {
    const fs::path snapshot = fetch();
    EXPECT_EQ(read_text_file(snapshot / "model.safetensors"), weights_);
    EXPECT_EQ(read_text_file(snapshot / "sub/folder/note.txt"), "note\n");
    const fs::path link = snapshot / "sub/folder/note.txt";
    EXPECT_TRUE(fs::read_symlink(link).string().starts_with("../../../../blobs/"));
    EXPECT_EQ(read_text_file(cache_ / "models--org--tiny/refs/main"), snapshot.filename().string());
    EXPECT_EQ(pieces_left(), 0u);
    const std::size_t before = server_.requests("/resolve/").size();
    EXPECT_EQ(fetch(), snapshot);
    EXPECT_EQ(server_.requests("/resolve/").size(), before) << "what is there is fetched again";
}

TEST_F(HubTransfers, ContinueWhereAConnectionBroke) {
    server_.set_faults({{{"path", "/cdn/models/org/tiny/main/model.safetensors"},
                         {"do", "cut"},
                         {"bytes", 100'000},
                         {"times", 2}}});
    EXPECT_EQ(read_text_file(fetch() / "model.safetensors"), weights_);
    std::vector<std::string> ranges;
    for (const Json& request : server_.requests("/cdn/models/org/tiny/main/model.safetensors"))
        ranges.push_back(request["range"].is_null() ? "" : request["range"].get<std::string>());
    EXPECT_EQ(ranges, (std::vector<std::string>{"", "bytes=100000-", "bytes=200000-"}));
}

TEST_F(HubTransfers, ContinueWhatAnEarlierProcessLeft) {
    server_.set_faults({{{"path", "/cdn/models/org/tiny/main/model.safetensors"},
                         {"do", "cut"},
                         {"bytes", 150'000},
                         {"times", 1}},
                        {{"path", "/cdn/models/org/tiny/main/model.safetensors"},
                         {"do", "status"},
                         {"status", 404},
                         {"times", 1}}});
    expect_error<HubError>([&] { fetch(); }, {"model.safetensors"});
    EXPECT_EQ(pieces_left(), 1u);
    EXPECT_EQ(read_text_file(fetch() / "model.safetensors"), weights_);
    EXPECT_EQ(server_.requests("/cdn/models/org/tiny/main/model.safetensors").back()["range"],
              "bytes=150000-");
    EXPECT_EQ(pieces_left(), 0u);
}

TEST_F(HubTransfers, StartOverWhereAServerKnowsNoRanges) {
    const std::string path = "/cdn/models/org/tiny/main/model.safetensors";
    server_.set_faults({{{"path", path}, {"do", "cut"}, {"bytes", 100'000}, {"times", 1}},
                        {{"path", path}, {"do", "no_range"}, {"times", 1}}});
    EXPECT_EQ(read_text_file(fetch() / "model.safetensors"), weights_);
    EXPECT_EQ(server_.requests(path).size(), 2u);
}

TEST_F(HubTransfers, LeaveAConnectionThatStalls) {
    const std::string path = "/cdn/models/org/tiny/main/model.safetensors";
    server_.set_faults({{{"path", path}, {"do", "stall"}, {"bytes", 1000}, {"times", 1}}});
    EXPECT_EQ(read_text_file(fetch() / "model.safetensors"), weights_);
    EXPECT_EQ(server_.requests(path).back()["range"], "bytes=1000-");
}

TEST_F(HubTransfers, RepeatWhenTheServerIsBusy) {
    server_.set_faults({{{"path", "/revision/main"}, {"do", "status"}, {"status", 503}, {"times", 2}},
                        {{"path", "/config.json"}, {"do", "status"}, {"status", 429}, {"times", 2}}});
    EXPECT_EQ(read_text_file(fetch() / "config.json"), "{}\n");
}

TEST_F(HubTransfers, KeepNothingThatIsDamaged) {
    server_.set_faults(
        {{{"path", "/cdn/models/org/tiny/main/model.safetensors"}, {"do", "damage"}, {"times", 1}}});
    EXPECT_EQ(read_text_file(fetch() / "model.safetensors"), weights_) << "one damaged transfer is repeated";
    fs::remove_all(cache_);
    server_.set_faults({{{"path", "/tokenizer.json"}, {"do", "damage"}, {"times", 9}}});
    expect_error([&] { fetch(); }, {"tokenizer.json", "checksum"});
    for (const auto& entry : fs::directory_iterator(cache_ / "models--org--tiny" / "blobs"))
        EXPECT_FALSE(entry.path().filename().string().starts_with(git_blob_name("{\"a\": 1}\n")));
    EXPECT_FALSE(fs::exists(cache_ / "models--org--tiny/refs/main"));
}

TEST_F(HubTransfers, WriteNothingOutsideTheCache) {
    const std::string hash(40, 'a');
    for (const char* name : {"../../../../evil", "/tmp/evil", "a/../../evil"}) {
        const Json files = Json::array({Json{{"type", "file"}, {"path", name}, {"size", 1}, {"oid", hash}}});
        server_.set_faults({{{"path", "/tree/"}, {"do", "tree"}, {"times", 99}, {"json", files}}});
        expect_error([&] { fetch(); }, {"outside its folder", "Do not trust"});
    }
    EXPECT_FALSE(fs::exists(cache_ / "models--org--tiny"));
}

TEST_F(HubTransfers, TheTokenStaysWithTheHub) {
    test::HubServer elsewhere(folder_ / "elsewhere");
    elsewhere.add("models/org/gated-one/main/model.safetensors", weights_);
    test::HubServer hub(folder_ / "hub-server", {"--elsewhere", elsewhere.address()});
    hub.add("models/org/gated-one/main/config.json", "{}");
    hub.add("models/org/gated-one/main/model.safetensors", weights_);
    const test::Variables here("HF_ENDPOINT", hub.address());
    EXPECT_EQ(read_text_file(fetch("org/gated-one", "hf_right") / "model.safetensors"), weights_);
    for (const Json& request : hub.requests()) EXPECT_EQ(request["authorization"], "Bearer hf_right");
    ASSERT_FALSE(elsewhere.requests().empty());
    for (const Json& request : elsewhere.requests())
        EXPECT_TRUE(request["authorization"].is_null()) << request;
}

TEST_F(HubTransfers, AHostileRedirectGetsNothing) {
    server_.set_faults(
        {{{"path", "/config.json"}, {"do", "redirect"}, {"to", "file:///etc/passwd"}, {"times", 9}}});
    expect_error([&] { fetch(); }, {"neither http nor https"});
}

TEST_F(HubTransfers, SeveralAtOnceFetchEachFileOnce) {
    std::vector<std::thread> threads;
    std::vector<fs::path> folders(4);
    for (fs::path& folder : folders)
        threads.emplace_back(
            [&] { folder = find_hub_model({.id = "org/tiny", .parts = ModelParts::weights}); });
    for (std::thread& thread : threads) thread.join();
    for (const fs::path& folder : folders) EXPECT_EQ(read_text_file(folder / "model.safetensors"), weights_);
    EXPECT_EQ(server_.requests("/cdn/models/org/tiny/main/model.safetensors").size(), 1u);
    EXPECT_EQ(server_.requests("/tree/").size(), server_.requests("/revision/").size() * 2)
        << "two pages each";
}

TEST_F(HubTransfers, AModelIsItsTextsAndOneFormOfItsWeights) {
    const fs::path texts = find_hub_model({.id = "org/tiny", .parts = ModelParts::texts});
    EXPECT_TRUE(fs::exists(texts / "tokenizer.json"));
    EXPECT_FALSE(fs::exists(texts / "model.safetensors"));
    EXPECT_EQ(find_hub_model({.id = "org/tiny"}), texts);
    EXPECT_TRUE(fs::exists(texts / "model.safetensors"));
    EXPECT_FALSE(fs::exists(texts / "pytorch_model.bin"));
    EXPECT_FALSE(fs::exists(texts / "sub"));
    const std::size_t before = server_.requests().size();
    find_hub_model({.id = "org/tiny"});
    EXPECT_EQ(server_.requests().size(), before) << "the cache is asked first";
}

TEST_F(HubTransfers, ShardsComeFromTheIndex) {
    server_.add("models/org/shards/main/config.json", "{}");
    server_.add("models/org/shards/main/model.safetensors.index.json",
                R"({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}})");
    for (const char* name : {"model-1-of-2", "model-2-of-2", "old-1-of-1"})
        server_.add(fmt::format("models/org/shards/main/{}.safetensors", name), name);
    const fs::path snapshot = find_hub_model({.id = "org/shards"});
    EXPECT_EQ(read_text_file(snapshot / "model-2-of-2.safetensors"), "model-2-of-2");
    EXPECT_FALSE(fs::exists(snapshot / "old-1-of-1.safetensors"));
    fs::remove(snapshot / "model-1-of-2.safetensors");
    EXPECT_TRUE(fs::exists(find_hub_model({.id = "org/shards"}) / "model-1-of-2.safetensors"));
}

TEST_F(HubTransfers, OfflineTheCacheIsAllThereIs) {
    const fs::path snapshot = find_hub_model({.id = "org/tiny", .parts = ModelParts::texts});
    const test::Variables offline("HF_HUB_OFFLINE", "1");
    const std::size_t before = server_.requests().size();
    EXPECT_EQ(find_hub_model({.id = "org/tiny"}), snapshot) << "incomplete, but all that can be had";
    expect_error<HubError>([] { find_hub_model({.id = "org/other"}); }, {"org/other", "HF_HUB_OFFLINE"});
    EXPECT_EQ(server_.requests().size(), before);
}

TEST_F(HubTransfers, WithoutLinksTheFilesAreCopies) {
    const test::Variables without("HF_HUB_DISABLE_SYMLINKS", "1");
    const fs::path snapshot = fetch();
    EXPECT_FALSE(fs::is_symlink(snapshot / "config.json"));
    EXPECT_EQ(read_text_file(snapshot / "config.json"), "{}\n");
}

TEST_F(HubTransfers, FillAFolderOfTheUser) {
    HubClient client(settings());
    const Repository repository{.id = "org/tiny"};
    const RepositoryListing listing = client.list(repository);
    const std::vector<std::string> include{"*.json", "sub/"}, exclude{"tok*"};
    const std::vector<RepositoryFile> files = matching_files(listing, include, exclude);
    fs::create_directories(folder_ / "here");
    std::ofstream(folder_ / "here/config.json") << "old";
    fetch_to_folder(client, repository, listing, files, folder_ / "here");
    EXPECT_EQ(read_text_file(folder_ / "here/config.json"), "{}\n");
    EXPECT_EQ(read_text_file(folder_ / "here/sub/folder/note.txt"), "note\n");
    EXPECT_FALSE(fs::exists(folder_ / "here/tokenizer.json"));
    EXPECT_FALSE(fs::exists(folder_ / "home/hub/models--org--tiny"));
    const std::size_t before = server_.requests().size();
    fetch_to_folder(client, repository, listing, files, folder_ / "here");
    EXPECT_EQ(server_.requests().size(), before);
}

TEST_F(HubTransfers, OtherFilesComeByTheirAddress) {
    // /web/x is FOLDER/x in this server.
    server_.add("raw.tgz", noise(50'000));
    server_.set_faults(
        {{{"path", "/web/raw.tgz"}, {"method", "GET"}, {"do", "cut"}, {"bytes", 20'000}, {"times", 1}}});
    HubClient client(settings("hf_right"));
    const fs::path file = fetch_web_file(client, server_.address() + "/web/raw.tgz", folder_ / "downloads");
    EXPECT_EQ(read_text_file(file), noise(50'000));
    const Json note = read_json_file(file.string() + ".json");
    EXPECT_EQ(note["url"], server_.address() + "/web/raw.tgz");
    EXPECT_EQ(note["etag"], "\"cdn\"");
    expect_error<HubError>(
        [&] { fetch_web_file(client, server_.address() + "/web/none.tgz", folder_ / "downloads"); },
        {"none.tgz", "404"});
}

TEST_F(HubTransfers, ThePrunedCacheKeepsWhatIsNamed) {
    const fs::path snapshot = fetch();
    const std::uint64_t bytes = list_cache(cache_).at(0).bytes;
    EXPECT_GT(bytes, weights_.size());
    EXPECT_EQ(list_cache(cache_).at(0).name, "model org/tiny");
    std::ofstream(cache_ / "models--org--tiny/blobs/abc.drover-1.incomplete") << "piece";
    const fs::path unnamed = cache_ / "models--org--tiny/snapshots" / std::string(40, 'f');
    fs::create_directories(unnamed);
    EXPECT_EQ(prune_cache(cache_, std::chrono::hours(1)), 0u);
    EXPECT_TRUE(fs::exists(unnamed)) << "a process may be fetching it, and names it when it is complete";
    EXPECT_EQ(prune_cache(cache_, std::chrono::seconds(0)), 5u);
    EXPECT_EQ(pieces_left(), 0u);
    EXPECT_FALSE(fs::exists(unnamed));
    EXPECT_EQ(read_text_file(snapshot / "model.safetensors"), weights_);
    EXPECT_TRUE(remove_from_cache(cache_, "model org/tiny"));
    EXPECT_FALSE(remove_from_cache(cache_, "model org/tiny"));
    EXPECT_FALSE(fs::exists(snapshot));
}

TEST_F(HubTransfers, WhatIsBeingFetchedIsNotRemoved) {
    const fs::path snapshot = fetch();
    const std::string blob = fs::read_symlink(snapshot / "model.safetensors").filename().string();
    std::ofstream(cache_ / "models--org--tiny/blobs/abc.drover-1.incomplete") << "piece";
    {
        // As huggingface_hub holds it.
        const FileLock lock(cache_ / ".locks/models--org--tiny" / (blob + ".lock"),
                            FileLock::Afterwards::left);
        EXPECT_EQ(prune_cache(cache_, std::chrono::seconds(0)), 0u);
        expect_error([&] { remove_from_cache(cache_, "model org/tiny"); },
                     {"model org/tiny is being fetched by another process", "Wait"});
    }
    EXPECT_EQ(read_text_file(snapshot / "model.safetensors"), weights_);
    EXPECT_EQ(prune_cache(cache_, std::chrono::seconds(0)), 5u);
    EXPECT_TRUE(remove_from_cache(cache_, "model org/tiny"));
}

TEST_F(HubTransfers, TheTokenOfALoginIsTheUsersAlone) {
    store_token("hf_right");
    EXPECT_EQ(fs::status(token_file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(HubClient(settings()).user_name(), "tester");
    {
        const test::Variables other("HF_TOKEN", " hf_wrong\n");
        EXPECT_EQ(stored_token(), "hf_wrong");
        HubClient client(settings());
        expect_error<HubError>([&] { client.user_name(); }, {"does not know this token"});
    }
    {
        const test::Variables none("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
        EXPECT_EQ(HubSettings::from_environment().token, "");
        EXPECT_EQ(HubSettings::from_environment("given").token, "given");
    }
    EXPECT_TRUE(remove_stored_token());
    EXPECT_FALSE(remove_stored_token());
    expect_error<UsageError>([] { clean_token("a\nInjected: yes", "the test"); }, {"the test", "characters"});
}

TEST_F(HubTransfers, UploadsBecomeACommit) {
    HubClient client(settings("hf_right"));
    const std::string id = make_model_repository(client, "made", true);
    EXPECT_EQ(id, "tester/made");
    EXPECT_EQ(Json::parse(server_.content("created.json"))["private"], true);
    EXPECT_EQ(make_model_repository(client, "tester/made", {}), id) << "it exists";
    const fs::path weights = folder_ / "w", text = folder_ / "t", nothing = folder_ / "n";
    std::ofstream(weights, std::ios::binary) << weights_;
    std::ofstream(text) << "text";
    std::ofstream(nothing).close();
    const std::vector<UploadFile> files{
        {"model.safetensors", weights}, {"sub/a b.txt", text}, {"empty.safetensors", nothing}};
    EXPECT_NE(upload_files(client, {.id = id}, files, "First").find("/commit/"), std::string::npos);
    EXPECT_EQ(server_.content("models/tester/made/main/model.safetensors"), weights_);
    EXPECT_EQ(server_.content("models/tester/made/main/sub/a b.txt"), "text");
    EXPECT_TRUE(fs::exists(folder_ / "server/models/tester/made/main/empty.safetensors"));
    EXPECT_EQ(upload_files(client, {.id = id}, files, "Again"), "") << "nothing changed";
    EXPECT_EQ(server_.content("commits.log").find("Again"), std::string::npos);
    expect_error<Error>(
        [&] {
            upload_files(client, {.id = id}, {{"other.bin", weights}, {"x", text}}, "No",
                         [] { return false; });
        },
        {"ended"});
    HubClient stranger(settings("hf_other"));
    expect_error<HubError>(
        [&] {
            upload_files(stranger, {.id = id}, {{"x", text}}, "No");
        },
        {"refuses uploads to tester/made", "drover login"});
}

TEST_F(HubTransfers, LargeUploadsGoInParts) {
    test::HubServer hub(folder_ / "hub-server", {"--chunk", "100000"});
    const test::Variables here("HF_ENDPOINT", hub.address());
    HubClient client(settings("hf_right"));
    const std::string id = make_model_repository(client, "made", {});
    const fs::path weights = folder_ / "w";
    std::ofstream(weights, std::ios::binary) << weights_;
    hub.set_faults({{{"path", "/upload/"}, {"do", "status"}, {"status", 500}, {"times", 1}}});
    make_branch(client, {.id = id, .revision = "trial"});
    upload_files(client, {.id = id, .revision = "trial"}, {{"model.safetensors", weights}}, "In parts");
    EXPECT_EQ(hub.content("models/tester/made/trial/model.safetensors"), weights_);
    EXPECT_EQ(hub.requests("/upload/").size(), 4u) << "three parts, one of them twice";
}

TEST_F(HubTransfers, ARefusedUploadSaysWhyWithoutControlCharacters) {
    server_.set_faults({{{"path", "/api/repos/create"},
                         {"do", "status"},
                         {"status", 403},
                         {"headers", {{"X-Error-Message", "No\x1b[31m way"}}}}});
    HubClient client(settings("hf_right"));
    expect_error<HubError>([&] { make_model_repository(client, "other/made", {}); },
                           {"refuses uploads to other/made (403, No [31m way)"});
}

TEST_F(HubTransfers, UploadsElsewhereDoNotCarryTheToken) {
    test::HubServer elsewhere(folder_ / "elsewhere");
    test::HubServer hub(folder_ / "hub-server", {"--elsewhere", elsewhere.address()});
    const test::Variables here("HF_ENDPOINT", hub.address());
    HubClient client(settings("hf_right"));
    const std::string id = make_model_repository(client, "made", {});
    const fs::path weights = folder_ / "w";
    std::ofstream(weights, std::ios::binary) << weights_;
    upload_files(client, {.id = id}, {{"model.safetensors", weights}}, "Elsewhere");
    ASSERT_EQ(elsewhere.requests("/upload/").size(), 1u);
    EXPECT_TRUE(elsewhere.requests("/upload/")[0]["authorization"].is_null());
    EXPECT_EQ(hub.requests("/commit/").back()["authorization"], "Bearer hf_right");
}

}  // namespace
}  // namespace drover
