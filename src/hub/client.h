#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "hub/http.h"
#include "hub/repository.h"
#include "hub/settings.h"

namespace drover {

/// Why the Hub did not give what was asked of it.
class HubError : public Error {
  public:
    enum class Reason {
        offline,             ///< the user forbade the network
        unreachable,         ///< no answer, or only those of a server in trouble
        missing_repository,  ///< or a private one
        missing_revision,
        missing_file,
        gated,    ///< its owner has not given access
        refused,  ///< a wrong token, or one without the permission
        other,
    };

    HubError(Reason reason, std::string_view cause, std::string_view remedy)
        : Error(cause, remedy), reason_(reason) {}
    Reason reason() const { return reason_; }

  private:
    Reason reason_;
};

/// What a server says about an error, for a message: one line of printable characters; empty if nothing.
std::string server_words(const HttpAnswer& answer);

/// Waits between tries that fail in a row.
class BackOff {
  public:
    using Sleep = std::function<void(std::chrono::milliseconds)>;
    explicit BackOff(const RetryRule& rule, Sleep sleep = {});

    /// After a failed try: waits and returns true, or returns false when there were enough. A server's
    /// Retry-After is obeyed up to a minute.
    bool again(const HttpAnswer& answer);
    /// The last try achieved something: the count begins again.
    void progress() { failures_ = 0; }

    /// Whether another try may help: no complete answer, or 408, 429 and 5xx.
    static bool may_help(const HttpAnswer& answer);

  private:
    RetryRule rule_;
    Sleep sleep_;
    int failures_ = 0;
};

/// Sends requests to the Hub: follows redirects, repeats what failed for a time, and gives the token to the
/// endpoint's own scheme, host and port only. May be used by several threads.
class HubClient {
  public:
    using Connect = std::function<std::unique_ptr<HttpConnection>()>;

    /// HubError (offline) at the first request when the settings forbid the network.
    explicit HubClient(HubSettings settings, Connect connect = make_http_connection);

    const HubSettings& settings() const { return settings_; }

    /// The address of a path of the endpoint, which begins with "/".
    std::string address(std::string_view path) const { return settings_.endpoint.text() + std::string(path); }

    /// One try, with its redirects. Whatever was answered is returned.
    HttpAnswer send_once(HttpRequest request);
    /// As many tries as the settings allow. Whatever was answered last is returned.
    HttpAnswer send(const HttpRequest& request);
    /// The same, and HubError unless the status is 2xx.
    HttpAnswer fetch(const HttpRequest& request, const Repository& repository);

    /// HubError that explains a failed answer; `file` is the file of the repository, if it is about one;
    /// without an id, an address.
    [[noreturn]] void fail(const HttpAnswer& answer, const Repository& repository,
                           std::string_view file = {}) const;

    /// The commit that a repository's revision is now, and its files.
    RepositoryListing list(const Repository& repository);

    /// The name of the token's owner. HubError when the token is wrong; Error when there is none.
    std::string user_name();

  private:
    HttpAnswer send_to(const WebAddress& address, HttpRequest request);

    HubSettings settings_;
    Connect connect_;
    std::mutex idle_access_;
    std::vector<std::unique_ptr<HttpConnection>> idle_;  ///< open connections that nobody uses now
};

}  // namespace drover
