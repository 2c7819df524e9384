#include "comm/nccl/progress_notes.h"

#include <utility>

namespace drover {
namespace {

enum NoteKind : std::int64_t { note_ask = 1, note_answer = 2 };

}  // namespace

ProgressNotes::ProgressNotes(World& world, Look look) : world_(world), look_(std::move(look)) {
    world_.on_note([this](int from, const Note& note) { hear(from, note); });
}

ProgressNotes::~ProgressNotes() {
    world_.on_note({});
}

std::map<int, LinkProgress> ProgressNotes::ask(std::int64_t key, std::span<const int> ranks,
                                               std::chrono::milliseconds patience) {
    {
        const std::lock_guard lock(mutex_);
        asked_key_ = key;
        answers_.clear();
    }
    for (const int rank : ranks) world_.send_note(rank, {note_ask, key});
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, patience, [&] { return answers_.size() == ranks.size(); });
    asked_key_ = 0;
    return std::exchange(answers_, {});
}

/// On the world's communication thread.
void ProgressNotes::hear(int from, const Note& note) {
    const auto& [kind, key, started, begun] = note;
    if (kind == note_ask) {
        const LinkProgress progress = look_(key);
        world_.send_note(from, {note_answer, key, progress.started, progress.begun});
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        if (key == asked_key_) answers_[from] = {started, begun};
    }
    answered_.notify_all();
}

}  // namespace drover
