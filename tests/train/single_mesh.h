#pragma once

#include "parallel/mesh.h"

namespace drover::test {

/// The mesh of one process.
inline const Mesh& single_mesh() {
    static const Mesh mesh;
    return mesh;
}

}  // namespace drover::test
