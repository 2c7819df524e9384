#pragma once

/// The interface between the program and the module drover_curl.so. Both come from one build.
namespace drover {

class HttpConnection;

/// Incremented whenever HttpConnection or a type in it changes.
inline constexpr int curl_module_version = 1;

}  // namespace drover

extern "C" {
int drover_curl_module_version();
/// The caller owns what is returned. May be called by several threads.
drover::HttpConnection* drover_make_http_connection();
}
