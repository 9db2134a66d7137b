// Compares the loss and gradients of blocks with T5's relative position bias with those of T5's
// encoder and decoder in transformers: see tests/golden/make_t5_golden.py.
#include <fstream>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::graph {
namespace {

constexpr std::int64_t kTime = 11, kWidth = 12, kHeads = 3, kInner = 20;
const NormSpec kNorm{NormKind::kRootMeanSquare, 1e-6f};

/// The same numbers as in the Python script.
void draw(const Tensor& tensor, std::int64_t factor, float size) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = size * static_cast<float>((i * factor + 11) % 41 - 20) / 16;
}

/// T5's blocks: no biases, and a head size other than C/H.
LayerSpec encoder_layer(const LayerInputs& inputs) {
  kernels::AttentionSpec heads(kHeads);
  heads.scale = 1;
  return {{.name = "attn",
           .norm = "ln_1",
           .make = branch_of<Attention>({.width = inputs.width,
                                         .heads = heads,
                                         .head_size = 5,
                                         .biases = false,
                                         .output_bias = false,
                                         .bidirectional = true,
                                         .relative = inputs.relative})},
          {.name = "mlp",
           .norm = "ln_2",
           .make = branch_of<FeedForward>(
               {.width = inputs.width, .intermediate_size = kInner, .biases = false})}};
}

std::vector<Node> around_blocks(const Node& blocks) {
  return {input("x", {kTime, kWidth}), blocks, squared_error("loss", "blocks", "y")};
}

Node encoder() {
  return stack("blocks", "x",
               {.layers = 2,
                .layer = encoder_layer,
                .residual = {.norm = kNorm},
                .relative = RelativeBias::Spec{
                    .heads = kHeads, .buckets = {.count = 8, .most = 6, .bidirectional = true}}});
}

/// Built-in transformer blocks, whose biases start at 0.
Node decoder() {
  return transformer("blocks", "x",
                     {.layers = 3,
                      .heads = kHeads,
                      .intermediate_size = kInner,
                      .causal = true,
                      .score_scale = 1,
                      .relative = RelativeBuckets{.count = 6, .most = 9},
                      .norm = kNorm});
}

class RelativeBiasGolden : public ::testing::Test {
 protected:
  static bool is_bias(const Parameter& parameter) { return parameter.name().ends_with(".bias"); }
  static float size_of(const std::string& name) {
    return name.find("relative") != std::string::npos ? 1.5f
           : name.find(".ln_") != std::string::npos   ? 1.0f
                                                      : 0.3f;
  }
  void expect_golden(const Node& blocks, double share) {
    ModuleGraph network(around_blocks(blocks), 1, stream_);
    std::int64_t drawn = 0;
    network.visit_parameters([&](Parameter& parameter) {
      if (is_bias(parameter)) return;
      draw(testing::master_of(parameter), drawn++ % 40 + 1, size_of(parameter.name()));
    });
    const Batch batch = network.empty_batch(2, stream_);
    draw(batch.at("x"), 3, 1);
    draw(batch.at("y"), 5, 1);
    const testing::StepGradients gradients(
        [&](const ParameterVisitor& visit) { network.visit_parameters(visit); }, stream_);
    PlainTape tape(Pass{.recompute = share});
    const Tensor loss = network.forward(batch, 1, tape, stream_);
    double wanted_loss = 0;
    ASSERT_TRUE(golden_ >> wanted_loss);
    EXPECT_NEAR(kernels::wait_for_value(loss, stream_), wanted_loss, 1e-6);
    network.backward(batch, tape, stream_);
    network.visit_parameters([&](Parameter& parameter) {
      if (is_bias(parameter)) return;
      std::string name;
      std::int64_t elements = 0;
      ASSERT_TRUE(golden_ >> name >> elements);
      EXPECT_EQ(parameter.name(), name);
      ASSERT_EQ(parameter.elements(), elements) << name;
      std::vector<double> wanted(static_cast<std::size_t>(elements));
      for (double& value : wanted) golden_ >> value;
      EXPECT_LT(testing::relative_error(testing::values_of(parameter.gradient()), wanted), 1e-5)
          << name;
    });
  }

  const Stream stream_ = testing::test_stream();
  std::ifstream golden_{HT_TEST_DATA_DIR "/t5_golden.txt"};
};

TEST_F(RelativeBiasGolden, EncoderAndDecoderMatchT5) {
  for (const double share : {0.0, 1.0}) {
    golden_.clear();
    golden_.seekg(0);
    expect_golden(encoder(), share);
    expect_golden(decoder(), share);
    std::string rest;
    EXPECT_FALSE(golden_ >> rest) << "gradient of a parameter that the stack lacks: " << rest;
  }
}

}  // namespace
}  // namespace hybrid_trainer::graph
