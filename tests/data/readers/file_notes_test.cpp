#include "data/readers/file_notes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "data/datasets/file_rows.h"
#include "data/fakes.h"
#include "support/golden.h"

namespace drover {
namespace {

class Notes : public ::testing::Test {
  protected:
    void write(const std::string& text) {
        std::ofstream(file_) << text;
        age_ += 10;
        std::filesystem::last_write_time(
            file_, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(1000 - age_));
        test::let_settle();
    }
    FileRows rows() { return FileRows({file_}, {.notes = folder_ / "notes"}); }
    /// Replaces the content of every note with this ending; returns how many there are.
    int falsify(const std::string& ending, const std::string& content) {
        int count = 0;
        for (const auto& note : std::filesystem::directory_iterator(folder_ / "notes"))
            if (note.path().string().ends_with(ending)) {
                std::ofstream(note.path()) << content;
                ++count;
            }
        return count;
    }

    test::TemporaryFolder folder_;
    std::filesystem::path file_ = folder_ / "corpus.txt";
    int age_ = 0;
};

TEST_F(Notes, AFolderThatCannotBeLookedIntoIsAsGoodAsNone) {
    write("a\nb\nc\n");
    // Users other than root meet it as a folder of another user; every user meets this one.
    std::filesystem::create_symlink("notes", folder_ / "notes");
    EXPECT_EQ(rows().row_count(), 3);
    EXPECT_EQ(rows().fingerprint(), FileRows({file_}, {}).fingerprint());
}

TEST_F(Notes, RowsOfAFileAreCountedOnce) {
    write("a\nb\nc\n");
    EXPECT_EQ(rows().row_count(), 3);
    ASSERT_EQ(falsify(".rows", "77"), 1);
    EXPECT_EQ(rows().row_count(), 77) << "the note is used";
    EXPECT_EQ(FileRows({file_}, {}).row_count(), 3) << "and not without a folder of notes";
    falsify(".rows", "many");
    EXPECT_EQ(rows().row_count(), 3) << "a note that makes no sense is passed over";
    write("a\nb\n");
    EXPECT_EQ(rows().row_count(), 2);
}

TEST_F(Notes, AFileIsHashedOnce) {
    write("a\nb\nc\n");
    const std::string first = rows().fingerprint();
    EXPECT_EQ(first, FileRows({file_}, {}).fingerprint()) << "notes do not change the fingerprint";
    ASSERT_EQ(falsify(".hash", std::string(32, '0')), 1);
    EXPECT_NE(rows().fingerprint(), first);
    write("a\nb\nd\n");
    EXPECT_NE(rows().fingerprint(), first);
    write("a\nb\nc\n");
    EXPECT_EQ(rows().fingerprint(), first) << "the content counts, not the time";
}

TEST_F(Notes, AFileThatIsWrittenOverInPlaceWithItsOldTimeIsSeen) {
    write("a\nb\nc\n");
    const auto time = std::filesystem::last_write_time(file_);
    const std::string before = rows().fingerprint();
    EXPECT_EQ(rows().row_count(), 3);
    std::fstream(file_) << "a\n\n\n\n\n";  // the same inode and size
    std::filesystem::last_write_time(file_, time);
    EXPECT_NE(rows().fingerprint(), before);
    EXPECT_EQ(rows().row_count(), 5);
}

}  // namespace
}  // namespace drover
