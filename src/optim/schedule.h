#pragma once

#include <cstdint>
#include <string_view>

#include "core/json.h"

namespace drover {

/// A learning-rate schedule as transformers names and computes it: a pure function of the number of updates done.
/// `nxd_cosine` is that of neuronx-distributed's run_llama_nxd.py, with the arguments min_lr and constant_steps: the
/// rate rises during warm-up, falls as a cosine, and stays at min_lr for the last constant_steps.
/// (`reduce_lr_on_plateau` is not one: it depends on evaluation results; see PlateauSchedule.)
class Schedule {
  public:
    enum class Type : std::uint8_t {
        constant,
        constant_with_warmup,
        linear,
        cosine,
        cosine_with_restarts,
        polynomial,
        inverse_sqrt,
        cosine_with_min_lr,
        cosine_warmup_with_min_lr,
        warmup_stable_decay,
        nxd_cosine,
    };

    /// `name` is --lr_scheduler_type and `arguments` the object of --lr_scheduler_kwargs (null: none). Error on an unknown
    /// name, an unknown or missing argument, or a value out of range.
    Schedule(std::string_view name, double base_rate, std::int64_t warmup_steps, std::int64_t total_steps,
             const Json& arguments = nullptr);

    /// The rate in force for update `step` + 1.
    double rate(std::int64_t step) const {
        return type_ == Type::nxd_cosine ? nxd_rate(static_cast<double>(step)) : base_rate_ * factor(step);
    }

  private:
    double nxd_rate(double step) const;
    double factor(std::int64_t step) const;
    double min_rate_factor(double cosine_factor) const;
    double stable_decay_factor(double step) const;

    Type type_;
    double base_rate_;
    double warmup_;
    double total_;
    double cycles_ = 0.5;
    double power_ = 1;                ///< polynomial
    double timescale_ = 10000;        ///< inverse_sqrt
    double final_rate_ = 1e-7;        ///< polynomial
    double min_ratio_ = 0;            ///< lowest factor
    double warmup_rate_ratio_ = -1;   ///< cosine_warmup_with_min_lr, −1: not given
    double decay_steps_ = 0;          ///< warmup_stable_decay
    double stable_steps_ = 0;         ///< warmup_stable_decay
    double min_rate_ = 0;             ///< nxd_cosine
    double constant_steps_ = 0;       ///< nxd_cosine
    enum class Curve : std::uint8_t { linear, cosine, one_minus_sqrt };
    Curve warmup_curve_ = Curve::linear;
    Curve decay_curve_ = Curve::cosine;

    static double curve_value(Curve curve, double progress, double cycles);
    static Curve curve_from_name(std::string_view name, std::string_view what);
};

/// PyTorch's ReduceLROnPlateau, stepped with a metric after each evaluation.
class PlateauSchedule {
  public:
    PlateauSchedule(double base_rate, bool greater_is_better, const Json& arguments = nullptr);

    double rate() const { return rate_; }
    /// Takes the newest value of the metric.
    void observe(double metric);

  private:
    bool better(double metric) const;

    double rate_;
    bool greater_is_better_;
    double factor_ = 0.1;
    std::int64_t patience_ = 10;
    double threshold_ = 1e-4;
    bool threshold_is_relative_ = true;
    std::int64_t cooldown_ = 0;
    double min_rate_ = 0;
    double eps_ = 1e-8;

    double best_;
    std::int64_t bad_count_ = 0;
    std::int64_t cooldown_left_ = 0;
};

}  // namespace drover
