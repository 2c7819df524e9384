#pragma once

#include <string>
#include <string_view>

#include "fuzz/accepts.h"
#include "launch/message.h"

namespace drover::test {

/// Input from a launcher's port. Without the key, none of it passes for a sealed message except a refusal.
inline bool accepts_launch_messages(std::string_view bytes) {
    const bool sealed = accepts([&] {
        LaunchMessageReader reader(largest_launch_message);
        reader.expect(LaunchKey("a secret", "job").seals("challenge", "answer").node);
        reader.add(bytes);
        while (const auto message = reader.next())
            require(message->subject == LaunchSubject::refused, "a message without its mark");
    });
    return accepts([&] {
        LaunchMessageReader reader(largest_launch_message);
        reader.add(bytes);
        std::string again;
        while (const auto message = reader.next()) again += encode_launch_message(*message);
        if (again.size() != bytes.size()) throw Error("The input ends inside a message.", "Add the rest.");
        require(again == bytes, "a message that is written otherwise than it was read");
        require(!sealed || bytes.empty() || bytes[4] == static_cast<char>(LaunchSubject::refused),
                "a message that needs no mark");
    });
}

}  // namespace drover::test
