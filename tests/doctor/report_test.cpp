#include "doctor/report.h"

#include <gtest/gtest.h>

#include <sstream>

namespace drover {
namespace {

Report small_report() {
    ReportSection cpu{.key = "cpu", .title = "CPU"};
    cpu.ok("Two processors.");
    cpu.abilities.push_back({"cpu", "train on the CPU", true, "AVX2, 2 threads"});
    ReportSection disk{.key = "disk", .title = "Disk"};
    disk.facts["free"] = 17;
    disk.note("Little is left.", "Remove something.");
    return {.heading = "drover 1 on here", .sections = {cpu, disk}};
}

TEST(Report, ShowsMarksAndRemedies) {
    EXPECT_EQ(small_report().text(),
              "drover 1 on here\n\n"
              "  train on the CPU          yes  AVX2, 2 threads\n"
              "\nCPU\n"
              "  ok       Two processors.\n"
              "\nDisk\n"
              "  note     Little is left.\n"
              "           -> Remove something.\n"
              "\n0 problems, 1 note. Training on the CPU is possible.\n");
}

TEST(Report, AProblemElsewhereStopsTraining) {
    Report report = small_report();
    report.sections[1].problem("It is slow.", "Buy a better one.");
    EXPECT_TRUE(report.can_train());
    EXPECT_TRUE(report.abilities()[0].possible);
    report.sections[1].findings.clear();
    report.sections[1].stopper("It is full.", "Empty it.");
    EXPECT_FALSE(report.can_train());
    EXPECT_FALSE(report.abilities()[0].possible);
    EXPECT_EQ(report.abilities()[0].how, "It is full");
    EXPECT_NE(report.text().find("1 problem, 0 notes. Nothing can be trained here as it is."),
              std::string::npos)
        << report.text();
}

TEST(Report, LongTextsBreakBetweenWordsAndPathsStayWhole) {
    const std::string path = "/" + std::string(150, 'p');
    Report report = small_report();
    report.sections[0].ok("word " + path + " " + std::string(60, 'a') + " " + std::string(60, 'b'));
    const std::string text = report.text();
    EXPECT_NE(text.find(path), std::string::npos) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.find(path) != std::string::npos) continue;
        EXPECT_LE(line.size(), 100u) << line;
    }
}

TEST(Report, JsonHoldsTheSame) {
    const Json json = small_report().json();
    EXPECT_EQ(json["can_train_on_cpu"], true);
    EXPECT_EQ(json["notes"], 1);
    EXPECT_EQ(json["abilities"]["cpu"]["how"], "AVX2, 2 threads");
    EXPECT_EQ(json["sections"]["disk"]["facts"]["free"], 17);
    EXPECT_EQ(json["sections"]["disk"]["findings"][0]["mark"], "note");
    EXPECT_EQ(json["sections"]["disk"]["findings"][0]["remedy"], "Remove something.");
}

}  // namespace
}  // namespace drover
