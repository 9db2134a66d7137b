// Compares a network of different parts with PyTorch: see tests/golden/make_network_golden.py.
#include <fstream>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::graph {
namespace {

/// The same numbers as in the Python script.
void count(const Tensor& tensor, std::int64_t factor, float size = 1) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = size * static_cast<float>((i * factor + 11) % 41 - 20) / 16;
}

std::vector<Node> nodes() {
  return {
      input("video", {2, 4, 3, 2}),
      part("cnn", "video",
           sequence({convolution({.outputs = 4, .window = around(3, {1, 2, 1})}), group_norm(2),
                     activation(kernels::ActivationKind::kSilu), tokens(), positions()})),
      input("series", {5, 3}),
      part("embed", "series", linear(4)),
      transformer("blocks", "embed", {.heads = 2}),
      concatenate("seen", {"cnn", "blocks"}),
      token_input("words", {3}),
      part("words_in", "words", embedding(5, 4)),
      transformer("text", "words_in", {.heads = 2, .causal = true, .source = "seen"}),
      part("text_out", "text", linear(5)),
      cross_entropy("words_right", "text_out", "next_words", {.weight = 0.7, .smoothing = 0.1f}),
      part("speed_out", "blocks", sequence({mean(), linear(2)})),
      huber("speed", "speed_out", "speeds", 0.5, 0.75f),
  };
}

Batch batch_of(const ModuleGraph& network, const Stream& stream) {
  constexpr std::int32_t kNext[] = {1, 4, -1, 2, 0, 3};
  Batch batch = network.empty_batch(2, stream);
  count(batch.at("video"), 3);
  count(batch.at("series"), 5);
  count(batch.at("speeds"), 9, 4);
  for (std::int32_t i = 0; i < 6; ++i) {
    batch.at("words").data<std::int32_t>()[i] = i * 3 % 5;
    batch.at("next_words").data<std::int32_t>()[i] = kNext[i];
  }
  return batch;
}

TEST(NetworkGolden, LossAndGradientsMatchPyTorch) {
  const Stream stream = testing::test_stream();
  ModuleGraph network(nodes(), 1, stream);
  std::int64_t drawn = 0;
  network.visit_parameters(
      [&](Parameter& parameter) { count(testing::master_of(parameter), drawn++ % 40 + 1); });
  const Batch batch = batch_of(network, stream);
  std::ifstream golden(HT_TEST_DATA_DIR "/network_golden.txt");
  double wanted_loss = 0;
  ASSERT_TRUE(golden >> wanted_loss);

  const testing::StepGradients gradients(
      [&](const ParameterVisitor& visit) { network.visit_parameters(visit); }, stream);
  PlainTape tape(Pass{});
  const Tensor loss = network.forward(batch, 1, tape, stream);
  EXPECT_NEAR(kernels::wait_for_value(loss, stream), wanted_loss, 2e-6);
  network.backward(batch, tape, stream);
  network.visit_parameters([&](Parameter& parameter) {
    std::string name;
    std::int64_t elements = 0;
    ASSERT_TRUE(golden >> name >> elements);
    ASSERT_EQ(parameter.elements(), elements) << name;
    std::string ours = parameter.name();
    if (ours.starts_with("speed_out.1.")) ours.erase(10, 2);  // the linear map after the mean
    EXPECT_EQ(ours, name);
    std::vector<double> wanted(static_cast<std::size_t>(elements));
    for (double& value : wanted) golden >> value;
    EXPECT_LT(testing::relative_error(testing::values_of(parameter.gradient()), wanted), 3e-5)
        << name;
  });
  std::string rest;
  EXPECT_FALSE(golden >> rest) << "gradient of a parameter that the network lacks: " << rest;
}

}  // namespace
}  // namespace hybrid_trainer::graph
