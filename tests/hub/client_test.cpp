#include "hub/client.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/errors.h"

namespace drover {
namespace {

using test::expect_error;

/// Answers of a network that is not there, and what was asked of it.
struct FakeNetwork {
    std::deque<HttpAnswer> answers;
    std::vector<HttpRequest> requests;

    HubClient::Connect connect() {
        return [this] { return std::make_unique<Connection>(*this); };
    }
    std::vector<std::string> tokens_sent_to() const {
        std::vector<std::string> urls;
        for (const HttpRequest& request : requests)
            for (const auto& [name, value] : request.headers)
                if (name == "Authorization") urls.push_back(request.url);
        return urls;
    }

  private:
    struct Connection final : HttpConnection {
        explicit Connection(FakeNetwork& network) : network_(network) {}
        HttpAnswer send(const HttpRequest& request) override {
            network_.requests.push_back(request);
            HttpAnswer answer = network_.answers.front();
            if (network_.answers.size() > 1) network_.answers.pop_front();
            return answer;
        }
        FakeNetwork& network_;
    };
};

HttpAnswer redirect(const std::string& to) {
    return {.status = 302, .headers = {{"location", to}}};
}

HubSettings settings(int tries = 3) {
    return {.endpoint = *WebAddress::parse("https://hub.example"),
            .token = "hf_secret",
            .retry = {.tries = tries, .connection_tries = 2, .first_wait = std::chrono::milliseconds(1)}};
}

TEST(HubClient, GivesTheTokenToTheEndpointOnly) {
    FakeNetwork network{.answers = {redirect("https://cdn.example/file"), {.status = 200, .body = "x"}}};
    HubClient client(settings(), network.connect());
    EXPECT_EQ(client.send({.url = "https://hub.example/file"}).body, "x");
    ASSERT_EQ(network.requests.size(), 2u);
    EXPECT_EQ(network.requests[1].url, "https://cdn.example/file");
    EXPECT_EQ(network.tokens_sent_to(), std::vector<std::string>{"https://hub.example/file"});
}

TEST(HubClient, GivesNoTokenToLookAlikes) {
    for (const char* place : {"http://hub.example/x", "https://hub.example:444/x",
                              "https://hub.example.evil/x", "https://evil/?https://hub.example"}) {
        FakeNetwork network{.answers = {{.status = 200}}};
        HubClient(settings(), network.connect()).send({.url = place});
        EXPECT_TRUE(network.tokens_sent_to().empty()) << place;
    }
}

TEST(HubClient, RefusesBadRedirects) {
    for (const char* place : {"http://hub.example/x", "file:///etc/passwd", ""}) {
        FakeNetwork network{.answers = {redirect(place), {.status = 200}}};
        HubClient client(settings(), network.connect());
        expect_error([&] { client.send({.url = "https://hub.example/file"}); }, {"https://hub.example"});
        EXPECT_EQ(network.requests.size(), 1u) << place;
    }
    FakeNetwork circle{.answers = {redirect("/again")}};
    HubClient client(settings(), circle.connect());
    expect_error([&] { client.send({.url = "https://hub.example/file"}); }, {"without end"});
    FakeNetwork upload{.answers = {redirect("https://evil.example/"), {.status = 200}}};
    HubClient sender(settings(), upload.connect());
    expect_error([&] { sender.send({.method = "POST", .url = "https://hub.example/x", .body = "weights"}); },
                 {"upload", "https://evil.example"});
    EXPECT_EQ(upload.requests.size(), 1u);
}

TEST(HubClient, RepeatsWhatMayGoWellLater) {
    FakeNetwork network{.answers = {{.status = 503}, {.failure = "broken"}, {.status = 200, .body = "x"}}};
    HubClient client(settings(), network.connect());
    EXPECT_EQ(client.send({.url = "https://hub.example/"}).body, "x");
    EXPECT_EQ(network.requests.size(), 3u);
    FakeNetwork down{.answers = {{.status = 500}}};
    HubClient other(settings(), down.connect());
    EXPECT_EQ(other.send({.url = "https://hub.example/"}).status, 500);
    EXPECT_EQ(down.requests.size(), 3u);
    FakeNetwork absent{.answers = {{.failure = "no route", .no_connection = true}}};
    HubClient third(settings(), absent.connect());
    EXPECT_EQ(third.send({.url = "https://hub.example/"}).failure, "no route");
    EXPECT_EQ(absent.requests.size(), 2u);
    FakeNetwork missing{.answers = {{.status = 404}}};
    HubClient(settings(), missing.connect()).send({.url = "https://hub.example/"});
    EXPECT_EQ(missing.requests.size(), 1u);
}

TEST(BackOff, WaitsLongerEachTimeAndObeysTheServer) {
    std::vector<std::int64_t> waits;
    BackOff back_off(
        {.tries = 5, .first_wait = std::chrono::seconds(1), .longest_wait = std::chrono::seconds(3)},
        [&](std::chrono::milliseconds time) { waits.push_back(time.count()); });
    const HttpAnswer busy{.status = 503}, asked{.status = 429, .headers = {{"retry-after", "20"}}};
    EXPECT_TRUE(back_off.again(busy));
    EXPECT_TRUE(back_off.again(busy));
    EXPECT_TRUE(back_off.again(busy));
    EXPECT_TRUE(back_off.again(asked));
    EXPECT_FALSE(back_off.again(busy));
    back_off.progress();
    EXPECT_TRUE(back_off.again(busy));
    EXPECT_EQ(waits, (std::vector<std::int64_t>{1000, 2000, 3000, 20'000, 1000}));
}

TEST(HubClient, ExplainsWhatTheHubRefuses) {
    const Repository model{.id = "org/name", .revision = "v2"};
    const auto explained = [&](HttpAnswer answer, HubError::Reason reason,
                               std::initializer_list<std::string_view> parts) {
        FakeNetwork network;
        const HubClient client(settings(), network.connect());
        try {
            client.fail(answer, model, "config.json");
        } catch (const HubError& error) {
            EXPECT_EQ(error.reason(), reason) << error.what();
            EXPECT_EQ(std::string(error.what()).find("hf_secret"), std::string::npos);
        }
        expect_error<HubError>([&] { client.fail(answer, model, "config.json"); }, parts);
    };
    using Reason = HubError::Reason;
    explained({.status = 403, .headers = {{"x-error-code", "GatedRepo"}}}, Reason::gated,
              {"org/name", "gated", "https://hub.example/org/name"});
    explained({.status = 404, .headers = {{"x-error-code", "RepoNotFound"}}}, Reason::missing_repository,
              {"has no model org/name"});
    explained({.status = 401}, Reason::missing_repository, {"has no model org/name"});
    explained({.status = 404, .headers = {{"x-error-code", "RevisionNotFound"}}}, Reason::missing_revision,
              {"no revision v2"});
    explained({.status = 404, .headers = {{"x-error-code", "EntryNotFound"}}}, Reason::missing_file,
              {"config.json", "does not exist"});
    explained(
        {.status = 401, .headers = {{"x-error-message", "Invalid credentials in Authorization header"}}},
        Reason::refused, {"does not know the token", "drover login"});
    explained({.status = 429}, Reason::unreachable, {"429", "Wait"});
    explained({.status = 403, .body = "{\"error\": \"No\\u001b[31m way\"}"}, Reason::refused,
              {"No [31m way"});
    explained({.failure = "Timeout was reached"}, Reason::unreachable, {"Timeout was reached"});
}

TEST(HubClient, DoesNotFollowAListToAnotherServer) {
    FakeNetwork network{
        .answers = {
            {.status = 200, .body = "{\"sha\": \"" + std::string(40, 'a') + "\"}"},
            {.status = 200, .headers = {{"link", "<https://evil.example/>; rel=\"next\""}}, .body = "[]"}}};
    HubClient client(settings(), network.connect());
    expect_error([&] { client.list({.id = "org/name"}); }, {"another server", "https://evil.example"});
    EXPECT_EQ(network.requests.size(), 2u);
}

TEST(HubClient, UsesNoNetworkOffline) {
    FakeNetwork network;
    HubSettings offline = settings();
    offline.offline = true;
    HubClient client(offline, network.connect());
    expect_error<HubError>([&] { client.send({.url = "https://hub.example/"}); }, {"HF_HUB_OFFLINE"});
    EXPECT_TRUE(network.requests.empty());
}

}  // namespace
}  // namespace drover
