#include "train/callbacks/tensor_board.h"

#include <array>
#include <chrono>
#include <ctime>
#include <vector>

#include "core/console.h"
#include "core/error.h"
#include "core/machine_identity.h"

namespace drover {
namespace {

double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string tag_of(const std::string& key) {
    constexpr std::string_view evaluation = "eval_";
    return key.starts_with(evaluation) ? "eval/" + key.substr(evaluation.size()) : "train/" + key;
}

}  // namespace

std::filesystem::path default_tensor_board_folder() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%b%d_%H-%M-%S_", &local);
    return std::filesystem::path("runs") / (date.data() + host_name());
}

EventFile& TensorBoard::file() {
    if (!file_) file_.emplace(folder_, seconds_since_1970());
    return *file_;
}

void TensorBoard::on_train_begin(TrainerView& view) {
    if (!view.state.is_world_process_zero) return;
    file().add_text(seconds_since_1970(), 0, "args", arguments_);
    file().add_text(seconds_since_1970(), 0, "model_config", config_);
}

template <class Write>
void TensorBoard::attempt(const Write& write) {
    try {
        write();
    } catch (const Error& error) {
        if (!failed_)
            print_log(stderr, "{} Records are left out of it until it can be, and the run continues.\n",
                      error.cause());
        failed_ = true;
    }
}

void TensorBoard::on_log(TrainerView& view, const Json& record) {
    if (view.state.is_world_process_zero) attempt([&] { write(view.state.global_step, record); });
}

void TensorBoard::add_text(std::int64_t step, std::string_view tag, const std::string& text) {
    attempt([&] { file().add_text(seconds_since_1970(), step, tag, text); });
}

void TensorBoard::write(std::int64_t step, const Json& record) {
    std::vector<EventFile::Scalar> scalars;
    for (const auto& [key, value] : record.items())
        if (value.is_number()) scalars.emplace_back(tag_of(key), value.get<double>());
    file().add_scalars(seconds_since_1970(), step, scalars);
}

}  // namespace drover
