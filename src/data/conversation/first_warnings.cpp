#include "data/conversation/first_warnings.h"

#include <fmt/format.h>

namespace drover {

void FirstWarnings::say(std::atomic<bool>& said, std::int64_t count,
                        const std::function<std::string()>& sentence) {
    if (count > 0 && !said.load(std::memory_order_relaxed) && !said.exchange(true))
        warn_(fmt::format("{}: {} Further ones are not reported.", split_, sentence()));
}

void FirstWarnings::look(const SftReport& report) {
    const std::int64_t most = options_.max_length.value_or(0);
    say(said_lost_, report.lost, [&] {
        return fmt::format(
            "In row {} the ids of the prompt do not begin those of prompt and completion. The completion "
            "begins where they part; \"{}\" is not trained on. End prompts where a token ends, or use a "
            "template that writes them alike in both.",
            report.first_lost, report.lost_prompt);
    });
    say(said_cut_, report.cut, [&] {
        return fmt::format("Row {} has more than --max_length {} tokens and is cut.", report.examples, most);
    });
    say(said_dropped_, report.dropped, [&] {
        return fmt::format("Row {} is left out, because nothing in its first {} tokens is to be learned.",
                           report.first_dropped, most);
    });
}

}  // namespace drover
