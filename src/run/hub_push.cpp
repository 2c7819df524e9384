#include "run/hub_push.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Of a checkpoint, what is of the training and not of the model.
bool is_of_training(const std::string& name) {
    constexpr std::array<std::string_view, 5> names{"drover_state.json", "trainer_state.json", "scheduler.pt",
                                                    "optimizer.pt", "rng_state.pth"};
    return name.starts_with("optimizer") || std::find(names.begin(), names.end(), name) != names.end();
}

HubSettings push_connection(const PushSettings& settings) {
    HubSettings connection = HubSettings::from_environment(settings.token);
    // Lines of an upload in the background would be among those of the run.
    connection.shows_progress = false;
    if (connection.token.empty())
        throw UsageError("--push_to_hub is given, but there is no token.",
                         "Run `drover login`, set HF_TOKEN, or give --hub_token.");
    return connection;
}

/// A link to a file, or a copy where there are no links.
void link_file(const fs::path& file, const fs::path& link) {
    fs::create_directories(link.parent_path());
    std::error_code failure;
    fs::create_hard_link(file, link, failure);
    if (failure) fs::copy_file(file, link, fs::copy_options::overwrite_existing);
}

}  // namespace

HubPush::HubPush(const PushSettings& settings, const fs::path& output_folder, Warn warn)
    : settings_(settings),
      output_folder_(output_folder),
      warn_(std::move(warn)),
      client_(push_connection(settings)) {
    std::string id = settings.id;
    if (id.empty()) id = fs::absolute(output_folder).lexically_normal().filename().string();
    if (id.empty()) id = fs::absolute(output_folder).lexically_normal().parent_path().filename().string();
    if (!settings.organization.empty() && id.find('/') == std::string::npos)
        id = fmt::format("{}/{}", settings.organization, id);
    repository_ = {.id = make_model_repository(client_, id, settings.is_private),
                   .revision = settings.branch.empty() ? "main" : settings.branch};
    make_branch(client_, repository_);
    std::error_code ignored;
    fs::remove_all(output_folder_ / ".push", ignored);  // of a run that was killed
    thread_ = std::thread([this] { work(); });
}

HubPush::~HubPush() {
    {
        const std::lock_guard hold(access_);
        ended_ = true;
        changed_.notify_all();
    }
    thread_.join();
    std::error_code ignored;
    fs::remove_all(output_folder_ / ".push", ignored);
}

void HubPush::add_files(Job& job, const fs::path& folder, const std::string& before, bool model_only) const {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
        const std::string path = entry.path().lexically_relative(folder).generic_string();
        if (!entry.is_regular_file() || !is_safe_file_path(path)) continue;
        if (model_only && (path.find('/') != std::string::npos || is_of_training(path))) continue;
        const fs::path link = job.staging / (before.empty() ? "model" : "checkpoint") / path;
        link_file(entry.path(), link);
        job.files.push_back({.path = before + path, .source = link});
    }
}

void HubPush::on_save(TrainerView&, const fs::path& folder) {
    using Strategy = PushSettings::Strategy;
    if (settings_.strategy == Strategy::end) return;
    {
        const std::lock_guard hold(access_);
        if ((busy_ || !jobs_.empty()) && !settings_.always) return;  // as transformers does
    }
    const std::string name = folder.filename().string();
    Job job{.staging = output_folder_ / ".push" / name};
    try {
        add_files(job, folder, "", true);
        if (settings_.strategy == Strategy::last_checkpoint)
            add_files(job, folder, "last-checkpoint/", false);
        if (settings_.strategy == Strategy::all_checkpoints) add_files(job, folder, name + "/", false);
    } catch (const fs::filesystem_error& failure) {
        warn_(fmt::format("{} is not uploaded: {}.", name, failure.what()));
        return;
    }
    // The loop may be some steps further by now.
    job.message = fmt::format("Training in progress, step {}", name.substr(name.rfind('-') + 1));
    const std::lock_guard hold(access_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
}

void HubPush::work() {
    for (;;) {
        Job job;
        {
            std::unique_lock hold(access_);
            changed_.wait(hold, [&] { return ended_ || !jobs_.empty(); });
            if (ended_) return;
            job = std::move(jobs_.front());
            jobs_.pop_front();
            busy_ = true;
        }
        try {
            upload_files(client_, repository_, job.files, job.message, [this] { return !ended_; });
        } catch (const Error& error) {
            if (!ended_)
                warn_(fmt::format("A checkpoint was not uploaded, and the run continues. {}", error.cause()));
        }
        std::error_code ignored;
        fs::remove_all(job.staging, ignored);
        const std::lock_guard hold(access_);
        busy_ = false;
        changed_.notify_all();
    }
}

std::string HubPush::push_output_folder() {
    {
        std::unique_lock hold(access_);
        changed_.wait(hold, [&] { return !busy_ && jobs_.empty(); });
    }
    std::vector<UploadFile> files;
    for (auto entry = fs::recursive_directory_iterator(output_folder_);
         entry != fs::recursive_directory_iterator(); ++entry) {
        const std::string name = entry->path().filename().string();
        const bool is_top = entry.depth() == 0;
        const bool is_checkpoint = is_top && name.starts_with("checkpoint-");
        // Locks, staged files and the like are this program's own.
        const bool is_own = name.starts_with('.') || name.starts_with('_') || name.ends_with(".partial") ||
                            (is_top && name.starts_with("drover.lock"));
        if (is_checkpoint || is_own) {
            if (entry->is_directory()) entry.disable_recursion_pending();
            continue;
        }
        const std::string path = entry->path().lexically_relative(output_folder_).generic_string();
        if (entry->is_regular_file() && is_safe_file_path(path))
            files.push_back({.path = path, .source = entry->path()});
    }
    const std::string commit = upload_files(client_, repository_, std::move(files), "End of training");
    return commit.empty() ? client_.address("/" + repository_.id) : commit;
}

}  // namespace drover
