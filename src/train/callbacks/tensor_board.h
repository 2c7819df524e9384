#pragma once

#include <optional>

#include "io/event_file.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// `runs/<date>_<host>`: torch's name for the folder of a run that starts now.
std::filesystem::path default_tensor_board_folder();

/// Writes every record to a TensorBoard file, under the names that Hugging Face's callback gives them:
/// train/loss, train/learning_rate, eval/loss, … The file is created on the first write.
///
/// Failing to create the file when training begins is an Error. A record that cannot be written later is
/// dropped; this is reported once on standard error, and the run continues.
class TensorBoard final : public TrainerCallback {
  public:
    /// `arguments` and `config` are shown as text.
    TensorBoard(std::filesystem::path folder, std::string arguments, std::string config)
        : folder_(std::move(folder)), arguments_(std::move(arguments)), config_(std::move(config)) {}

    void on_train_begin(TrainerView& view) override;
    void on_log(TrainerView& view, const Json& record) override;

    /// Adds a text under `tag`; only on the first rank.
    void add_text(std::int64_t step, std::string_view tag, const std::string& text);

    /// Empty when nothing was written.
    std::filesystem::path written() const { return file_ ? file_->path() : std::filesystem::path(); }

  private:
    EventFile& file();
    void write(std::int64_t step, const Json& record);
    /// Does some writing; reports the first failure.
    template <class Write>
    void attempt(const Write& write);

    std::filesystem::path folder_;
    std::string arguments_, config_;
    std::optional<EventFile> file_;
    bool failed_ = false;
};

}  // namespace drover
