#include "hub/web_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

constexpr std::size_t longest_address = 16384;

int usual_port(std::string_view scheme) {
    return scheme == "https" ? 443 : 80;
}

bool is_host(std::string_view host) {
    if (host.empty()) return false;
    if (host.front() == '[')
        return host.size() > 2 && host.back() == ']' &&
               host.find_first_not_of("0123456789abcdef:.", 1) == host.size() - 1;
    return host.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") == std::string_view::npos;
}

}  // namespace

std::optional<WebAddress> WebAddress::parse(std::string_view text) {
    if (text.size() > longest_address) return std::nullopt;
    // Blanks and control characters could end a line of the request.
    if (std::any_of(text.begin(), text.end(), [](char c) { return c > 0 ? c <= ' ' || c == 127 : c == 0; }))
        return std::nullopt;
    const std::size_t colon = text.find("://");
    if (colon == std::string_view::npos) return std::nullopt;
    WebAddress address;
    address.scheme = lower_case(text.substr(0, colon));
    if (address.scheme != "http" && address.scheme != "https") return std::nullopt;
    text.remove_prefix(colon + 3);
    text = text.substr(0, text.find('#'));
    const std::size_t end = std::min(text.find_first_of("/?\\"), text.size());
    std::string authority = lower_case(text.substr(0, end));
    text.remove_prefix(end);
    address.port = usual_port(address.scheme);
    const std::size_t port = authority.find(':', authority.starts_with('[') ? authority.find(']') : 0);
    if (port != std::string::npos) {
        const char* const last = authority.data() + authority.size();
        const auto [stop, error] = std::from_chars(authority.data() + port + 1, last, address.port);
        if (error != std::errc() || stop != last || address.port < 1 || address.port > 65535)
            return std::nullopt;
        authority.resize(port);
    }
    if (!is_host(authority)) return std::nullopt;
    address.host = std::move(authority);
    address.rest = text.starts_with('/') ? std::string(text) : "/" + std::string(text);
    return address;
}

std::string WebAddress::origin() const {
    return port == usual_port(scheme) ? fmt::format("{}://{}", scheme, host)
                                      : fmt::format("{}://{}:{}", scheme, host, port);
}

std::string WebAddress::text() const {
    return origin() + rest;
}

WebAddress redirect_target(const WebAddress& from, std::string_view location) {
    const auto refuse = [&](std::string_view why) {
        throw Error(fmt::format("{} sends this program to another address{}.", from.origin(), why),
                    "Check HF_ENDPOINT and the network's proxy; nothing was fetched from there.");
    };
    std::optional<WebAddress> target;
    if (location.starts_with("//"))
        target = WebAddress::parse(fmt::format("{}:{}", from.scheme, location));
    else if (location.starts_with('/'))
        target = WebAddress::parse(from.origin() + std::string(location));
    else
        target = WebAddress::parse(location);
    if (!target) refuse(", which is neither http nor https");
    if (from.scheme == "https" && target->scheme == "http") refuse(" without encryption");
    return *target;
}

std::string url_quoted(std::string_view text, std::string_view kept) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    std::string quoted;
    for (const char c : text) {
        if (plain.find(c) != std::string_view::npos || kept.find(c) != std::string_view::npos)
            quoted.push_back(c);
        else
            quoted += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return quoted;
}

}  // namespace drover
