#include "hybrid_trainer/kernels/scans.h"
#include "kernels/backend/tensor_core.cuh"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Products of both widths, with operands that are contiguous along the depth or across it.
TEST(EmulatedTensorCore, ScansHaveNoBankConflicts) {
  const Stream stream = cuda_stream();
  const auto zeros = [&](const Shape& shape, DType dtype) {
    return Tensor::zeros(shape, dtype, MemoryKind::kActivations, stream);
  };
  emulation::bank_conflicts() = 0;
  emulation::multiply_adds() = 0;
  for (const std::int64_t size : {32, 64}) {
    const StateSpaceSpec spec{.heads = 1, .head_size = size, .groups = 1, .state_size = 64};
    const Tensor values = zeros({1, 64, spec.columns()}, DType::kBF16),
                 y = zeros({1, 64, size}, DType::kBF16);
    const StateSpaceInput input{values, {}, {}, {}, {}};
    state_space_scan_forward(y, {}, input, {}, spec, stream);
    state_space_scan_backward({values, {}, {}, {}, {}, {}}, y, {}, input, {}, spec, stream);
  }
  for (const std::int64_t heads : {1, 4}) {
    const DeltaRuleSpec spec{
        .key_heads = 1, .value_heads = heads, .key_size = 64, .value_size = 64};
    const Tensor qkv = zeros({1, 64, spec.columns()}, DType::kBF16),
                 gates = zeros({1, 64, 2 * heads}, DType::kBF16),
                 rates = zeros({heads}, DType::kF32),
                 y = zeros({1, 64, spec.values()}, DType::kBF16);
    const DeltaRuleInput input{qkv, gates, rates, rates, {}, {}};
    delta_rule_scan_forward(y, {}, input, spec, stream);
    delta_rule_scan_backward({qkv, {}, {}, {}, {}}, y, {}, input, spec, stream);
  }
  stream.synchronize();
  EXPECT_GT(emulation::multiply_adds(), 1000);
  EXPECT_EQ(emulation::bank_conflicts(), 0);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
