#include "train/profile/profile_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace drover {
namespace {

using Kind = ProfileSpan::Kind;
using Interval = std::pair<double, double>;

constexpr std::size_t most_operations = 12, most_scopes = 30;
constexpr double least_share = 0.005;

/// The time in which at least one of them runs.
double covered(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end());
    double sum = 0, end = -1;
    for (const auto& [from, to] : intervals) {
        if (to <= end) continue;
        sum += to - std::max(from, end);
        end = to;
    }
    return sum;
}

/// use(lane, span) for what began within a step.
template <class Use>
void for_each_of_steps(const RankProfile& profile, const Use& use) {
    for (const ProfileLane& lane : profile.lanes)
        for (const ProfileSpan& span : lane.spans)
            if (step_of(profile, span) >= 0) use(lane, span);
}

struct Total {
    std::string name;
    int calls = 0;
    double seconds = 0, flops = 0, bytes = 0;
};

/// Sums by name, in the order in which the names came.
class Totals {
  public:
    void add(const std::string& name, const ProfileSpan& span, double steps) {
        const auto [place, is_new] = places_.try_emplace(name, list_.size());
        if (is_new) list_.push_back({.name = name});
        Total& total = list_[place->second];
        ++total.calls;
        total.seconds += span.seconds() / steps;
        total.flops += span.flops / steps;
        total.bytes += span.bytes / steps;
    }
    const std::vector<Total>& list() const { return list_; }
    std::vector<Total> longest_first() const {
        std::vector<Total> sorted = list_;
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](const Total& a, const Total& b) { return a.seconds > b.seconds; });
        return sorted;
    }

  private:
    std::vector<Total> list_;
    std::map<std::string, std::size_t> places_;
};

std::string without_numbers(const std::string& scopes) {
    std::string text;
    for (std::size_t begin = 0; begin <= scopes.size();) {
        const std::size_t end = std::min(scopes.find('/', begin), scopes.size());
        if (!text.empty()) text += '/';
        text += without_number(std::string_view(scopes).substr(begin, end - begin));
        begin = end + 1;
    }
    return text;
}

}  // namespace

ProfileWaits waits_of(const RankProfile& profile) {
    ProfileWaits waits;
    if (profile.steps.empty()) return waits;
    for (const ProfileStep& step : profile.steps) waits.step += step.end - step.begin;
    std::vector<Interval> computed, communicated;
    for_each_of_steps(profile, [&](const ProfileLane&, const ProfileSpan& span) {
        const Interval interval(span.begin, span.end);
        if (span.kind == Kind::operation || span.kind == Kind::copy) computed.push_back(interval);
        if (span.kind == Kind::collective) communicated.push_back(interval);
        if (span.kind == Kind::host && span.name == "wait for data") waits.data += span.seconds();
    });
    waits.collectives = covered(communicated);
    const double alone = covered(computed);
    computed.insert(computed.end(), communicated.begin(), communicated.end());
    waits.exposed = covered(std::move(computed)) - alone;
    const auto steps = static_cast<double>(profile.steps.size());
    for (double* sum : {&waits.step, &waits.collectives, &waits.exposed, &waits.data}) *sum /= steps;
    return waits;
}

std::string profile_summary(const RankProfile& profile) {
    const ProfileWaits waits = waits_of(profile);
    const auto steps = static_cast<double>(profile.steps.size());
    Totals all_operations, scopes, all_layers;
    for_each_of_steps(profile, [&](const ProfileLane& lane, const ProfileSpan& span) {
        if (span.kind == Kind::operation || span.kind == Kind::copy)
            all_operations.add(span.arithmetic.empty() ? span.name : span.name + ", " + span.arithmetic, span,
                               steps);
        if (span.kind != Kind::scope) return;
        const std::string above = scopes_of(lane, span);
        scopes.add(without_numbers(above.empty() ? span.name : above + '/' + span.name), span, steps);
        if (span.name.starts_with("DecoderLayer ")) all_layers.add(span.name, span, steps);
    });
    const auto share = [&](double seconds) { return waits.step > 0 ? 100 * seconds / waits.step : 0; };

    std::string text = fmt::format("Profile of {} step{} of rank {}, {:.2f} ms each:\n", profile.steps.size(),
                                   profile.steps.size() == 1 ? "" : "s", profile.rank, 1e3 * waits.step);
    text += fmt::format("  {:<44}{:>11}{:>11}{:>9}{:>11}{:>9}\n", "operation", "calls/step", "ms/step",
                        "share %", "GFLOP/s", "GB/s");
    const std::vector<Total> operations = all_operations.longest_first();
    for (std::size_t i = 0; i < std::min(most_operations, operations.size()); ++i) {
        const Total& total = operations[i];
        const bool computes = total.flops > 0;
        const double rate =
            total.seconds > 0 ? (computes ? total.flops : total.bytes) / total.seconds / 1e9 : 0;
        text += fmt::format("  {:<44}{:>11.1f}{:>11.3f}{:>9.1f}{:>{}.1f}\n", total.name, total.calls / steps,
                            1e3 * total.seconds, share(total.seconds), rate, computes ? 11 : 20);
    }
    text += fmt::format("  {:<44}{:>11}{:>11}{:>9}\n", "scope", "times/step", "ms/step", "share %");
    std::size_t shown = 0;
    for (const Total& total : scopes.list()) {
        if (total.seconds < least_share * waits.step || ++shown > most_scopes) continue;
        const auto depth = static_cast<std::size_t>(std::count(total.name.begin(), total.name.end(), '/'));
        const std::string name =
            std::string(2 * depth, ' ') + total.name.substr(total.name.find_last_of('/') + 1);
        text += fmt::format("  {:<44}{:>11.1f}{:>11.3f}{:>9.1f}\n", name, total.calls / steps,
                            1e3 * total.seconds, share(total.seconds));
    }
    const std::vector<Total> layers = all_layers.longest_first();
    if (layers.size() > 1)
        text += fmt::format("  Of {} layers, {} takes longest ({:.3f} ms/step) and {} shortest ({:.3f}).\n",
                            layers.size(), layers.front().name, 1e3 * layers.front().seconds,
                            layers.back().name, 1e3 * layers.back().seconds);
    if (waits.collectives > 0)
        text += fmt::format(
            "  Communication: {:.3f} ms/step, of which {:.3f} ms ({:.1f} % of the step) are not hidden "
            "behind "
            "computation.\n",
            1e3 * waits.collectives, 1e3 * waits.exposed, share(waits.exposed));
    return text + fmt::format("  Waiting for data: {:.3f} ms/step ({:.1f} % of the step).\n",
                              1e3 * waits.data, share(waits.data));
}

}  // namespace drover
