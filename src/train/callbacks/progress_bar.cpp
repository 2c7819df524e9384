#include "train/callbacks/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "core/console.h"
#include "core/python_text.h"

namespace drover {
namespace {

constexpr double terminal_interval = 0.1, plain_interval = 10;

int terminal_width() {
    if (isatty(STDERR_FILENO) != 1) return 0;
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string short_count(double value) {
    if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
    if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
    return fmt::format("{:.0f}", value);
}

}  // namespace

std::string progress_text(const ProgressNumbers& numbers, int width) {
    const double seconds = std::max(numbers.seconds, 1e-9);
    std::string text =
        fmt::format("{}/{} loss {:.4g} lr {:.3g} norm {:.3g} {} tok/s", numbers.step, numbers.steps,
                    numbers.last.update.loss, numbers.last.learning_rate, numbers.last.update.gradient_norm,
                    short_count(static_cast<double>(numbers.tokens) / seconds));
    if (numbers.share_of_peak > 0) text += fmt::format(" {:.0f}% of peak", 100 * numbers.share_of_peak);
    if (numbers.steps_timed > 0) {
        const double left = seconds / static_cast<double>(numbers.steps_timed) *
                            static_cast<double>(numbers.steps - numbers.step);
        text += fmt::format(" {} left", python_timedelta(static_cast<long long>(left)));
    }
    const int room = width - static_cast<int>(text.size()) - 9;
    if (room >= 10 && numbers.steps > 0) {
        const int cells = std::min(room, 30);
        const int filled = static_cast<int>(cells * numbers.step / numbers.steps);
        text = fmt::format("{:3}% [{}{}] {}", 100 * numbers.step / numbers.steps,
                           std::string(static_cast<std::size_t>(filled), '#'),
                           std::string(static_cast<std::size_t>(cells - filled), '.'), text);
    }
    return width > 0 ? text.substr(0, static_cast<std::size_t>(width - 1)) : text;
}

ProgressBar::ProgressBar(double peak_flops) : ProgressBar(peak_flops, stderr, terminal_width()) {}

ProgressBar::ProgressBar(double peak_flops, std::FILE* out, int width)
    : peak_flops_(peak_flops), out_(out), width_(width) {}

void ProgressBar::on_train_begin(TrainerView& view) {
    watch_ = Stopwatch();
    next_time_ = width_ > 0 ? 0 : plain_interval;
    numbers_ = {.step = view.state.global_step, .steps = view.state.max_steps};
}

void ProgressBar::on_step_end(TrainerView& view, const StepReport& step) {
    numbers_.step = view.state.global_step;
    numbers_.last = step;
    ++numbers_.steps_timed;
    numbers_.tokens += step.tokens;
    // Time of steps only: evaluations and checkpoints in between would distort the training speed.
    numbers_.seconds += step.seconds;
    if (peak_flops_ > 0 && numbers_.seconds > 0) {
        const double flops =
            6.0 * static_cast<double>(numbers_.tokens) * static_cast<double>(view.parameters.multiplied);
        numbers_.share_of_peak = flops / numbers_.seconds / peak_flops_;
    }
    const bool last = numbers_.step >= numbers_.steps;
    if (view.state.is_local_process_zero && (due() || (last && width_ > 0)))
        draw(progress_text(numbers_, width_));
}

void ProgressBar::on_evaluation_step(TrainerView& view, std::int64_t done, std::int64_t batches) {
    if (view.state.is_local_process_zero && due())
        draw(fmt::format("evaluating {}/{}", done, batches > 0 ? std::to_string(batches) : "?"));
}

void ProgressBar::on_log(TrainerView&, const Json&) {
    clear();
}

void ProgressBar::on_train_end(TrainerView&) {
    if (drawn_) print_log(out_, "\n");
    drawn_ = false;
}

bool ProgressBar::due() {
    const double now = watch_.seconds();
    if (now < next_time_) return false;
    next_time_ = now + (width_ > 0 ? terminal_interval : plain_interval);
    return true;
}

void ProgressBar::draw(const std::string& text) {
    if (width_ > 0)
        print_log(out_, "\r{}\x1b[K", text);
    else
        print_log(out_, "{}\n", text);
    drawn_ = width_ > 0;
}

/// The next step redraws it.
void ProgressBar::clear() {
    if (!drawn_) return;
    print_log(out_, "\r\x1b[K");
    drawn_ = false;
}

}  // namespace drover
