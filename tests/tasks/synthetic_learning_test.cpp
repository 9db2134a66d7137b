// Small networks reach the best possible loss on synthetic sets to within five percent.
#include <gtest/gtest.h>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "tests/support/simple_sets.h"

namespace hybrid_trainer {
namespace {

using graph::Node;
using kernels::ActivationKind;

struct Lesson {
  std::int64_t steps = 0;
  double learning_rate = 0;
  std::int64_t batch = 64;
};

class SyntheticLearning : public ::testing::Test {
 protected:
  /// Loss on new examples, relative to the best possible loss.
  double excess(std::vector<Node> nodes, const SyntheticSet& set, const Lesson& lesson) {
    ModuleGraph network(std::move(nodes), 1, stream_);
    const auto config =
        HybridTrainerConfig::builder()
            .data_config({.batch_size = lesson.batch, .sequence_length = 1})
            .steps(lesson.steps)
            .phase_config({.warmup_steps = 10, .max_predict_steps = 0})
            .optimizer_config({.name = "adamw", .learning_rate = lesson.learning_rate})
            .mixed_precision_config(MixedPrecisionConfig::conservative())
            .build();
    HybridTrainer trainer(network, config, stream_);
    const Batch batch = set.empty_batch(lesson.batch, stream_);
    for (std::int64_t step = 0; step < lesson.steps; ++step) {
      set.read(step * lesson.batch, batch);
      trainer.step(batch);
    }
    return mean_loss(network, set) / set.best_losses().front().value;
  }
  double mean_loss(ModuleGraph& network, const SyntheticSet& set) {
    constexpr std::int64_t kBatches = 16, kExamples = 512;
    const Batch batch = set.empty_batch(kExamples, stream_);
    double sum = 0;
    for (std::int64_t i = 0; i < kBatches; ++i) {
      set.read((std::int64_t{1} << 40) + i * kExamples, batch);
      ForwardOnlyTape tape(Pass{.training = false});
      sum += kernels::wait_for_value(network.forward(batch, 1, tape, stream_), stream_);
    }
    return sum / kBatches;
  }
  /// Also expects that the loss is not much better, which is impossible.
  static void expect_best(double excess) {
    EXPECT_LT(excess, 1.05);
    EXPECT_GT(excess, 0.95);
  }
  static graph::ModuleMaker perceptron(std::int64_t width, std::int64_t outputs) {
    return graph::sequence({graph::linear(width), graph::activation(ActivationKind::kSilu),
                            graph::linear(width), graph::activation(ActivationKind::kSilu),
                            graph::linear(outputs)});
  }
  const Stream stream_{MemoryPool::create("test")};
};

TEST_F(SyntheticLearning, ReachesBestLossOnClasses) {
  expect_best(excess({graph::input("x", {2}), graph::part("net", "x", perceptron(64, 5)),
                      graph::cross_entropy("class", "net", "class")},
                     SectorSet(5, 0.2, 1), {.steps = 3000, .learning_rate = 1e-2, .batch = 128}));
}

TEST_F(SyntheticLearning, ReachesBestLossOnRegression) {
  expect_best(excess({graph::input("x", {2}), graph::part("net", "x", perceptron(32, 1)),
                      graph::squared_error("error", "net", "y")},
                     SurfaceSet(0.3, 1), {.steps = 500, .learning_rate = 5e-3}));
}

TEST_F(SyntheticLearning, ReachesBestLossOnSequences) {
  constexpr std::int64_t kSymbols = 6, kLength = 5, kWidth = 32;
  const auto embedded = [&](const char* name, const char* tokens, std::int64_t vocabulary) {
    return graph::part(name, tokens,
                       graph::sequence({graph::embedding(vocabulary, kWidth), graph::positions()}));
  };
  expect_best(excess(
      {graph::token_input("source", {kLength}), embedded("source.embed", "source", kSymbols),
       graph::transformer("source.blocks", "source.embed", {.layers = 1}),
       graph::token_input("before", {kLength}), embedded("text.embed", "before", kSymbols + 1),
       graph::transformer("text.blocks", "text.embed",
                          {.layers = 1, .causal = true, .source = "source.blocks"}),
       graph::part("text.head", "text.blocks", graph::linear(kSymbols)),
       graph::cross_entropy("text", "text.head", "targets")},
      ReversalSet(kSymbols, kLength, 0.2, 1), {.steps = 600, .learning_rate = 5e-3}));
}

TEST_F(SyntheticLearning, ReachesBestLossOnDetectionGrids) {
  const PlumeShape shape{.size = 16};
  const auto stage = [](std::int64_t channels, std::int64_t stride) {
    return graph::sequence(
        {graph::convolution({.outputs = channels, .window = graph::around(3, {stride, stride, 1})}),
         graph::group_norm(1), graph::activation(ActivationKind::kSilu)});
  };
  expect_best(excess(
      {graph::input("infrared", {shape.size, shape.size, 1}),
       graph::part("cnn", "infrared", graph::sequence({stage(16, 2), stage(32, 2), stage(32, 1)})),
       graph::part("head", "cnn", perceptron(32, 5 + kPlumeKinds)),
       graph::detection("plumes", "head", "plume_kinds", "plume_boxes", {.classes = kPlumeKinds})},
      PlumeSet(shape, 1), {.steps = 600, .learning_rate = 5e-3}));
}

}  // namespace
}  // namespace hybrid_trainer
