#include "doctor/modules.h"

#include <gtest/gtest.h>

#include "doctor/sections.h"

namespace drover {
namespace {

const BuildFacts cuda_build{.version = "1.2.3",
                            .commit = "abcdef",
                            .type = "Release",
                            .compiler = "GNU 12",
                            .cuda = "13.0",
                            .architectures = "90a"};

TEST(Modules, AMissingLibraryIsNamedWithItsPackage) {
    const auto advice = [](const std::string& library) {
        return missing_library_advice("the module /x/drover_y.so cannot be loaded (" + library +
                                          ": cannot open shared object file: No such file or directory)",
                                      cuda_build);
    };
    EXPECT_EQ(
        advice("libcudnn.so.9"),
        "Install cuDNN (NVIDIA's apt repository: apt-get install cudnn9-cuda-13), or add the folder that "
        "has libcudnn.so.9 to LD_LIBRARY_PATH.");
    EXPECT_NE(advice("libcublasLt.so.13").find("cuda-libraries-13-0"), std::string::npos);
    EXPECT_NE(advice("libcudart.so.13").find("cuda-libraries-13-0"), std::string::npos);
    EXPECT_NE(advice("libnccl.so.2").find("apt-get install libnccl2"), std::string::npos);
    EXPECT_NE(advice("libmpi.so.40").find("apt-get install openmpi-bin"), std::string::npos);
    EXPECT_NE(advice("libcurl.so.4").find("apt-get install libcurl4"), std::string::npos);
    EXPECT_EQ(advice("libsurprise.so.7"), "Install the library libsurprise.so.7.");
    EXPECT_EQ(missing_library_advice("/lib/libc.so.6: version `GLIBC_2.38' not found (required by …)", {}),
              "It was built on a newer system than this one: build it here.");
    EXPECT_EQ(missing_library_advice("file too short", {}), "");
}

/// `name` must last as long as the result.
ExaminedModule failed(std::string_view name, const std::string& file) {
    return {.kind = {.use = {.name = name, .version = 1, .impossible = "No"}, .needs = {}, .purpose = "this"},
            .file = file,
            .failure = std::string(name) + " failed.",
            .remedy = "Repair it."};
}

/// The mark of a module that could not be loaded.
Mark mark_of(const ExaminedModule& module, std::size_t gpus) {
    GpuDriver driver;
    driver.gpus.resize(gpus);
    return modules_section({}, {module}, driver).findings.at(0).mark;
}

TEST(Modules, ThatFailAreAProblemWhereTheyWouldBeUsed) {
    EXPECT_EQ(mark_of(failed("arrow", ""), 0), Mark::note);  // left out of the build
    EXPECT_EQ(mark_of(failed("arrow", "/x/drover_arrow.so"), 0), Mark::problem);
    EXPECT_EQ(mark_of(failed("cuda", "/x/drover_cuda.so"), 0), Mark::note);
    EXPECT_EQ(mark_of(failed("cuda", ""), 1), Mark::problem);
    EXPECT_EQ(mark_of(failed("nccl", ""), 1), Mark::note);
    EXPECT_EQ(mark_of(failed("nccl", ""), 2), Mark::problem);
    ExaminedModule named = failed("cuda", "");
    named.named = true;
    EXPECT_EQ(mark_of(named, 0), Mark::problem);
}

TEST(BuildFacts, AreShortLines) {
    EXPECT_EQ(version_line(cuda_build), "drover 1.2.3 (commit abcdef)");
    EXPECT_EQ(build_line(cuda_build), "Release build, GNU 12, CUDA 13.0 for 90a");
    BuildFacts other = cuda_build;
    other.modified = true;
    other.cuda.clear();
    EXPECT_EQ(version_line(other), "drover 1.2.3 (commit abcdef, modified)");
    EXPECT_EQ(build_line(other), "Release build, GNU 12, without CUDA");
    other.commit.clear();
    other.modified = false;
    EXPECT_EQ(version_line(other), "drover 1.2.3 (commit unknown)");
}

}  // namespace
}  // namespace drover
