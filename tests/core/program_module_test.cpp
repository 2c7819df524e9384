#include "core/program_module.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/this_process.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

fs::path beside_program(const std::string& file) {
    return program_path().parent_path() / file;
}

/// The module that the build puts next to this test (module/sundial.cpp), unless another name is given.
ModuleUse sundial(std::string_view name = "sundial", int version = 3) {
    return {.name = name,
            .version = version,
            .impossible = "The hour cannot be told",
            .remedy = "Wait for the sun."};
}

/// Why the module's function is not available.
std::string cause(const ModuleUse& use, const char* function = "drover_sundial_hour") {
    try {
        use.address(function);
    } catch (const Error& error) {
        EXPECT_EQ(error.remedy(), "Wait for the sun.");
        return error.cause();
    }
    ADD_FAILURE() << "it can be had";
    return "";
}

/// Sets the variable that names the sundial's file, for the object's lifetime.
class NamedFile {
  public:
    explicit NamedFile(const fs::path& place) { setenv("DROVER_SUNDIAL_MODULE", place.c_str(), 1); }
    ~NamedFile() { unsetenv("DROVER_SUNDIAL_MODULE"); }
};

TEST(ProgramModule, IsFoundBesideTheProgram) {
    EXPECT_EQ(sundial().function<int()>("drover_sundial_hour")(), 12);
    const LoadedModule loaded = load_module("sundial");
    EXPECT_NE(loaded.handle, nullptr) << loaded.reason;
    EXPECT_EQ(loaded.place, beside_program("drover_sundial.so"));
}

TEST(ProgramModule, ThatIsAbsentIsLookedForWhereItWouldBeInstalledToo) {
    const std::string begin =
        "The hour cannot be told: the module drover_moondial.so was not found (searched: " +
        beside_program("drover_moondial.so").string() + ", ";
    const std::string text = cause(sundial("moondial"));
    EXPECT_EQ(text.substr(0, begin.size()), begin);
    EXPECT_TRUE(text.ends_with("/drover/drover_moondial.so).")) << text;
    EXPECT_EQ(load_module("moondial").handle, nullptr);
}

TEST(ProgramModule, IsOnlyTheFileThatItsVariableNames) {
    const NamedFile named("/nonexistent/file.so");
    EXPECT_EQ(cause(sundial()),
              "The hour cannot be told: the module drover_sundial.so was not found (searched: "
              "/nonexistent/file.so).");
}

TEST(ProgramModule, ThatIsNoLibraryIsRefused) {
    const fs::path text = fs::path(testing::TempDir()) / "program_module_test.so";
    std::ofstream(text) << "not a library";
    const NamedFile named(text);
    const std::string begin = "The hour cannot be told: the module " + text.string() + " cannot be loaded (";
    EXPECT_EQ(cause(sundial()).substr(0, begin.size()), begin);
    fs::remove(text);
}

TEST(ProgramModule, OfAnotherVersionIsRefused) {
    const std::string refusal = "The hour cannot be told: the module " +
                                beside_program("drover_sundial.so").string() +
                                " belongs to another version of the program.";
    EXPECT_EQ(cause(sundial("sundial", 4)), refusal);
    EXPECT_EQ(cause(sundial(), "drover_sundial_minute"), refusal);
}

}  // namespace
}  // namespace drover
