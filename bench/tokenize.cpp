// How many megabytes of text a second become token ids.
//
// usage: bench_tokenize TOKENIZER TEXT [threads = 2] [megabytes = 50] [lines | whole]
//
// The lines of TEXT (each with its newline, and BOS as in training) are encoded again and again until that
// many megabytes are done; with "whole" the megabytes are one text without a space or newline.
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/text_file.h"
#include "core/stopwatch.h"
#include "text/tokenizer.h"

namespace {

using namespace drover;

std::vector<std::string> lines_of(const std::string& text, std::size_t bytes) {
    std::vector<std::string> lines;
    std::size_t total = 0;
    while (total < bytes && !text.empty())
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
            lines.push_back(text.substr(begin, end - begin));
            total += end - begin;
            begin = end;
        }
    return lines;
}

std::string without_spaces(const std::string& text, std::size_t bytes) {
    std::string letters, result;
    for (const char c : text)
        if (c >= 'a' && c <= 'z') letters += c;
    while (result.size() < bytes && !letters.empty()) result += letters;
    result.resize(std::min(bytes, result.size()));
    return result;
}

int run(const std::vector<std::string>& arguments) {
    if (arguments.size() < 2)
        throw UsageError("Too few arguments.",
                         "Give a tokenizer, a text, and then threads, megabytes, lines or whole.");
    const int threads = arguments.size() > 2 ? std::stoi(arguments[2]) : 2;
    const auto bytes = static_cast<std::size_t>((arguments.size() > 3 ? std::stod(arguments[3]) : 50) * 1e6);
    const bool whole = arguments.size() > 4 && arguments[4] == "whole";

    const Stopwatch loading;
    const auto tokenizer = load_tokenizer(arguments[0]);
    const double load_seconds = loading.seconds();
    const std::string text = read_text_file(arguments[1]);
    const std::vector<std::string> rows =
        whole ? std::vector{without_spaces(text, bytes)} : lines_of(text, bytes);
    std::size_t total = 0;
    for (const std::string& row : rows) total += row.size();

    constexpr std::size_t batch = 256;
    std::atomic<std::size_t> next = 0, tokens = 0;
    const auto work = [&] {
        std::vector<TokenId> ids;
        for (std::size_t begin = next.fetch_add(batch); begin < rows.size(); begin = next.fetch_add(batch)) {
            ids.clear();
            for (std::size_t i = begin; i < std::min(begin + batch, rows.size()); ++i)
                tokenizer->encode(rows[i], SpecialTokens::add, ids);
            tokens += ids.size();
        }
    };
    const Stopwatch encoding;
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    const double seconds = encoding.seconds();
    fmt::print("load {:.2f} s; {:.1f} MB, {} rows, {} tokens in {:.2f} s with {} threads: {:.1f} MB/s\n",
               load_seconds, static_cast<double>(total) / 1e6, rows.size(), tokens.load(), seconds, threads,
               static_cast<double>(total) / 1e6 / seconds);
    return 0;
}

}  // namespace

int main(int count, char** values) {
    try {
        return run({values + 1, values + count});
    } catch (const drover::Error& error) {
        fmt::print(stderr, "{}\n", error.what());
        return error.exit_code();
    }
}
