#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "args/parse_arguments.h"
#include "args/sft_settings.h"

namespace drover {
namespace {

/// A dataset by name takes precedence over files, as in run_clm.py.
void explain_unused_files(Arguments& arguments) {
    if (!arguments.has("dataset_name")) {
        if (arguments.given("dataset_config_name") &&
            (arguments.has("train_file") || arguments.has("validation_file")))
            arguments.explain("--dataset_config_name is not used, because the data is given as files.");
        return;
    }
    std::error_code ignored;
    const bool is_file =
        is_sft(arguments) && std::filesystem::is_regular_file(arguments.text("dataset_name"), ignored);
    for (const char* name : {"train_file", "validation_file"}) {
        // One file as the dataset of examples is trained on; another may stand beside it for evaluations.
        if (is_file && std::string_view(name) == "validation_file") continue;
        if (arguments.has(name))
            arguments.explain(fmt::format("--{} is not used, because --dataset_name is given.", name));
    }
}

void explain_unused_profiling(Arguments& arguments) {
    const bool refused = arguments.given("profile") && !arguments.flag("profile");
    const bool begins_somewhere =
        arguments.integer("profile_epoch") >= 0 || arguments.integer("profile_step") >= 0;
    const bool is_on = arguments.flag("profile") || begins_somewhere || arguments.has("profile_steps");
    if (is_on && !refused) return;
    std::vector<std::string> names;
    for (const char* name :
         {"profile_steps", "profile_epoch", "profile_step", "profile_duration_ms", "profile_logdir"})
        if (arguments.given(name) && arguments.source(name).kind != ArgumentSource::Kind::environment)
            names.push_back(fmt::format("--{}", name));
    if (!names.empty())
        arguments.explain(fmt::format("{}: nothing is profiled {}.", fmt::join(names, ", "),
                                      refused ? "because of --no_profile" : "without --profile"));
}

/// --recompute says more exactly what the older flags ask for.
void explain_unused_recompute(Arguments& arguments) {
    if (!arguments.given("recompute") || arguments.text("recompute") == "full") return;
    for (const char* name : {"gradient_checkpointing", "spmd_grad_chkpt"})
        if (arguments.flag(name) && arguments.given(name))
            arguments.explain(fmt::format("--recompute {} is given, so --{} is ignored.",
                                          arguments.text("recompute"), name));
}

}  // namespace

void explain_unused(Arguments& arguments) {
    explain_unused_files(arguments);
    explain_unused_profiling(arguments);
    explain_unused_recompute(arguments);
}

}  // namespace drover
