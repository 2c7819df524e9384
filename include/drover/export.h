#pragma once

/// Marks what the shared library exports.
#define DROVER_EXPORT __attribute__((visibility("default")))

/// The library's own sources use some of the same names inside drover; users see only the public ones.
#ifdef DROVER_BUILDING_API
#define DROVER_INLINE_NAMESPACE namespace
#else
#define DROVER_INLINE_NAMESPACE inline namespace
#endif
