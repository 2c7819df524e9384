#include "data/readers/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace drover {
namespace {

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

class TextReader : public FileReader {
  public:
    TextReader(std::unique_ptr<ByteStream> stream, std::string name, bool keep_linebreaks)
        : window_(std::move(stream)), name_(std::move(name)), keep_linebreaks_(keep_linebreaks) {}

    std::size_t read(RowBatch& batch, std::size_t count) override { return take(&batch, count); }

    std::int64_t skip(std::int64_t count) override {
        return static_cast<std::int64_t>(take(nullptr, static_cast<std::size_t>(count)));
    }

  private:
    std::size_t take(RowBatch* batch, std::size_t count) {
        std::size_t rows = 0;
        while (rows < count) {
            rows += take_whole_lines(batch, count - rows);
            if (rows == count || grow()) continue;
            rows += take_whole_lines(batch, count - rows);  // a "\r" at the very end is complete now
            const std::string_view rest = window_.bytes();
            if (rows < count && !rest.empty()) {
                if (batch != nullptr) batch->add(rest);
                drop(rest.size());
                ++rows;
                ++rows_;
            }
            break;
        }
        return rows;
    }

    /// Takes lines that end inside the window. With line breaks kept, a run of lines is copied in one piece.
    std::size_t take_whole_lines(RowBatch* batch, std::size_t count) {
        const std::string_view bytes = checked_bytes();
        std::size_t rows = 0, at = 0, copied = 0;
        const auto copy_run = [&](std::size_t end) {
            if (batch != nullptr && keep_linebreaks_) batch->bytes.append(bytes.substr(copied, end - copied));
        };
        for (; rows < count; ++rows) {
            if (carriage_return_ == none || carriage_return_ < at) find_carriage_return(at);
            const std::size_t search_end = std::min(carriage_return_, bytes.size());
            const auto* found =
                static_cast<const char*>(std::memchr(bytes.data() + at, '\n', search_end - at));
            if (found != nullptr) {
                const auto newline = static_cast<std::size_t>(found - bytes.data());
                if (batch != nullptr) {
                    if (keep_linebreaks_)
                        batch->ends.push_back(batch->bytes.size() + newline + 1 - copied);
                    else
                        batch->add(bytes.substr(at, newline - at));
                }
                at = newline + 1;
                continue;
            }
            if (carriage_return_ >= bytes.size()) break;
            const std::size_t after = carriage_return_ + 1;
            if (after == bytes.size() && !window_.at_end()) break;  // "\n" may follow
            if (batch != nullptr) {
                if (keep_linebreaks_) {
                    copy_run(carriage_return_);
                    batch->bytes.push_back('\n');
                    batch->ends.push_back(batch->bytes.size());
                } else {
                    batch->add(bytes.substr(at, carriage_return_ - at));
                }
            }
            at = after < bytes.size() && bytes[after] == '\n' ? after + 1 : after;
            copied = at;
        }
        copy_run(at);
        drop(at);
        rows_ += static_cast<std::int64_t>(rows);
        return rows;
    }

    std::string_view checked_bytes() const { return window_.bytes().substr(0, checked_); }

    void find_carriage_return(std::size_t from) {
        const std::string_view bytes = checked_bytes();
        const std::size_t found = bytes.find('\r', from);
        carriage_return_ = found == std::string_view::npos ? bytes.size() : found;
    }

    void drop(std::size_t count) {
        window_.drop(count);
        checked_ -= std::min(checked_, count);
        carriage_return_ =
            carriage_return_ == none || carriage_return_ < count ? none : carriage_return_ - count;
    }

    bool grow() {
        if (window_.at_end()) return false;
        const bool more = window_.grow();
        carriage_return_ = none;
        const std::string_view fresh = window_.bytes().substr(checked_);
        checked_ += valid_utf8_prefix(fresh);
        // The last bytes may be the start of a character that continues in the next block.
        constexpr std::size_t longest_beginning = 3;
        const std::size_t unchecked = window_.bytes().size() - checked_;
        if (unchecked > longest_beginning || (!more && unchecked > 0)) fail_utf8();
        return more;
    }

    [[noreturn]] void fail_utf8() const {
        const std::string_view before = checked_bytes();
        std::int64_t line = rows_ + 1;
        for (std::size_t i = 0; i < before.size(); ++i)
            line +=
                before[i] == '\n' || (before[i] == '\r' && (i + 1 == before.size() || before[i + 1] != '\n'));
        fail_invalid_utf8(fmt::format("{}, line {}", name_, line), window_.bytes()[checked_]);
    }

    ByteWindow window_;
    std::string name_;
    bool keep_linebreaks_;
    std::int64_t rows_ = 0;    ///< returned so far
    std::size_t checked_ = 0;  ///< leading bytes of the window that are complete characters
    std::size_t carriage_return_ =
        none;  ///< the next "\r" of the checked bytes, or their number if there is none
};

}  // namespace

std::unique_ptr<FileReader> make_text_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                             bool keep_linebreaks) {
    return std::make_unique<TextReader>(std::move(stream), std::move(name), keep_linebreaks);
}

}  // namespace drover
