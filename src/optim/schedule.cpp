#include "optim/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "core/error.h"

namespace drover {
namespace {

constexpr double pi = std::numbers::pi;

struct NamedType {
    std::string_view name;
    Schedule::Type type;
    std::array<std::string_view, 7> arguments;  ///< of --lr_scheduler_kwargs; empty ones are unused
};

constexpr std::array<NamedType, 11> known_types = {{
    {"linear", Schedule::Type::linear, {}},
    {"cosine", Schedule::Type::cosine, {"num_cycles"}},
    {"cosine_with_restarts", Schedule::Type::cosine_with_restarts, {"num_cycles"}},
    {"polynomial", Schedule::Type::polynomial, {"lr_end", "power"}},
    {"constant", Schedule::Type::constant, {}},
    {"constant_with_warmup", Schedule::Type::constant_with_warmup, {}},
    {"inverse_sqrt", Schedule::Type::inverse_sqrt, {"timescale"}},
    {"cosine_with_min_lr", Schedule::Type::cosine_with_min_lr, {"num_cycles", "min_lr", "min_lr_rate"}},
    {"cosine_warmup_with_min_lr",
     Schedule::Type::cosine_warmup_with_min_lr,
     {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
    {"warmup_stable_decay",
     Schedule::Type::warmup_stable_decay,
     {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"}},
    {"nxd_cosine", Schedule::Type::nxd_cosine, {"min_lr", "constant_steps"}},
}};

const NamedType& type_named(std::string_view name) {
    for (const NamedType& known : known_types)
        if (known.name == name) return known;
    throw UsageError(fmt::format("--lr_scheduler_type is \"{}\", which is not known.", name),
                     "Use linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup, "
                     "inverse_sqrt, reduce_lr_on_plateau, cosine_with_min_lr, cosine_warmup_with_min_lr or "
                     "warmup_stable_decay.");
}

/// The object given as --lr_scheduler_kwargs.
class Arguments {
  public:
    Arguments(const Json& object, std::string_view scheduler, std::span<const std::string_view> known)
        : object_(object), scheduler_(scheduler) {
        if (object.is_null()) return;
        if (!object.is_object()) throw UsageError("--lr_scheduler_kwargs is not a JSON object.", "Write {\"key\": value}.");
        for (const auto& [key, value] : object.items())
            if (std::find(known.begin(), known.end(), key) == known.end())
                throw UsageError(fmt::format("--lr_scheduler_kwargs has the key \"{}\", which {} does not take.", key,
                                             scheduler),
                                 "Remove it, or choose another --lr_scheduler_type.");
    }

    bool has(std::string_view key) const {
        return object_.is_object() && object_.contains(key) && !object_.find(key)->is_null();
    }
    double number(std::string_view key, double fallback) const {
        if (!has(key)) return fallback;
        const Json& value = *object_.find(key);
        if (!value.is_number()) fail(key, "must be a number");
        return value.get<double>();
    }
    std::string text(std::string_view key, std::string_view fallback) const {
        if (!has(key)) return std::string(fallback);
        const Json& value = *object_.find(key);
        if (!value.is_string()) fail(key, "must be a string");
        return value.get<std::string>();
    }
    [[noreturn]] void fail(std::string_view key, std::string_view what) const {
        throw UsageError(fmt::format("--lr_scheduler_kwargs: {} {} with {}.", key, what, scheduler_),
                         "Correct it on the command line.");
    }

  private:
    const Json& object_;
    std::string scheduler_;
};

}  // namespace

Schedule::Curve Schedule::curve_from_name(std::string_view name, std::string_view what) {
    if (name == "linear") return Curve::linear;
    if (name == "cosine") return Curve::cosine;
    if (name == "1-sqrt") return Curve::one_minus_sqrt;
    throw UsageError(fmt::format("--lr_scheduler_kwargs: {} is \"{}\".", what, name), "Use linear, cosine or 1-sqrt.");
}

Schedule::Schedule(std::string_view name, double base_rate, std::int64_t warmup_steps, std::int64_t total_steps,
                   const Json& arguments)
    : type_(type_named(name).type),
      base_rate_(base_rate),
      warmup_(static_cast<double>(warmup_steps)),
      total_(static_cast<double>(total_steps)) {
    const Arguments given(arguments, name, type_named(name).arguments);
    cycles_ = given.number("num_cycles", type_ == Type::cosine_with_restarts ? 1 : 0.5);
    power_ = given.number("power", 1);
    timescale_ = given.number("timescale", warmup_ > 0 ? warmup_ : 10000);
    if (!(timescale_ > 0)) given.fail("timescale", "must be above 0");
    final_rate_ = given.number("lr_end", 1e-7);
    if (type_ == Type::polynomial && !(base_rate > final_rate_)) given.fail("lr_end", "must be below the learning rate");

    if (type_ == Type::cosine_with_min_lr || type_ == Type::cosine_warmup_with_min_lr) {
        if (given.has("min_lr") == given.has("min_lr_rate"))
            given.fail("min_lr", "or min_lr_rate must be given, and not both,");
        min_ratio_ = given.has("min_lr") ? given.number("min_lr", 0) / base_rate : given.number("min_lr_rate", 0);
        warmup_rate_ratio_ = given.number("warmup_lr_rate", -1);
    }
    if (type_ == Type::warmup_stable_decay) {
        if (!given.has("num_decay_steps")) given.fail("num_decay_steps", "must be given");
        decay_steps_ = given.number("num_decay_steps", 0);
        stable_steps_ = given.number("num_stable_steps", total_ - warmup_ - decay_steps_);
        min_ratio_ = given.number("min_lr_ratio", 0);
        warmup_curve_ = curve_from_name(given.text("warmup_type", "linear"), "warmup_type");
        decay_curve_ = curve_from_name(given.text("decay_type", "cosine"), "decay_type");
    }
    if (type_ == Type::nxd_cosine) {
        min_rate_ = given.number("min_lr", 0);
        constant_steps_ = given.number("constant_steps", 0);
    }
}

/// With constant steps the rate rises as in Megatron, from 0; without them, from the first fraction.
double Schedule::nxd_rate(double step) const {
    if (warmup_ > 0 && step <= warmup_)
        return constant_steps_ > 0 ? base_rate_ * step / warmup_ : base_rate_ * ((step + 1) / (warmup_ + 1));
    const double decay = total_ - warmup_ - constant_steps_;
    if (step > warmup_ + decay || decay <= 0) return min_rate_;
    const double done = step - warmup_;
    const double angle = constant_steps_ > 0 ? pi * (done / decay) : pi * done / decay;  // as it rounds there
    return (base_rate_ - min_rate_) * (0.5 * (1 + std::cos(angle))) + min_rate_;
}

double Schedule::min_rate_factor(double cosine_factor) const {
    return std::max(0.0, cosine_factor * (1 - min_ratio_) + min_ratio_);
}

double Schedule::factor(std::int64_t done) const {
    const auto step = static_cast<double>(done);
    if (type_ == Type::constant) return 1;
    if (type_ == Type::warmup_stable_decay) return stable_decay_factor(step);

    if (step < warmup_) {
        if (type_ != Type::cosine_warmup_with_min_lr) return step / std::max(1.0, warmup_);
        if (warmup_rate_ratio_ < 0) return (step + 1) / std::max(1.0, warmup_);
        return warmup_rate_ratio_ + (1 - warmup_rate_ratio_) * step / std::max(1.0, warmup_ - 1);
    }
    const double span = std::max(1.0, total_ - warmup_);
    const double progress = (step - warmup_) / span;
    const auto cosine = [&](double at) { return 0.5 * (1 + std::cos(pi * 2 * cycles_ * at)); };
    switch (type_) {
        case Type::constant_with_warmup: return 1;
        case Type::linear: return std::max(0.0, (total_ - step) / span);
        case Type::cosine: return std::max(0.0, cosine(progress));
        case Type::cosine_with_restarts:
            if (progress >= 1) return 0;
            return std::max(0.0, 0.5 * (1 + std::cos(pi * std::fmod(cycles_ * progress, 1.0))));
        case Type::polynomial:
            if (step > total_) return final_rate_ / base_rate_;
            return ((base_rate_ - final_rate_) * std::pow(1 - progress, power_) + final_rate_) / base_rate_;
        case Type::inverse_sqrt: return 1 / std::sqrt((step + timescale_ - warmup_) / timescale_);
        case Type::cosine_with_min_lr: return min_rate_factor(cosine(progress));
        case Type::cosine_warmup_with_min_lr: return min_rate_factor(cosine((step - warmup_ + 1) / span));
        default: bug("schedule without a formula");
    }
}

double Schedule::curve_value(Curve curve, double progress, double cycles) {
    switch (curve) {
        case Curve::linear: return 1 - progress;
        case Curve::cosine: return 0.5 * (1 + std::cos(pi * 2 * cycles * progress));
        case Curve::one_minus_sqrt: return 1 - std::sqrt(progress);
    }
    bug("unknown curve");
}

double Schedule::stable_decay_factor(double step) const {
    if (step < warmup_) {
        // Warm-up is the decay curve in reverse.
        const double progress = step / std::max(1.0, warmup_);
        return min_rate_factor(curve_value(warmup_curve_, 1 - progress, 0.5));
    }
    if (step < warmup_ + stable_steps_) return 1;
    if (step < warmup_ + stable_steps_ + decay_steps_) {
        const double progress = (step - warmup_ - stable_steps_) / std::max(1.0, decay_steps_);
        return min_rate_factor(curve_value(decay_curve_, progress, cycles_));
    }
    return min_ratio_;
}

PlateauSchedule::PlateauSchedule(double base_rate, bool greater_is_better, const Json& arguments)
    : rate_(base_rate),
      greater_is_better_(greater_is_better),
      best_(greater_is_better ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity()) {
    static constexpr std::array<std::string_view, 7> known = {"factor",   "patience", "threshold", "threshold_mode",
                                                              "cooldown", "min_lr",   "eps"};
    const Arguments given(arguments, "reduce_lr_on_plateau", known);
    factor_ = given.number("factor", factor_);
    if (!(factor_ < 1)) given.fail("factor", "must be below 1");
    patience_ = static_cast<std::int64_t>(given.number("patience", static_cast<double>(patience_)));
    threshold_ = given.number("threshold", threshold_);
    const std::string mode = given.text("threshold_mode", "rel");
    if (mode != "rel" && mode != "abs") given.fail("threshold_mode", "must be rel or abs");
    threshold_is_relative_ = mode == "rel";
    cooldown_ = static_cast<std::int64_t>(given.number("cooldown", 0));
    min_rate_ = given.number("min_lr", min_rate_);
    eps_ = given.number("eps", eps_);
}

bool PlateauSchedule::better(double metric) const {
    const double margin = threshold_is_relative_ ? std::fabs(best_) * threshold_ : threshold_;
    if (std::isinf(best_)) return greater_is_better_ ? metric > best_ : metric < best_;
    return greater_is_better_ ? metric > best_ + margin : metric < best_ - margin;
}

void PlateauSchedule::observe(double metric) {
    if (better(metric)) {
        best_ = metric;
        bad_count_ = 0;
    } else {
        ++bad_count_;
    }
    if (cooldown_left_ > 0) {
        --cooldown_left_;
        bad_count_ = 0;
    }
    if (bad_count_ > patience_) {
        const double reduced = std::max(rate_ * factor_, min_rate_);
        if (rate_ - reduced > eps_) rate_ = reduced;
        cooldown_left_ = cooldown_;
        bad_count_ = 0;
    }
}

}  // namespace drover
