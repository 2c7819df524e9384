#include "launch/message.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {
namespace {

/// The number of numbers and texts of a subject.
struct MessageShape {
    std::size_t numbers, least_texts, most_texts;
};

constexpr std::size_t most_words = 4096;

std::optional<MessageShape> shape_of(LaunchSubject subject) {
    switch (subject) {
        case LaunchSubject::hello:
            return MessageShape{4, 2, 8};
        case LaunchSubject::welcome:
            return MessageShape{1, 0, 0};
        case LaunchSubject::refused:
            return MessageShape{0, 1, 1};
        case LaunchSubject::run:
            return MessageShape{1, 1, most_words};
        case LaunchSubject::output:
            return MessageShape{1, 1, 1};
        case LaunchSubject::ended:
            return MessageShape{2, 1, 1};
        case LaunchSubject::stop:
            return MessageShape{1, 0, 0};
        case LaunchSubject::finish:
        case LaunchSubject::challenge:
            return MessageShape{1, 1, 1};
    }
    return std::nullopt;
}

[[noreturn]] void fail(std::string_view what) {
    throw Error(fmt::format("What arrived at the launcher's port is not one of its messages: {}.", what),
                "Look for another program that uses the port, and choose another with --master_port.");
}

void put(std::string& bytes, std::uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8)
        bytes.push_back(static_cast<char>(static_cast<unsigned char>(number >> shift)));
}

/// Reads from the front of a message's bytes.
class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

    std::string_view take(std::size_t count) {
        if (count > bytes_.size()) fail("it ends too early");
        const std::string_view taken = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return taken;
    }
    std::uint32_t number() {
        std::uint32_t value = 0;
        for (const char byte : take(4)) value = value << 8 | static_cast<unsigned char>(byte);
        return value;
    }
    bool at_end() const { return bytes_.empty(); }

  private:
    std::string_view bytes_;
};

LaunchMessage decode(std::string_view bytes) {
    Cursor cursor(bytes);
    LaunchMessage message{static_cast<LaunchSubject>(cursor.take(1)[0])};
    const std::optional<MessageShape> shape = shape_of(message.subject);
    if (!shape) fail("its subject is unknown");
    for (std::size_t i = 0; i < shape->numbers; ++i)
        message.numbers.push_back(static_cast<std::int32_t>(cursor.number()));
    while (!cursor.at_end()) {
        if (message.texts.size() == shape->most_texts) fail("it has too many texts");
        message.texts.emplace_back(cursor.take(cursor.number()));
    }
    if (message.texts.size() < shape->least_texts) fail("it ends too early");
    return message;
}

}  // namespace

std::string encode_launch_message(const LaunchMessage& message, LaunchSeal* seal) {
    const std::optional<MessageShape> shape = shape_of(message.subject);
    require(shape && message.numbers.size() == shape->numbers && message.texts.size() >= shape->least_texts,
            "a launcher's message of another shape than its subject's");
    std::string body(1, static_cast<char>(message.subject));
    for (const std::int32_t number : message.numbers) put(body, static_cast<std::uint32_t>(number));
    for (const std::string& text : message.texts) {
        put(body, static_cast<std::uint32_t>(text.size()));
        body += text;
    }
    if (body.size() > largest_launch_message || message.texts.size() > shape->most_texts)
        throw Error(fmt::format("A command line of {} bytes and {} words is too long for another node.",
                                body.size(), message.texts.size()),
                    "Put settings into a file.");
    if (seal != nullptr) body += seal->mark(body);
    std::string bytes;
    put(bytes, static_cast<std::uint32_t>(body.size()));
    return bytes + body;
}

LaunchMessage LaunchMessageReader::open(std::string_view bytes) {
    if (!seal_) return decode(bytes);
    if (bytes.size() > LaunchSeal::mark_bytes) {
        const std::string_view body = bytes.substr(0, bytes.size() - LaunchSeal::mark_bytes);
        if (seal_->takes(body, bytes.substr(body.size()))) {
            proven_ = true;
            return decode(body);
        }
    }
    if (!proven_ && static_cast<LaunchSubject>(bytes[0]) == LaunchSubject::refused) return decode(bytes);
    throw Error("What arrived at the launcher's port was not sent with the job's secret.",
                "Another program or another job has the port, or --rdzv_id or the secret differs between the "
                "nodes.");
}

std::optional<LaunchMessage> LaunchMessageReader::next() {
    if (bytes_.size() < 4) return std::nullopt;
    const std::size_t length = Cursor(bytes_).number();
    if (length == 0 || length > largest_ + (seal_ ? LaunchSeal::mark_bytes : 0))
        fail(fmt::format("it would have {} bytes", length));
    if (bytes_.size() < 4 + length) return std::nullopt;
    LaunchMessage message = open(std::string_view(bytes_).substr(4, length));
    bytes_.erase(0, 4 + length);
    return message;
}

}  // namespace drover
