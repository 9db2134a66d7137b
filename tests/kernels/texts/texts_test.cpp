#include "hybrid_trainer/kernels/texts.h"

#include <algorithm>

#include "tests/kernels/texts/texts_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kHiddenWidth = 5;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

/// Each text's vector in f64.
Values pooled_by_formula(const Tensor& hidden, const Tensor& ends, Pooling pooling) {
  const Values x = values_of(hidden);
  Values pooled(static_cast<std::size_t>(PackedCase::kRows * kHiddenWidth), 0.0);
  for (std::int64_t row = 0; row < PackedCase::kRows; ++row) {
    const std::int64_t end = ends.data<std::int32_t>()[row];
    const std::int64_t before =
        row % PackedCase::kSlots == 0 ? 0 : ends.data<std::int32_t>()[row - 1];
    const std::int64_t first = pooling == Pooling::kLast ? end - 1 : before;
    const std::int64_t last = pooling == Pooling::kFirst ? before + 1 : end;
    for (std::int64_t t = first; end > 0 && t < last; ++t)
      for (std::int64_t i = 0; i < kHiddenWidth; ++i)
        pooled[static_cast<std::size_t>(row * kHiddenWidth + i)] +=
            x[static_cast<std::size_t>(
                (row / PackedCase::kSlots * PackedCase::kLength + t) * kHiddenWidth + i)] /
            static_cast<double>(last - first);
  }
  return pooled;
}

TEST(PoolTexts, MatchesFormulaAndWritesZerosForEmptySlots) {
  const Stream stream = cpu_stream();
  const Tensor ends = PackedCase::ends(stream);
  for (const DType dtype : kRealTypes) {
    for (const Pooling pooling : kPoolings) {
      const Tensor hidden = random_tensor({PackedCase::kTokens, kHiddenWidth}, dtype, 1, stream);
      const Tensor pooled = empty_f32({PackedCase::kRows, kHiddenWidth}, stream);
      pool_texts(pooled, hidden, ends, pooling, stream);
      expect_close(pooled, pooled_by_formula(hidden, ends, pooling), 1e-6, name_of(dtype));
    }
  }
}

TEST(PoolTexts, BackwardMatchesFiniteDifferencesAndOverwritesPadding) {
  const Stream stream = cpu_stream();
  const Tensor ends = PackedCase::ends(stream);
  for (const Pooling pooling : kPoolings) {
    const Tensor hidden =
        random_tensor({PackedCase::kTokens, kHiddenWidth}, DType::kF32, 1, stream);
    const Tensor dpooled = random_tensor({PackedCase::kRows, kHiddenWidth}, DType::kF32, 2, stream);
    const Values wanted = finite_differences(
        hidden, values_of(dpooled), 1e-2, [&] { return pooled_by_formula(hidden, ends, pooling); });
    for (const DType dtype : kRealTypes) {
      const Tensor dhidden = random_tensor(hidden.shape(), dtype, 3, stream);
      pool_texts_backward(dhidden, dpooled, ends, pooling, stream);
      expect_close(dhidden, wanted, dtype == DType::kF32 ? 1e-5 : 4e-3, name_of(dtype));
    }
  }
}

TEST(PoolTexts, ReportsEndsThatOverlapOrLeaveTheSequence) {
  const Stream stream = cpu_stream();
  const Tensor hidden = random_tensor({9, 2}, DType::kF32, 1, stream);
  const Tensor pooled = empty_f32({3, 2}, stream);
  for (const Values& ends : {Values{4, 4, 0}, {4, 3, 0}, {4, 10, 0}, {0, 3, 0}, {-1, 0, 0}}) {
    const Tensor bad = tensor_of(ends, {1, 3}, DType::kI32, stream);
    EXPECT_THROW(pool_texts(pooled, hidden, bad, Pooling::kMean, stream), DataError);
    EXPECT_THROW(pool_texts_backward(hidden, pooled, bad, Pooling::kMean, stream), DataError);
  }
  EXPECT_EQ(message_of([&] {
              pool_texts(pooled, hidden, tensor_of({4, 3, 0}, {1, 3}, DType::kI32, stream),
                         Pooling::kMean, stream);
            }),
            "pool_texts: text 1 of sequence 0 ends at 3, but the previous text ends at 4; want a "
            "larger end, at most 9, and empty slots only after all texts");
  EXPECT_THROW(pool_texts(pooled, hidden, tensor_of({4, 0}, {2, 1}, DType::kI32, stream),
                          Pooling::kMean, stream),
               ShapeMismatch);
}

/// Row 1 is zero, like the row of an empty slot.
Tensor rows_to_normalize(const Stream& stream) {
  const Tensor x = random_tensor({4, kHiddenWidth}, DType::kF32, 1, stream, 3);
  std::fill_n(x.data<float>() + kHiddenWidth, kHiddenWidth, 0.0f);
  return x;
}

Values normalized_by_formula(const Tensor& x, std::int64_t dimensions) {
  Values y = values_of(x);
  for (std::size_t row = 0; row < 4; ++row) {
    double squares = 0;
    double* const of = y.data() + row * kHiddenWidth;
    for (std::int64_t i = 0; i < dimensions; ++i) squares += of[i] * of[i];
    for (std::int64_t i = 0; i < kHiddenWidth; ++i)
      of[i] = i < dimensions ? of[i] / std::max(std::sqrt(squares), 1e-12) : 0;
  }
  return y;
}

TEST(NormalizeRows, MatchesFormula) {
  const Stream stream = cpu_stream();
  for (const std::int64_t dimensions : {1, 3, 5}) {
    const Tensor x = rows_to_normalize(stream);
    const Tensor y = empty_f32(x.shape(), stream), norms = empty_f32({4}, stream);
    normalize_rows(y, norms, x, dimensions, stream);
    expect_close(y, normalized_by_formula(x, dimensions), 1e-6);
    EXPECT_EQ(norms.data<float>()[1], 1e-12f);
  }
}

TEST(NormalizeRows, BackwardMatchesFiniteDifferencesAndAccumulates) {
  const Stream stream = cpu_stream();
  for (const std::int64_t dimensions : {3, 5}) {
    const Tensor x = rows_to_normalize(stream);
    const Tensor dy = random_tensor(x.shape(), DType::kF32, 2, stream);
    std::fill_n(dy.data<float>() + kHiddenWidth, kHiddenWidth, 0.0f);
    const Tensor y = empty_f32(x.shape(), stream), norms = empty_f32({4}, stream);
    normalize_rows(y, norms, x, dimensions, stream);
    Values wanted = finite_differences(x, values_of(dy), 1e-3,
                                       [&] { return normalized_by_formula(x, dimensions); });
    const Tensor dx = empty_f32(x.shape(), stream);
    normalize_rows_backward(dx, GradientMode::kOverwrite, dy, y, norms, dimensions, stream);
    expect_close(dx, wanted, 1e-5);
    normalize_rows_backward(dx, GradientMode::kAccumulate, dy, y, norms, dimensions, stream);
    for (double& value : wanted) value *= 2;
    expect_close(dx, wanted, 1e-5);
    normalize_rows_backward(dy, GradientMode::kOverwrite, dy, y, norms, dimensions, stream);
    for (double& value : wanted) value /= 2;
    expect_close(dy, wanted, 1e-5, "in place");
  }
}

TEST(NormalizeRows, RefusesDimensionsBeyondColumns) {
  const Stream stream = cpu_stream();
  const Tensor x = rows_to_normalize(stream), norms = empty_f32({4}, stream);
  EXPECT_THROW(normalize_rows(x, norms, x, 6, stream), ShapeMismatch);
  EXPECT_THROW(normalize_rows(x, norms, x, 0, stream), ShapeMismatch);
}

TEST(PairCosines, MultiplyAdjacentRows) {
  const Stream stream = cpu_stream();
  const Tensor y = random_tensor({RolesCase::kSlots, kHiddenWidth}, DType::kF32, 1, stream);
  const Tensor cosines = empty_f32({RolesCase::kSlots}, stream), dy = empty_f32(y.shape(), stream);
  const Tensor dcosines = random_tensor(cosines.shape(), DType::kF32, 2, stream);
  const auto by_formula = [&] {
    const Values x = values_of(y);
    Values result(static_cast<std::size_t>(RolesCase::kSlots), 0.0);
    for (std::int64_t n = 0; n < RolesCase::kSlots; ++n)
      for (std::int64_t i = n * kHiddenWidth; RolesCase::has(n, 0) && i < (n + 1) * kHiddenWidth;
           ++i)
        result[static_cast<std::size_t>(n)] +=
            x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i + kHiddenWidth)];
    return result;
  };
  pair_cosines(cosines, y, RolesCase::roles(stream), stream);
  expect_close(cosines, by_formula(), 1e-6);
  pair_cosines_backward(dy, dcosines, y, RolesCase::roles(stream), stream);
  expect_close(dy, finite_differences(y, values_of(dcosines), 1e-2, by_formula), 1e-5);
}

TEST(PairCosines, ReportMissingSecondText) {
  const Stream stream = cpu_stream();
  const Tensor y = random_tensor({3, kHiddenWidth}, DType::kF32, 1, stream);
  const Tensor cosines = empty_f32({3}, stream);
  EXPECT_EQ(
      message_of([&] {
        pair_cosines(cosines, y, tensor_of({0, 0, 1}, {1, 3}, DType::kI32, stream), stream);
      }),
      "pair_cosines: slot 0 has role 0 and slot 1 has role 0; want a text of role 0, followed "
      "by its text of role 1");
  EXPECT_EQ(message_of([&] {
              pair_cosines(cosines, y, tensor_of({0, 1, 0}, {1, 3}, DType::kI32, stream), stream);
            }),
            "pair_cosines: slot 2 has role 0 and slot 3 does not exist; want a text of role 0, "
            "followed by its text of role 1");
}

}  // namespace
}  // namespace hybrid_trainer::kernels
