#include <gtest/gtest.h>

#include "doctor/gpu_driver.h"
#include "doctor/sections.h"

namespace drover {
namespace {

TEST(GpuCode, RunsOnWhatItWasCompiledFor) {
    EXPECT_EQ(code_for("90a", 9, 0), GpuCode::machine);
    EXPECT_EQ(code_for("90a-real", 9, 0), GpuCode::machine);
    EXPECT_EQ(code_for("90a", 10, 0), GpuCode::none);
    EXPECT_EQ(code_for("90a", 8, 6), GpuCode::none);
    EXPECT_EQ(code_for("100f", 10, 3), GpuCode::machine);
    EXPECT_EQ(code_for("80,90a", 8, 6), GpuCode::machine);  // the same major version
    EXPECT_EQ(code_for("80,90a", 12, 0), GpuCode::ptx);
    EXPECT_EQ(code_for("80-real", 8, 6), GpuCode::machine);
    EXPECT_EQ(code_for("80-real", 9, 0), GpuCode::none);
    EXPECT_EQ(code_for("80-real", 7, 5), GpuCode::none);
    EXPECT_EQ(code_for("86-real", 8, 0), GpuCode::none);
    EXPECT_EQ(code_for("75-virtual", 8, 0), GpuCode::ptx);
    EXPECT_EQ(code_for("120-virtual", 9, 0), GpuCode::none);
    EXPECT_EQ(code_for("80-real,86-real,89-real,90a-real,90-virtual", 9, 0), GpuCode::machine);
    EXPECT_EQ(code_for("80-real,86-real,89-real,90a-real,90-virtual", 10, 0), GpuCode::ptx);
    EXPECT_EQ(code_for("native", 9, 0), GpuCode::unknown);
    EXPECT_EQ(code_for("80-real,all", 9, 0), GpuCode::unknown);
    EXPECT_EQ(code_for("", 9, 0), GpuCode::none);
}

ExaminedModule loaded_module(const std::string& library) {
    return {
        .kind = {},
        .file = "/x/module.so",
        .loaded = true,
        .library = library,
        .facts = {
            {"architectures", "90a-real,90-virtual"}, {"runtime_version", 13000}, {"cudnn_version", 91400}}};
}

GpuDriver driver_with(std::vector<GpuFacts> gpus) {
    return {.installed = true, .cuda_version = 13000, .version = "580.1", .gpus = std::move(gpus)};
}

const GpuFacts h100{
    .name = "H100", .major = 9, .bytes = std::size_t{80} << 30, .free_bytes = std::size_t{79} << 30};

ReportSection examined(const GpuDriver& driver, const ExaminedModule& cuda = loaded_module("CUDA 13.0")) {
    return gpu_section({}, driver, cuda, loaded_module("NCCL 2.28"));
}

std::string first_remedy(const ReportSection& section) {
    for (const Finding& finding : section.findings)
        if (finding.mark == Mark::problem) return finding.remedy;
    return {};
}

TEST(Gpus, ThatWorkAreCounted) {
    const ReportSection section = examined(driver_with({h100, h100}));
    EXPECT_EQ(section.first_problem(), "");
    ASSERT_EQ(section.abilities.size(), 2u);
    EXPECT_TRUE(section.abilities[0].possible);
    EXPECT_EQ(section.abilities[0].how, "2 GPUs");
    EXPECT_TRUE(section.abilities[1].possible);
    EXPECT_EQ(section.findings[0].text, "0: H100, compute capability 9.0, 80.00 GiB, 79.00 GiB free.");
    EXPECT_FALSE(section.stops_training);
}

TEST(Gpus, WithoutCodeInTheModuleAreAProblem) {
    GpuFacts old = h100;
    old.major = 8;
    old.minor = 6;
    const ReportSection section = examined(driver_with({old}));
    EXPECT_NE(section.first_problem().find("the module has no code for it, only for 90a-real,90-virtual"),
              std::string::npos)
        << section.first_problem();
    EXPECT_EQ(first_remedy(section), "Build with -DDROVER_CUDA_ARCHITECTURES=86, or =release for all GPUs.");
    EXPECT_FALSE(section.abilities[0].possible);
    EXPECT_TRUE(section.abilities[0].how.starts_with("the module has no code for"));
    EXPECT_EQ(section.facts["gpus"][0]["usable"], false);
    EXPECT_FALSE(section.stops_training);
}

TEST(Gpus, ThatAreTooOldAreAProblem) {
    GpuFacts old = h100;
    old.major = 7;
    old.minor = 5;
    const ReportSection section = examined(driver_with({old}));
    EXPECT_NE(section.first_problem().find("it is too old: drover needs compute capability 8.0 or later"),
              std::string::npos)
        << section.first_problem();
}

TEST(Gpus, WhoseDriverCompilesTheCodeAreUsable) {
    GpuFacts newer = h100;
    newer.major = 12;
    const ReportSection section = examined(driver_with({newer}));
    EXPECT_TRUE(section.abilities[0].possible);
    EXPECT_EQ(section.findings[1].mark, Mark::note);
    EXPECT_NE(section.findings[1].text.find("its driver compiles the kernels"), std::string::npos);
}

TEST(Gpus, OfAnOldDriverAreAProblem) {
    GpuDriver driver = driver_with({h100});
    driver.cuda_version = 12040;
    EXPECT_NE(
        examined(driver).first_problem().find("its driver knows CUDA up to 12.4, and the module needs 13.0"),
        std::string::npos);
}

TEST(Gpus, ThatMayNotBeUsedOrAreFullAreNamed) {
    GpuFacts taken = h100;
    taken.prohibited = true;
    taken.free_bytes = 1;
    const ReportSection section = examined(driver_with({taken}));
    EXPECT_EQ(first_remedy(section), "As root: nvidia-smi --compute-mode DEFAULT");
    EXPECT_EQ(section.findings[1].text, "More than half of GPU 0's memory is taken.");
}

TEST(Gpus, NeedTheModule) {
    ExaminedModule cuda = loaded_module("");
    cuda.loaded = false;
    cuda.failure = "No GPU can be used: the sky is cloudy.";
    cuda.remedy = "Wait.";
    const ReportSection section = examined(driver_with({h100}), cuda);
    EXPECT_EQ(section.first_problem(), cuda.failure);
    EXPECT_EQ(first_remedy(section), "Wait.");
    EXPECT_EQ(section.abilities[0].how, "the module cuda cannot be used");
}

TEST(Gpus, ThatAreAbsentAreAProblemOnlyWhereTheMachineHasSome) {
    EXPECT_EQ(examined({.failure = "no libcuda.so.1"}).first_problem(), "");
    const ReportSection section = examined({.failure = "no libcuda.so.1", .gpus_on_bus = 2});
    EXPECT_EQ(section.first_problem(),
              "The machine has 2 NVIDIA GPUs, but not the driver's library: no libcuda.so.1.");
    EXPECT_FALSE(section.stops_training);
    EXPECT_EQ(examined({.installed = true, .failure = "it has no GPU"}).first_problem(), "");
}

}  // namespace
}  // namespace drover
