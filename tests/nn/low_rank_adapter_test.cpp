#include "hybrid_trainer/nn/linear.h"

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

/// A map of 9 outputs with adapters on outputs 0–3 and 6–8.
Linear adapted(const Stream& stream, double dropout = 0) {
  Linear linear("linear", 6, 9, stream);
  linear.set_adapter({{"q", 0, 4}, {"v", 6, 3}},
                     {.rank = 2, .scale = 0.7, .dropout = dropout, .site = 5}, stream);
  randomize([&](const ParameterVisitor& visit) { linear.visit_parameters(visit); }, stream);
  return linear;
}

TEST(LowRankAdapter, ChangesOnlyItsOutputsAndMatchesMerge) {
  const Stream stream = test_stream();
  Linear linear = adapted(stream), plain("linear", 6, 9, stream);
  randomize([&](const ParameterVisitor& visit) { plain.visit_parameters(visit); }, stream);
  const Tensor x = normal_tensor({5, 6}, 1, stream);
  const std::vector<double> with = values_of(linear.product(x, Tensor{}, {}, stream)),
                            without = values_of(plain.product(x, Tensor{}, {}, stream));
  for (std::size_t row = 0; row < 5; ++row) {
    for (std::size_t o = 0; o < 9; ++o)
      EXPECT_EQ(with[row * 9 + o] == without[row * 9 + o], o >= 4 && o < 6) << o;
  }
  linear.adapter()->merge_into(master_of(plain.weight()), stream);
  EXPECT_LT(relative_error(values_of(plain.product(x, Tensor{}, {}, stream)), with), 1e-6);
}

TEST(LowRankAdapter, DoraStartsAtBaseAndMatchesMerge) {
  const Stream stream = test_stream();
  Linear linear("linear", 6, 9, stream), plain("linear", 6, 9, stream);
  for (Linear* each : {&linear, &plain})
    randomize([&](const ParameterVisitor& visit) { each->visit_parameters(visit); }, stream);
  const Tensor x = normal_tensor({5, 6}, 1, stream);
  const auto values = [&](Linear& of) { return values_of(of.product(x, Tensor{}, {}, stream)); };
  linear.set_adapter({{"q", 0, 4}, {"v", 6, 3}}, {.rank = 2, .scale = 0.7, .decomposed = true},
                     stream);
  linear.adapter()->start_magnitudes(linear.weight(), stream);
  EXPECT_LT(relative_error(values(linear), values(plain)), 1e-6);
  std::uint64_t seed = 7;
  linear.adapter()->visit_parameters([&](Parameter& parameter) {
    copy(master_of(parameter), normal_tensor(parameter.shape(), ++seed, stream), stream);
  });
  const std::vector<double> with = values(linear);
  linear.adapter()->merge_into(master_of(plain.weight()), stream);
  EXPECT_LT(relative_error(values(plain), with), 1e-6);
}

TEST(LowRankAdapter, DropoutRepeatsAndAppliesOnlyInTraining) {
  const Stream stream = test_stream();
  Linear linear = adapted(stream, 0.5), whole = adapted(stream);
  const Tensor x = normal_tensor({5, 6}, 1, stream);
  const Pass training{.seed = 3}, reading{.training = false};
  const auto values = [&](Linear& of, const Pass& pass) {
    return values_of(of.product(x, Tensor{}, pass, stream));
  };
  EXPECT_EQ(values(linear, reading), values(whole, reading));
  EXPECT_NE(values(linear, training), values(whole, training));
  EXPECT_EQ(values(linear, training), values(linear, training));
}

TEST(LowRankAdapter, FrozenLinearKeepsInputOnlyWithAdapter) {
  const Stream stream = test_stream();
  Linear linear("linear", 6, 9, stream);
  const Tensor x = normal_tensor({5, 6}, 1, stream);
  EXPECT_TRUE(linear.kept(x).defined());
  linear.weight().freeze();
  EXPECT_FALSE(linear.kept(x).defined());
  linear.set_adapter({{"q", 0, 9}}, {.rank = 2}, stream);
  EXPECT_TRUE(linear.kept(x).defined());
}

}  // namespace
}  // namespace hybrid_trainer::testing
