#include "kernels/products/product_rounding.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/backend/half_float.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// All finite nonnegative numbers of a format, by definition.
Values float8_numbers(Float8 format) {
  const int fraction_bits = format == Float8::kE4M3 ? 3 : 2,
            bias = format == Float8::kE4M3 ? 7 : 15;
  const int fractions = 1 << fraction_bits;
  Values numbers;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code / fractions, fraction = code % fractions;
    const double size = exponent == 0
                            ? std::ldexp(fraction, 1 - bias - fraction_bits)
                            : std::ldexp(fractions + fraction, exponent - bias - fraction_bits);
    if (size <= static_cast<double>(largest_of(format))) numbers.push_back(size);
  }
  return numbers;
}

Values rounded(const Values& values, Float8 format, double expected, const Stream& stream) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor x = tensor_of(values, {count}, DType::kF32, stream),
               limit = tensor_of({expected}, {1}, DType::kF32, stream),
               largest = tensor_of({0}, {1}, DType::kF32, stream);
  largest_magnitude(largest, Tensor{}, x, stream);
  round_to_float8(x, x, format, limit, largest, stream);
  return values_of(x);
}

class Float8Rounding : public ::testing::TestWithParam<Float8> {
 protected:
  const Stream stream_ = cpu_stream();
  const double largest_ = static_cast<double>(largest_of(GetParam()));
};

TEST_P(Float8Rounding, KeepsRepresentableNumbers) {
  const Values numbers = float8_numbers(GetParam());
  ASSERT_EQ(numbers.back(), largest_);
  EXPECT_EQ(rounded(numbers, GetParam(), largest_, stream_), numbers);
  for (const double scale : {0x1p-40, 0x1p20}) {
    Values scaled;
    for (const double number : numbers) scaled.push_back(-scale * number);
    EXPECT_EQ(rounded(scaled, GetParam(), 0, stream_), scaled);
  }
}

TEST_P(Float8Rounding, RoundsToNearestEven) {
  const Values numbers = float8_numbers(GetParam());
  Values between, wanted;
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    const double low = numbers[i], high = numbers[i + 1], middle = (low + high) / 2;
    between.insert(between.end(), {low + (high - low) * 0.49, middle, low + (high - low) * 0.51});
    wanted.insert(wanted.end(), {low, i % 2 == 0 ? low : high, high});
  }
  EXPECT_EQ(rounded(between, GetParam(), largest_, stream_), wanted);
}

TEST_P(Float8Rounding, SaturatesFiniteValuesAndKeepsInfinity) {
  const Values values{3.9, -1e6, kInfinity, -kInfinity};
  const Values result = rounded(values, GetParam(), 3.5, stream_);
  EXPECT_EQ(result[0], 3.5);
  EXPECT_EQ(result[1], -3.5);
  EXPECT_EQ(result[2], kInfinity);
  EXPECT_EQ(result[3], -kInfinity);
  const Values with_nan = rounded({1, std::nan("")}, GetParam(), 3.5, stream_);
  EXPECT_EQ(with_nan[0], 1);
  EXPECT_TRUE(std::isnan(with_nan[1]));
}

TEST_P(Float8Rounding, ScalesByLeastSufficientPowerOfTwo) {
  EXPECT_EQ(rounded({3.5}, GetParam(), 0, stream_)[0], 3.5);
  EXPECT_EQ(rounded({3.5001}, GetParam(), 0, stream_)[0], 3.5);
  EXPECT_EQ(rounded({0, 0}, GetParam(), 0, stream_), (Values{0, 0}));
  const double least = GetParam() == Float8::kE4M3 ? 0x1p-9 : 0x1p-16;
  const double scale = 3.5 / largest_;
  EXPECT_EQ(rounded({least * scale}, GetParam(), 3.5, stream_)[0], least * scale);
  EXPECT_EQ(rounded({least * scale}, GetParam(), 3.5001, stream_)[0], 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, Float8Rounding, ::testing::Values(Float8::kE4M3, Float8::kE5M2));

TEST(HalfRounding, MatchesIeeeHalfForAllExponents) {
  const Stream stream = cpu_stream();
  Values values;
  for (int exponent = -30; exponent < 20; ++exponent) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      const auto size = static_cast<double>(random_normal({7, 0, 0}, i));
      values.push_back(static_cast<double>(static_cast<float>(std::ldexp(size, exponent))));
    }
  }
  for (const double edge : {65503.0, 65519.9, 65520.0, 1e30, 0x1p-25, 0x1.8p-24})
    values.insert(values.end(), {edge, -edge});
  const Tensor x =
      tensor_of(values, {static_cast<std::int64_t>(values.size())}, DType::kF32, stream);
  Values wanted;
  for (const double value : values) {
    const auto half = static_cast<_Float16>(static_cast<float>(value));  // by the compiler
    const std::uint16_t bits = to_half_bits(static_cast<float>(value));
    ASSERT_EQ(bits, std::bit_cast<std::uint16_t>(half)) << value;
    ASSERT_EQ(from_half_bits(bits), static_cast<float>(half)) << value;
    wanted.push_back(static_cast<double>(half));
  }
  ASSERT_GT(std::ranges::count(wanted, static_cast<double>(kInfinity)), 1);
  round_to_half(x, x, stream);
  EXPECT_EQ(values_of(x), wanted);
}

TEST(LargestMagnitude, MatchesReferenceAndRaisesRunningMaximum) {
  const Stream stream = cpu_stream();
  const Tensor largest = tensor_of({0}, {1}, DType::kF32, stream),
               most = tensor_of({2}, {1}, DType::kF32, stream);
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({100000}, dtype, 3, stream);
    double wanted = 0;
    for (const double value : values_of(x)) wanted = std::max(wanted, std::abs(value));
    largest_magnitude(largest, most, x, stream);
    EXPECT_EQ(values_of(largest)[0], wanted);
    EXPECT_EQ(values_of(most)[0], wanted);
  }
  const double before = values_of(most)[0];
  largest_magnitude(largest, most, tensor_of({-1, 0.5}, {2}, DType::kF32, stream), stream);
  EXPECT_EQ(values_of(largest)[0], 1);
  EXPECT_EQ(values_of(most)[0], before);
  largest_magnitude(largest, Tensor{}, tensor_of({-kInfinity, 1}, {2}, DType::kF32, stream),
                    stream);
  EXPECT_EQ(values_of(largest)[0], kInfinity);
  largest_magnitude(largest, most, tensor_of({1, std::nan("")}, {2}, DType::kF32, stream), stream);
  EXPECT_TRUE(std::isnan(values_of(most)[0]));
}

}  // namespace
}  // namespace hybrid_trainer::kernels
