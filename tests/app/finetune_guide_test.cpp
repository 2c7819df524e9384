#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/json.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The commands of a page: its blocks of ```sh, in order.
std::string commands_of(const std::string& page) {
    std::string commands;
    const std::string begin = "```sh\n", end = "```\n";
    for (auto at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
        at += begin.size();
        const auto stop = page.find(end, at);
        commands += page.substr(at, stop - at);
        at = stop + end.size();
    }
    return commands;
}

TEST(FinetuneGuide, EveryCommandWorksAndTheModelKnowsTheTown) {
    const test::TemporaryFolder folder;
    fs::create_directory_symlink(fs::path(DROVER_SOURCE_DIR) / "examples", folder / "examples");
    fs::create_directories(folder / "build");
    fs::create_directory_symlink(fs::path(DROVER_BINARY).parent_path(), folder / "build/release");
    const std::string page = read_text_file(fs::path(DROVER_SOURCE_DIR) / "docs/guides/finetune.md");
    const std::string commands = commands_of(page);
    EXPECT_EQ(test::count_of(commands, "drover "), 8u);
    write_file_atomically(folder / "guide.sh", "set -e\n" + commands);
    const test::Outcome outcome =
        test::run_shell("DROVER_CACHE=cache bash guide.sh 2>guide.log", folder.path().string());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output << read_text_file(folder / "guide.log");

    // The answers that the page shows: of all weights, of adapters, and of the merged model.
    EXPECT_EQ(test::count_of(outcome.output, "The lighthouse is 31 metres high and has 144 steps.\n"), 3u)
        << outcome.output;
    EXPECT_TRUE(fs::exists(folder / "out/wendle/chat_template.jinja"));
    EXPECT_TRUE(fs::exists(folder / "out/wendle-lora/adapter_model.safetensors"));
    EXPECT_TRUE(fs::exists(folder / "out/merged/config.json"));
    EXPECT_EQ(test::count_of(read_text_file(folder / "out/watched/eval_samples.jsonl"), "\n"), 6u);
}

}  // namespace
}  // namespace drover
