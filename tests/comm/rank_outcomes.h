#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/communication_thread.h"

namespace drover::test {

/// What a rank threw: its message, and the failed rank if it was another.
struct RankOutcome {
    std::string message;
    int failed_peer = -1;
};

/// Records in `outcome` what the work throws, and continues.
inline void note_outcome(RankOutcome& outcome, const std::function<void()>& work) {
    try {
        work();
    } catch (const PeerFailure& failure) {
        outcome = {failure.what(), failure.rank()};
        throw;
    } catch (const std::exception& error) {
        outcome = {error.what(), -1};
        throw;
    }
}

/// A view of the values.
inline Tensor of(std::vector<float>& values) {
    return Tensor::of(values.data(), {static_cast<std::int64_t>(values.size())});
}

inline void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in \"" << text << "\"";
}

}  // namespace drover::test
