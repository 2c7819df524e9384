#include "io/hf_optimizer_state.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text_file.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

/// One bit of a tensor: the file can be read, and only its checksum reveals the error.
TEST(HfOptimizerState, SeesAFlippedBit) {
    const test::TemporaryFolder folder;
    const std::filesystem::path file = folder / "optimizer.pt";
    std::string bytes =
        read_text_file(test::golden_path("trainer_checkpoint/llama_adamw/checkpoint-4/optimizer.pt"));
    write_file_atomically(file, bytes);
    const HfOptimizerState whole(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file_atomically(file, bytes);
    EXPECT_EQ(TorchFile(file).root()["state"].size(), whole.parameters().size());
    test::expect_error([&] { HfOptimizerState{file}; }, {file.string()});
}

}  // namespace
}  // namespace drover
