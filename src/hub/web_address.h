#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// The address of something that is fetched by http or https.
struct WebAddress {
    std::string scheme;      ///< "http" or "https"
    std::string host;        ///< lower case; an IPv6 address in brackets
    int port = 0;            ///< 443 for https and 80 for http, unless another is named
    std::string rest = "/";  ///< path and query

    /// Nothing for other schemes, for a name or a password in the address, and for characters that are not
    /// part of one. A part after # is left out.
    static std::optional<WebAddress> parse(std::string_view text);

    std::string text() const;
    /// Scheme, host and port, as text: "https://huggingface.co".
    std::string origin() const;
    bool same_origin(const WebAddress& other) const {
        return scheme == other.scheme && host == other.host && port == other.port;
    }
};

/// Where an answer's Location leads. Error, naming `from`, for anything but http and https, and for a step
/// from https to http.
WebAddress redirect_target(const WebAddress& from, std::string_view location);

/// A text as part of an address: everything but letters, digits, "-", "_", ".", "~" and the characters in
/// `kept` becomes %XX.
std::string url_quoted(std::string_view text, std::string_view kept = "/");

}  // namespace drover
