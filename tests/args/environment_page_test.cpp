#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "core/text_file.h"

namespace drover {
namespace {

const std::filesystem::path source = DROVER_SOURCE_DIR;

using Names = std::set<std::string>;

/// The first group of every match.
Names names_in(const std::string& text, const std::regex& pattern) {
    Names names;
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
        names.insert((*match)[1]);
    return names;
}

/// Matches in all C++ and CUDA sources in a folder.
Names names_under(const std::filesystem::path& folder, const std::regex& pattern) {
    Names names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".cpp" || extension == ".h" || extension == ".cu" || extension == ".cuh")
            names.merge(names_in(read_text_file(entry.path()), pattern));
    }
    return names;
}

/// "mpi" → "DROVER_MPI_MODULE"
std::string variable_of_module(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    return "DROVER_" + name + "_MODULE";
}

Names only_in_first(const Names& first, const Names& second) {
    Names names;
    for (const std::string& name : first)
        if (!second.contains(name)) names.insert(name);
    return names;
}

TEST(EnvironmentPage, NamesEveryVariableThatIsRead) {
    const std::string page = read_text_file(source / "docs/environment.md");
    const std::size_t tests_begin = page.find("## For the tests");
    ASSERT_NE(tests_begin, std::string::npos);
    const std::regex row("\n\\| `(DROVER_[A-Z0-9_]+)` \\|");
    const Names of_program = names_in(page.substr(0, tests_begin), row);
    const Names of_tests = names_in(page.substr(tests_begin), row);

    // A name in quotes is a variable; macros have no quotes.
    Names read = names_under(source / "src", std::regex("\"(DROVER_[A-Z0-9_]+)\""));
    // core/program_module.cpp makes a module's variable from its name.
    for (const std::string& module : names_under(
             source / "src", std::regex("(?:\\.name = |load_module\\()\"([a-z]+)\"(?:,\\s*\\.version|\\))")))
        read.insert(variable_of_module(module));
    EXPECT_TRUE(read.contains("DROVER_CACHE"));
    EXPECT_EQ(only_in_first(read, of_program), Names{}) << "docs/environment.md does not name these";
    EXPECT_EQ(only_in_first(of_program, read), Names{}) << "src/ reads none of these";

    Names named = of_tests;
    named.insert(of_program.begin(), of_program.end());
    const Names read_by_tests =
        names_under(source / "tests", std::regex("getenv\\(\"(DROVER_[A-Z0-9_]+)\"\\)"));
    EXPECT_TRUE(read_by_tests.contains("DROVER_TEST_DEVICE"));
    EXPECT_EQ(only_in_first(read_by_tests, named), Names{}) << "docs/environment.md does not name these";
}

}  // namespace
}  // namespace drover
