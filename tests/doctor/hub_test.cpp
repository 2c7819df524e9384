#include <gtest/gtest.h>

#include <fstream>

#include "doctor/sections.h"
#include "hub/hub_server.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The Hub, played by a server, and a home of its own.
class DoctorOfHub : public testing::Test {
  protected:
    void SetUp() override {
        if (!server_.runs()) GTEST_SKIP() << "python3, which plays the Hub, is not there";
    }
    static ReportSection look(bool network) {
        return hub_section({.network = network}, {.kind = {}, .loaded = true, .library = "libcurl 8"});
    }

    test::TemporaryFolder folder_;
    test::HubServer server_{folder_ / "server"};
    test::Variables variables_{test::hub_variables(server_, folder_ / "home")};
};

TEST_F(DoctorOfHub, IsAskedOnlyWithNetwork) {
    const test::Variables token("HF_TOKEN", "hf_right");
    const ReportSection silent = look(false);
    EXPECT_EQ(silent.first_problem(), "");
    EXPECT_TRUE(silent.abilities.at(0).possible);
    EXPECT_TRUE(server_.requests().empty());
    const ReportSection asked = look(true);
    EXPECT_EQ(asked.first_problem(), "");
    EXPECT_EQ(asked.facts["network"]["user"], "tester") << asked.facts;
    EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(DoctorOfHub, ThatDoesNotKnowTheTokenIsAProblem) {
    const test::Variables token("HF_TOKEN", "hf_wrong");
    const ReportSection section = look(true);
    EXPECT_NE(section.first_problem().find("does not know this token"), std::string::npos);
    EXPECT_FALSE(section.abilities.at(0).possible);
}

TEST_F(DoctorOfHub, ThatDoesNotAnswerIsAProblem) {
    const test::Variables nobody("HF_ENDPOINT", "http://127.0.0.1:1");
    EXPECT_TRUE(look(true).first_problem().starts_with("http://127.0.0.1:1 does not answer: "));
    EXPECT_EQ(look(false).first_problem(), "");
}

TEST_F(DoctorOfHub, IsLeftAloneOffline) {
    const test::Variables offline("HF_HUB_OFFLINE", "1");
    const ReportSection section = look(true);
    EXPECT_TRUE(server_.requests().empty());
    EXPECT_EQ(section.facts["offline"], true);
    EXPECT_EQ(section.abilities.at(0).how, "offline: from the cache alone");
}

TEST_F(DoctorOfHub, TokensAreNeverShown) {
    const auto expect_hidden = [](const std::string& place) {
        Report report{.heading = {}, .sections = {look(false)}};
        for (const std::string& shown : {report.text(), report.json().dump()}) {
            EXPECT_EQ(shown.find("secret"), std::string::npos) << shown;
            EXPECT_NE(shown.find(place), std::string::npos) << shown;
        }
    };
    {
        const test::Variables damaged("HF_TOKEN", "hf_secret and more of the secret");
        expect_hidden("The token of HF_TOKEN has characters that no token has.");
    }
    const std::string file = folder_ / "home/token";
    fs::create_directories(folder_ / "home");
    std::ofstream(file) << "hf_secret\n";
    fs::permissions(file, fs::perms::owner_read | fs::perms::others_read);
    expect_hidden("A token is in " + file);
    EXPECT_EQ(look(false).findings.back().text,
              "Other users of this machine can read the token in " + file + ".");
    fs::permissions(file, fs::perms::owner_read);
    EXPECT_EQ(look(false).findings.back().mark, Mark::ok);
}

TEST_F(DoctorOfHub, AnEndpointThatIsNoAddressIsAProblem) {
    const test::Variables wrong("HF_ENDPOINT", "nowhere");
    const ReportSection section = look(false);
    EXPECT_EQ(section.first_problem(), "The environment variable HF_ENDPOINT is \"nowhere\".");
    EXPECT_FALSE(section.stops_training);
}

}  // namespace
}  // namespace drover
