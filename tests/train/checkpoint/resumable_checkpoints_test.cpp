#include <gtest/gtest.h>

#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "support/golden.h"
#include "train/checkpoint/checkpoint_folders.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

class ResumableCheckpoints : public testing::Test {
  protected:
    fs::path save(std::int64_t step, std::int64_t saved_at) const {
        const fs::path folder = checkpoint_folder(folder_.path(), step);
        fs::create_directories(folder);
        write_file_atomically(folder / CheckpointManifest::file_name,
                              CheckpointManifest{.saved_at = saved_at}.text());
        return folder;
    }
    std::optional<fs::path> newest() {
        return newest_complete_checkpoint(folder_.path(),
                                          [this](const std::string& line) { said_ += line + "\n"; });
    }
    /// A checkpoint written by Hugging Face.
    fs::path save_of_hf() const {
        const fs::path folder = checkpoint_folder(folder_.path(), 4);
        fs::copy(test::golden_path("trainer_checkpoint/llama_adamw/checkpoint-4"), folder,
                 fs::copy_options::recursive);
        return folder;
    }

    test::TemporaryFolder folder_;
    std::string said_;
};

/// A run that started over has smaller numbers than the leftovers of the previous one.
TEST_F(ResumableCheckpoints, TheNewestIsTheOneThatWasSavedLast) {
    save(900, 1000);
    const fs::path later = save(20, 2000);
    save(10, 1900);
    EXPECT_EQ(newest(), later);
    const fs::path at_the_same_time = save(30, 2000);
    EXPECT_EQ(newest(), at_the_same_time);
    EXPECT_EQ(said_, "");
}

/// Permissions are the usual reason, but do not stop root; a link to itself cannot be read by anyone.
TEST_F(ResumableCheckpoints, OneThatCannotBeReadIsPassedOver) {
    const fs::path sound = save(5, 1000);
    const fs::path link_inside = checkpoint_folder(folder_.path(), 7);
    fs::create_directories(link_inside);
    for (const char* name : {"drover_state.json", "optimizer.pt", "trainer_state.json"})
        fs::create_symlink(name, link_inside / name);
    fs::create_symlink("checkpoint-8", folder_ / "checkpoint-8");
    fs::create_directories(checkpoint_folder(folder_.path(), 9) / "drover_state.json");
    fs::create_directories(checkpoint_folder(folder_.path(), 10));
    EXPECT_EQ(newest(), sound);
    for (const char* name : {"checkpoint-7", "checkpoint-9", "checkpoint-10"})
        EXPECT_NE(said_.find(std::string(name) + " is not a complete checkpoint, and is passed over"),
                  std::string::npos)
            << said_;
    EXPECT_NE(said_.find("it cannot be read"), std::string::npos) << said_;
}

TEST_F(ResumableCheckpoints, AFlippedBitOfHfsOptimizerIsSeen) {
    const fs::path folder = save_of_hf();
    EXPECT_EQ(why_not_resumable(folder), std::nullopt);
    std::string bytes = read_text_file(folder / "optimizer.pt");
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file_atomically(folder / "optimizer.pt", bytes);
    ASSERT_TRUE(why_not_resumable(folder));
    EXPECT_NE(why_not_resumable(folder)->find("optimizer.pt"), std::string::npos);
}

}  // namespace
}  // namespace drover
