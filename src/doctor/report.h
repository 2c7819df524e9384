#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"

/// What `drover doctor` found out, and how it is shown.
namespace drover {

enum class Mark : std::uint8_t {
    ok,
    note,     ///< good to know: something is slower, smaller or absent that not everybody needs
    problem,  ///< something that the machine has, or the user set, does not work
};

struct Finding {
    Mark mark = Mark::ok;
    std::string text;      ///< a sentence
    std::string remedy{};  ///< what to do, in one sentence; every problem has one
};

/// Something that users want to do, and whether it can be done here.
struct Ability {
    std::string key, name;  ///< "cpu", "train on the CPU"
    bool possible = false;
    std::string how;  ///< with what: "AMX, 2 threads"; or why not, without a full stop
};

/// One section of the page.
struct ReportSection {
    std::string key, title;  ///< "memory", "Memory"
    Json facts = Json::object();
    std::vector<Finding> findings{};
    std::vector<Ability> abilities{};
    bool stops_training = false;  ///< nothing can be trained, not even on the CPU

    void ok(std::string text) { findings.push_back({Mark::ok, std::move(text)}); }
    void note(std::string text, std::string remedy = {}) {
        findings.push_back({Mark::note, std::move(text), std::move(remedy)});
    }
    void problem(std::string text, std::string remedy) {
        findings.push_back({Mark::problem, std::move(text), std::move(remedy)});
    }
    void problem(const Error& error) { problem(error.cause(), error.remedy()); }
    /// A problem without which something could be trained here.
    void stopper(std::string text, std::string remedy) {
        problem(std::move(text), std::move(remedy));
        stops_training = true;
    }
    void stopper(const Error& error) { stopper(error.cause(), error.remedy()); }

    /// The first problem's text; empty when there is none.
    std::string first_problem() const;
};

struct Report {
    std::string heading;
    std::vector<ReportSection> sections;

    /// What can be done, in the order of the sections. Training on the CPU needs every section.
    std::vector<Ability> abilities() const;
    /// Something can be trained on the CPU.
    bool can_train() const;
    int count(Mark mark) const;

    /// One page for a terminal.
    std::string text() const;
    Json json() const;
};

}  // namespace drover
