#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Remedy for an answer that the Hub does not give.
inline constexpr std::string_view strange_server =
    "Check HF_ENDPOINT: the server there does not answer as the Hub does.";

enum class RepositoryKind { model, dataset };

/// A repository of the Hub at a branch, a tag or a commit.
struct Repository {
    RepositoryKind kind = RepositoryKind::model;
    std::string id;  ///< "owner/name", or "name" for old ones
    std::string revision = "main";

    /// "model meta-llama/Llama-3.2-1B", with the revision where it is not main.
    std::string shown() const;
    /// "models--meta-llama--Llama-3.2-1B", its folder in the cache.
    std::string folder_name() const;
    /// "/api/models/meta-llama/Llama-3.2-1B"
    std::string api_path() const;
    /// "/meta-llama/Llama-3.2-1B/resolve/<commit>/<path>", with "/datasets" before it for a dataset.
    std::string file_path(std::string_view commit, std::string_view path) const;
};

/// Whether a text can be the id of a repository: letters, digits, "-", "_" and ".", with at most one slash.
bool is_hub_id(std::string_view id);

/// Whether a repository's file may have this path in a folder: it is relative, stays in the folder, and has
/// no empty part and no control characters.
bool is_safe_file_path(std::string_view path);

/// A file as the Hub lists it.
struct RepositoryFile {
    std::string path;
    std::uint64_t size = 0;
    /// Names the content: SHA-256 of a large file (LFS), git's SHA-1 of another; in the cache, the name of
    /// its blob.
    std::string hash;

    bool is_large() const { return hash.size() == 64; }
};

/// The files of a repository at one commit.
struct RepositoryListing {
    std::string commit;
    std::vector<RepositoryFile> files;  ///< by path

    /// Null when there is none of that path.
    const RepositoryFile* find(std::string_view path) const;
};

/// The commit in an answer of /api/…/revision/…; Error, naming `where`, when there is none.
std::string parse_commit(std::string_view json, std::string_view where);

/// Adds the files of one page of /api/…/tree/… to `listing`. Error when the text is no such page, or names a
/// file that may not be written.
void parse_tree_page(std::string_view json, std::string_view where, RepositoryListing& listing);

/// The address in a Link header that is marked as the next page; empty when there is none.
std::string next_page(std::string_view link_header);

/// The listing as the cache keeps it, in huggingface_hub's form: trees/<commit>.json.
std::string listing_text(const RepositoryListing& listing);
RepositoryListing parse_listing(std::string_view json, std::string_view commit, std::string_view where);

}  // namespace drover
