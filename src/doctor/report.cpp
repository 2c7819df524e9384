#include "doctor/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/number_text.h"
#include "core/words.h"

namespace drover {
namespace {

constexpr std::size_t page_width = 100;

std::string_view mark_name(Mark mark) {
    switch (mark) {
        case Mark::ok:
            return "ok";
        case Mark::note:
            return "note";
        case Mark::problem:
            return "problem";
    }
    bug("a mark");
}

/// The text after `start`; the lines after the first are indented by as much.
std::string wrapped(std::string_view start, std::string_view text) {
    return wrapped_text(text, start.size(), page_width).replace(0, start.size(), start);
}

std::string without_full_stop(std::string text) {
    if (text.ends_with('.')) text.pop_back();
    return text;
}

}  // namespace

std::string ReportSection::first_problem() const {
    for (const Finding& finding : findings)
        if (finding.mark == Mark::problem) return finding.text;
    return {};
}

std::vector<Ability> Report::abilities() const {
    std::vector<Ability> all;
    for (const ReportSection& section : sections)
        all.insert(all.end(), section.abilities.begin(), section.abilities.end());
    for (const ReportSection& section : sections)
        if (section.stops_training)
            for (Ability& ability : all)
                if (ability.key == "cpu" && ability.possible) {
                    ability.possible = false;
                    ability.how = without_full_stop(section.first_problem());
                }
    return all;
}

bool Report::can_train() const {
    return std::none_of(sections.begin(), sections.end(),
                        [](const ReportSection& section) { return section.stops_training; });
}

int Report::count(Mark mark) const {
    int number = 0;
    for (const ReportSection& section : sections)
        for (const Finding& finding : section.findings) number += finding.mark == mark ? 1 : 0;
    return number;
}

std::string Report::text() const {
    std::string page = heading + "\n\n";
    for (const Ability& ability : abilities())
        page +=
            wrapped(fmt::format("  {:<26}{:<5}", ability.name, ability.possible ? "yes" : "no"), ability.how);
    for (const ReportSection& section : sections) {
        page += fmt::format("\n{}\n", section.title);
        for (const Finding& finding : section.findings) {
            page += wrapped(fmt::format("  {:<9}", mark_name(finding.mark)), finding.text);
            if (!finding.remedy.empty()) page += wrapped(std::string(11, ' ') + "-> ", finding.remedy);
        }
    }
    return page + fmt::format("\n{}, {}. {}\n", counted(count(Mark::problem), "problem"),
                              counted(count(Mark::note), "note"),
                              can_train() ? "Training on the CPU is possible."
                                          : "Nothing can be trained here as it is.");
}

Json Report::json() const {
    Json all{{"can_train_on_cpu", can_train()},
             {"problems", count(Mark::problem)},
             {"notes", count(Mark::note)},
             {"abilities", Json::object()},
             {"sections", Json::object()}};
    for (const Ability& ability : abilities())
        all["abilities"][ability.key] = {{"possible", ability.possible}, {"how", ability.how}};
    for (const ReportSection& section : sections) {
        Json findings = Json::array();
        for (const Finding& finding : section.findings) {
            Json one{{"mark", mark_name(finding.mark)}, {"text", finding.text}};
            if (!finding.remedy.empty()) one["remedy"] = finding.remedy;
            findings.push_back(std::move(one));
        }
        all["sections"][section.key] = {{"facts", section.facts}, {"findings", std::move(findings)}};
    }
    return all;
}

}  // namespace drover
