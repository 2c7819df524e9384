#pragma once

#include <cstdio>
#include <string>

#include "train/loop/trainer_callback.h"

namespace drover {

/// How records look on standard output.
enum class LogFormat : std::uint8_t {
    hugging_face_4,  ///< {'loss': 4.1863, 'grad_norm': 1.5041594505310059, 'learning_rate':
                     ///< 0.009000000000000001, 'epoch': 0.2}
    hugging_face_5,  ///< {'loss': '4.186', 'grad_norm': '1.504', 'learning_rate': '0.009', 'epoch': '0.2'}
    json,            ///< {"loss": 4.186305046081543, …, "epoch": 0.2, "step": 1}: the record of log_history
};

/// Whether Hugging Face's formats look as they do with its progress bar (the default) or without it
/// (--disable_tqdm).
enum class LogStyle : std::uint8_t {
    beside_bar,  ///< version 4 rounds the epoch; nothing is printed outside training, where metrics come as a
                 ///< table
    plain,
};

/// The line for `record`, without a newline. total_flos is left out of Hugging Face's formats, as Hugging
/// Face does.
std::string log_line(const Json& record, std::int64_t step, LogFormat format,
                     LogStyle style = LogStyle::beside_bar);

/// Prints each record immediately, on its own line. Add it only on the ranks that should print.
class LogPrinter final : public TrainerCallback {
  public:
    explicit LogPrinter(LogFormat format, LogStyle style = LogStyle::beside_bar, std::FILE* out = stdout)
        : format_(format), style_(style), out_(out) {}

    void on_train_begin(TrainerView&) override { training_ = true; }
    void on_log(TrainerView& view, const Json& record) override;
    void on_train_end(TrainerView&) override { training_ = false; }

  private:
    LogFormat format_;
    LogStyle style_;
    std::FILE* out_;
    bool training_ = false;
};

}  // namespace drover
