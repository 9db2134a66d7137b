#include "hybrid_trainer/kernels/matmul.h"

#include <cstdlib>

#include "hybrid_trainer/kernels/elementwise.h"
#include "src/core/machine.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct Product {
  std::int64_t m, n, k;
};
/// The last two are divided among threads, by rows and by columns.
constexpr Product kProducts[] = {{1, 1, 1},     {1, 33, 65},   {3, 50, 7},      {7, 33, 5},
                                 {65, 70, 129}, {128, 64, 96}, {323, 130, 257}, {130, 323, 257}};

Shape stored(Transpose transpose, std::int64_t rows, std::int64_t columns) {
  return transpose == Transpose::kNo ? Shape{rows, columns} : Shape{columns, rows};
}

Values transposed(const Values& values, std::int64_t rows, std::int64_t columns) {
  Values result(values.size());
  for (std::int64_t i = 0; i < rows * columns; ++i)
    result[static_cast<std::size_t>(i % columns * rows + i / columns)] =
        values[static_cast<std::size_t>(i)];
  return result;
}

/// op(A)·op(B) + start.
Values reference(const Product& p, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
                 Values start) {
  const Values left = ta == Transpose::kNo ? values_of(a) : transposed(values_of(a), p.k, p.m);
  const Values right = tb == Transpose::kNo ? values_of(b) : transposed(values_of(b), p.n, p.k);
  for (std::int64_t i = 0; i < p.m; ++i) {
    double* const to = start.data() + i * p.n;
    for (std::int64_t l = 0; l < p.k; ++l) {
      const double factor = left[static_cast<std::size_t>(i * p.k + l)];
      const double* const row = right.data() + l * p.n;
      for (std::int64_t j = 0; j < p.n; ++j) to[j] += factor * row[j];
    }
  }
  return start;
}

void expect_product(const Product& p, Transpose ta, Transpose tb, DType inputs, DType output,
                    GradientMode mode) {
  const Stream stream = cpu_stream();
  const Tensor a = random_tensor(stored(ta, p.m, p.k), inputs, 1, stream, 0.3);
  const Tensor b = random_tensor(stored(tb, p.k, p.n), inputs, 2, stream, 0.3);
  const Tensor c = random_tensor({p.m, p.n}, output, 3, stream);
  Values start = values_of(c);
  if (mode == GradientMode::kOverwrite) start.assign(start.size(), 0.0);
  const Values wanted = reference(p, a, ta, b, tb, start);
  const Tensor again = clone(c, stream);
  matmul(c, a, ta, b, tb, mode, stream);
  matmul(again, a, ta, b, tb, mode, stream);
  expect_close(c, wanted, tolerance_of(output),
               concat(p.m, "x", p.n, "x", p.k, " transposed ", ta == Transpose::kYes,
                      tb == Transpose::kYes, " ", name_of(inputs), " to ", name_of(output),
                      " accumulate ", mode == GradientMode::kAccumulate));
  expect_same_bits(c, again);
}

TEST(Matmul, MatchesReferenceInAllLayoutsModesAndDtypes) {
  for (const Product& p : kProducts) {
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
          expect_product(p, ta, tb, DType::kF32, DType::kF32, mode);
          expect_product(p, ta, tb, DType::kBF16, DType::kF32, mode);
          expect_product(p, ta, tb, DType::kBF16, DType::kBF16, mode);
        }
      }
    }
  }
}

/// Uses a child process, because the instruction set cannot be raised again.
TEST(MatmulDeathTest, MatchesReferenceWithoutNativeBf16) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without_bf16 = [] {
    ProcessorUse use = processor_use();
    use.bfloat16 = use.tiles = false;
    limit_instruction_set(use);
    for (const Product& p : kProducts) {
      expect_product(p, Transpose::kNo, Transpose::kYes, DType::kBF16, DType::kBF16,
                     GradientMode::kOverwrite);
      expect_product(p, Transpose::kYes, Transpose::kNo, DType::kBF16, DType::kBF16,
                     GradientMode::kAccumulate);
      expect_product(p, Transpose::kNo, Transpose::kNo, DType::kBF16, DType::kF32,
                     GradientMode::kAccumulate);
    }
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(without_bf16(), ::testing::ExitedWithCode(0), "");
}

/// Multiples of the CPU's tiles, and sizes at which operands are divided and writes bypass caches.
TEST(Matmul, MatchesReferenceAtTileMultiples) {
  constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    for (const DType output : kRealTypes) {
      for (const std::int64_t rows : {5, 32, 300}) {
        expect_product({rows, 160, 96}, kNo, kNo, DType::kBF16, output, mode);
        expect_product({rows, 160, 96}, kNo, kYes, DType::kBF16, output, mode);
      }
      expect_product({320, 160, 64}, kYes, kNo, DType::kBF16, output, mode);
      expect_product({320, 160, 64}, kYes, kYes, DType::kBF16, output, mode);
      expect_product({7, 800, 4096}, kNo, kYes, DType::kBF16, output, mode);
      expect_product({7, 512, 8320}, kNo, kNo, DType::kBF16, output, mode);
    }
  }
  expect_product({1056, 8000, 32}, kNo, kYes, DType::kBF16, DType::kBF16, GradientMode::kOverwrite);
  expect_product({1056, 256, 32}, kYes, kNo, DType::kBF16, DType::kF32, GradientMode::kOverwrite);
}

TEST(Matmul, EmptyInnerSizeGivesZero) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor a = random_tensor({32, 0}, dtype, 1, stream);
    const Tensor b = random_tensor({0, 64}, dtype, 2, stream);
    const Tensor c = random_tensor({32, 64}, dtype, 3, stream);
    const Values before = values_of(c);
    matmul(c, a, Transpose::kNo, b, Transpose::kNo, GradientMode::kAccumulate, stream);
    EXPECT_EQ(values_of(c), before);
    matmul(c, a, Transpose::kNo, b, Transpose::kNo, GradientMode::kOverwrite, stream);
    EXPECT_EQ(values_of(c), Values(before.size(), 0.0));
  }
}

TEST(LinearForward, RefusesZeroInputs) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({32, 0}, DType::kF32, 1, stream);
  const Tensor w = random_tensor({64, 0}, DType::kF32, 2, stream);
  const Tensor y = random_tensor({32, 64}, DType::kF32, 3, stream);
  EXPECT_THROW(linear_forward(y, x, w, Tensor(), Tensor(), stream), ShapeMismatch);
}

TEST(BiasBackward, AcceptsZeroColumns) {
  const Stream stream = cpu_stream();
  const Tensor dy = random_tensor({4, 0}, DType::kF32, 1, stream);
  const Tensor dbias = random_tensor({0}, DType::kF32, 2, stream);
  EXPECT_NO_THROW(bias_backward(dbias, dy, GradientMode::kOverwrite, stream));
}

TEST(Matmul, OverwriteModeReplacesNaN) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor a = random_tensor({33, 17}, dtype, 1, stream);
    const Tensor b = random_tensor({17, 21}, dtype, 2, stream);
    const Tensor c = tensor_of(Values(33 * 21, NAN), {33, 21}, dtype, stream);
    matmul(c, a, Transpose::kNo, b, Transpose::kNo, GradientMode::kOverwrite, stream);
    for (const double value : values_of(c)) EXPECT_FALSE(std::isnan(value));
  }
}

TEST(Matmul, SecondCallAllocatesNothing) {
  const Stream stream = cpu_stream();
  const Tensor a = random_tensor({65, 70}, DType::kBF16, 1, stream);
  const Tensor b = random_tensor({70, 80}, DType::kBF16, 2, stream);
  const Tensor c = Tensor::empty({65, 80}, DType::kBF16, MemoryKind::kActivations, stream);
  const auto run = [&] {
    matmul(c, a, Transpose::kNo, b, Transpose::kNo, GradientMode::kOverwrite, stream);
  };
  run();
  const std::size_t taken = stream.pool()->use().fresh_total;
  run();
  EXPECT_EQ(stream.pool()->use().fresh_total, taken);
}

TEST(Matmul, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const Tensor a = random_tensor({8, 64}, DType::kF32, 1, stream);
  const Tensor b = random_tensor({32, 16}, DType::kF32, 2, stream);
  const Tensor c = Tensor::empty({8, 16}, DType::kF32, MemoryKind::kActivations, stream);
  const auto run = [&](const Tensor& out, const Tensor& left, const Tensor& right) {
    matmul(out, left, Transpose::kNo, right, Transpose::kNo, GradientMode::kOverwrite, stream);
  };
  EXPECT_THROW(run(c, a, b), ShapeMismatch);
  EXPECT_THROW(run(a, a, b.view({64, 8}).rows(0, 63)), ShapeMismatch);
  EXPECT_THROW(run(c, a, random_tensor({64, 16}, DType::kBF16, 1, stream)), Error);
  EXPECT_THROW(run(c.view({16, 8}), a, b.view({64, 8})), ShapeMismatch);
}

TEST(Linear, ForwardAddsBiasAndResidual) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const Product& p : {Product{1, 45, 31}, Product{3, 45, 31}, Product{4, 45, 31},
                             Product{5, 45, 31}, Product{66, 45, 31}, Product{66, 160, 32}}) {
      const std::int64_t rows = p.m;
      const Tensor x = random_tensor({rows, p.k}, dtype, 1, stream);
      const Tensor w = random_tensor({p.n, p.k}, dtype, 2, stream);
      const Tensor bias = random_tensor({p.n}, DType::kF32, 3, stream);
      const Tensor residual = random_tensor({rows, p.n}, dtype, 4, stream);
      const Tensor y = Tensor::empty({rows, p.n}, dtype, MemoryKind::kActivations, stream);
      for (int parts = 0; parts < 4; ++parts) {
        Values start(static_cast<std::size_t>(rows * p.n), 0.0);
        for (std::size_t i = 0; i < start.size(); ++i) {
          if (parts & 1) start[i] += values_of(bias)[i % static_cast<std::size_t>(p.n)];
          if (parts & 2) start[i] += values_of(residual)[i];
        }
        const Values wanted = reference(p, x, Transpose::kNo, w, Transpose::kYes, start);
        linear_forward(y, x, w, parts & 1 ? bias : Tensor(), parts & 2 ? residual : Tensor(),
                       stream);
        expect_close(y, wanted, tolerance_of(dtype),
                     concat(name_of(dtype), " rows ", rows, " parts ", parts));
        const Tensor in_place = clone(residual, stream);
        if (!(parts & 2)) continue;
        linear_forward(in_place, x, w, parts & 1 ? bias : Tensor(), in_place, stream);
        expect_close(in_place, wanted, tolerance_of(dtype),
                     concat("in place ", name_of(dtype), " rows ", rows));
      }
    }
  }
}

TEST(Linear, FewRowsMatchSingleRowsBitForBit) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& [outputs, inputs] : {std::pair{1, 1},
                                          {6, 15},
                                          {2, 33},
                                          {5, 47},
                                          {7, 64},
                                          {16, 96},
                                          {5, 131},
                                          {64, 770},
                                          {3, 2048}}) {
      const Tensor w = random_tensor({outputs, inputs}, dtype, 1, stream),
                   bias = random_tensor({outputs}, DType::kF32, 2, stream),
                   x = random_tensor({kFewRows, inputs}, dtype, 3, stream),
                   residual = random_tensor({kFewRows, outputs}, dtype, 4, stream);
      const Tensor alone = Tensor::empty_like(residual, MemoryKind::kActivations, stream);
      for (std::int64_t row = 0; row < kFewRows; ++row) {
        const auto of = [row](const Tensor& all) { return all.rows(row, row + 1); };
        linear_forward(of(alone), of(x), w, bias, of(residual), stream);
      }
      for (std::int64_t rows = 1; rows <= kFewRows; ++rows) {
        const Tensor y = Tensor::empty({rows, outputs}, dtype, MemoryKind::kActivations, stream);
        linear_forward(y, x.rows(0, rows), w, bias, residual.rows(0, rows), stream);
        SCOPED_TRACE(concat(rows, " rows, ", outputs, " x ", inputs, " ", name_of(dtype)));
        expect_same_bits(y, alone.rows(0, rows));
      }
    }
  }
}

TEST(Linear, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({9, 7}, DType::kF32, 1, stream);
  const Tensor w = random_tensor({5, 7}, DType::kF32, 2, stream);
  const Tensor bias = random_tensor({5}, DType::kF32, 3, stream);
  const Tensor dy = random_tensor({9, 5}, DType::kF32, 4, stream);
  const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  const auto forward = [&] {
    linear_forward(y, x, w, bias, Tensor(), stream);
    return values_of(y);
  };
  const Tensor dx = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const Tensor dw = Tensor::empty_like(w, MemoryKind::kGradients, stream);
  const Tensor dbias = Tensor::empty_like(bias, MemoryKind::kGradients, stream);
  linear_backward_input(dx, dy, w, stream);
  linear_backward_weight(dw, dy, x, GradientMode::kOverwrite, stream);
  bias_backward(dbias, dy, GradientMode::kOverwrite, stream);
  const Values weights = values_of(dy);
  expect_close(dx, finite_differences(x, weights, 0.25, forward), 1e-4, "dx");
  expect_close(dw, finite_differences(w, weights, 0.25, forward), 1e-4, "dw");
  expect_close(dbias, finite_differences(bias, weights, 0.25, forward), 1e-4, "dbias");
}

TEST(BiasBackward, AccumulatesColumnSumsAndRepeatsBitForBit) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor dy = random_tensor({700, 93}, dtype, 5, stream);
    const Tensor dbias = random_tensor({93}, DType::kF32, 6, stream);
    Values wanted = values_of(dbias);
    const Values rows = values_of(dy);
    for (std::size_t i = 0; i < rows.size(); ++i) wanted[i % 93] += rows[i];
    const Tensor again = clone(dbias, stream);
    bias_backward(dbias, dy, GradientMode::kAccumulate, stream);
    bias_backward(again, dy, GradientMode::kAccumulate, stream);
    expect_close(dbias, wanted, 2e-5);
    expect_same_bits(dbias, again);
  }
}

TEST(Linear, FusedGeluMatchesSeparateKernels) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({9, 20}, dtype, 1, stream);
    const Tensor w = random_tensor({33, 20}, dtype, 2, stream);
    const Tensor bias = random_tensor({33}, DType::kF32, 3, stream);
    const Tensor dy = random_tensor({9, 12}, dtype, 4, stream);
    const Tensor v = random_tensor({12, 33}, dtype, 5, stream);
    const auto fresh = [&] { return random_tensor({9, 33}, dtype, 6, stream); };
    const Tensor pre_activation = fresh(), active = fresh(), dpre_activation = fresh();
    linear_forward(pre_activation, x, w, bias, Tensor(), stream);
    gelu_forward(active, pre_activation, stream);
    linear_backward_input(dpre_activation, dy, v, stream);
    gelu_backward(dpre_activation, dpre_activation, pre_activation, stream);
    const Tensor wide_too = fresh(), active_too = fresh(), active_alone = fresh(),
                 dwide_too = fresh();
    linear_gelu_forward(active_too, wide_too, x, w, bias, stream);
    linear_gelu_forward(active_alone, Tensor(), x, w, bias, stream);
    linear_gelu_backward_input(dwide_too, dy, v, pre_activation, stream);
    expect_same_bits(wide_too, pre_activation);
    expect_same_bits(active_too, active);
    expect_same_bits(active_alone, active);
    expect_same_bits(dwide_too, dpre_activation);
  }
}

TEST(Linear, FusedGeluThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({3, 4}, DType::kF32, 1, stream);
  const Tensor w = random_tensor({5, 4}, DType::kF32, 2, stream);
  const Tensor y = random_tensor({3, 5}, DType::kF32, 3, stream);
  EXPECT_THROW(linear_gelu_forward(x, y, x, w, Tensor(), stream), ShapeMismatch);
  EXPECT_THROW(linear_gelu_forward(y, x, x, w, Tensor(), stream), ShapeMismatch);
  EXPECT_THROW(linear_gelu_forward(y, y, x, w, x, stream), ShapeMismatch);
  EXPECT_THROW(linear_gelu_backward_input(y, y, w, y, stream), ShapeMismatch);
  EXPECT_THROW(linear_gelu_backward_input(x, y, w, y, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
