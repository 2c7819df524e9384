#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "support/golden.h"
#include "support/run_drover.h"

namespace drover::test::man_test {
namespace {

/// The words after `drover man`: nothing, and every command.
std::vector<std::string> all_pages() {
    std::vector<std::string> pages{""};
    std::istringstream lines(run_drover("completion-candidates bash ''").output);
    for (std::string line; std::getline(lines, line);) pages.push_back(line.substr(0, line.find('\t')));
    return pages;
}

bool has_program(const std::string& name) {
    return run_shell("command -v " + name + " >/dev/null").exit_code == 0;
}

TEST(ManPages, SayWhatTheCommandsDo) {
    const Outcome page = run_drover("man run_clm");
    EXPECT_EQ(page.exit_code, 0);
    for (const char* part : {".TH \"DROVER\\-RUN_CLM\" \"1\"", "\\fB\\-\\-learning_rate\\fR", "5e\\-05",
                             ".SH \"EXIT STATUS\"", "PJRT_DEVICE"})
        EXPECT_NE(page.output.find(part), std::string::npos) << part;
    EXPECT_NE(run_drover("man bench").output.find(".SH \"DROVER BENCH OPS\""), std::string::npos);
    EXPECT_NE(run_drover("man").output.find("drover\\-run_llama_nxd(1)"), std::string::npos);
    const Outcome unknown = run("man trian");
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.output.find("run_clm or sft"), std::string::npos) << unknown.output;
}

TEST(ManPages, RenderWithoutWarnings) {
    EXPECT_GE(all_pages().size(), 16u);
    if (!has_program("groff")) GTEST_SKIP() << "groff is not installed (package groff).";
    const TemporaryFolder folder;
    for (const std::string& command : all_pages()) {
        // What it warns of comes before the text.
        const Outcome page = run_shell(std::string(DROVER_BINARY) + " man " + command +
                                           " | groff -man -ww -Tutf8 -P-cbou -rLL=100n 2>&1 >text; cat text",
                                       folder.path().string());
        EXPECT_TRUE(page.output.starts_with("DROVER")) << command << "\n" << page.output.substr(0, 2000);
        EXPECT_NE(page.output.find("NAME\n       drover"), std::string::npos) << page.output.substr(0, 300);
    }
}

TEST(ManPages, PassMandoc) {
    if (!has_program("mandoc")) GTEST_SKIP() << "mandoc is not installed (package mandoc).";
    for (const std::string& command : all_pages())
        EXPECT_EQ(run_shell(std::string(DROVER_BINARY) + " man " + command +
                            " | mandoc -T lint -W warning | grep -v 'missing date'")
                      .output,
                  "")
            << command;
}

}  // namespace
}  // namespace drover::test::man_test
