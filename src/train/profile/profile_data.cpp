#include "train/profile/profile_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace drover {

std::vector<ProfileLane> separate_overlaps(ProfileLane lane) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(), [](const ProfileSpan& a, const ProfileSpan& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<ProfileLane> lanes;
    std::vector<std::vector<double>> open;  // per lane, the ends of the spans around what comes next
    for (ProfileSpan& span : lane.spans) {
        std::size_t place = 0;
        for (;; ++place) {
            if (place == lanes.size()) {
                lanes.push_back(
                    {.name = place == 0 ? lane.name : fmt::format("{} ({})", lane.name, place + 1),
                     .on_device = lane.on_device,
                     .spans = {}});
                open.emplace_back();
            }
            while (!open[place].empty() && open[place].back() <= span.begin) open[place].pop_back();
            if (open[place].empty() || span.end <= open[place].back()) break;
        }
        open[place].push_back(span.end);
        lanes[place].spans.push_back(std::move(span));
    }
    return lanes;
}

std::int64_t step_of(const RankProfile& profile, const ProfileSpan& span) {
    const auto next =
        std::upper_bound(profile.steps.begin(), profile.steps.end(), span.begin,
                         [](double time, const ProfileStep& step) { return time < step.begin; });
    if (next == profile.steps.begin() || span.begin >= std::prev(next)->end) return -1;
    return std::prev(next) - profile.steps.begin();
}

std::string_view without_number(std::string_view name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    const bool numbered = last != std::string_view::npos && last + 1 < name.size() && name[last] == ' ';
    return numbered ? name.substr(0, last) : name;
}

std::string scopes_of(const ProfileLane& lane, const ProfileSpan& span) {
    if (span.parent < 0) return {};
    const ProfileSpan& scope = lane.spans[static_cast<std::size_t>(span.parent)];
    const std::string above = scopes_of(lane, scope);
    return above.empty() ? scope.name : above + '/' + scope.name;
}

}  // namespace drover
