#include "data/readers/wikicorpus.h"

#include <fmt/format.h>

#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "data/readers/tar_stream.h"
#include "data/rows/columns.h"
#include "text/utf8.h"

namespace drover {
namespace {

/// Removes what Python's str.strip() removes, limited to Latin-1 characters.
std::string_view stripped(std::string_view text) {
    constexpr std::string_view spaces = "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0";
    const std::size_t begin = text.find_first_not_of(spaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

std::string latin1_to_utf8(std::string_view text) {
    std::string converted;
    converted.reserve(text.size() + text.size() / 16);
    for (const char c : text) append_utf8(converted, static_cast<unsigned char>(c));
    return converted;
}

/// id and title of a line such as `<doc id="12" title="Anarchism" …>`. The script's pattern requires
/// something before the first, between the two and after the second, and takes the last possible match.
std::pair<std::string, std::string> metadata(std::string_view line) {
    while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
    constexpr std::string_view id_key = "id=\"", title_key = "title=\"";
    for (std::size_t id = line.rfind(id_key); id != std::string_view::npos && id > 0;
         id = line.rfind(id_key, id - 1)) {
        const std::size_t id_begin = id + id_key.size(), id_end = line.find('"', id_begin);
        if (id_end == std::string_view::npos || id_end == id_begin) continue;
        for (std::size_t title = line.rfind(title_key); title != std::string_view::npos && title > id_end + 1;
             title = line.rfind(title_key, title - 1)) {
            const std::size_t begin = title + title_key.size(), end = line.find('"', begin);
            if (end == std::string_view::npos || end == begin || end + 1 >= line.size()) continue;
            return {std::string(line.substr(id_begin, id_end - id_begin)),
                    std::string(line.substr(begin, end - begin))};
        }
    }
    return {};
}

class WikicorpusReader : public FileReader {
  public:
    WikicorpusReader(std::unique_ptr<ByteStream> stream, std::string name, const std::string& column)
        : archive_(std::move(stream), name), name_(std::move(name)) {
        column_ = find_column(wikicorpus_columns(), column, name_);
    }

    std::size_t read(RowBatch& batch, std::size_t count) override {
        std::size_t given = 0;
        for (; given < count && next(); ++given)
            batch.add(latin1_to_utf8(column_ == 0 ? id_ : column_ == 1 ? title_ : stripped(text_)));
        return given;
    }

    std::int64_t skip(std::int64_t count) override {
        return skip_by_reading(count, [&] { return next(); });
    }

  private:
    bool next() {
        for (;;) {
            begin_article();
            while (in_file_ && archive_.next_line(line_)) {
                ++line_number_;
                if (line_.starts_with("<doc id")) {
                    std::tie(id_, title_) = metadata(line_);
                    named_ = true;
                } else if (line_.starts_with("ENDOFARTICLE")) {
                    if (!named_)
                        throw Error(
                            fmt::format("{}, file {}, line {}: an article ends that had no \"<doc id\" line.",
                                        name_, archive_.file_name(), line_number_),
                            "Use the archive of the raw Wikicorpus as it is published.");
                    return true;
                } else if (!line_.starts_with("</doc>")) {
                    if (!text_.empty()) text_.push_back('\n');
                    text_.append(line_);
                }
            }
            line_number_ = 0;
            in_file_ = archive_.next_file();
            if (!in_file_) return false;
        }
    }

    void begin_article() {
        text_.clear();
        named_ = false;
    }

    TarStream archive_;
    std::string name_;
    std::size_t column_;
    bool in_file_ = false;
    bool named_ = false;
    std::int64_t line_number_ = 0;
    std::string line_, id_, title_, text_;
};

}  // namespace

const std::vector<std::string>& wikicorpus_columns() {
    static const std::vector<std::string> columns{"id", "title", "text"};
    return columns;
}

std::unique_ptr<FileReader> make_wikicorpus_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                                   const std::string& column) {
    return std::make_unique<WikicorpusReader>(std::move(stream), std::move(name), column);
}

}  // namespace drover
