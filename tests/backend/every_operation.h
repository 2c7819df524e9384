#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend_under_test.h"

namespace drover::test {

/// An operation on fixed random operands, large enough to be cut into several tasks.
struct OperationCase {
    std::string name;
    DType dtype;  ///< of its activations
    /// Runs it and returns all its outputs.
    std::function<std::vector<OwnedTensor>(Workbench&)> run;
};

/// One or more cases for every operation but matrix products and attention, in each of the types and in the
/// mixtures of 16-bit types with fp32 that training uses.
std::vector<OperationCase> every_operation(const std::vector<DType>& types);

/// The operations of a mixture of experts.
void add_expert_operations(std::vector<OperationCase>& cases, const std::vector<DType>& types);
/// The operations of the optimizers other than AdamW.
void add_optimizer_operations(std::vector<OperationCase>& cases, const std::vector<DType>& types);

}  // namespace drover::test
