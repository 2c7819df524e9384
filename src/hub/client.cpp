#include "hub/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "core/byte_text.h"
#include "core/json.h"

namespace drover {
namespace {

constexpr int most_redirects = 10;
constexpr int most_pages = 10'000;

bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

std::string server_words(const HttpAnswer& answer) {
    std::string text(answer.header("x-error-message"));
    if (text.empty()) {
        const Json body = Json::parse(answer.body, nullptr, false);
        if (body.is_object() && body.contains("error") && body["error"].is_string())
            text = body["error"].get<std::string>();
    }
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, ' ');
    if (text.size() > 300) text.resize(300);
    text.erase(text.find_last_not_of(" .") + 1);
    return text;
}

BackOff::BackOff(const RetryRule& rule, Sleep sleep)
    : rule_(rule), sleep_(sleep ? std::move(sleep) : [](std::chrono::milliseconds time) {
          std::this_thread::sleep_for(time);
      }) {}

bool BackOff::may_help(const HttpAnswer& answer) {
    return !answer.complete() || answer.status == 408 || answer.status == 429 || answer.status >= 500;
}

bool BackOff::again(const HttpAnswer& answer) {
    ++failures_;
    if (failures_ >= (answer.no_connection ? rule_.connection_tries : rule_.tries)) return false;
    auto wait = std::min(rule_.longest_wait, rule_.first_wait * (1 << std::min(failures_ - 1, 10)));
    const std::string_view asked = answer.header("retry-after");
    int seconds = 0;
    if (const auto [end, error] = std::from_chars(asked.data(), asked.data() + asked.size(), seconds);
        !asked.empty() && error == std::errc() && end == asked.data() + asked.size())
        wait = std::max(wait, std::chrono::milliseconds(1000 * std::clamp(seconds, 0, 60)));
    sleep_(wait);
    return true;
}

HubClient::HubClient(HubSettings settings, Connect connect)
    : settings_(std::move(settings)), connect_(std::move(connect)) {}

HttpAnswer HubClient::send_to(const WebAddress& address, HttpRequest request) {
    request.url = address.text();
    request.connect_limit = settings_.connect_limit;
    request.silence_limit = settings_.silence_limit;
    request.headers.emplace_back("User-Agent", "drover");
    request.headers.emplace_back("Accept-Encoding", "identity");
    if (!settings_.token.empty() && address.same_origin(settings_.endpoint))
        request.headers.emplace_back("Authorization", "Bearer " + settings_.token);
    std::unique_ptr<HttpConnection> connection;
    {
        const std::lock_guard hold(idle_access_);
        if (!idle_.empty()) {
            connection = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    if (connection == nullptr) connection = connect_();
    HttpAnswer answer = connection->send(request);
    if (answer.complete()) {
        const std::lock_guard hold(idle_access_);
        idle_.push_back(std::move(connection));
    }
    return answer;
}

HttpAnswer HubClient::send_once(HttpRequest request) {
    if (settings_.offline)
        throw HubError(HubError::Reason::offline,
                       "The network may not be used: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.",
                       "Unset it, or name a local folder.");
    auto address = WebAddress::parse(request.url);
    if (!address)
        throw Error(fmt::format("\"{}\" is not an address of http or https.", url_quoted(request.url, "/:")),
                    "Check HF_ENDPOINT.");
    for (int steps = 0; steps <= most_redirects; ++steps) {
        HttpAnswer answer = send_to(*address, request);
        if (!answer.complete() || !is_redirect(answer.status)) return answer;
        const WebAddress target = redirect_target(*address, answer.header("location"));
        if (request.method != "GET" && request.method != "HEAD" && !target.same_origin(*address))
            throw Error(
                fmt::format("{} sends an upload to another server, {}.", address->origin(), target.origin()),
                "Check HF_ENDPOINT and the network's proxy; nothing was sent there.");
        address = target;
    }
    throw Error(fmt::format("{} sends this program from one address to the next without end.",
                            settings_.endpoint.origin()),
                "Check HF_ENDPOINT and the network's proxy.");
}

HttpAnswer HubClient::send(const HttpRequest& request) {
    BackOff back_off(settings_.retry);
    for (;;) {
        HttpAnswer answer = send_once(request);
        if (!BackOff::may_help(answer) || !back_off.again(answer)) return answer;
    }
}

HttpAnswer HubClient::fetch(const HttpRequest& request, const Repository& repository) {
    HttpAnswer answer = send(request);
    if (!answer.complete() || answer.status < 200 || answer.status > 299) fail(answer, repository);
    return answer;
}

void HubClient::fail(const HttpAnswer& answer, const Repository& repository, std::string_view file) const {
    using Reason = HubError::Reason;
    const std::string hub = settings_.endpoint.origin();
    if (repository.id.empty())
        throw HubError(
            answer.complete() ? Reason::other : Reason::unreachable,
            fmt::format(
                "{} cannot be fetched: {}.", file,
                answer.complete() ? fmt::format("its server answers {}", answer.status) : answer.failure),
            "Check the network and its proxy (https_proxy); what has arrived is kept, and the same "
            "command continues.");
    const std::string what = file.empty() ? fmt::format("The {}", repository.shown())
                                          : fmt::format("The file {} of the {}", file, repository.shown());
    if (!answer.complete())
        throw HubError(
            Reason::unreachable, fmt::format("{} cannot be fetched from {}: {}.", what, hub, answer.failure),
            "Check the network and its proxy (https_proxy); what has arrived is kept, and the same "
            "command continues.");
    const std::string_view code = answer.header("x-error-code");
    const std::string words = server_words(answer);
    const std::string no_token = settings_.token.empty() ? "no token was sent" : "the token that was sent";
    if (code == "GatedRepo")
        throw HubError(
            Reason::gated,
            fmt::format("The {} is gated: its owner must give access, and {}{}.", repository.shown(),
                        no_token, settings_.token.empty() ? "" : " has none"),
            settings_.token.empty()
                ? fmt::format("Ask for access at {}/{}{}, then run `drover login` or set HF_TOKEN.", hub,
                              repository.kind == RepositoryKind::dataset ? "datasets/" : "", repository.id)
                : fmt::format("Ask for access at {}/{}{} with the account of the token.", hub,
                              repository.kind == RepositoryKind::dataset ? "datasets/" : "", repository.id));
    if (code == "RevisionNotFound")
        throw HubError(Reason::missing_revision,
                       fmt::format("The {} {} has no revision {} on {}.",
                                   repository.kind == RepositoryKind::model ? "model" : "dataset",
                                   repository.id, repository.revision, hub),
                       "Name a branch, a tag or a commit of it.");
    const bool no_file =
        !file.empty() && answer.status == 404 && code.empty();  // of the server behind the Hub
    if (code == "EntryNotFound" || no_file)
        throw HubError(Reason::missing_file, fmt::format("{} does not exist on {}.", what, hub),
                       "Check the names.");
    if (answer.status == 401 && words == "Invalid credentials in Authorization header")
        throw HubError(Reason::refused, fmt::format("{} does not know the token that was sent.", hub),
                       "Run `drover login` with a new one, or check HF_TOKEN.");
    if (code == "RepoNotFound" || answer.status == 401 || answer.status == 404)
        throw HubError(Reason::missing_repository,
                       fmt::format("{} has no {}, or it is private.", hub, repository.shown()),
                       settings_.token.empty()
                           ? "Check the name; for a private one, run `drover login` or set HF_TOKEN."
                           : "Check the name; for a private one, use a token whose owner may read it.");
    if (answer.status == 403)
        throw HubError(Reason::refused,
                       fmt::format("{} refuses access to the {}{}{}.", hub, repository.shown(),
                                   words.empty() ? "" : ": ", words),
                       "Use a token with this permission.");
    if (BackOff::may_help(answer))
        throw HubError(Reason::unreachable,
                       fmt::format("{} cannot be fetched: {} answers {}{}{}.", what, hub, answer.status,
                                   words.empty() ? "" : ", ", words),
                       answer.status == 429 ? "Wait for some minutes; with a token the limits are higher."
                                            : "Try again later; the same command continues.");
    throw HubError(Reason::other,
                   fmt::format("{} cannot be fetched: {} answers {}{}{}.", what, hub, answer.status,
                               words.empty() ? "" : ", ", words),
                   "Check the names and HF_ENDPOINT.");
}

RepositoryListing HubClient::list(const Repository& repository) {
    const std::string revision =
        address(fmt::format("{}/revision/{}", repository.api_path(), url_quoted(repository.revision, "")));
    RepositoryListing listing;
    listing.commit = parse_commit(fetch({.url = revision}, repository).body, revision);
    std::string page =
        address(fmt::format("{}/tree/{}?recursive=true", repository.api_path(), listing.commit));
    for (int pages = 0; !page.empty(); ++pages) {
        const HttpAnswer answer = fetch({.url = page}, repository);
        parse_tree_page(answer.body, page, listing);
        const std::string next = next_page(answer.header("link"));
        if (next.empty()) break;
        const WebAddress target = redirect_target(settings_.endpoint, next);
        if (!target.same_origin(settings_.endpoint) || pages == most_pages)
            throw Error(fmt::format("The list of files of the {} continues at another server, {}.",
                                    repository.shown(), target.origin()),
                        "Check HF_ENDPOINT.");
        page = target.text();
    }
    return listing;
}

std::string HubClient::user_name() {
    if (settings_.token.empty()) throw Error("There is no token.", "Run `drover login`, or set HF_TOKEN.");
    const HttpAnswer answer = send({.url = address("/api/whoami-v2")});
    const std::string hub = settings_.endpoint.origin();
    if (answer.complete() && (answer.status == 401 || answer.status == 403))
        throw HubError(HubError::Reason::refused, fmt::format("{} does not know this token.", hub),
                       fmt::format("Make a new one at {}/settings/tokens.", hub));
    if (!answer.complete() || answer.status != 200)
        throw HubError(
            HubError::Reason::unreachable,
            fmt::format("{} cannot be asked whose token this is: {}.", hub,
                        answer.complete() ? fmt::format("it answers {}", answer.status) : answer.failure),
            "Check the network, HF_ENDPOINT and the proxy (https_proxy).");
    const Json body = Json::parse(answer.body, nullptr, false);
    if (!body.is_object() || !body.contains("name") || !body["name"].is_string() ||
        !is_hub_id(body["name"].get<std::string>()))
        throw Error(fmt::format("{} does not say whose token this is.", hub), "Check HF_ENDPOINT.");
    return body["name"].get<std::string>();
}

}  // namespace drover
