#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"

#include <limits>
#include <vector>

#include "src/core/machine.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

const Shape kOdd{7, 33};

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

template <class Function>
Values map(const Tensor& x, const Function& function) {
  Values y = values_of(x);
  for (double& value : y) value = function(value);
  return y;
}

TEST(Elementwise, InPlaceAddAndAxpyMatchReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor(kOdd, dtype, 1, stream);
    const Tensor z = random_tensor(kOdd, dtype, 2, stream);
    Values wanted = values_of(x);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += values_of(z)[i];
    add(x, x, z, stream);
    expect_close(x, wanted, tolerance_of(dtype));
  }
  const Tensor y = random_tensor(kOdd, DType::kF32, 3, stream);
  const Tensor d = random_tensor(kOdd, DType::kF32, 4, stream);
  Values wanted = values_of(y);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = 2 * (wanted[i] + 0.5 * values_of(d)[i]);
  axpy(y, y, 0.5f, d, stream);
  scale(y, y, 2.0f, stream);
  expect_close(y, wanted, 1e-6);
}

TEST(Elementwise, AxpyRoundsOnceInBf16) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor(kOdd, DType::kBF16, 3, stream);
  const Tensor d = random_tensor(kOdd, DType::kBF16, 4, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  Values wanted = values_of(x);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += 0.5 * values_of(d)[i];
  axpy(y, x, 0.5f, d, stream);
  expect_close(y, wanted, tolerance_of(DType::kBF16));
}

TEST(Elementwise, MatchesReferenceAcrossThreads) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({100003}, DType::kF32, 5, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  gelu_forward(y, x, stream);
  expect_close(y, map(x, gelu), 1e-6);
}

TEST(Elementwise, CastRoundsToNearestEvenAndKeepsNaN) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({1000}, DType::kF32, 6, stream);
  x.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  x.data<float>()[4] = std::numeric_limits<float>::infinity();
  x.data<float>()[5] = 1.00390625f;  // midpoint between 1 and the next bf16: rounds to even, 1
  const Tensor y = Tensor::empty({1000}, DType::kBF16, MemoryKind::kActivations, stream);
  cast(y, x, stream);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(y.data<BFloat16>()[i].bits, to_bfloat16(x.data<float>()[i]).bits) << i;
  }
  EXPECT_EQ(to_float(y.data<BFloat16>()[5]), 1.0f);
  const Tensor back = Tensor::empty({1000}, DType::kF32, MemoryKind::kActivations, stream);
  cast(back, y, stream);
  EXPECT_TRUE(std::isnan(back.data<float>()[3]));
  EXPECT_EQ(back.data<float>()[4], std::numeric_limits<float>::infinity());
}

TEST(Gelu, ForwardIsAccurateInTails) {
  const Stream stream = cpu_stream();
  const Values points{-100, -20, -6, -3, -1, -0.1, -1e-4, 0, 1e-4, 0.1, 1, 3, 6, 20, 100};
  const Tensor x = tensor_of(points, {15}, DType::kF32, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  gelu_forward(y, x, stream);
  expect_close(y, map(x, gelu), 3e-7);
}

TEST(Gelu, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor(kOdd, dtype, 7, stream, 2.0);
    const Tensor dx = random_tensor(kOdd, dtype, 8, stream);
    Values wanted = values_of(dx);
    const Values at = values_of(x);
    for (std::size_t i = 0; i < at.size(); ++i) {
      wanted[i] *= (gelu(at[i] + 1e-5) - gelu(at[i] - 1e-5)) / 2e-5;
    }
    gelu_backward(dx, dx, x, stream);
    expect_close(dx, wanted, tolerance_of(dtype), name_of(dtype));
  }
}

TEST(Dropout, KeepsRequestedFractionAndRepeatsByKey) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of(Values(40001, 1.0), {40001}, DType::kF32, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const Tensor again = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  dropout(y, x, 0.25f, {.key = {9, 3, 1}}, stream);
  dropout(again, x, 0.25f, {.key = {9, 3, 1}}, stream);
  expect_same_bits(y, again);
  double kept = 0;
  for (const double value : values_of(y)) {
    EXPECT_TRUE(value == 0 || std::abs(value - 4.0 / 3) < 1e-6);
    kept += value != 0;
  }
  EXPECT_NEAR(kept / 40001, 0.75, 0.01);
  dropout(again, x, 0.25f, {.key = {9, 4, 1}}, stream);
  EXPECT_NE(std::memcmp(y.raw(), again.raw(), y.bytes()), 0);
}

TEST(Dropout, PartsMatchWholeTensor) {
  const Stream stream = cpu_stream();
  for (const std::int64_t cut : {1, 2, 3, 4, 255, 256, 1026}) {
    const Tensor whole = tensor_of(Values(2000, 1.0), {2000}, DType::kF32, stream);
    const Tensor parts = tensor_of(Values(2000, 1.0), {2000}, DType::kF32, stream);
    dropout(whole, whole, 0.25f, {.key = {9, 3, 1}}, stream);
    const Tensor left = parts.rows(0, cut), right = parts.rows(cut, 2000);
    dropout(left, left, 0.25f, {.key = {9, 3, 1}}, stream);
    dropout(right, right, 0.25f, {.key = {9, 3, 1}, .first = static_cast<std::uint64_t>(cut)},
            stream);
    expect_same_bits(whole, parts);
  }
}

TEST(Dropout, ElementUsesRandomWordOfItsIndex) {
  const Stream stream = cpu_stream();
  const RandomKey key{1, 2, 3};
  const Tensor x = tensor_of(Values(30, 1.0), {30}, DType::kF32, stream);
  dropout(x, x, 0.5f, {.key = key}, stream);
  for (std::uint64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(x.data<float>()[i], to_unit_float(random_word(key, i)) >= 0.5f ? 2.0f : 0.0f) << i;
  }
}

TEST(Sums, AddChunksInOrderForAnyThreadCount) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const std::vector<Tensor> x{random_tensor({50021}, dtype, 13, stream),
                                random_tensor({300}, dtype, 14, stream)};
    double wanted = 0;
    for (const Tensor& one : x) {
      const Tensor sums =
          Tensor::empty({dot_chunks(one.elements())}, DType::kF64, MemoryKind::kWorkspace, stream);
      chunk_dots(sums, one, one, stream);
      double of_one = 0;
      for (std::int64_t c = 0; c < sums.elements(); ++c) {
        const Tensor part = one.rows(c * kDotChunk, std::min((c + 1) * kDotChunk, one.elements()));
        EXPECT_EQ(sums.data<double>()[c], wait_for_dot(part, part, stream));
        of_one += sums.data<double>()[c];
      }
      wanted += of_one;
    }
    const int threads_before = hybrid_trainer::threads();
    for (const int count : {1, 2}) {
      set_threads(count);
      const Tensor result = empty_result(stream);
      sum_of_squares(result, x, stream);
      EXPECT_EQ(wait_for_value(result, stream), wanted) << count << " threads";
    }
    set_threads(threads_before);
  }
}

TEST(Sums, DotAndSquaresMatchDoubleReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({50021}, dtype, 10, stream);
    const Tensor y = random_tensor({50021}, dtype, 11, stream);
    double dot = 0, squares = 0;
    const Values xs = values_of(x), ys = values_of(y);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      dot += xs[i] * ys[i];
      squares += xs[i] * xs[i];
    }
    EXPECT_NEAR(wait_for_dot(x, y, stream), dot, 1e-8);
    EXPECT_NEAR(wait_for_sum_of_squares(x, stream), squares, 1e-8);
    EXPECT_EQ(wait_for_dot(x, y, stream), wait_for_dot(x, y, stream));
  }
  const Tensor bad = random_tensor({20000}, DType::kF32, 12, stream);
  bad.data<float>()[19999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(wait_for_sum_of_squares(bad, stream)));
}

TEST(Elementwise, ThrowsOnMismatchedShapesAndDtypes) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor(kOdd, DType::kF32, 13, stream);
  const Tensor small = random_tensor({7, 32}, DType::kF32, 13, stream);
  const Tensor half = random_tensor(kOdd, DType::kBF16, 13, stream);
  EXPECT_THROW(add(x, x, small, stream), ShapeMismatch);
  EXPECT_THROW(gelu_forward(x, half, stream), Error);
  EXPECT_THROW(cast(small, x, stream), ShapeMismatch);
  EXPECT_THROW(dropout(x, x, 1.0f, {}, stream), Error);
  EXPECT_THROW(add(x, x, Tensor(), stream), ShapeMismatch);
}

TEST(Normalize, DividesByNormWithFloor) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({3, -4, 0}, {3}, DType::kF32, stream);
  const Tensor squares = empty_result(stream);
  sum_of_squares(squares, {&x, 1}, stream);
  normalize(x, x, squares, 0.0, stream);
  expect_close(x, {0.6, -0.8, 0}, 1e-7);
  fill_zero(x, stream);
  sum_of_squares(squares, {&x, 1}, stream);
  normalize(x, x, squares, 1e-7, stream);
  expect_close(x, {0, 0, 0}, 0);
}

double gated(Gate gate, double g) {
  if (gate == Gate::kSilu) return g / (1 + std::exp(-g));
  if (gate == Gate::kExactGelu) return g / 2 * std::erfc(-g / std::sqrt(2.0));
  return g / 2 * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

TEST(Gated, MatchesReferenceAndFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const Gate gate : {Gate::kSilu, Gate::kGelu, Gate::kExactGelu}) {
    for (const DType dtype : kRealTypes) {
      const Tensor x = random_tensor({3, 2 * 21}, dtype, 1, stream, 2);
      const Tensor y = Tensor::empty({3, 21}, dtype, MemoryKind::kActivations, stream);
      gated_forward(y, x, gate, stream);
      const Values in = values_of(x);
      Values wanted;
      for (std::size_t row = 0; row < 3; ++row) {
        for (std::size_t i = 0; i < 21; ++i)
          wanted.push_back(gated(gate, in[row * 42 + i]) * in[row * 42 + 21 + i]);
      }
      expect_close(y, wanted, tolerance_of(dtype));
    }
    const Tensor x = random_tensor({2, 10}, DType::kF32, 1, stream, 2);
    const Tensor dy = random_tensor({2, 5}, DType::kF32, 2, stream);
    const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
    const Values wanted = finite_differences(x, values_of(dy), 1e-2, [&] {
      gated_forward(y, x, gate, stream);
      return values_of(y);
    });
    const Tensor apart = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    gated_backward(apart, dy, x, gate, stream);
    expect_close(apart, wanted, 1e-3);
    gated_backward(x, dy, x, gate, stream);
    expect_same_bits(x, apart);
  }
}

TEST(Cap, MatchesReferenceAndFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({3, 11}, dtype, 1, stream, 4);
    const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    cap_forward(y, x, 3, stream);
    Values wanted;
    for (const double value : values_of(x)) wanted.push_back(3 * std::tanh(value / 3));
    expect_close(y, wanted, tolerance_of(dtype));
  }
  const Tensor x = random_tensor({2, 7}, DType::kF32, 1, stream, 2);
  const Tensor dy = random_tensor({2, 7}, DType::kF32, 2, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const auto forward = [&] {
    cap_forward(y, x, 2, stream);
    return values_of(y);
  };
  const Values wanted = finite_differences(x, values_of(dy), 1e-2, forward);
  forward();
  cap_backward(dy, dy, y, 2, stream);
  expect_close(dy, wanted, 1e-3);
}

TEST(Clip, ClampsAndPassesGradientsWithinLimit) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = tensor_of({-3, -2, 0.5, 2, 2.5}, {5}, dtype, stream),
                 dx = tensor_of({1, 2, 3, 4, 5}, {5}, dtype, stream);
    clip_backward(dx, dx, x, 2, stream);
    clip(x, x, 2, stream);
    expect_close(x, {-2, -2, 0.5, 2, 2}, 0);
    expect_close(dx, {0, 2, 3, 4, 0}, 0);
  }
}

TEST(Scale, SupportsBf16) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({1, -3}, {2}, DType::kBF16, stream);
  scale(x, x, 0.5f, stream);
  expect_close(x, {0.5, -1.5}, 0);
}

TEST(Scale, ReadsFactorFromDevice) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = tensor_of({1, -3}, {2}, dtype, stream);
    scale_by(x, x, tensor_of({0.5}, {1}, DType::kF32, stream), stream);
    expect_close(x, {0.5, -1.5}, 0);
  }
}

/// Each kernel runs on the middle one of three parts of a tensor.
TEST(Elementwise, DoesNotWriteOutsideGivenRows) {
  const Stream stream = cpu_stream();
  constexpr std::int64_t kRows = 33, kColumns = 14;
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({kRows, kColumns}, dtype, 1, stream),
                 z = random_tensor({kRows, kColumns}, dtype, 2, stream);
    const Tensor wide = random_tensor({kRows, 2 * kColumns}, dtype, 3, stream);
    const auto expect_rest_kept = [&](const char* name, std::int64_t columns, const auto& kernel) {
      const Tensor whole = random_tensor({3 * kRows, columns}, dtype, 4, stream);
      const Values before = values_of(whole);
      kernel(whole.rows(kRows, 2 * kRows));
      const Values after = values_of(whole);
      const std::size_t part = before.size() / 3;
      for (std::size_t i = 0; i < before.size(); ++i) {
        if (i < part || i >= 2 * part) {
          ASSERT_EQ(after[i], before[i]) << name << " " << i;
        }
      }
      EXPECT_NE(after, before) << name;
    };
    const auto narrow = [&](const char* name, const auto& kernel) {
      expect_rest_kept(name, kColumns, kernel);
    };
    narrow("add", [&](const Tensor& y) { add(y, x, z, stream); });
    narrow("scale", [&](const Tensor& y) { scale(y, x, 2, stream); });
    narrow("cast", [&](const Tensor& y) { cast(y, x, stream); });
    narrow("gelu", [&](const Tensor& y) { gelu_forward(y, x, stream); });
    narrow("gelu backward", [&](const Tensor& y) { gelu_backward(y, x, z, stream); });
    narrow("cap", [&](const Tensor& y) { cap_forward(y, x, 2, stream); });
    narrow("cap backward", [&](const Tensor& y) { cap_backward(y, x, z, 2, stream); });
    narrow("gate", [&](const Tensor& y) { gated_forward(y, wide, Gate::kSilu, stream); });
    expect_rest_kept("gate backward", 2 * kColumns,
                     [&](const Tensor& y) { gated_backward(y, x, wide, Gate::kSilu, stream); });
    if (dtype == DType::kF32) narrow("axpy", [&](const Tensor& y) { axpy(y, x, 2, z, stream); });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
