#include "train/callbacks/nxd_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>

#include "core/console.h"
#include "core/error.h"
#include "core/python_json.h"
#include "core/python_text.h"
#include "core/text_file.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

double unix_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// datetime.now(timezone.utc).isoformat()
std::string utc_timestamp() {
    const auto now = std::chrono::system_clock::now();
    const auto fraction =
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
    return fmt::format("{}.{:06}+00:00", text.data(), fraction);
}

/// As a float32 tensor's item() gives it.
double as_float(double value) {
    return static_cast<double>(static_cast<float>(value));
}

/// The number of the epoch in which the last update was made, from 0.
std::int64_t last_epoch(const TrainerState& state) {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(state.epoch.value_or(0))) - 1);
}

}  // namespace

double NxdThroughput::record(double now) {
    const double seconds = now - start_;
    start_ = now;
    sum_ += seconds;
    seconds_.push_back(seconds);
    if (seconds_.size() > window_) {
        sum_ -= seconds_.front();
        seconds_.pop_front();
    }
    return static_cast<double>(seconds_.size()) * sequences_ / sum_;
}

std::string nxd_tensor_board_folder(const TrainerSettings& settings) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%m%d%y_%H%M", &local);
    const std::int64_t parts = settings.gradient_accumulation_steps;
    return fmt::format("neuron_tblogs_{}_lr{}_bs{}_acc{}_warmup{}_max{}", date.data(),
                       python_float(settings.learning_rate), parts,
                       settings.per_device_train_batch_size * parts,
                       static_cast<std::int64_t>(settings.warmup_steps), settings.max_steps);
}

std::string with_nxd_results(const std::string& existing, const std::string& key, const Json& data,
                             const std::string& file) {
    Json all = Json::object();
    if (existing.find_first_not_of(" \t\r\n") != std::string::npos) all = parse_python_json(existing, file);
    if (!all.is_object())
        throw Error(fmt::format("{} holds JSON, but no object.", file),
                    "Name another file with --metrics_file, or move this one away.");
    if (all.empty()) {
        all["results"] = Json{{key, data}};
        return python_json_line(all);
    }
    Json& first = all.begin().value();
    Json& results = first.is_object() ? first : all;
    Json& current = results[key];
    if (current.is_array() && data.is_array())
        current.insert(current.end(), data.begin(), data.end());
    else if (current.is_object() && data.is_object())
        current.update(data);
    else
        current = data;
    return python_json_line(all);
}

NxdRecords::NxdRecords(NxdRecordSettings settings)
    : settings_(std::move(settings)), throughput_(settings_.sequences, settings_.interval) {}

void NxdRecords::on_train_begin(TrainerView&) {
    if (!settings_.tensor_board.empty()) file_.emplace(settings_.tensor_board, unix_seconds());
    write_results("parameters", settings_.parameters);
    began_ = settings_.now();
    throughput_.start(began_);
}

void NxdRecords::on_step_end(TrainerView& view, const StepReport& report) {
    last_loss_ = as_float(report.update.loss);
    const std::int64_t step = view.state.global_step - 1;
    if (step % settings_.interval != 0) return;
    const double throughput = throughput_.record(settings_.now());
    if (settings_.out != nullptr)
        print_log(settings_.out, "step {} step_time {}s throughput {} seq/s step loss {} grad norm {}\n",
                  step, python_float(report.seconds), python_float(throughput), python_float(*last_loss_),
                  python_float(as_float(report.update.gradient_norm)));
    if (file_) write_scalars(step, report, throughput);
    throughputs_.push_back(throughput);
    throughput_.start(settings_.now());
}

void NxdRecords::write_scalars(std::int64_t step, const StepReport& report, double throughput) {
    const std::array<EventFile::Scalar, 6> scalars{{{"step loss", report.update.loss},
                                                    {"global_norm", report.update.gradient_norm},
                                                    {"lr", report.learning_rate},
                                                    {"iteration_time", report.seconds},
                                                    {"throughput", throughput},
                                                    {"input_ids", static_cast<double>(report.id_sum)}}};
    try {
        file_->add_scalars(unix_seconds(), step, scalars);
    } catch (const Error& error) {
        if (!failed_)
            print_log(stderr, "{} Records are left out of it until it can be, and the run continues.\n",
                      error.cause());
        failed_ = true;
    }
}

void NxdRecords::on_train_end(TrainerView& view) {
    if (view.control.interrupted) return;
    const Json place{{"Epoch", last_epoch(view.state)}, {"Global step", view.state.global_step}};
    Json metrics = Json::array();
    const auto add = [&](const char* name, const Json& value, const char* units) {
        metrics.push_back(Json{{"MetricName", name},
                               {"MeasuredValue", value},
                               {"Units", units},
                               {"Timestamp", utc_timestamp()},
                               {"AdditionalData", place}});
    };
    Json average, peak;  // null without records
    if (!throughputs_.empty()) {
        const auto from = throughputs_.begin() + (throughputs_.size() > throughput_.window()
                                                      ? static_cast<std::ptrdiff_t>(throughput_.window())
                                                      : 0);
        average = python_round(
            std::accumulate(from, throughputs_.end(), 0.0) / static_cast<double>(throughputs_.end() - from),
            4);
        peak = *std::max_element(throughputs_.begin(), throughputs_.end());
    }
    add("Final loss", last_loss_ ? Json(*last_loss_) : Json(), "");
    add("Time to train", python_round((settings_.now() - began_) / 60, 4), "minutes");
    add("Average throughput", average, "seq/s");
    add("Peak throughput", peak, "seq/s");
    write_results("metrics", metrics);
    if (settings_.out != nullptr) print_log(settings_.out, "Training finished successfully\n");
}

void NxdRecords::write_results(const std::string& key, const Json& data) const {
    const std::filesystem::path& file = settings_.metrics_file;
    if (file.empty()) return;
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    const std::string existing = std::filesystem::exists(file) ? read_text_file(file) : "";
    write_file_atomically(file, with_nxd_results(existing, key, data, file.string()));
}

}  // namespace drover
