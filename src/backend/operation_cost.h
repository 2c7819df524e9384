#pragma once

#include <string_view>

#include "backend/ops.h"

/// What each operation must do at least, whoever runs it: the same count for every device, so that rates
/// compare.
namespace drover {

/// An operation is bound by arithmetic when it has flops, and by memory otherwise.
struct OperationCost {
    std::string_view name;          ///< of the kind of operation, for tables and traces; lives for ever
    double flops = 0;               ///< multiplications and additions of matrix products and attention
    double bytes = 0;               ///< every operand read once and every result written once
    DType arithmetic = DType::f32;  ///< of the flops: the dtype of the factors
};

OperationCost cost(const Gemm&);
OperationCost cost(const BiasGradient&);
OperationCost cost(const Embedding&);
OperationCost cost(const EmbeddingBackward&);
OperationCost cost(const RmsNorm&);
OperationCost cost(const RmsNormBackward&);
OperationCost cost(const Rope&);
OperationCost cost(const Swiglu&);
OperationCost cost(const SwigluBackward&);
/// Counts the pairs of a query and a key it sees, in full rows: where padding or packing cuts them is known
/// to the device only. Two products per pair, and five in backward, although a backward that makes the scores
/// again makes more.
OperationCost cost(const Attention&);
OperationCost cost(const AttentionBackward&);
/// How far the sequences have come is known to the device only, so as if they filled the cache or the window.
OperationCost cost(const CachedAttention&);
OperationCost cost(const CrossEntropyStatistics&);
OperationCost cost(const CrossEntropyRescale&);
OperationCost cost(const CrossEntropyGradient&);
OperationCost cost(const JitterTokens&);
OperationCost cost(const Router&);
OperationCost cost(const RouterBackward&);
OperationCost cost(const BalanceLoss&);
OperationCost cost(const SortByExpert&);
OperationCost cost(const TokensToRows&);
OperationCost cost(const RowsToTokens&);
OperationCost cost(const WeightRows&);
OperationCost cost(const GroupedGemm&);
OperationCost cost(const SumOfSquares&);
OperationCost cost(const ClipFactor&);
OperationCost cost(const AdamW&);
OperationCost cost(const Sgd&);
OperationCost cost(const Adagrad&);
OperationCost cost(const Rmsprop&);
OperationCost cost(const AdafactorSums&);
OperationCost cost(const AdafactorFactors&);
OperationCost cost(const AdafactorSquares&);
OperationCost cost(const AdafactorUpdate&);
OperationCost cost(const Fill&);
OperationCost cost(const Cast&);
OperationCost cost(const Add&);
OperationCost cost(const Sum&);

}  // namespace drover
