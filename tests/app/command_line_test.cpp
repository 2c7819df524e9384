#include <gtest/gtest.h>

#include <string>

#include "app/run_drover.h"

namespace drover {
namespace {

using test::Outcome;
using test::run;

TEST(CommandLine, HelpAndVersion) {
    const Outcome help = run("--help");
    EXPECT_EQ(help.exit_code, 0);
    for (const char* command : {"run_clm", "tokenize", "bench"})
        EXPECT_NE(help.output.find(command), std::string::npos) << help.output;
    EXPECT_NE(run("run_clm --help").output.find("--learning_rate"), std::string::npos);
    EXPECT_EQ(run("--version").exit_code, 0);
}

TEST(CommandLine, UsageErrorsExitWithTwo) {
    for (const auto& [arguments, part] : {std::pair{"", "subcommand"}, std::pair{"dance", "dance"},
                                          std::pair{"bench --stepz 3", "--stepz"}}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
        EXPECT_TRUE(outcome.output.starts_with("drover: ")) << outcome.output;
    }
}

}  // namespace
}  // namespace drover
