#include "data/conversation/row_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/batch.h"
#include "core/json.h"
#include "core/number_text.h"

namespace drover {
namespace {

bool learns_nothing(const std::vector<TokenId>& labels) {
    return std::all_of(labels.begin(), labels.end(), [](TokenId label) { return label == no_label; });
}

bool keeps_all(DocumentPacking packing) {
    return packing == DocumentPacking::bfd_split || packing == DocumentPacking::wrapped;
}

}  // namespace

void RowMaker::count(const TokenizedExample& example) {
    ++report_.examples;
    if (!example.lost_prompt.empty() && ++report_.lost == 1) {
        report_.first_lost = report_.examples;
        report_.lost_prompt = example.lost_prompt;
    }
    const auto& most = options_.max_length;
    if (most && std::ssize(example.ids) > *most && !keeps_all(options_.packing)) ++report_.cut;
}

void RowMaker::place(TokenizedExample& example) {
    const auto& most = options_.max_length;
    if (options_.packing != DocumentPacking::none) {
        group_.push_back(std::move(example));
        return;
    }
    if (most) cut_example(example, *most, options_.kept_end);
    if (learns_nothing(example.labels)) {
        if (++report_.dropped == 1) report_.first_dropped = report_.examples;
        return;
    }
    const auto length = static_cast<std::int32_t>(example.ids.size());
    give({std::move(example.ids), std::move(example.labels), {length}});
}

void RowMaker::end_group() {
    if (group_.empty()) return;
    for (TokenRow& row : pack_documents(options_.packing, *options_.max_length, group_)) give(std::move(row));
    group_.clear();
}

void RowMaker::give(TokenRow&& row) {
    ++report_.rows;
    report_.tokens += std::ssize(row.ids);
    report_.labels +=
        std::count_if(row.labels.begin(), row.labels.end(), [](TokenId label) { return label != no_label; });
    take_(std::move(row));
}

// ------------------------------------------------------------------------------------------------ SftReport

std::string SftReport::to_text() const {
    return Json{{"examples", examples},
                {"rows", rows},
                {"tokens", tokens},
                {"labels", labels},
                {"cut", cut},
                {"dropped", dropped},
                {"first_dropped", first_dropped},
                {"lost", lost},
                {"first_lost", first_lost},
                {"lost_prompt", lost_prompt}}
        .dump();
}

SftReport SftReport::from_text(const std::string& text) {
    SftReport report;
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return report;
    const auto take = [&](const char* key, std::int64_t& value) {
        if (json.contains(key) && json[key].is_number_integer()) value = json[key].get<std::int64_t>();
    };
    take("examples", report.examples);
    take("rows", report.rows);
    take("tokens", report.tokens);
    take("labels", report.labels);
    take("cut", report.cut);
    take("dropped", report.dropped);
    take("first_dropped", report.first_dropped);
    take("lost", report.lost);
    take("first_lost", report.first_lost);
    if (json.contains("lost_prompt") && json["lost_prompt"].is_string())
        report.lost_prompt = json["lost_prompt"].get<std::string>();
    return report;
}

std::vector<std::string> SftReport::warnings(std::string_view split, const SftOptions& options) const {
    std::vector<std::string> sentences;
    if (lost > 0)
        sentences.push_back(fmt::format(
            "{}: in {} of {} the ids of the prompt do not begin those of prompt and completion (first in row "
            "{}). The completion begins where they part; \"{}\" is not trained on. End prompts where a token "
            "ends, or use a template that writes them alike in both.",
            split, lost, counted(examples, "example"), first_lost, lost_prompt));
    if (cut > 0)
        sentences.push_back(fmt::format("{}: {} of {} {} more than --max_length {} tokens and {} cut.", split,
                                        cut, counted(examples, "example"), cut == 1 ? "has" : "have",
                                        options.max_length.value_or(0), cut == 1 ? "is" : "are"));
    if (dropped > 0)
        sentences.push_back(
            fmt::format("{}: {} of {} {} left out, because nothing in {} first {} tokens is to be learned "
                        "(first row {}).",
                        split, dropped, counted(examples, "example"), dropped == 1 ? "is" : "are",
                        dropped == 1 ? "its" : "their", options.max_length.value_or(0), first_dropped));
    return sentences;
}

}  // namespace drover
