#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "args/parse_arguments.h"
#include "core/words.h"
#include "support/errors.h"

namespace drover::test {

/// The minimum for a run, so that a test names only what it is about.
inline const std::string plain_run = "--do_train --train_file a.txt --config_name c ";

/// Parses a command line whose words are separated by single spaces.
inline RunArguments parse_line(const std::string& line, const ParseOptions& options = {}) {
    return parse_run_arguments(split_words(line, ' '), options);
}

inline std::string error_of_line(const std::string& line, const ParseOptions& options = {}) {
    return error_of<UsageError>([&] { parse_line(line, options); });
}

inline bool has_line(const Arguments& arguments, const std::string& part) {
    for (const std::string& line : arguments.explanations())
        if (line.find(part) != std::string::npos) return true;
    return false;
}

#define EXPECT_MENTIONS(text, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text)

}  // namespace drover::test
