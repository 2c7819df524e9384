#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/upload_answers.h"

namespace drover {

/// A file that becomes part of a repository.
struct UploadFile {
    std::string path;  ///< in the repository
    std::filesystem::path source;
};

/// Makes a model's repository unless it exists, and returns its full id: an id without an owner is the
/// user's. `is_private` says who may see a new one; absent: as the owner has set. HubError when the token
/// may not.
std::string make_model_repository(HubClient& client, const std::string& id, std::optional<bool> is_private);

/// Makes the branch that `repository.revision` names unless it exists.
void make_branch(HubClient& client, const Repository& repository);

/// Sends files as one commit, and returns its address; empty when the repository has all of them already.
/// Large files go first, to where the Hub wants them, without the token where that is another server. The
/// sources must not change meanwhile. `go_on` is asked now and then; false ends it with an Error.
std::string upload_files(HubClient& client, const Repository& repository, std::vector<UploadFile> files,
                         const std::string& message, const std::function<bool()>& go_on = {});

}  // namespace drover
