#include "text/sentencepiece_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace drover {
namespace {

/// One field of a protobuf message.
struct Field {
    std::uint64_t number;
    std::uint64_t value;     // of a varint or a fixed-width number
    std::string_view bytes;  // of a string or a message
};

/// Reads the fields of a message one by one.
class Message {
  public:
    Message(std::string_view bytes, std::string_view where) : rest_(bytes), where_(where) {}

    std::optional<Field> next() {
        if (rest_.empty()) return std::nullopt;
        const std::uint64_t tag = varint();
        Field field{tag >> 3, 0, {}};
        switch (tag & 7) {
            case 0:
                field.value = varint();
                break;
            case 1:
                field.value = fixed(8);
                break;
            case 2:
                field.bytes = take(varint());
                break;
            case 5:
                field.value = fixed(4);
                break;
            default:
                fail();
        }
        return field;
    }
    [[noreturn]] void fail() const {
        throw Error(fmt::format("{} is not a SentencePiece model.", where_),
                    "Fetch the file again, or use a tokenizer.json.");
    }

  private:
    std::string_view take(std::uint64_t count) {
        if (count > rest_.size()) fail();
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1)[0]);
            value |= std::uint64_t{byte & 0x7Fu} << shift;
            if (byte < 0x80) return value;
        }
        fail();
    }
    std::uint64_t fixed(std::size_t bytes) {
        std::uint64_t value = 0;
        std::memcpy(&value, take(bytes).data(), bytes);
        return value;
    }

    std::string_view rest_, where_;
};

SentencePieceFile::Piece read_piece(std::string_view bytes, std::string_view where) {
    SentencePieceFile::Piece piece;
    Message message(bytes, where);
    while (const auto field = message.next()) {
        if (field->number == 1) piece.text = field->bytes;
        if (field->number == 2) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
        if (field->number == 3) {
            if (field->value < 1 || field->value > 6) message.fail();
            piece.type = static_cast<SentencePieceFile::Type>(field->value);
        }
    }
    if (piece.text.empty() || valid_utf8_prefix(piece.text) != piece.text.size()) message.fail();
    return piece;
}

void read_trainer(std::string_view bytes, std::string_view where, SentencePieceFile& file) {
    Message message(bytes, where);
    while (const auto field = message.next()) {
        const auto id = static_cast<TokenId>(static_cast<std::int64_t>(field->value));
        switch (field->number) {
            case 3:
                if (field->value < 1 || field->value > 4) message.fail();
                file.algorithm = static_cast<SentencePieceFile::Algorithm>(field->value);
                break;
            case 24:
                file.treat_whitespace_as_suffix = field->value != 0;
                break;
            case 35:
                file.byte_fallback = field->value != 0;
                break;
            case 40:
                file.unk = id;
                break;
            case 41:
                file.bos = id;
                break;
            case 42:
                file.eos = id;
                break;
            case 43:
                file.pad = id;
                break;
            default:
                break;
        }
    }
}

void read_normalizer_spec(std::string_view bytes, std::string_view where, SentencePieceFile& file) {
    Message message(bytes, where);
    while (const auto field = message.next()) {
        switch (field->number) {
            case 2:
                file.has_charsmap = !field->bytes.empty();
                break;
            case 3:
                file.add_dummy_prefix = field->value != 0;
                break;
            case 4:
                file.remove_extra_whitespaces = field->value != 0;
                break;
            case 5:
                file.escape_whitespaces = field->value != 0;
                break;
            default:
                break;
        }
    }
}

}  // namespace

SentencePieceFile SentencePieceFile::parse(std::string_view bytes, std::string_view where) {
    SentencePieceFile file;
    Message message(bytes, where);
    while (const auto field = message.next()) {
        if (field->number == 1) file.pieces.push_back(read_piece(field->bytes, where));
        if (field->number == 2) read_trainer(field->bytes, where, file);
        if (field->number == 3) read_normalizer_spec(field->bytes, where, file);
        if (file.pieces.size() > static_cast<std::size_t>(Vocabulary::largest_id)) message.fail();
    }
    if (file.pieces.empty()) message.fail();
    for (TokenId* id : {&file.unk, &file.bos, &file.eos, &file.pad})
        if (*id < 0 || static_cast<std::size_t>(*id) >= file.pieces.size()) *id = -1;
    return file;
}

}  // namespace drover
