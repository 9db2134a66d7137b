#include "hybrid_trainer/nn/feed_forward.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

/// Gradient of the input of a module with fixed weights, frozen or not.
template <class Module>
Tensor input_gradient(bool frozen) {
  const Stream stream = test_stream();
  Module module("mlp", {.width = 16, .intermediate_size = 24}, stream);
  const auto visit_all = [&](const ParameterVisitor& visit) { module.visit_parameters(visit); };
  randomize(visit_all, stream);
  if (frozen) visit_all([](Parameter& parameter) { parameter.freeze(); });
  const StepGradients step(visit_all, stream);
  PlainTape tape{Pass{}};
  module.forward(normal_tensor({2, 5, 16}, 5, stream), Tensor{}, tape, stream);
  return module.backward(normal_tensor({2, 5, 16}, 6, stream), tape, stream);
}

/// With frozen weights, the activated values are not kept, so backward cannot reuse their memory.
TEST(FeedForward, FrozenWeightsGiveSameInputGradient) {
  EXPECT_TRUE(same_bits(input_gradient<FeedForward>(true), input_gradient<FeedForward>(false)));
  EXPECT_TRUE(
      same_bits(input_gradient<GatedFeedForward>(true), input_gradient<GatedFeedForward>(false)));
}

}  // namespace
}  // namespace hybrid_trainer::testing
