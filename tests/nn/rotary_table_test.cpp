#include "hybrid_trainer/nn/positional_encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kContext = 6, kSize = 8;
constexpr double kTheta = 1e4;
constexpr double kPlain[] = {1, 0.1, 0.01, 0.001};  // θ^(−2j/8)

/// Angles of one position, and the factor of cosines and sines.
struct Turns {
  std::vector<double> angles;
  double amplitude = 0;
};

Turns turns_of(const RotaryScaling& scaling) {
  const Stream stream = test_stream();
  RotaryTable table(kTheta, scaling, kContext, kSize);
  const std::vector<double> values = values_of(table.of_sequences(kContext, false, stream).table);
  Turns turns{{}, values[0]};  // position 0: cosines are the amplitude
  for (std::size_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(values[j], turns.amplitude, 1e-6);
    EXPECT_EQ(values[4 + j], 0);
    turns.angles.push_back(std::atan2(values[8 + 4 + j], values[8 + j]));
    for (std::size_t t = 2; t < kContext; ++t) {
      const double angle = static_cast<double>(t) * turns.angles[j];
      EXPECT_NEAR(values[8 * t + j], turns.amplitude * std::cos(angle), 1e-5);
      EXPECT_NEAR(values[8 * t + 4 + j], turns.amplitude * std::sin(angle), 1e-5);
    }
  }
  return turns;
}

void expect_angles(const RotaryScaling& scaling, const std::vector<double>& factors) {
  const Turns turns = turns_of(scaling);
  for (std::size_t j = 0; j < 4; ++j)
    EXPECT_NEAR(turns.angles[j], kPlain[j] * factors[j], 2e-6 * kPlain[j]) << j;
}

TEST(RotaryTable, DefaultUsesPlainFrequencies) {
  expect_angles({}, {1, 1, 1, 1});
  EXPECT_EQ(turns_of({}).amplitude, 1);
}

TEST(RotaryTable, ShareTurnsOnlyFirstPairs) {
  const Stream stream = test_stream();
  RotaryTable table(kTheta, {}, kContext, kSize, false, 0.5);
  const std::vector<double> values = values_of(table.of_sequences(kContext, false, stream).table);
  for (std::size_t j = 0; j < 4; ++j) {
    const double angle = j < 2 ? 5 * kPlain[j] : 0;
    EXPECT_NEAR(values[8 * 5 + j], std::cos(angle), 1e-6) << j;
    EXPECT_NEAR(values[8 * 5 + 4 + j], std::sin(angle), 1e-6) << j;
  }
}

TEST(RotaryTable, QueriesGrowBeyondOriginalContext) {
  const Stream stream = test_stream();
  const RotaryScaling scaling{
      .type = "yarn", .factor = 2, .original_context = 3, .query_growth = 0.5};
  RotaryTable table(kTheta, scaling, kContext, kSize);
  EXPECT_FALSE(table.is_relative());
  EXPECT_FALSE(table.of_sequences(3, false, stream).query_scales.defined()) << "all factors are 1";
  for (const RotaryTable::Angles& angles :
       {table.of_sequences(7, false, stream), table.by_step(7, stream)}) {
    const std::vector<double> scales = values_of(angles.query_scales);
    for (std::size_t t = 0; t < 7; ++t)
      for (std::size_t j = 0; j < 4; ++j) {
        EXPECT_NEAR(scales[8 * t + j], 1 + 0.5 * std::log(1.0 + static_cast<double>(t / 3)), 1e-6);
        EXPECT_EQ(scales[8 * t + 4 + j], 0);
      }
  }
}

TEST(RotaryTable, LinearDividesAllFrequencies) {
  expect_angles({.type = "linear", .factor = 4}, {0.25, 0.25, 0.25, 0.25});
}

/// Interpolates between wavelengths like transformers.
TEST(RotaryTable, Llama3DividesLowFrequenciesSmoothly) {
  for (const std::int64_t original : {16, 64, 8192}) {
    std::vector<double> factors;
    for (const double frequency : kPlain) {
      const double length = 2 * std::numbers::pi / frequency;
      const auto whole = static_cast<double>(original);
      const double smooth = (whole / length - 1) / 3;
      factors.push_back(length < whole / 4   ? 1
                        : length > whole / 1 ? 0.125
                                             : (1 - smooth) / 8 + smooth);
    }
    expect_angles({.type = "llama3", .factor = 8, .original_context = original}, factors);
  }
}

TEST(RotaryTable, YarnWithEqualBoundsHasSharpCutoff) {
  expect_angles({.type = "yarn",
                 .factor = 4,
                 .original_context = 2048,
                 .beta_fast = 1,
                 .beta_slow = 1,
                 .truncate = false},
                {1, 1, 1, 0.25});  // the bound is at 2.513
}

TEST(RotaryTable, YarnScalesLowFrequenciesAndAmplitude) {
  RotaryScaling yarn{.type = "yarn", .factor = 4, .original_context = 2048};
  // 8·ln(2048/(2πr))/(2·ln θ) is 1.008 for r = 32 and 2.513 for r = 1; rounded to 1 and 3.
  expect_angles(yarn, {1, 1, 0.5 + 0.5 / 4, 0.25});
  const double rise = 0.1 * std::log(4.0);
  EXPECT_NEAR(turns_of(yarn).amplitude, 1 + rise, 1e-6);
  yarn.truncate = false;
  const auto pair_of = [](double turns) {
    return 8 * std::log(2048 / (turns * 2 * std::numbers::pi)) / (2 * std::log(kTheta));
  };
  const double share = (2 - pair_of(32)) / (pair_of(1) - pair_of(32));
  expect_angles(yarn, {1, 1, (1 - share) + share / 4, 0.25});
  yarn.mscale = 0.7;
  EXPECT_NEAR(turns_of(yarn).amplitude, 1 + rise, 1e-6) << "has no effect without mscale_all_dim";
  yarn.mscale_all_dim = 0.5;
  EXPECT_NEAR(turns_of(yarn).amplitude, (1 + 0.7 * rise) / (1 + 0.5 * rise), 1e-6);
  yarn.attention_factor = 2;
  EXPECT_NEAR(turns_of(yarn).amplitude, 2, 1e-6);
  yarn = {.type = "yarn", .factor = 1, .original_context = 2048};
  EXPECT_EQ(turns_of(yarn).amplitude, 1);
}

TEST(RotaryTable, LongropeDividesByListForLength) {
  RotaryScaling scaling{.type = "longrope",
                        .factor = 4,
                        .original_context = kContext,
                        .short_factors = {1, 2, 4, 8},
                        .long_factors = {2, 3, 5, 9}};
  expect_angles(scaling, {1, 0.5, 0.25, 0.125});
  const double amplitude = std::sqrt(1 + std::log(4.0) / std::log(6.0));
  EXPECT_NEAR(turns_of(scaling).amplitude, amplitude, 1e-6);
  scaling.original_context = kContext - 1;
  expect_angles(scaling, {0.5, 1 / 3.0, 0.2, 1 / 9.0});
  scaling.attention_factor = 1.5;
  EXPECT_NEAR(turns_of(scaling).amplitude, 1.5, 1e-6);
  EXPECT_FALSE(RotaryTable(kTheta, scaling, kContext, kSize).is_relative());
}

/// The table is requested by each layer in each step.
TEST(RotaryTable, ReusesTableForShorterSequences) {
  const Stream stream = test_stream();
  for (const char* type : {"default", "dynamic"}) {
    RotaryTable table(kTheta, {.type = type, .factor = 2}, kContext, kSize);
    const Tensor made = table.of_sequences(kContext, false, stream).table;
    EXPECT_EQ(table.of_sequences(kContext, false, stream).table.raw(), made.raw());
    EXPECT_EQ(table.of_sequences(kContext - 2, false, stream).table.raw(), made.raw());
    EXPECT_EQ(table.of_sequences(kContext + 2, false, stream).table.size(0), kContext + 2);
    const Tensor steps = table.by_step(kContext, stream).table;
    EXPECT_EQ(table.by_step(kContext, stream).table.raw(), steps.raw());
  }
}

Tensor positions_of(const std::vector<std::vector<std::int32_t>>& rows, const Stream& stream) {
  const auto time = std::ssize(rows[0]);
  const Tensor positions =
      Tensor::empty({std::ssize(rows), time}, DType::kI32, MemoryKind::kData, stream);
  for (std::size_t b = 0; b < rows.size(); ++b)
    std::copy(rows[b].begin(), rows[b].end(),
              positions.data<std::int32_t>() + static_cast<std::int64_t>(b) * time);
  return positions;
}

/// Each document's angles equal a single document's, also at the start and end of a sequence.
TEST(RotaryTable, DynamicAnglesMatchDocumentLength) {
  const Stream stream = test_stream();
  const RotaryScaling dynamic{.type = "dynamic", .factor = 3, .original_context = 2};
  RotaryTable table(kTheta, dynamic, kContext, kSize);
  const auto expect_lengths = [&](const Tensor& positions,
                                  const std::vector<std::int64_t>& lengths) {
    table.read_documents(positions, stream);
    const RotaryTable::Angles angles = table.of_sequences(positions.size(1), true, stream);
    ASSERT_TRUE(angles.by_token);
    std::vector<double> wanted;
    for (const std::int64_t length : lengths) {
      RotaryTable alone(kTheta, dynamic, kContext, kSize);
      const auto rows =
          values_of(clone(alone.of_sequences(length, false, stream).table.rows(0, length), stream));
      wanted.insert(wanted.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(values_of(angles.table), wanted);
  };
  expect_lengths(positions_of({{0, 1, 2, 0, 1, 0}, {0, 1, 2, 3, 4, 5}}, stream), {3, 2, 1, 6});
  expect_lengths(positions_of({{0, 1, 2, 3, 0, 1}, {2, 3, 4, 0, 1, 2}}, stream), {4, 2, 3, 3});
}

}  // namespace
}  // namespace hybrid_trainer::testing
