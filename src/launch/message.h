#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/key.h"

namespace drover {

/// The messages between the launchers of one job; the comments list numbers, then texts.
enum class LaunchSubject : std::uint8_t {
    hello = 1,  ///< node → node 0: protocol, node rank or any_node, nodes, processes; challenge, host name,
                ///< proof (LaunchKey). Other protocols may have other texts.
    welcome,    ///< its answer: node rank
    refused,    ///< or: ; reason. Instead of a challenge: try again shortly
    run,        ///< run this: number of the command; words (from the starter of a daemon: host, then words)
    output,     ///< output of the command: its number; bytes
    ended,      ///< it has ended: its number, exit status; why it could not be run, or nothing
    stop,       ///< end the job: signal
    finish,     ///< the job has ended: exit status; why, or nothing
    challenge,  ///< node 0 → node that has connected: protocol; challenge
};

/// One message. After reading, it has as many numbers and texts as its subject requires.
struct LaunchMessage {
    LaunchSubject subject;
    std::vector<std::int32_t> numbers{};
    std::vector<std::string> texts{};

    bool operator==(const LaunchMessage&) const = default;
};

constexpr std::int32_t launch_protocol = 2;
/// The node rank of a node that accepts any rank.
constexpr std::int32_t any_node = -1;
/// The maximum size of a message in bytes, after the four bytes of its length.
constexpr std::size_t largest_launch_message = 1 << 20;
/// The same until the other side has authenticated itself.
constexpr std::size_t largest_launch_hello = 2048;

/// The bytes of a message: length (4 bytes, big-endian), subject, numbers, texts and, with a seal, its mark.
/// Error if there would be too many.
std::string encode_launch_message(const LaunchMessage& message, LaunchSeal* seal = nullptr);

/// Collects bytes as they arrive and returns complete messages.
class LaunchMessageReader {
  public:
    explicit LaunchMessageReader(std::size_t largest) : largest_(largest) {}

    void allow(std::size_t largest) { largest_ = largest; }
    /// From now on messages carry marks. Until the first message with the right mark has arrived, a refusal
    /// without a mark is also accepted: the other side may lack the secret.
    void expect(const LaunchSeal& seal) { seal_ = seal; }
    void add(std::string_view bytes) { bytes_.append(bytes); }
    /// The next complete message, or nothing yet. Error if the bytes are not a message, or its mark is wrong;
    /// nothing can be read after that.
    std::optional<LaunchMessage> next();

  private:
    LaunchMessage open(std::string_view bytes);

    std::size_t largest_;
    std::string bytes_{};
    std::optional<LaunchSeal> seal_{};
    bool proven_ = false;  // a message with the right mark has arrived
};

}  // namespace drover
