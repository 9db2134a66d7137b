#include "hybrid_trainer/nn/mixers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kHydraTime = 75, kHydraWidth = 6;

class HydraMixerTest : public ::testing::Test {
 protected:
  HydraMixerTest() {
    randomize([&](const ParameterVisitor& visit) { mixer_.visit_parameters(visit); }, stream_);
  }
  std::vector<double> output(const Tensor& x) {
    ForwardOnlyTape tape(Pass{.training = false});
    return values_of(mixer_.forward(x, Tensor{}, tape, stream_));
  }
  Tensor master(const std::string& name) {
    Tensor found;
    mixer_.visit_parameters([&](Parameter& parameter) {
      if (parameter.name() == "mix." + name) found = master_of(parameter);
    });
    return found;
  }
  /// Swaps rows [first, first + count) of a matrix with those from `second`.
  static void swap_rows(const Tensor& matrix, std::int64_t first, std::int64_t second,
                        std::int64_t count) {
    const std::int64_t columns = matrix.elements() / matrix.size(0);
    float* const all = matrix.data<float>();
    std::swap_ranges(all + first * columns, all + (first + count) * columns,
                     all + second * columns);
  }

  const Stream stream_ = test_stream();
  static constexpr std::int64_t kValues = 6, kKeys = 8;  // B and C of one direction
  HydraMixer mixer_{
      "mix",
      {.width = kHydraWidth, .scan = {.heads = 2, .head_size = 3, .state_size = 4}, .taps = 3},
      stream_};
};

/// The two directions are symmetric: a mixer with swapped directions and a reversed convolution
/// gives the reversed output for the reversed text.
TEST_F(HydraMixerTest, SwappedDirectionsMatchReversedText) {
  const Tensor x = normal_tensor({1, kHydraTime, kHydraWidth}, 1, stream_),
               reversed = clone(x, stream_);
  for (std::int64_t t = 0; t < kHydraTime; ++t)
    copy(reversed.as_rows().rows(t, t + 1), x.as_rows().rows(kHydraTime - 1 - t, kHydraTime - t),
         stream_);
  const std::vector<double> wanted = output(x);
  const std::int64_t first = 2 * kValues, steps = first + 2 * kKeys;
  swap_rows(master("c_in.weight"), first, first + kKeys, kKeys);
  swap_rows(master("c_in.weight"), steps, steps + 2, 2);
  swap_rows(master("conv.weight"), kValues, kValues + kKeys, kKeys);
  swap_rows(master("conv.bias"), kValues, kValues + kKeys, kKeys);
  const Tensor taps = master("conv.weight");
  for (std::int64_t c = 0; c < taps.size(0); ++c)
    std::reverse(taps.data<float>() + 3 * c, taps.data<float>() + 3 * (c + 1));
  const std::vector<double> got = output(reversed);
  std::vector<double> turned;
  for (std::int64_t t = kHydraTime - 1; t >= 0; --t)
    turned.insert(turned.end(), got.begin() + t * kHydraWidth, got.begin() + (t + 1) * kHydraWidth);
  EXPECT_LT(relative_error(turned, wanted), 2e-6);
}

TEST_F(HydraMixerTest, SeesTokensOnBothSides) {
  const Tensor x = normal_tensor({1, kHydraTime, kHydraWidth}, 1, stream_);
  const std::vector<double> before = output(x);
  x.data<float>()[40 * kHydraWidth] += 1;
  const std::vector<double> after = output(x);
  for (const std::int64_t t : {38, 42})
    EXPECT_NE(before[static_cast<std::size_t>(t * kHydraWidth)],
              after[static_cast<std::size_t>(t * kHydraWidth)]);
}

TEST_F(HydraMixerTest, CannotGenerate) {
  const Tensor x = normal_tensor({1, 2, kHydraWidth}, 1, stream_);
  const auto state = mixer_.make_state({.texts = 1, .tokens = 1}, DType::kF32, stream_);
  EXPECT_THROW(mixer_.decode(x, Tensor{}, {}, state.get(), {}, stream_), Error);
}

}  // namespace
}  // namespace hybrid_trainer::testing
