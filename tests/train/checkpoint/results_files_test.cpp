#include "train/checkpoint/results_files.h"

#include <gtest/gtest.h>

#include "core/text_file.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(ResultsFiles, MakeTheirFolder) {
    const test::TemporaryFolder folder;
    save_metrics(folder / "run/out", "eval", {{"eval_loss", 2.5}});
    EXPECT_EQ(read_text_file(folder / "run/out/eval_results.json"), "{\n    \"eval_loss\": 2.5\n}");
    EXPECT_EQ(read_text_file(folder / "run/out/all_results.json"), "{\n    \"eval_loss\": 2.5\n}");
}

}  // namespace
}  // namespace drover
