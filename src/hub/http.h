#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace drover {

/// Part of a file that is sent as a request's body.
struct FilePart {
    std::filesystem::path file;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

struct HttpAnswer {
    int status = 0;                              ///< of HTTP; 0 when no answer came
    std::map<std::string, std::string> headers;  ///< names in lower case; the last one of a name
    std::string body;                            ///< empty where `receive` got it
    std::string failure;         ///< why no complete answer came, without a full stop; empty when one came
    bool no_connection = false;  ///< the failure came before anything was sent

    bool complete() const { return failure.empty(); }
    /// Empty when there is none.
    std::string_view header(std::string_view name) const {
        const auto found = headers.find(std::string(name));
        return found == headers.end() ? std::string_view() : std::string_view(found->second);
    }
};

struct HttpRequest {
    std::string method = "GET";  ///< GET, HEAD, POST or PUT
    std::string url;
    std::vector<std::pair<std::string, std::string>> headers{};
    std::string body{};
    std::optional<FilePart> file{};  ///< instead of `body`
    /// Receives the body of an answer with status 200 or 206 in pieces, after `answer.headers` are there;
    /// false ends the transfer. Must not throw. Not set: the body is in the answer.
    std::function<bool(const HttpAnswer& answer, std::string_view piece)> receive{};
    /// Called now and then with the number of bytes of the body that were sent; false ends the transfer. Must
    /// not throw.
    std::function<bool(std::uint64_t)> sent{};
    std::chrono::seconds connect_limit{10};
    std::chrono::seconds silence_limit{30};  ///< without a byte in either direction
};

/// Largest body that an answer holds in memory.
inline constexpr std::size_t http_body_limit = std::size_t{256} << 20;

/// Sends one request at a time, and keeps the connection open for the next. Does not follow redirects.
class HttpConnection {
  public:
    virtual ~HttpConnection() = default;
    /// Never throws because of the network: see HttpAnswer::failure.
    virtual HttpAnswer send(const HttpRequest& request) = 0;
};

/// A connection over libcurl, which is loaded on first use. Error when it is not on this machine.
std::unique_ptr<HttpConnection> make_http_connection();

}  // namespace drover
