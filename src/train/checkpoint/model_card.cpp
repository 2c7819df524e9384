#include "train/checkpoint/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/python_json.h"
#include "core/python_text.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// At most four digits after the decimal point.
std::string rounded(const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : python_repr(value);
    const std::size_t point = text.find('.');
    if (!value.is_number_float() || point == std::string::npos || text.size() - point - 1 <= 4) return text;
    return fmt::format("{:.4f}", value.get<double>());
}

std::string capitalised(const std::string& key) {
    std::string words = key.starts_with("eval_") ? key.substr(5) : key;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == '_') words[i] = ' ';
        if (i == 0 || words[i - 1] == ' ')
            words[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[i])));
    }
    return words;
}

bool is_result(const std::string& key) {
    static const std::vector<std::string> others = {"eval_runtime",
                                                    "eval_samples_per_second",
                                                    "eval_steps_per_second",
                                                    "eval_model_preparation_time",
                                                    "epoch",
                                                    "step"};
    return std::find(others.begin(), others.end(), key) == others.end();
}

/// The newest evaluation; null when there was none.
Json last_evaluation(const TrainerState& state) {
    for (auto record = state.log_history.rbegin(); record != state.log_history.rend(); ++record)
        if (record->contains("eval_loss")) return *record;
    return nullptr;
}

/// Rows of cells, the first being the header; empty when nothing was evaluated during training.
std::vector<std::vector<std::string>> evaluation_rows(const TrainerState& state) {
    std::vector<std::vector<std::string>> rows;
    std::string training_loss = "No log";
    for (const Json& record : state.log_history) {
        if (record.contains("train_runtime") && record.contains("train_loss")) break;  // the end of training
        if (record.contains("loss")) training_loss = rounded(record.at("loss"));
        if (!record.contains("eval_loss")) continue;
        std::vector<std::string> heads = {"Training Loss", "Epoch", "Step", "Validation Loss"};
        std::vector<std::string> cells = {training_loss, rounded(record.at("epoch")),
                                          rounded(record.at("step")), rounded(record.at("eval_loss"))};
        for (const auto& [key, value] : record.items())
            if (key != "eval_loss" && is_result(key)) {
                heads.push_back(capitalised(key));
                cells.push_back(rounded(value));
            }
        if (rows.empty()) rows.push_back(heads);
        rows.push_back(cells);
    }
    return rows;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], row[i].size());
        }
    std::string table;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        for (std::size_t i = 0; i < rows[row].size(); ++i)
            table += fmt::format("| {:<{}} ", rows[row][i], widths[i]);
        table += "|\n";
        if (row > 0) continue;
        for (const std::size_t width : widths) table += fmt::format("|:{}:", std::string(width, '-'));
        table += "|\n";
    }
    return table;
}

std::string front_matter(const ModelCardFacts& facts, const Json& evaluation) {
    const bool is_adapter = !facts.peft_version.empty();
    std::string text = fmt::format("---\nlibrary_name: {}\n", is_adapter ? "peft" : "transformers");
    if (!facts.license.empty()) text += "license: " + facts.license + "\n";
    if (!facts.base_model.empty()) text += "base_model: " + facts.base_model + "\n";
    if (is_adapter)
        text += fmt::format(
            "tags:\n{}- lora\n- transformers\n",
            facts.base_model.empty() ? "" : fmt::format("- base_model:adapter:{}\n", facts.base_model));
    else
        text += "tags:\n- generated_from_trainer\n";
    if (!facts.datasets.empty()) text += fmt::format("datasets:\n- {}\n", fmt::join(facts.datasets, "\n- "));
    const bool has_accuracy = evaluation.is_object() && evaluation.contains("eval_accuracy");
    if (has_accuracy) text += "metrics:\n- accuracy\n";
    text += fmt::format("model-index:\n- name: {}\n", facts.name);
    if (has_accuracy && !facts.datasets.empty())
        text += fmt::format(
            "  results:\n  - task:\n      name: Causal Language Modeling\n      type: text-generation\n    "
            "dataset:\n"
            "      name: {0}\n      type: {0}\n    metrics:\n    - name: Accuracy\n      type: accuracy\n    "
            "  value: {1}\n",
            fmt::join(facts.datasets, ", "), python_float(evaluation.at("eval_accuracy").get<double>()));
    else
        text += "  results: []\n";
    if (is_adapter) text += "pipeline_tag: text-generation\n";
    return text + "---\n";
}

std::string hyperparameters(const ModelCardFacts& facts, const TrainerSettings& settings) {
    std::string text;
    const auto line = [&](std::string_view name, const Json& value) {
        text += fmt::format("- {}: {}\n", name,
                            value.is_string() ? value.get<std::string>() : python_repr(value));
    };
    line("learning_rate", settings.learning_rate);
    line("train_batch_size", settings.per_device_train_batch_size);
    line("eval_batch_size", settings.per_device_eval_batch_size);
    line("seed", settings.seed);
    if (settings.replicas > 1) line("num_devices", settings.replicas);
    if (settings.gradient_accumulation_steps > 1)
        line("gradient_accumulation_steps", settings.gradient_accumulation_steps);
    const std::int64_t total =
        settings.per_device_train_batch_size * settings.replicas * settings.gradient_accumulation_steps;
    if (total != settings.per_device_train_batch_size) line("total_train_batch_size", total);
    if (settings.replicas > 1)
        line("total_eval_batch_size", settings.per_device_eval_batch_size * settings.replicas);
    if (!facts.optimizer.empty()) line("optimizer", facts.optimizer);
    line("lr_scheduler_type", settings.lr_scheduler_type);
    if (settings.warmup_steps != 0)
        line("lr_scheduler_warmup_steps", settings.warmup_steps);
    else if (settings.warmup_ratio != 0)
        line("lr_scheduler_warmup_ratio", settings.warmup_ratio);
    if (settings.max_steps > 0)
        line("training_steps", settings.max_steps);
    else
        line("num_epochs", settings.num_train_epochs);
    if (!facts.precision.empty()) line("precision", facts.precision);
    return text;
}

}  // namespace

std::string model_card(const ModelCardFacts& facts, const TrainerSettings& settings,
                       const TrainerState& state) {
    const Json evaluation = last_evaluation(state);
    std::string text = front_matter(facts, evaluation);
    const std::string origin =
        !facts.peft_version.empty()
            ? "trained low-rank adapters of " + (facts.base_model.empty() ? "a model" : facts.base_model)
        : facts.base_model.empty() ? "trained this model from random weights"
                                   : "trained " + facts.base_model + " further to make this model";
    const std::string data = facts.datasets.empty()
                                 ? "texts that have no name on the hub"
                                 : fmt::format("the dataset{} {}", facts.datasets.size() == 1 ? "" : "s",
                                               fmt::join(facts.datasets, ", "));
    text += fmt::format("\n# {}\n\nDrover {} on {}.\n", facts.name, origin, data);
    if (evaluation.is_object()) {
        text += "Its last evaluation gave:\n";
        for (const auto& [key, value] : evaluation.items())
            if (is_result(key)) text += fmt::format("- {}: {}\n", capitalised(key), rounded(value));
    }
    for (const char* section :
         {"Model description", "Intended uses & limitations", "Training and evaluation data"})
        text += fmt::format("\n## {}\n\nNothing is written here yet.\n", section);
    text += "\n## Training procedure\n\n### Training hyperparameters\n\n" + hyperparameters(facts, settings);
    const auto rows = evaluation_rows(state);
    if (!rows.empty()) text += "\n### Training results\n\n" + markdown_table(rows);
    text += "\n### Framework versions\n\n";
    if (!facts.peft_version.empty()) text += fmt::format("- PEFT {}\n", facts.peft_version);
    text += fmt::format("- Drover {}\n", facts.drover_version);
    return text;
}

}  // namespace drover
