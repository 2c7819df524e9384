#include "io/staged_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/error.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "io/file_calls.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

const std::byte* bytes_of(std::string_view text) {
    return reinterpret_cast<const std::byte*>(text.data());
}

class StagedFolders : public testing::Test {
  protected:
    /// Writes `text` as the only file of a folder and moves it into place.
    void publish(const std::string& name, std::string_view text) {
        StagedFolder staged(folder_ / name);
        staged.create();
        staged.create_file("file", text.size());
        staged.write("file", {.row_bytes = text.size()}, bytes_of(text));
        staged.flush();
        staged.seal();
        staged.publish();
    }

    test::TemporaryFolder folder_;
};

TEST_F(StagedFolders, AppearOnlyWhenTheyArePublished) {
    {
        StagedFolder staged(folder_ / "checkpoint-1");
        staged.create();
        staged.create_file("file", 3);
        EXPECT_FALSE(fs::exists(folder_ / "checkpoint-1"));
    }
    EXPECT_EQ(remove_partial_folders(folder_.path()), (std::vector<std::string>{"checkpoint-1.partial"}));
    publish("checkpoint-1", "abc");
    EXPECT_EQ(read_text_file(folder_ / "checkpoint-1/file"), "abc");
    EXPECT_TRUE(remove_partial_folders(folder_.path()).empty());
    EXPECT_TRUE(remove_partial_folders(folder_ / "absent").empty());
}

TEST_F(StagedFolders, LeftoversOfOthersStayAndAReplacedFolderGoesBack) {
    for (const char* name : {"dataset.partial", "checkpoint-x.partial", "checkpoint-2.replaced.partial",
                             "checkpoint-3", "checkpoint-3.replaced.partial", "model.partial"})
        std::filesystem::create_directory(folder_ / name);
    EXPECT_EQ(remove_partial_folders(folder_.path()),
              (std::vector<std::string>{"checkpoint-3.replaced.partial", "model.partial"}));
    for (const char* name : {"dataset.partial", "checkpoint-x.partial", "checkpoint-2", "checkpoint-3"})
        EXPECT_TRUE(std::filesystem::exists(folder_ / name)) << name;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "checkpoint-2.replaced.partial"));
}

TEST_F(StagedFolders, TakeThePlaceOfAnEarlierFolder) {
    publish("checkpoint-1", "earlier");
    publish("checkpoint-1", "later");
    EXPECT_EQ(read_text_file(folder_ / "checkpoint-1/file"), "later");
    EXPECT_FALSE(fs::exists(folder_ / "checkpoint-1.partial"));
}

/// After a power failure at any of the calls, the folder is complete or absent.
TEST_F(StagedFolders, AreOnTheDiskBeforeTheyAreSeen) {
    using Calls = std::vector<std::string>;
    const std::string parent = folder_.path().filename().string();
    test::FileCalls calls;
    for (const bool replaces : {false, true}) {
        StagedFolder staged(folder_ / "checkpoint-1");
        staged.create();
        staged.create_file("file", 3);
        staged.write("file", {.row_bytes = 3}, bytes_of("abc"));
        EXPECT_EQ(calls.take(), Calls());
        staged.flush();
        EXPECT_EQ(calls.take(), Calls{"fsync file"});
        // Other ranks have files there too, some of them written by others.
        std::ofstream(staged.staging() / "other") << "def";
        staged.seal();
        Calls sealed = calls.take();
        std::sort(sealed.begin(), sealed.end());
        EXPECT_EQ(sealed, (Calls{"fsync file", "fsync other"}));
        staged.publish();
        const Calls published = calls.take();
        const std::string verb = replaces ? "exchange" : "rename";
        ASSERT_GE(published.size(), 3u);
        EXPECT_EQ(published[0], "fsync checkpoint-1.partial");
        EXPECT_EQ(published[1], verb + " checkpoint-1.partial checkpoint-1");
        EXPECT_EQ(published[2], "fsync " + parent);
    }
}

TEST_F(StagedFolders, PutFilesOnTheDiskBeforeTheyReplaceOthers) {
    test::FileCalls calls;
    StagedFolder staged(folder_ / "model");
    staged.create();
    std::ofstream(staged.staging() / "a.json") << "{}";
    staged.seal();
    staged.publish_files_into(folder_ / "out");
    EXPECT_EQ(calls.take(), (std::vector<std::string>{"fsync a.json", "rename a.json a.json", "fsync out"}));
}

TEST_F(StagedFolders, MayHaveFoldersInThem) {
    const auto staged_with_templates = [&](StagedFolder& staged) {
        staged.create();
        fs::create_directory(staged.staging() / "more");
        std::ofstream(staged.staging() / "a.json") << "{}";
        std::ofstream(staged.staging() / "more/b.jinja") << "text";
        return staged.seal();
    };
    StagedFolder whole(folder_ / "checkpoint-1");
    const std::map<std::string, FileDigest> digests = staged_with_templates(whole);
    EXPECT_EQ(digests.size(), 2u);
    EXPECT_EQ(digests.at("more/b.jinja").bytes, 4u);
    whole.publish();
    EXPECT_EQ(read_text_file(folder_ / "checkpoint-1/more/b.jinja"), "text");
    for (int round = 0; round < 2; ++round) {  // also over files that are there
        StagedFolder files(folder_ / "model");
        staged_with_templates(files);
        files.publish_files_into(folder_ / "out");
        EXPECT_EQ(read_text_file(folder_ / "out/more/b.jinja"), "text");
        EXPECT_FALSE(fs::exists(folder_ / "model.partial"));
    }
}

/// Two ranks with the columns of one matrix, split like a row-parallel weight.
TEST_F(StagedFolders, AreWrittenByRanksTogether) {
    StagedFolder first(folder_ / "checkpoint-1"), second(folder_ / "checkpoint-1");
    first.create();
    first.create_file("file", 12);
    second.write("file", {.offset = 2, .row_bytes = 2, .rows = 3, .stride = 4}, bytes_of("CDGHKL"));
    first.write("file", {.offset = 0, .row_bytes = 2, .rows = 3, .stride = 4}, bytes_of("ABEFIJ"));
    second.flush();
    first.flush();
    EXPECT_EQ(first.seal().at("file").bytes, 12u);
    first.publish();
    EXPECT_EQ(read_text_file(folder_ / "checkpoint-1/file"), "ABCDEFGHIJKL");
}

TEST_F(StagedFolders, NoticeBytesThatAreNotWhatWasWritten) {
    StagedFolder staged(folder_ / "checkpoint-1");
    staged.create();
    staged.create_file("file", 3);
    staged.write("file", {.row_bytes = 3}, bytes_of("abc"));
    write_file_atomically(staged.staging() / "file", "abd");
    test::expect_error([&] { staged.flush(); }, {(staged.staging() / "file").string(), "does not read back"});
}

TEST_F(StagedFolders, RefuseASafetensorsFileWithoutAHeader) {
    StagedFolder staged(folder_ / "checkpoint-1");
    staged.create();
    staged.create_file("model.safetensors", 100);
    staged.flush();
    test::expect_error([&] { staged.seal(); }, {"model.safetensors"});
}

TEST_F(StagedFolders, AreRemovedUnderAnotherName) {
    publish("checkpoint-1", "abc");
    remove_folder_safely(folder_ / "checkpoint-1");
    EXPECT_TRUE(fs::is_empty(folder_.path()));
    test::expect_error([&] { remove_folder_safely(folder_ / "checkpoint-1"); },
                       {(folder_ / "checkpoint-1").string()});
}

class Manifest : public testing::Test {
  protected:
    void SetUp() override {
        write_file_atomically(folder_ / "a", "abc");
        manifest_ = {.state = {{"loss", 0.1}, {"step", 3}, {"bad", NAN}},
                     .saved_at = 17,
                     .files = {{"a", digest_file(folder_ / "a")}}};
        write_file_atomically(folder_ / CheckpointManifest::file_name, manifest_.text());
    }

    test::TemporaryFolder folder_;
    CheckpointManifest manifest_;
};

TEST_F(Manifest, ReadsBackAsItWasWritten) {
    const CheckpointManifest read = CheckpointManifest::read(folder_.path());
    EXPECT_EQ(read.text(), manifest_.text());
    EXPECT_EQ(read.files, manifest_.files);
    EXPECT_EQ(find_damage(folder_.path()), std::nullopt);
}

TEST_F(Manifest, SeesEveryChangeOfEveryFile) {
    const std::string text = manifest_.text();
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string changed = text;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        if (changed == text || std::isspace(static_cast<unsigned char>(text[i]))) continue;
        SCOPED_TRACE(i);
        test::expect_error([&] { CheckpointManifest::parse(changed, "changed"); }, {"changed is not "});
        test::expect_error([&] { CheckpointManifest::parse(text.substr(0, i), "cut"); }, {"cut is not "});
    }
    write_file_atomically(folder_ / "a", "abd");
    EXPECT_NE(find_damage(folder_.path())->find("a was changed"), std::string::npos);
    write_file_atomically(folder_ / "a", "abcd");
    EXPECT_EQ(find_damage(folder_.path()), "a has 4 bytes instead of 3");
    fs::remove(folder_ / "a");
    EXPECT_EQ(find_damage(folder_.path()), "a is missing");
}

TEST_F(Manifest, NamesNoFileOutsideItsFolder) {
    for (const char* name : {"../a", "/etc/passwd", "", "..", "a/..", "a/../../b", "a/b/c", "a/"}) {
        CheckpointManifest outside = manifest_;
        outside.files[name] = {.bytes = 1, .hash = std::string(32, '0')};
        SCOPED_TRACE(name);
        test::expect_error([&] { CheckpointManifest::parse(outside.text(), "outside"); },
                           {"outside is not the state of a checkpoint"});
    }
}

}  // namespace
}  // namespace drover
