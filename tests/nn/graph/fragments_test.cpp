#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer {
namespace {

using namespace testing;

graph::ModuleMaker two_convolutions() {
  return graph::sequence(
      {graph::convolution({.outputs = 4, .window = graph::around(3)}), graph::group_norm(2),
       graph::convolution({.outputs = 3, .window = graph::around(3, {2, 2, 2})})});
}

/// Fragments of two of the four frames give the results of twice as many videos of two frames.
TEST(Fragments, MatchSeparateVideos) {
  const Stream stream(MemoryPool::create("test"));
  const auto whole = graph::fragments(2, two_convolutions())("cnn", {1, 4, 4, 6, 2}, stream);
  const auto cut = two_convolutions()("cnn", {2, 2, 4, 6, 2}, stream);
  for (Module* module : {whole.get(), cut.get()})
    randomize([&](const ParameterVisitor& visit) { module->visit_parameters(visit); }, stream);
  const Tensor x = normal_tensor({3, 4, 4, 6, 2}, 1, stream);
  ForwardOnlyTape tape{Pass{.training = false}};
  const Tensor y = whole->forward(x, tape, stream);
  EXPECT_EQ(y.shape(), (Shape{3, 2 * 1 * 2 * 3, 3}));
  EXPECT_EQ(values_of(y), values_of(cut->forward(x.view({6, 2, 4, 6, 2}), tape, stream)));
}

TEST(Fragments, GradientsMatchFiniteDifferences) {
  const Stream stream(MemoryPool::create("test"));
  const auto module = graph::fragments(2, two_convolutions())("cnn", {1, 4, 4, 4, 2}, stream);
  const auto visit = [&](const ParameterVisitor& visitor) { module->visit_parameters(visitor); };
  randomize(visit, stream);
  const Tensor x = normal_tensor({2, 4, 4, 4, 2}, 1, stream);
  Shape shape;
  expect_gradients_match({.x = x,
                          .forward =
                              [&](ActivationTape& tape) {
                                const Tensor y = module->forward(x, tape, stream);
                                shape = y.shape();
                                return projected(y, stream);
                              },
                          .backward =
                              [&](ActivationTape& tape) {
                                return module->backward(projection_gradient(shape, stream), tape,
                                                        stream);
                              },
                          .visit_parameters = visit},
                         stream);
}

TEST(Fragments, RejectCountThatDoesNotDivideFrames) {
  const Stream stream(MemoryPool::create("test"));
  EXPECT_THROW(graph::fragments(3, two_convolutions())("cnn", {1, 4, 4, 4, 2}, stream),
               ShapeMismatch);
}

/// Two operations per weight and position forward; the video's gradient is not computed.
TEST(Fragments, CountFlopsOfStep) {
  const Stream stream(MemoryPool::create("test"));
  ModuleGraph network(
      {graph::input("video", {4, 4, 4, 2}),
       graph::part("cnn", "video", graph::fragments(2, two_convolutions())),
       graph::part("mean", "cnn", graph::mean()), graph::squared_error("loss", "mean", "y")},
      1, stream);
  const double first = 2.0 * 4 * 4 * 4 * 27 * 2 * 4, second = 2.0 * 2 * 2 * 2 * 27 * 4 * 3;
  EXPECT_EQ(network.step_flops(network.empty_batch(5, stream)), 5 * (2 * first + 3 * second));
}

}  // namespace
}  // namespace hybrid_trainer
