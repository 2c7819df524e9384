#pragma once

#include <string>
#include <string_view>

#include "fuzz/accepts.h"
#include "hub/repository.h"
#include "hub/upload_answers.h"
#include "hub/web_address.h"

namespace drover::test {

/// An answer of a server, which may be anybody's: the first byte says which it is taken for. Nothing that is
/// accepted leads out of a folder or to another scheme.
inline bool accepts_hub_answer(std::string_view text) {
    return accepts([&] {
        const char kind = text.empty() ? '0' : text.front();
        const std::string_view answer = text.empty() ? text : text.substr(1);
        if (kind == '1') {
            RepositoryListing listing;
            parse_tree_page(answer, "input", listing);
            for (const RepositoryFile& file : listing.files)
                require(is_safe_file_path(file.path), "a path that leads out of the folder");
            const RepositoryListing again = parse_listing(listing_text(listing), "", "written listing");
            require(again.files.size() == listing.files.size(), "a listing reads back as another");
        } else if (kind == '2') {
            parse_listing(answer, "commit", "input");
        } else if (kind == '3') {
            parse_upload_modes(answer, "input");
        } else if (kind == '4') {
            for (const LargeUpload& upload : parse_large_uploads(answer, "input"))
                require(upload.upload.empty() || WebAddress::parse(upload.upload), "an upload to no address");
        } else if (kind == '5') {
            const WebAddress hub = *WebAddress::parse("https://hub.example/x");
            const WebAddress target = redirect_target(hub, answer);
            require(target.scheme == "https", "a redirect to another scheme");
            require(WebAddress::parse(target.text())->text() == target.text(), "an address reads as another");
        } else if (kind == '6') {
            next_page(answer);
        } else {
            parse_commit(answer, "input");
        }
    });
}

}  // namespace drover::test
