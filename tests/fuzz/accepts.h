#pragma once

#include "core/error.h"

namespace drover::test {

/// The check of every fuzz target: an input must parse into something sound or throw drover::Error; anything
/// else escapes or aborts. Returns whether `parse` accepted it.
template <class Parse>
bool accepts(Parse&& parse) {
    try {
        parse();
        return true;
    } catch (const Error& error) {
        require(!error.cause().empty() && !error.remedy().empty(), "an error without a cause or a remedy");
        return false;
    }
}

}  // namespace drover::test
