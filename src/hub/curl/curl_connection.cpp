#include <curl/curl.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "core/words.h"
#include "hub/curl_module.h"
#include "hub/http.h"

namespace drover {
namespace {

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using HeaderList = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;
using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// What is known of a transfer that is under way.
struct Transfer {
    const HttpRequest& request;
    HttpAnswer answer{};
    CURL* handle = nullptr;
    OpenFile file{nullptr, std::fclose};
    std::uint64_t left = 0;  // of the body that is sent
    std::size_t at = 0;      // in request.body
    std::string stopped{};   // why this side ended it
};

std::size_t take_header(char* text, std::size_t, std::size_t size, void* context) {
    auto& transfer = *static_cast<Transfer*>(context);
    std::string_view line(text, size);
    // Each answer begins with its status line: those before the last (100 Continue, a proxy's) do not count.
    if (line.starts_with("HTTP/")) transfer.answer.headers.clear();
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    std::string_view value = line.substr(colon + 1);
    const std::size_t first = std::min(value.find_first_not_of(" \t"), value.size());
    value.remove_prefix(first);
    value = value.substr(0, value.find_last_not_of(" \t\r\n") + 1);
    transfer.answer.headers[lower_case(line.substr(0, colon))] = std::string(value);
    return size;
}

std::size_t take_body(char* bytes, std::size_t, std::size_t size, void* context) {
    auto& transfer = *static_cast<Transfer*>(context);
    HttpAnswer& answer = transfer.answer;
    if (answer.status == 0) {
        long status = 0;
        curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
        answer.status = static_cast<int>(status);
    }
    const bool wanted = answer.status == 200 || answer.status == 206;
    if (wanted && transfer.request.receive) {
        if (transfer.request.receive(answer, {bytes, size})) return size;
        transfer.stopped = "the transfer was ended";
        return 0;
    }
    if (answer.body.size() + size > http_body_limit) {
        transfer.stopped = "the answer is too long";
        return 0;
    }
    answer.body.append(bytes, size);
    return size;
}

std::size_t give_body(char* buffer, std::size_t, std::size_t room, void* context) {
    auto& transfer = *static_cast<Transfer*>(context);
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(room, transfer.left));
    if (count == 0) return 0;
    if (transfer.file != nullptr) {
        if (std::fread(buffer, 1, count, transfer.file.get()) != count) {
            transfer.stopped = "a file that is sent became shorter";
            return CURL_READFUNC_ABORT;
        }
    } else {
        transfer.request.body.copy(buffer, count, transfer.at);
        transfer.at += count;
    }
    transfer.left -= count;
    const std::uint64_t all =
        transfer.request.file ? transfer.request.file->size : transfer.request.body.size();
    if (transfer.request.sent && !transfer.request.sent(all - transfer.left)) {
        transfer.stopped = "the transfer was ended";
        return CURL_READFUNC_ABORT;
    }
    return count;
}

/// libcurl goes back to the start of a body when a kept connection turns out to be closed.
int seek_body(void* context, curl_off_t offset, int origin) {
    auto& transfer = *static_cast<Transfer*>(context);
    if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
    const auto place = static_cast<std::uint64_t>(offset);
    if (transfer.file != nullptr) {
        const FilePart& part = *transfer.request.file;
        if (fseeko(transfer.file.get(), static_cast<off_t>(part.offset + place), SEEK_SET) != 0)
            return CURL_SEEKFUNC_FAIL;
        transfer.left = part.size - place;
    } else {
        transfer.at = place;
        transfer.left = transfer.request.body.size() - place;
    }
    return CURL_SEEKFUNC_OK;
}

/// Certificates that other programs are told to trust.
const char* named_certificates() {
    for (const char* name : {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"})
        if (const char* file = std::getenv(name); file != nullptr && *file != '\0') return file;
    return nullptr;
}

/// Keeps a SIGPIPE of this thread from ending the program: OpenSSL writes to connections that may be closed.
class WithoutPipeSignal {
  public:
    WithoutPipeSignal() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~WithoutPipeSignal() {
        const timespec at_once{};
        if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutPipeSignal(const WithoutPipeSignal&) = delete;
    WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

  private:
    sigset_t pipe_, before_;
    bool was_pending_;
};

class CurlConnection final : public HttpConnection {
  public:
    CurlConnection() : handle_(curl_easy_init(), curl_easy_cleanup) {
        if (handle_ == nullptr) throw Error("libcurl cannot be started.", "Check the machine's memory.");
    }

    HttpAnswer send(const HttpRequest& request) override {
        CURL* const curl = handle_.get();
        curl_easy_reset(curl);  // keeps connections
        Transfer transfer{.request = request, .handle = curl};
        char message[CURL_ERROR_SIZE] = "";
        const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
        set(CURLOPT_URL, request.url.c_str());
        set(CURLOPT_ERRORBUFFER, message);
        set(CURLOPT_NOSIGNAL, 1L);
        // Redirects are the caller's, who knows which host may see the token.
        set(CURLOPT_FOLLOWLOCATION, 0L);
        set(CURLOPT_PROTOCOLS_STR, "http,https");
        set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_limit.count()));
        set(CURLOPT_LOW_SPEED_LIMIT, 1L);
        set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.silence_limit.count()));
        set(CURLOPT_BUFFERSIZE, 512L << 10);
        set(CURLOPT_TCP_KEEPALIVE, 1L);
        set(CURLOPT_HEADERFUNCTION, take_header);
        set(CURLOPT_HEADERDATA, &transfer);
        set(CURLOPT_WRITEFUNCTION, take_body);
        set(CURLOPT_WRITEDATA, &transfer);
        if (const char* certificates = named_certificates()) set(CURLOPT_CAINFO, certificates);
        HeaderList headers(nullptr, curl_slist_free_all);
        const auto add = [&](const std::string& line) {
            curl_slist* const longer = curl_slist_append(headers.get(), line.c_str());
            if (longer == nullptr) throw std::bad_alloc();
            headers.release();
            headers.reset(longer);
        };
        for (const auto& [name, value] : request.headers) add(fmt::format("{}: {}", name, value));
        add("Expect:");  // a server that does not know it would make each upload wait for a second
        if (request.method == "HEAD") {
            set(CURLOPT_NOBODY, 1L);
        } else if (request.method != "GET") {
            set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
            set(CURLOPT_UPLOAD, 1L);
            if (!open_body(transfer)) return std::move(transfer.answer);
            set(CURLOPT_READFUNCTION, give_body);
            set(CURLOPT_READDATA, &transfer);
            set(CURLOPT_SEEKFUNCTION, seek_body);
            set(CURLOPT_SEEKDATA, &transfer);
            set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(transfer.left));
        }
        set(CURLOPT_HTTPHEADER, headers.get());

        const CURLcode code = [&] {
            const WithoutPipeSignal quiet;
            return curl_easy_perform(curl);
        }();
        HttpAnswer& answer = transfer.answer;
        long status = 0;
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        answer.status = static_cast<int>(status);
        if (code != CURLE_OK) {
            answer.failure = transfer.stopped;
            if (answer.failure.empty())
                answer.failure = *message != '\0' ? message : curl_easy_strerror(code);
            answer.failure.erase(answer.failure.find_last_not_of(" .\r\n") + 1);
            answer.no_connection = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                                   code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_SSL_CONNECT_ERROR ||
                                   code == CURLE_PEER_FAILED_VERIFICATION;
        }
        return std::move(answer);
    }

  private:
    static bool open_body(Transfer& transfer) {
        const HttpRequest& request = transfer.request;
        transfer.left = request.file ? request.file->size : request.body.size();
        if (!request.file) return true;
        transfer.file.reset(std::fopen(request.file->file.c_str(), "rb"));
        if (transfer.file != nullptr &&
            fseeko(transfer.file.get(), static_cast<off_t>(request.file->offset), SEEK_SET) == 0)
            return true;
        transfer.answer.failure = fmt::format("{} cannot be read", request.file->file.string());
        return false;
    }

    Handle handle_;
};

}  // namespace
}  // namespace drover

extern "C" int drover_curl_module_version() {
    return drover::curl_module_version;
}

extern "C" drover::HttpConnection* drover_make_http_connection() {
    static std::once_flag started;
    std::call_once(started, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    return new drover::CurlConnection;
}
