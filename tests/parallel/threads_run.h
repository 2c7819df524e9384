#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <mutex>
#include <set>
#include <string>

#include "comm/threads/thread_world.h"
#include "model/block_shape.h"
#include "parallel/mesh_cases.h"

namespace drover::test {

/// What a case's first rank gathers; each rank is a thread.
inline MeshRun run_on_threads(const MeshModel& model, const MeshCase& mesh_case, int steps) {
    MeshRun first;
    run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
        omp_set_num_threads(1);
        const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
        MeshRun run = train_on_mesh(model, mesh_case, mesh, steps);
        if (mesh.rank() == 0) first = std::move(run);
    });
    return first;
}

/// Trains on ranks that are threads, and reports how any rank's run differs from that of one process.
inline std::set<std::string> complaints_on_threads(const MeshModel& model, const MeshCase& mesh_case,
                                                   const MeshRun& alone, int steps) {
    std::mutex guard;
    std::set<std::string> complaints;
    run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
        omp_set_num_threads(1);
        const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
        const MeshRun run = train_on_mesh(model, mesh_case, mesh, steps);
        const std::string complaint = compare(run, alone).complaint(mesh_case.precision);
        const std::lock_guard lock(guard);
        if (!complaint.empty()) complaints.insert(complaint);
    });
    return complaints;
}

/// The same numbers, to the bit.
inline void expect_equal_bits(const MeshRun& run, const MeshRun& expected, const std::string& what) {
    EXPECT_EQ(run.losses, expected.losses) << what;
    EXPECT_EQ(run.norms, expected.norms) << what;
    EXPECT_EQ(run.evaluated_loss, expected.evaluated_loss) << what;
    EXPECT_EQ(run.correct, expected.correct) << what;
    EXPECT_TRUE(run.weights == expected.weights) << what << ": " << compare(run, expected).text();
}

}  // namespace drover::test
