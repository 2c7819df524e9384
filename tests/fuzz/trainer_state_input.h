#pragma once

#include <string_view>

#include "fuzz/accepts.h"
#include "train/state/trainer_state.h"

namespace drover::test {

/// trainer_state.json, which Hugging Face's Trainer also writes.
inline bool accepts_trainer_state(std::string_view text) {
    return accepts([&] {
        const TrainerState state = TrainerState::parse(text, "input");
        const std::string written = state.text();
        require(TrainerState::parse(written, "written input").text() == written,
                "a written state reads back as another");
        require(state.global_step >= 0 && state.log_history.is_array(), "a state that cannot be");
    });
}

}  // namespace drover::test
