#include "hybrid_trainer/kernels/indexing.h"

#include <cmath>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

double share_of(double gate) { return 1 / (1 + std::exp(-gate)); }

TEST(Columns, CopyKeepsOtherColumns) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor to = random_tensor({5, 7}, dtype, 1, stream);
    const Tensor from = random_tensor({5, 9}, dtype, 2, stream);
    Values wanted = values_of(to);
    const Values values = values_of(from);
    for (std::size_t row = 0; row < 5; ++row)
      for (std::size_t i = 0; i < 3; ++i) wanted[row * 7 + 2 + i] = values[row * 9 + 5 + i];
    copy_columns({to, 2}, {from, 5}, 3, stream);
    expect_close(to, wanted, 0);
    EXPECT_THROW(copy_columns({to, 5}, {from, 5}, 3, stream), ShapeMismatch);
    EXPECT_THROW(copy_columns({to, 2}, {from, 7}, 3, stream), ShapeMismatch);
  }
}

TEST(Columns, CopySupportsIntegers) {
  const Stream stream = cpu_stream();
  const Tensor from = tensor_of({1, -2, 3, 4, 5, 6}, {2, 3}, DType::kI32, stream);
  const Tensor to = tensor_of({7, 7, 7, 7}, {2, 2}, DType::kI32, stream);
  copy_columns({to, 1}, {from, 1}, 1, stream);
  const auto* const values = to.data<std::int32_t>();
  EXPECT_EQ(std::vector(values, values + 4), (std::vector<std::int32_t>{7, -2, 7, 5}));
}

TEST(Columns, AddMatchesReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor to = random_tensor({5, 7}, dtype, 1, stream);
    const Tensor from = random_tensor({5, 9}, dtype, 2, stream);
    Values wanted = values_of(to);
    const Values values = values_of(from);
    for (std::size_t row = 0; row < 5; ++row)
      for (std::size_t i = 0; i < 3; ++i) wanted[row * 7 + 2 + i] += values[row * 9 + 5 + i];
    add_columns({to, 2}, {from, 5}, 3, stream);
    expect_close(to, wanted, tolerance_of(dtype));
  }
}

TEST(Columns, MultiplyOnlyTouchesItsColumns) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor a = random_tensor({5, 9}, dtype, 1, stream);
    const Tensor to = random_tensor({5, 7}, dtype, 2, stream);
    Values wanted = values_of(to);
    const Values values = values_of(a);
    for (std::size_t row = 0; row < 5; ++row)
      for (std::size_t i = 0; i < 3; ++i)
        wanted[row * 7 + 2 + i] = values[row * 9 + i] * values[row * 9 + 6 + i];
    multiply_columns({to, 2}, {a, 0}, {a, 6}, 3, stream);
    expect_close(to, wanted, tolerance_of(dtype));
    EXPECT_THROW(multiply_columns({to, 2}, {a, 0}, {a, 7}, 3, stream), ShapeMismatch);
  }
}

TEST(SigmoidGate, MultipliesBySigmoidOfGate) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({5, 4}, dtype, 1, stream);
    const Tensor gate = random_tensor({5, 9}, dtype, 2, stream);
    const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    Values wanted = values_of(x);
    const Values gates = values_of(gate);
    for (std::size_t row = 0; row < 5; ++row)
      for (std::size_t i = 0; i < 4; ++i) wanted[row * 4 + i] *= share_of(gates[row * 9 + 3 + i]);
    sigmoid_gate_forward(y, x, {gate, 3}, stream);
    expect_close(y, wanted, tolerance_of(dtype));
  }
}

TEST(SigmoidGate, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({3, 4}, DType::kF32, 1, stream);
  const Tensor gate = random_tensor({3, 6}, DType::kF32, 2, stream);
  const Tensor dy = random_tensor({3, 4}, DType::kF32, 3, stream);
  const auto result = [&] {
    const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    sigmoid_gate_forward(y, x, {gate, 1}, stream);
    return values_of(y);
  };
  const Values of_x = finite_differences(x, values_of(dy), 1e-2, result);
  const Values of_gate = finite_differences(gate, values_of(dy), 1e-2, result);
  const Tensor dgate = Tensor::zeros({3, 6}, DType::kF32, MemoryKind::kActivations, stream);
  sigmoid_gate_backward(dy, {dgate, 1}, dy, x, {gate, 1}, stream);  // dx in place of dy
  expect_close(dy, of_x, 1e-3);
  expect_close(dgate, of_gate, 1e-3);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
