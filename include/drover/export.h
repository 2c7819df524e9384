#pragma once

/// Marks what the shared library exports.
#define DROVER_EXPORT __attribute__((visibility("default")))

/// The library's own sources have names of the same kind inside drover; users see the public ones alone.
#ifdef DROVER_BUILDING_API
#define DROVER_INLINE_NAMESPACE namespace
#else
#define DROVER_INLINE_NAMESPACE inline namespace
#endif
