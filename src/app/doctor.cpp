#include <memory>

#include "app/build_facts.h"
#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "doctor/examine.h"
#include "run/processes.h"

namespace drover {
namespace {

struct DoctorOptions {
    std::string folder = ".";
    bool json = false, network = false;
};

void examine(const DoctorOptions& options) {
    if (options.folder.empty()) throw UsageError("--dir is empty.", "Name a folder, or leave it out.");
    const Report report = examine_machine(
        {.build = own_build_facts(), .output_folder = options.folder, .network = options.network});
    if (options.json)
        print_result("{}\n", report.json().dump(2, ' ', false, Json::error_handler_t::replace));
    else
        print_result("{}", report.text());
    if (!report.can_train()) throw QuietEnd(1);
}

}  // namespace

void add_doctor_command(const Command& app) {
    auto options = std::make_shared<DoctorOptions>();
    const Command command = app.add_command(
        "doctor",
        "Say what this machine can do, and what to do about what is missing: processor, memory, "
        "GPUs, modules and their libraries, MPI, disks, caches, Hub. Changes nothing and takes "
        "a second or two. The exit status is 1 if nothing can be trained here, else 0.");
    command.add_option("--dir", options->folder, "folder whose disk is measured, as --output_dir of a run");
    command.add_flag("--json", options->json, "print one JSON object");
    command.add_flag("--network", options->network,
                     "also ask the Hub whether it answers and knows the token");
    command.set_action([options] { examine(*options); });
}

}  // namespace drover
