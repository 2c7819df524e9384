#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "hub/web_address.h"

namespace drover {

/// How often and how soon a failed request is repeated.
struct RetryRule {
    int tries = 5;                               ///< in a row without any progress
    int connection_tries = 3;                    ///< where no connection is made at all
    std::chrono::milliseconds first_wait{1000};  ///< doubled each time
    std::chrono::milliseconds longest_wait{16'000};
};

/// How the Hub is reached.
struct HubSettings {
    WebAddress endpoint;
    std::string token{};  ///< empty: none
    bool offline = false;
    bool shows_progress = true;
    bool links = true;  ///< the cache's snapshots are symbolic links
    std::chrono::seconds connect_limit{10};
    std::chrono::seconds silence_limit{30};
    RetryRule retry{};

    /// From HF_ENDPOINT, HF_TOKEN and so on (docs/hub.md). `token` is one that the user gave; empty: that of
    /// the variables or of the login. UsageError for an endpoint that is no address.
    static HubSettings from_environment(std::string_view token = {});
};

/// HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE; for datasets also HF_DATASETS_OFFLINE.
bool hub_is_offline();
bool datasets_are_offline();

/// The token of HF_TOKEN, HUGGING_FACE_HUB_TOKEN or the login's file; empty when there is none.
std::string stored_token();

/// Keeps a token for this user alone, where huggingface_hub looks for it too.
void store_token(std::string_view token);
/// Removes it; false when there was none.
bool remove_stored_token();

/// The token without blanks around it; UsageError, naming `where` and not the token, when it has characters
/// that no token has.
std::string clean_token(std::string_view token, std::string_view where);

}  // namespace drover
