#include "core/lfs_pointer.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

void refuse_lfs_pointer(std::string_view first_bytes, std::string_view where) {
    if (first_bytes.starts_with("version https://git-lfs"))
        throw Error(fmt::format("{} is a Git LFS pointer and not the file itself.", where),
                    "Run `git lfs pull` in its folder to fetch the contents.");
}

}  // namespace drover
