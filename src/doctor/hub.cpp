#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cstdlib>

#include "core/stopwatch.h"
#include "doctor/sections.h"
#include "hub/client.h"
#include "hub/places.h"
#include "hub/settings.h"

namespace drover {
namespace {

/// Where the token is from; never the token.
std::string place_of_token() {
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
        if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return name;
    return token_file().string();
}

void examine_token(ReportSection& section, const HubSettings& hub) {
    const bool present = !hub.token.empty();
    section.facts["token"] = present ? Json(place_of_token()) : Json();
    if (!present) {
        section.ok("No token, which only gated and private repositories and uploads need (`drover login`).");
        return;
    }
    section.ok(fmt::format("A token is in {}; it is not shown.", place_of_token()));
    struct stat status {};
    if (place_of_token() == token_file() && stat(token_file().c_str(), &status) == 0 &&
        (status.st_mode & 0077) != 0)
        section.note(
            fmt::format("Other users of this machine can read the token in {}.", token_file().string()),
            fmt::format("chmod 600 {}", token_file().string()));
}

std::vector<std::string> variables_set(std::initializer_list<const char*> names) {
    std::vector<std::string> set;
    for (const char* name : names)
        if (const char* value = std::getenv(name); value != nullptr && *value != '\0') set.emplace_back(name);
    return set;
}

/// Asks the Hub once, with short limits.
void try_network(ReportSection& section, HubSettings hub) {
    hub.retry.tries = 1;
    hub.retry.connection_tries = 1;
    hub.connect_limit = hub.silence_limit = std::chrono::seconds(5);
    Json& facts = section.facts["network"];
    const Stopwatch watch;
    try {
        HubClient client(hub);
        if (!hub.token.empty()) {
            const std::string user = client.user_name();
            facts = {{"reached", true}, {"user", user}, {"seconds", watch.seconds()}};
            section.ok(fmt::format("{} answers, and knows the token as {}'s ({:.2f} s).",
                                   hub.endpoint.origin(), user, watch.seconds()));
            return;
        }
        const HttpAnswer answer = client.send_once({.method = "HEAD", .url = client.address("/")});
        facts = {{"reached", answer.complete()}, {"status", answer.status}, {"seconds", watch.seconds()}};
        if (!answer.complete())
            section.problem(fmt::format("{} does not answer: {}.", hub.endpoint.origin(), answer.failure),
                            "Check the network, its proxy (https_proxy) and HF_ENDPOINT.");
        else
            section.ok(fmt::format("{} answers ({:.2f} s).", hub.endpoint.origin(), watch.seconds()));
    } catch (const Error& error) {
        facts = {{"reached", false}, {"failure", error.cause()}};
        section.problem(error);
    }
}

}  // namespace

ReportSection hub_section(const DoctorSettings& settings, const ExaminedModule& curl) {
    ReportSection section{.key = "hub", .title = "Hugging Face Hub"};
    Ability fetching{.key = "hub", .name = "use the Hugging Face Hub"};
    std::optional<HubSettings> hub;
    try {
        hub = HubSettings::from_environment();
    } catch (const Error& error) {
        section.problem(error);
        fetching.how = "see below";
        section.abilities.push_back(std::move(fetching));
        return section;
    }
    const auto offline = variables_set({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"});
    const auto proxies =
        variables_set({"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"});
    section.facts["endpoint"] = hub->endpoint.text();
    section.facts["offline"] = hub->offline;
    section.facts["datasets_offline"] = datasets_are_offline();
    section.facts["proxies"] = proxies;
    section.ok(fmt::format(
        "Models and datasets come from {}{}.", hub->endpoint.origin(),
        proxies.empty() ? "" : fmt::format(", through the proxy of {}", fmt::join(proxies, ", "))));
    examine_token(section, *hub);
    if (datasets_are_offline())
        section.note(
            fmt::format("{}: {} from the cache alone ({}).", hub->offline ? "Offline" : "Partly offline",
                        hub->offline ? "everything comes" : "datasets come", fmt::join(offline, ", ")),
            "Unset it to fetch what is not there.");
    if (settings.network && !hub->offline) try_network(section, *hub);
    const std::string problem = section.first_problem();
    fetching.possible = curl.loaded && !hub->offline && problem.empty();
    fetching.how = !curl.loaded       ? "the module curl cannot be used"
                   : hub->offline     ? "offline: from the cache alone"
                   : !problem.empty() ? "see below"
                   : settings.network ? curl.library
                                      : fmt::format("{}; not tried (--network tries it)", curl.library);
    section.abilities.push_back(std::move(fetching));
    return section;
}

}  // namespace drover
