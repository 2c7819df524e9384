#include "data/packing/token_file_writer.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "core/batch.h"
#include "core/error.h"

namespace drover {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

std::filesystem::path ends_path(const std::filesystem::path& path) {
    return path.string() + ".ends";
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                 const PackingOptions& options, bool has_marks)
    : path_(path), file_(path, 0) {
    require(!has_marks || options.packing == Packing::none, "rows with labels are examples");
    header_.has_marks = has_marks;
    header_.vocabulary = static_cast<std::uint64_t>(tokenizer.size());
    header_.token_bytes = header_.vocabulary <= std::uint64_t{1} << 16 ? 2 : 4;
    header_.block_size =
        options.packing == Packing::none ? 0 : static_cast<std::uint64_t>(options.block_size);
    header_.packing = options.packing;
    header_.workers = static_cast<std::uint32_t>(options.workers);
    header_.tokenizer = tokenizer.fingerprint();
    if (header_.block_size == 0) ends_ = std::make_unique<PartialFile>(ends_path(path), 0);
}

void TokenFileWriter::add(std::span<const TokenId> row) {
    require(header_.block_size == 0 ||
                (row.size() <= header_.block_size && header_.tokens == header_.rows * header_.block_size),
            "a block is too long, or follows a short one");
    for (const TokenId id : row) {
        if (id < 0 || static_cast<std::uint64_t>(id) >= header_.vocabulary)
            throw Error(fmt::format("The tokenizer gave token id {}, but says that it has {} ids.", id,
                                    header_.vocabulary),
                        "Check that the tokenizer's files belong together.");
        header_.largest_id = std::max(header_.largest_id, static_cast<std::uint64_t>(id));
        if (header_.token_bytes == 2)
            append_bytes(buffer_, static_cast<std::uint16_t>(id));
        else
            append_bytes(buffer_, id);
    }
    header_.tokens += row.size();
    ++header_.rows;
    if (buffer_.size() >= buffer_bytes) flush();
    if (ends_) {
        append_bytes(ends_buffer_, header_.tokens);
        if (ends_buffer_.size() >= buffer_bytes) {
            ends_->write(ends_written_, ends_buffer_.data(), ends_buffer_.size());
            ends_written_ += ends_buffer_.size();
            ends_buffer_.clear();
        }
    }
}

void TokenFileWriter::add(std::span<const TokenId> row, std::span<const TokenId> labels,
                          std::span<const std::int32_t> documents) {
    require(header_.has_marks && labels.size() == row.size(), "a label for every id of a file with marks");
    add(row);
    for (std::size_t i = 0; i < row.size(); ++i) {
        require(labels[i] == row[i] || labels[i] == no_label, "an id is its own label, or has none");
        labels_.push_back(labels[i] != no_label);
    }
    std::size_t left = row.size();
    for (const std::int32_t length : documents) {
        require(length > 0 && static_cast<std::size_t>(length) <= left, "documents fit their row");
        starts_.push_back(true);
        starts_.resize(starts_.size() + static_cast<std::size_t>(length) - 1, false);
        left -= static_cast<std::size_t>(length);
    }
    require(left == 0, "documents fill their row");
}

void TokenFileWriter::append_marks(const std::vector<bool>& marks) {
    require(marks.size() == header_.tokens, "a mark for every token");
    for (std::size_t i = 0; i < marks.size(); i += 64) {
        std::uint64_t word = 0;
        for (std::size_t bit = 0; bit < 64 && i + bit < marks.size(); ++bit)
            word |= std::uint64_t{marks[i + bit]} << bit;
        append_bytes(buffer_, word);
        if (buffer_.size() >= buffer_bytes) flush();
    }
    flush();
}

void TokenFileWriter::append(std::string_view bytes) {
    file_.write(written_, bytes.data(), bytes.size());
    checksum_.add_bytes(bytes);
    written_ += bytes.size();
}

void TokenFileWriter::flush() {
    append(buffer_);
    buffer_.clear();
}

void TokenFileWriter::append_ends() {
    std::ifstream spilled(ends_path(path_).string() + ".partial", std::ios::binary);
    std::string piece(buffer_bytes, '\0');
    for (std::uint64_t left = ends_written_; left > 0;) {
        const std::uint64_t count = std::min<std::uint64_t>(left, piece.size());
        if (!spilled.read(piece.data(), static_cast<std::streamsize>(count)))
            throw Error(fmt::format("{} cannot be read back while {} is written.", ends_path(path_).string(),
                                    path_.string()),
                        "Check the disk, and that nobody else writes the same file.");
        append(std::string_view(piece).substr(0, count));
        left -= count;
    }
    append(ends_buffer_);
    ends_.reset();
}

TokenFileHeader TokenFileWriter::finish() {
    buffer_.append(header_.ends_begin() - TokenFileHeader::bytes - header_.tokens * header_.token_bytes,
                   '\0');
    flush();
    if (ends_) append_ends();
    if (header_.has_marks) {
        append_marks(labels_);
        append_marks(starts_);
    }
    header_.data_checksum = checksum_.digest();
    const std::string head = header_.serialize();
    file_.write(0, head.data(), head.size());
    file_.finish();
    file_.commit();
    sync_folder(path_.parent_path());
    return header_;
}

}  // namespace drover
