#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "core/text_file.h"
#include "support/golden.h"

namespace drover::test {

/// Runs every file of a fuzz corpus through the fuzz target's function. Files named valid-* must be accepted,
/// all others refused with an Error.
inline void run_corpus(const std::string& name, bool (*accepts_input)(std::string_view)) {
    int valid = 0, bad = 0;
    for (const auto& file : std::filesystem::directory_iterator(golden_path("../fuzz/corpus/" + name))) {
        const bool should_parse = file.path().filename().string().starts_with("valid-");
        EXPECT_EQ(accepts_input(read_text_file(file.path())), should_parse) << file.path().filename();
        (should_parse ? valid : bad) += 1;
    }
    EXPECT_GE(valid, 5);
    EXPECT_GE(bad, 15);
}

}  // namespace drover::test
