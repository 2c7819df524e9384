#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What the Hub answers when files are to be sent.
namespace drover {

/// How the Hub wants a file.
struct UploadMode {
    std::string path;
    bool is_large = false;
    bool is_ignored = false;
    std::string there;  ///< the name of the content that the repository has under this path; or empty
};
/// From an answer of /api/…/preupload/…. Error, naming `where`, when the text is no such answer.
std::vector<UploadMode> parse_upload_modes(std::string_view json, std::string_view where);

/// What the Hub says about sending one large file.
struct LargeUpload {
    std::string hash;
    std::string upload;              ///< an address; empty: the Hub has the content
    std::uint64_t part_bytes = 0;    ///< 0: in one piece
    std::vector<std::string> parts;  ///< addresses; `upload` is then told when all are sent
    std::string verify;              ///< an address to call afterwards; or empty
};
/// From an answer of …/info/lfs/objects/batch. Error when the text is no such answer, or refuses a file.
std::vector<LargeUpload> parse_large_uploads(std::string_view json, std::string_view where);

/// The address of a commit that was made; empty when the answer has none. Error when it is not JSON.
std::string parse_commit_address(std::string_view json, std::string_view where);

}  // namespace drover
