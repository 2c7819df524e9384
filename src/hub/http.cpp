#include "hub/http.h"

#include "core/program_module.h"
#include "hub/curl_module.h"

namespace drover {

std::unique_ptr<HttpConnection> make_http_connection() {
    const ModuleUse curl{
        .name = "curl",
        .version = curl_module_version,
        .impossible = "Nothing can be fetched from the network or sent there",
        .remedy =
            "Install libcurl (Debian, Ubuntu: apt-get install libcurl4) and keep drover_curl.so beside the "
            "program; or get the files in another way, and name their folder."};
    const auto make = curl.function<decltype(drover_make_http_connection)>("drover_make_http_connection");
    return std::unique_ptr<HttpConnection>(make());
}

}  // namespace drover
