#include <gtest/gtest.h>

#include <fstream>

#include "core/existing_folder.h"
#include "doctor/disk_speed.h"
#include "doctor/sections.h"
#include "hub/hub_server.h"
#include "support/file_size_limit.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

TEST(DiskSpeed, IsMeasuredAndLeavesNothing) {
    const test::TemporaryFolder folder;
    const DiskSpeed speed = measure_disk(folder.path(), 0.05);
    EXPECT_EQ(speed.failure, "");
    EXPECT_GE(speed.bytes, std::uint64_t{1} << 20);
    EXPECT_GT(speed.write_rate, 0);
    EXPECT_GT(speed.read_rate, 0);
    EXPECT_FALSE(speed.damaged);
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DiskSpeed, AFileThatMayNotGrowIsAFailureAndNoSignal) {
    const test::TemporaryFolder folder;
    const test::FileSizeLimit limit(100'000);
    std::signal(SIGXFSZ, SIG_DFL);
    EXPECT_EQ(measure_disk(folder.path(), 0.05).failure, "File too large");
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DiskSpeed, AFolderThatDoesNotTakeFilesIsAFailure) {
    EXPECT_NE(measure_disk("/proc", 0.05).failure, "");
    EXPECT_NE(measure_disk("/nonexistent", 0.05).failure, "");
}

TEST(DiskSpeed, AFolderThatIsNotThereYetIsThatAboveIt) {
    const test::TemporaryFolder folder;
    EXPECT_EQ(existing_folder(folder / "a/b/c"), folder.path());
    EXPECT_EQ(existing_folder("/nonexistent/a"), "/");
}

/// The folders of a run, by its variables.
struct Places {
    test::TemporaryFolder folder;
    test::Variables variables{{{"HOME", (folder / "home").string()},
                               {"DROVER_CACHE", (folder / "tokens").string()},
                               {"HF_HUB_CACHE", (folder / "hub").string()}}};
};

TEST(Disk, AFolderThatCannotBeWrittenToStopsTraining) {
    const Places places;
    const ReportSection section = disk_section({.output_folder = "/proc/a"});
    EXPECT_TRUE(section.stops_training);
    EXPECT_TRUE(section.first_problem().starts_with("The output folder /proc/a cannot be written to: "))
        << section.first_problem();
    EXPECT_EQ(section.facts["output"]["writable"], false);
    EXPECT_EQ(section.facts["tokens"]["writable"], true);
    std::ofstream(places.folder / "file") << "x";
    EXPECT_EQ(disk_section({.output_folder = places.folder / "file"}).first_problem(),
              "The output folder " + (places.folder / "file").string() +
                  " cannot be written to: it is not a folder.");
}

TEST(Disk, OneFileSystemIsMeasuredOnceAndNothingIsMade) {
    const Places places;
    const ReportSection section = disk_section({.output_folder = places.folder / "a/../out/"});
    EXPECT_EQ(section.first_problem(), "");
    EXPECT_EQ(section.facts["output"]["folder"], (places.folder / "out").string());
    EXPECT_NE(section.findings.front().text.find(" (not made yet; measured in " +
                                                 places.folder.path().string() + ")"),
              std::string::npos)
        << section.findings.front().text;
    EXPECT_TRUE(section.facts["output"].contains("write_bytes_per_second"));
    EXPECT_FALSE(section.facts["tokens"].contains("write_bytes_per_second"));
    EXPECT_TRUE(fs::is_empty(places.folder.path()));
}

TEST(Caches, AreCountedWithoutLinks) {
    const Places places;
    fs::create_directories(places.folder / "hub/models--a--b/blobs");
    std::ofstream(places.folder / "hub/models--a--b/blobs/x") << std::string(1000, 'x');
    fs::create_symlink(places.folder / "hub/models--a--b/blobs/x", places.folder / "hub/link");
    const ReportSection section = caches_section();
    EXPECT_EQ(section.facts["hub"]["bytes"], 1000);
    EXPECT_EQ(section.facts["tokens"]["exists"], false);
    EXPECT_EQ(section.first_problem(), "");
}

TEST(Disk, AFolderThatIsThereIsMeasuredItself) {
    const Places places;
    EXPECT_EQ(
        disk_section({.output_folder = places.folder.path()}).findings.front().text.find("not made yet"),
        std::string::npos);
}

TEST(Caches, OneThatDependsOnTheFolderOfARunIsNamedOnce) {
    const test::Variables variables({{"HOME", ""},
                                     {"XDG_CACHE_HOME", ""},
                                     {"HF_HOME", ""},
                                     {"HF_HUB_CACHE", ""},
                                     {"HUGGINGFACE_HUB_CACHE", ""},
                                     {"TRANSFORMERS_CACHE", ""},
                                     {"DROVER_CACHE", "/tmp"}});
    std::vector<Finding> of_hub;
    for (const Finding& finding : caches_section().findings)
        if (finding.text.starts_with("Hub: ")) of_hub.push_back(finding);
    ASSERT_EQ(of_hub.size(), 1u);
    EXPECT_EQ(of_hub[0].mark, Mark::note);
    EXPECT_EQ(of_hub[0].remedy, "Set HOME or HF_HOME to a folder.");
}

TEST(Variables, ThoseThatARunRefusesStopTraining) {
    for (const auto& [name, value] : {std::pair("OMP_NUM_THREADS", "abc"), std::pair("PJRT_DEVICE", "foo")}) {
        const test::Variables variables(name, value);
        const ReportSection section = variables_section();
        EXPECT_TRUE(section.stops_training) << name;
        EXPECT_NE(section.first_problem().find(name), std::string::npos) << section.first_problem();
        EXPECT_NE(section.first_problem().find(value), std::string::npos) << section.first_problem();
    }
    const test::Variables sound("OMP_NUM_THREADS", "4,2");
    EXPECT_FALSE(variables_section().stops_training);
}

TEST(Caches, WithoutAPlaceForTokensNothingIsTrained) {
    const test::Variables tokens("DROVER_CACHE", "/proc/cache");
    const ReportSection section = caches_section();
    EXPECT_TRUE(section.stops_training);
    EXPECT_NE(section.first_problem().find("/proc/cache, not made yet; it cannot be written to: "),
              std::string::npos)
        << section.first_problem();
}

}  // namespace
}  // namespace drover
