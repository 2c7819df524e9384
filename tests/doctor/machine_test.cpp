#include <gtest/gtest.h>
#include <omp.h>

#include <fstream>

#include "doctor/sections.h"
#include "hub/hub_server.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// A machine's /proc, /sys and so on.
class FakeRoot {
  public:
    FakeRoot& write(const std::string& name, const std::string& text) {
        const fs::path file = folder_ / name;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text;
        return *this;
    }
    DoctorSettings settings() const { return {.root = folder_.path()}; }

  private:
    test::TemporaryFolder folder_;
};

/// All texts of a mark, one per line.
std::string texts(const ReportSection& section, Mark mark) {
    std::string all;
    for (const Finding& finding : section.findings)
        if (finding.mark == mark) all += finding.text + " -> " + finding.remedy + "\n";
    return all;
}

/// OpenMP's number of threads, for a time.
class Threads {
  public:
    explicit Threads(int number) : before_(omp_get_max_threads()) { omp_set_num_threads(number); }
    ~Threads() { omp_set_num_threads(before_); }

  private:
    int before_;
};

TEST(Machine, WithoutFilesOfTheSystemIsDescribedNevertheless) {
    const FakeRoot root;
    EXPECT_EQ(texts(program_section(root.settings()), Mark::problem), "");
    const ReportSection cpu = cpu_section(root.settings());
    EXPECT_FALSE(cpu.stops_training);
    EXPECT_NE(texts(cpu, Mark::ok).find("A processor without a name: "), std::string::npos);
    EXPECT_NE(texts(memory_section(root.settings()), Mark::note).find("does not tell how much memory"),
              std::string::npos);
    const ReportSection processes = processes_section(root.settings(), {.kind = {}, .loaded = true}, 0);
    EXPECT_NE(texts(processes, Mark::note).find("There is no /dev/shm"), std::string::npos);
}

TEST(Machine, ThreadsBeyondTheControlGroupsTimeAreNoted) {
    FakeRoot root;
    root.write("proc/self/cgroup", "0::/\n")
        .write("proc/self/mountinfo", "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .write("sys/fs/cgroup/cpu.max", "50000 100000\n")
        .write("proc/loadavg", "1000000.5 1 1 1/1 1\n")
        .write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Abacus 3000\n");
    const Threads two(2);
    const ReportSection section = cpu_section(root.settings());
    EXPECT_EQ(section.facts["quota"], 0.5);
    EXPECT_EQ(section.facts["model"], "Abacus 3000");
    const std::string notes = texts(section, Mark::note);
    EXPECT_NE(notes.find("Set OMP_NUM_THREADS=1 or give --threads 1."), std::string::npos) << notes;
    EXPECT_NE(notes.find("its load was 1000000.5"), std::string::npos) << notes;
}

TEST(Machine, ThreadsLeftOutByTheUserAreNoted) {
    if (omp_get_num_procs() < 2) GTEST_SKIP() << "this process may use one processor";
    const FakeRoot root;
    const test::Variables asked("OMP_NUM_THREADS", "1");
    const Threads one(1);
    EXPECT_NE(texts(cpu_section(root.settings()), Mark::note).find("because OMP_NUM_THREADS is 1"),
              std::string::npos);
}

TEST(Machine, AWrongInstructionSetStopsTraining) {
    const FakeRoot root;
    const test::Variables wrong("DROVER_CPU_ISA", "mmx");
    const ReportSection section = cpu_section(root.settings());
    EXPECT_TRUE(section.stops_training);
    EXPECT_NE(section.first_problem().find("DROVER_CPU_ISA is \"mmx\""), std::string::npos);
    EXPECT_FALSE(section.abilities.at(0).possible);
}

TEST(Machine, MemoryAndItsLimits) {
    FakeRoot root;
    root.write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:     524288 kB\nSwapFree: 0 kB\n")
        .write("proc/self/cgroup", "0::/\n")
        .write("proc/self/mountinfo", "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .write("sys/fs/cgroup/memory.max", "1073741824\n")
        .write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    const ReportSection section = memory_section(root.settings());
    EXPECT_EQ(section.facts["total"], std::size_t{16} << 30);
    EXPECT_EQ(section.facts["transparent_huge_pages"], "never");
    EXPECT_NE(texts(section, Mark::ok).find("16.00 GiB installed, 512.00 MiB available."), std::string::npos);
    const std::string notes = texts(section, Mark::note);
    for (const char* part :
         {"may take 1.00 GiB", "Only 512.00 MiB are available", "Transparent huge pages are off"})
        EXPECT_NE(notes.find(part), std::string::npos) << part << "\n" << notes;
}

/// Programs by this name in front of PATH.
class FakeMpirun {
  public:
    explicit FakeMpirun(const std::string& version) {
        std::ofstream(folder_ / "mpirun") << "#!/bin/sh\necho 'mpirun (Open MPI) " << version << "'\n";
        fs::permissions(folder_ / "mpirun", fs::perms::owner_all);
    }

  private:
    test::TemporaryFolder folder_;
    test::Variables path_{"PATH", folder_.path().string() + ":" + std::getenv("PATH")};
};

TEST(Processes, NeedAnMpirunOfTheModulesSeries) {
    const FakeRoot root;
    const ExaminedModule mpi{.kind = {}, .loaded = true, .library = "Open MPI 4.1.4"};
    {
        const FakeMpirun same("4.1.6");
        const ReportSection section = processes_section(root.settings(), mpi, 0);
        EXPECT_EQ(section.first_problem(), "");
        EXPECT_TRUE(section.abilities.at(0).possible);
        EXPECT_EQ(section.facts["mpirun"]["version"], "4.1.6");
    }
    const FakeMpirun other("5.0.3");
    const ReportSection section = processes_section(root.settings(), mpi, 0);
    EXPECT_NE(section.first_problem().find("is of Open MPI 5.0.3, but the module mpi uses Open MPI 4.1.4"),
              std::string::npos)
        << section.first_problem();
    EXPECT_FALSE(section.abilities.at(0).possible);
}

TEST(Processes, OfALauncherThatCannotJoinThemAreAProblem) {
    const FakeRoot root;
    const test::Variables torchrun({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"LOCAL_RANK", "1"}});
    const ReportSection section = processes_section(root.settings(), {.kind = {}}, 0);
    EXPECT_NE(section.first_problem().find("WORLD_SIZE is 2: another launcher has started 2 processes"),
              std::string::npos)
        << section.first_problem();
}

}  // namespace
}  // namespace drover
