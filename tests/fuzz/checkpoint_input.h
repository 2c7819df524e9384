#pragma once

#include <string_view>

#include "core/python_json.h"
#include "fuzz/accepts.h"
#include "io/checkpoint_manifest.h"
#include "train/checkpoint/run_state.h"

namespace drover::test {

/// drover_state.json with a corrected checksum, so that the code after the checksum is reached too.
inline std::string with_right_checksum(std::string_view text) {
    Json json = parse_python_json(text, "input");
    if (!json.is_object()) return std::string(text);
    CheckpointManifest manifest;
    if (json.contains("state")) manifest.state = json.at("state");
    return manifest.text();
}

inline bool accepts_checkpoint(std::string_view text) {
    const auto read = [](std::string_view input) {
        const CheckpointManifest manifest = CheckpointManifest::parse(input, "input");
        const std::string written = manifest.text();
        require(CheckpointManifest::parse(written, "written input").text() == written,
                "a written state reads back as another");
        const RunState state = RunState::parse(manifest.state, "input");
        const auto loop_of = [](const RunState& of) { return of.loop ? of.loop->json() : Json(nullptr); };
        const Json again = {{"loop", loop_of(state)}, {"engine", state.engine.json()}};
        const RunState second = RunState::parse(again, "again");
        // As text, in which a NaN equals itself.
        require(python_json(loop_of(second), 0) == python_json(loop_of(state), 0),
                "a run's state reads back as another");
    };
    const bool as_it_is = accepts([&] { read(text); });
    accepts([&] { read(with_right_checksum(text)); });
    return as_it_is;
}

}  // namespace drover::test
