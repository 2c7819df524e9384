#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/key.h"

namespace drover {

/// What launchers of one job say to each other; the comment gives numbers, then texts.
enum class LaunchSubject : std::uint8_t {
    hello = 1,  ///< node → node 0: protocol, node rank or any_node, nodes, processes; challenge, host name,
                ///< proof (LaunchKey). Other protocols may have other texts.
    welcome,    ///< its answer: node rank
    refused,    ///< or: ; reason. In place of a challenge: come again in a moment
    run,        ///< run this: number of the command; words (from the starter of a daemon: host, then words)
    output,     ///< what the command printed: its number; bytes
    ended,      ///< it has ended: its number, exit status; why it could not be run, or nothing
    stop,       ///< end the job: signal
    finish,     ///< the job has ended: exit status; why, or nothing
    challenge,  ///< node 0 → node that has connected: protocol; challenge
};

/// One message. Those that were read have as many numbers and texts as their subject says.
struct LaunchMessage {
    LaunchSubject subject;
    std::vector<std::int32_t> numbers{};
    std::vector<std::string> texts{};

    bool operator==(const LaunchMessage&) const = default;
};

constexpr std::int32_t launch_protocol = 2;
/// The node rank of a node that takes any.
constexpr std::int32_t any_node = -1;
/// The most bytes that a message may have, after the four that give their number.
constexpr std::size_t largest_launch_message = 1 << 20;
/// And as long as the other side has not said who it is.
constexpr std::size_t largest_launch_hello = 2048;

/// The bytes of a message: length (4 bytes, big-endian), subject, numbers, texts, and with a seal its mark.
/// Error when there would be too many.
std::string encode_launch_message(const LaunchMessage& message, LaunchSeal* seal = nullptr);

/// Takes bytes as they come and gives whole messages.
class LaunchMessageReader {
  public:
    explicit LaunchMessageReader(std::size_t largest) : largest_(largest) {}

    void allow(std::size_t largest) { largest_ = largest; }
    /// From now on messages have marks. Until the first one has come with the right mark, a refusal without
    /// any is taken too: the other side may lack the secret.
    void expect(const LaunchSeal& seal) { seal_ = seal; }
    void add(std::string_view bytes) { bytes_.append(bytes); }
    /// The next whole message, or nothing yet. Error when the bytes are no message, or its mark is wrong;
    /// nothing can be read then.
    std::optional<LaunchMessage> next();

  private:
    LaunchMessage open(std::string_view bytes);

    std::size_t largest_;
    std::string bytes_{};
    std::optional<LaunchSeal> seal_{};
    bool proven_ = false;  // a message with the right mark has come
};

}  // namespace drover
