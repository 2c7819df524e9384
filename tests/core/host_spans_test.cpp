#include "core/host_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace drover {
namespace {

std::vector<std::string> texts(const std::vector<HostSpans::Span>& spans) {
    std::vector<std::string> list;
    for (const HostSpans::Span& span : spans) list.push_back(span.thread + ": " + span.name);
    std::sort(list.begin(), list.end());
    return list;
}

TEST(HostSpans, AreKeptFromStartToStop) {
    const auto spans = std::make_shared<HostSpans>();
    const HostThread here(spans, "main");
    { const HostSpan early("early"); }
    std::optional<HostSpan> across(std::in_place, "across", 3);
    spans->start();
    {
        const HostSpan outer("outer");
        const HostSpan inner("inner");
    }
    std::optional<HostSpan> open(std::in_place, "open");
    const std::vector<HostSpans::Span> kept = spans->stop();
    EXPECT_EQ(texts(kept),
              (std::vector<std::string>{"main: across 3", "main: inner", "main: open", "main: outer"}));
    const auto find = [&](const std::string& name) {
        return *std::find_if(kept.begin(), kept.end(), [&](const auto& span) { return span.name == name; });
    };
    EXPECT_LE(find("outer").begin, find("inner").begin);
    EXPECT_LE(find("inner").end, find("outer").end);
    EXPECT_LE(find("across 3").begin, find("outer").begin) << "it was open from the start on";
    EXPECT_EQ(find("open").end, find("across 3").end) << "both end where the profile does";
    open.reset();
    across.reset();
    const std::optional<HostSpan> late(std::in_place, "late");
    spans->start();
    EXPECT_TRUE(spans->stop().empty()) << "what begins after the end is not even noted";
}

/// Ranks may be threads of one process.
TEST(HostSpans, BelongToTheRankOfTheirThread) {
    const auto first = std::make_shared<HostSpans>(), second = std::make_shared<HostSpans>();
    first->start();
    second->start();
    {
        const HostThread here(first, "main");
        std::thread other([&] {
            const HostThread of_second(second, "main");
            std::thread helper([rank = HostThread::rank()] {
                const HostThread there(rank, "data");
                const HostSpan span("batch");
            });
            helper.join();
            const HostSpan span("step");
        });
        other.join();
        const HostSpan span("step");
    }
    { const HostSpan nobodys("nobody's"); }
    EXPECT_EQ(texts(first->stop()), (std::vector<std::string>{"main: step"}));
    EXPECT_EQ(texts(second->stop()), (std::vector<std::string>{"data: batch", "main: step"}));
}

}  // namespace
}  // namespace drover
