#include "backend/cuda/ranges.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace drover::cuda {
namespace {

TEST(Ranges, ReachAToolThatWasLoaded) {
    setenv("NVTX_INJECTION64_PATH", LISTENING_TOOL, 1);  // NVTX looks once, at the first call
    ASSERT_TRUE(tool_takes_ranges());
    push_range("Model", -1);
    push_range("DecoderLayer", 31);
    pop_range();
    push_range(std::string(500, 'x'), 2'000'000'000);
    pop_range();
    pop_range();
    push_range("optimizer", 0);
    pop_range();
    void* const tool = dlopen(LISTENING_TOOL, RTLD_NOW);
    ASSERT_NE(tool, nullptr) << dlerror();
    const auto heard = reinterpret_cast<const char* (*)()>(dlsym(tool, "listening_tool_heard"));
    ASSERT_NE(heard, nullptr);
    EXPECT_EQ(std::string(heard()), "domain drover\ndrover\nModel\n DecoderLayer 31\n " +
                                        std::string(32, 'x') + " 2000000000\noptimizer 0\n");
}

}  // namespace
}  // namespace drover::cuda
