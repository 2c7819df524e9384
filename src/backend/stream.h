#pragma once

namespace drover {

/// An ordered queue of work on a device. The CPU's runs inline.
struct Stream {
    void* handle = nullptr;
};

}  // namespace drover
