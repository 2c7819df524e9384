#include "train/callbacks/eval_samples.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/python_json.h"

namespace drover {
namespace {

/// The samples as Markdown, which TensorBoard shows.
std::string text_of(const std::vector<EvalSample>& samples) {
    std::string text;
    for (const EvalSample& sample : samples)
        text += fmt::format("{}> {}\n\n{}\n", text.empty() ? "" : "\n", sample.prompt, sample.text);
    return text;
}

}  // namespace

EvalSamples::EvalSamples(Generate generate, std::filesystem::path file, Show show,
                         std::function<void(const std::string&)> warn)
    : generate_(std::move(generate)),
      file_(std::move(file)),
      show_(std::move(show)),
      warn_(std::move(warn)) {}

void EvalSamples::on_evaluate(TrainerView& view, const Json&) {
    const std::vector<EvalSample> samples = generate_();
    if (samples.empty()) return;
    show_(view.state.global_step, text_of(samples));
    if (!file_.empty()) append(view.state, samples);
}

void EvalSamples::append(const TrainerState& state, const std::vector<EvalSample>& samples) {
    std::string lines;
    for (const EvalSample& sample : samples)
        lines += python_json_line(Json{{"step", state.global_step},
                                       {"epoch", state.epoch ? Json(*state.epoch) : Json()},
                                       {"prompt", sample.prompt},
                                       {"text", sample.text}}) +
                 "\n";
    std::error_code ignored;
    std::filesystem::create_directories(file_.parent_path(), ignored);
    errno = 0;
    std::ofstream out(file_, std::ios::app | std::ios::binary);
    out << lines << std::flush;
    if (!out && !failed_)
        warn_(fmt::format("{} cannot be written: {}. Samples are left out of it, and the run continues.",
                          file_.string(), std::strerror(errno != 0 ? errno : EIO)));
    failed_ = failed_ || !out;
}

}  // namespace drover
