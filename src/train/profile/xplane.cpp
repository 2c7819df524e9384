#include "train/profile/xplane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include "io/protobuf_fields.h"

namespace drover {
namespace {

/// The plugin takes the line with this number for a device's steps, and those after it for lines that are
/// made from others: they do not count as work of the device.
constexpr std::int64_t steps_line = 0xdeadbeef;
constexpr double picoseconds = 1e12;

std::int64_t in_picoseconds(double seconds) {
    return std::llround(seconds * picoseconds);
}

/// A plane is built from its lines; what their events are called is kept once, at its end.
class Plane {
  public:
    Plane(std::int64_t id, std::string_view name, std::int64_t zero)
        : text_(integer_field(1, id) + bytes_field(2, name)), zero_(zero) {}

    std::string number(std::string_view name, std::int64_t value) {
        return bytes_field(4, integer_field(1, id_of(stats_, name)) + integer_field(4, value));
    }
    std::string words(std::string_view name, std::string_view value) {
        return bytes_field(4, integer_field(1, id_of(stats_, name)) + bytes_field(5, value));
    }
    /// `shown`: what viewers write, if it is not the name.
    void event(std::string& line, const std::string& name, const std::string& shown, double begin, double end,
               const std::string& stats) {
        const std::int64_t start = in_picoseconds(begin);
        line += bytes_field(4, integer_field(1, id_of(events_, std::pair(name, shown))) +
                                   integer_field(2, start) + integer_field(3, in_picoseconds(end) - start) +
                                   stats);
    }
    void add_line(std::int64_t id, std::string_view name, const std::string& events) {
        text_ +=
            bytes_field(3, integer_field(1, id) + bytes_field(2, name) + integer_field(3, zero_) + events);
    }
    std::string bytes() const {
        std::string text = text_;
        for (const auto& [name, id] : events_) {
            std::string metadata = integer_field(1, id) + bytes_field(2, name.first);
            if (!name.second.empty()) metadata += bytes_field(4, name.second);
            text += bytes_field(4, integer_field(1, id) + bytes_field(2, metadata));
        }
        for (const auto& [name, id] : stats_)
            text += bytes_field(
                5, integer_field(1, id) + bytes_field(2, integer_field(1, id) + bytes_field(2, name)));
        return text;
    }

  private:
    template <class Name, class Like>
    static std::int64_t id_of(std::map<Name, std::int64_t>& ids, const Like& name) {
        return ids.try_emplace(Name(name), static_cast<std::int64_t>(ids.size()) + 1).first->second;
    }

    std::string text_;
    std::int64_t zero_;
    std::map<std::pair<std::string, std::string>, std::int64_t> events_;
    std::map<std::string, std::int64_t> stats_;
};

/// "forward/Model/DecoderLayer_3/MLP/gemm:Gemm": scopes, name and type, as TensorFlow names operations.
/// Micro-batches are not told apart, so that tables add them up.
std::string framework_name(const ProfileLane& lane, const ProfileSpan& span) {
    const std::string all = scopes_of(lane, span), first = all.substr(0, all.find('/'));
    const std::string scopes = std::string(without_number(first)) + all.substr(first.size());
    std::string type = span.name;
    type[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(type[0])));
    std::string name = scopes.empty() ? span.name + ':' + type : scopes + '/' + span.name + ':' + type;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
}

class Space {
  public:
    Space(const RankProfile& profile, std::int64_t zero)
        : profile_(profile), device_(1, "/device:GPU:0", zero), host_(2, "/host:CPU", zero) {}

    std::string bytes() {
        add_steps();
        std::int64_t number = 1;
        for (const ProfileLane& lane : profile_.lanes) {
            ++number;
            if (lane.on_device)
                add_device_lane(lane, number);
            else
                add_host_lane(lane, number);
        }
        std::string text;
        if (profile_.device != Device::cpu) text += bytes_field(1, device_.bytes());
        return text + bytes_field(1, host_.bytes()) + bytes_field(4, profile_.machine);
    }

  private:
    static std::string group(Plane& plane, std::int64_t step) {
        return step < 0 ? std::string() : plane.number("group_id", step);
    }

    void add_steps() {
        std::string of_host, of_device;
        for (std::size_t i = 0; i < profile_.steps.size(); ++i) {
            const ProfileStep& step = profile_.steps[i];
            const auto index = static_cast<std::int64_t>(i);
            const std::string number = fmt::to_string(step.number);
            host_.event(of_host, "train " + number, {}, step.begin, step.end,
                        group(host_, index) + host_.number("step_num", step.number) +
                            host_.words("step_name", number));
            device_.event(of_device, number, {}, step.begin, step.end, group(device_, index));
        }
        host_.add_line(1, "steps", of_host);
        device_.add_line(steps_line, "Steps", of_device);
    }

    void add_device_lane(const ProfileLane& lane, std::int64_t number) {
        std::string operations, scopes;
        for (const ProfileSpan& span : lane.spans) {
            const std::string step = group(device_, step_of(profile_, span));
            if (span.kind == ProfileSpan::Kind::scope) {
                device_.event(scopes, span.name, {}, span.begin, span.end, step);
                continue;
            }
            // The plugin knows collectives by this beginning.
            const bool collective = span.kind == ProfileSpan::Kind::collective;
            device_.event(operations, collective ? "nccl " + span.name : span.name, {}, span.begin, span.end,
                          step + device_.number("correlation_id", ++correlations_) +
                              device_.words("tf_op", framework_name(lane, span)) +
                              device_.number("flops", std::llround(span.flops)) +
                              device_.number("bytes_accessed", std::llround(span.bytes)));
        }
        device_.add_line(number, fmt::format("Stream #{}({})", number, lane.name), operations);
        if (!scopes.empty()) device_.add_line(steps_line + number, "scopes of the " + lane.name, scopes);
    }

    void add_host_lane(const ProfileLane& lane, std::int64_t number) {
        std::string line;
        for (const ProfileSpan& span : lane.spans) {
            const bool named =
                span.kind == ProfileSpan::Kind::operation || span.kind == ProfileSpan::Kind::copy;
            std::string stats = group(host_, step_of(profile_, span));
            if (span.kind == ProfileSpan::Kind::collective)
                stats += host_.number("bytes_transferred", std::llround(span.bytes));
            host_.event(line, named ? framework_name(lane, span) : span.name,
                        named ? span.name : std::string(), span.begin, span.end, stats);
        }
        host_.add_line(number, lane.name, line);
    }

    const RankProfile& profile_;
    Plane device_, host_;
    std::int64_t correlations_ = 0;
};

}  // namespace

std::string xplane_bytes(const RankProfile& profile, std::int64_t zero) {
    return Space(profile, zero).bytes();
}

}  // namespace drover
