#include "core/failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "support/errors.h"

namespace drover {
namespace {

std::string explained(const std::exception& problem) {
    return explain_failure(problem, "planning the run").what();
}

TEST(Failure, WhatTheSystemRefusesIsNoFaultOfTheProgram) {
    const std::string memory = explained(std::bad_alloc());
    EXPECT_NE(memory.find("while planning the run: the machine has "), std::string::npos) << memory;
    const std::string threads =
        explained(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
    EXPECT_NE(threads.find("refused another thread while planning the run"), std::string::npos) << threads;
    EXPECT_NE(threads.find("ulimit -u"), std::string::npos) << threads;
    const std::string file = explained(std::filesystem::filesystem_error(
        "cannot open", "some/file", std::make_error_code(std::errc::permission_denied)));
    EXPECT_NE(file.find("some/file"), std::string::npos) << file;
    for (const std::string& text : {memory, threads, file})
        EXPECT_EQ(text.find("internal error"), std::string::npos) << text;
}

TEST(Failure, AnythingElseIsAndNamesThePlace) {
    EXPECT_EQ(explained(std::out_of_range("vector::at")),
              "The program failed because of an internal error while planning the run: vector::at "
              "(std::out_of_range). "
              "Please report this line and the command; what was saved before can be used.");
}

TEST(Failure, ErrorsPassAsTheyAre) {
    const auto passed = test::caught<UsageError>(
        [] {
            explain_failures("planning the run", [] { throw UsageError("A flag is wrong.", "Mend it."); });
        },
        CodePlace::here());
    ASSERT_TRUE(passed);
    EXPECT_STREQ(passed->what(), "A flag is wrong. Mend it.");
    EXPECT_EQ(passed->exit_code(), 2);
    test::expect_error([&] { explain_failures("planning the run", [] { throw std::bad_alloc(); }); },
                       {"planning the run"});
}

}  // namespace
}  // namespace drover
