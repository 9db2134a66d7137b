// A network of unlike parts on the device: each of its kernels at shapes that follow from each
// other.
#include "hybrid_trainer/nn/module_graph.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "tests/cuda/cuda_case.h"
#include "tests/nn/graph/mixed_network.h"

namespace hybrid_trainer {
namespace {

struct Step {
  double loss = 0;
  std::vector<Tensor> gradients{};  // on the host
};

Step step_of(const Pass& pass, const Stream& stream, const Stream& host) {
  ModuleGraph network(graph::mixed_nodes(0.2f), 3, stream);
  const Batch on_host = graph::mixed_batch(2, host);
  const Batch batch = on_host.with([&](const Tensor& tensor) { return copy_to(tensor, stream); });
  const std::vector<Parameter*> parameters = trainable_parameters(network);
  ResidentGradients sink;
  sink.allocate(parameters, stream);
  begin_gradients(parameters, sink, 1);
  PlainTape tape(pass);
  Step step;
  step.loss = kernels::wait_for_value(network.forward(batch, 1, tape, stream), stream);
  network.backward(batch, tape, stream);
  EXPECT_TRUE(tape.empty());
  for (Parameter* parameter : parameters)
    step.gradients.push_back(wait_for_host(parameter->gradient(), stream));
  return step;
}

TEST(CudaModuleGraph, LossAndGradientsMatchCpu) {
  const Stream host = kernels::cpu_stream();
  for (const double share : {0.0, 1.0}) {
    const Pass pass{.seed = 5, .recompute = share};
    const Step wanted = step_of(pass, host, host);
    const Step found = step_of(pass, cuda_stream(), host);
    EXPECT_NEAR(found.loss, wanted.loss, 1e-5 * wanted.loss);
    ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
    for (std::size_t i = 0; i < wanted.gradients.size(); ++i)
      EXPECT_LT(testing::relative_error(found.gradients[i], wanted.gradients[i]), 2e-4) << i;
  }
}

TEST(CudaModuleGraph, MeasuresMatchCpu) {
  const Stream host = kernels::cpu_stream(), stream = cuda_stream();
  const auto measures = [&](const Stream& on) {
    ModuleGraph network(graph::mixed_nodes(), 3, on);
    const Batch batch =
        graph::mixed_batch(2, host).with([&](const Tensor& tensor) { return copy_to(tensor, on); });
    return network.wait_for_measures(batch, Pass{.training = false}, on);
  };
  const std::vector<Measure> wanted = measures(host), found = measures(stream);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].name, wanted[i].name);
    EXPECT_EQ(found[i].count, wanted[i].count);
    EXPECT_NEAR(found[i].sum, wanted[i].sum, 1e-4 * (1 + std::abs(wanted[i].sum))) << found[i].name;
  }
}

}  // namespace
}  // namespace hybrid_trainer
