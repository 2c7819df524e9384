#include "launch/key.h"

#include "launch/message.h"

namespace drover {
namespace {

std::string eight_bytes(std::uint64_t number) {
    std::string bytes;
    for (int shift = 56; shift >= 0; shift -= 8)
        bytes.push_back(static_cast<char>(static_cast<unsigned char>(number >> shift)));
    return bytes;
}

/// With lengths, so that different parts never give the same bytes.
std::string joined(std::initializer_list<std::string_view> parts) {
    std::string bytes;
    for (const std::string_view part : parts) (bytes += eight_bytes(part.size())) += part;
    return bytes;
}

}  // namespace

Sha256Digest LaunchSeal::mark_of_next(std::string_view message) const {
    return hmac_sha256(bytes_of(key_), eight_bytes(messages_).append(message));
}

std::string LaunchSeal::mark(std::string_view message) {
    const Sha256Digest made = mark_of_next(message);
    ++messages_;
    return std::string(bytes_of(made));
}

bool LaunchSeal::takes(std::string_view message, std::string_view mark) {
    if (!equal_in_constant_time(bytes_of(mark_of_next(message)), mark)) return false;
    ++messages_;
    return true;
}

LaunchKey::LaunchKey(std::string_view secret, std::string_view job_id)
    : key_(Sha256().add(joined({"drover launch", secret, job_id})).digest()) {}

Sha256Digest LaunchKey::mac(std::initializer_list<std::string_view> parts) const {
    return hmac_sha256(bytes_of(key_), joined(parts));
}

std::string LaunchKey::proof(std::string_view challenge, const LaunchMessage& hello) const {
    LaunchMessage bare = hello;
    bare.texts.resize(2);
    return std::string(bytes_of(mac({"hello", challenge, encode_launch_message(bare)})));
}

LaunchSeals LaunchKey::seals(std::string_view challenge, std::string_view answer) const {
    return {LaunchSeal(mac({"node 0", challenge, answer})), LaunchSeal(mac({"node", challenge, answer}))};
}

std::string new_launch_challenge() {
    return unpredictable_bytes(32);
}

}  // namespace drover
