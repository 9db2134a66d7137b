#include "src/nn/part_probe.h"

#include "hybrid_trainer/core/pools.h"

namespace hybrid_trainer::graph {
namespace {

/// Counts the numbers that it keeps.
class CountingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;
  double numbers = 0;

 private:
  Tensor pack(const Activation& activation, const Stream&) override {
    numbers += static_cast<double>(activation.tensor.elements());
    return activation.tensor;
  }
};

}  // namespace

Probed probe(const PartMaker& make, const ModuleName& name, const std::vector<ProbeInput>& inputs) {
  const Stream nowhere(make_device_pool({.simulated = true}));
  std::vector<Shape> shapes;
  std::vector<PartInput> tensors;
  double read = 0;
  for (const ProbeInput& input : inputs) {
    shapes.push_back(input.shape);
    tensors.push_back({Tensor::empty(input.shape, input.dtype, MemoryKind::kData, nowhere)});
    read += input.is_of_batch ? 0 : static_cast<double>(input.shape.elements());
  }
  const std::unique_ptr<Part> part = make(name, shapes, nowhere);
  const auto forward = [&](double share, Probed& probed) {
    CountingTape tape(Pass{.recompute = share});
    probed.output = part->forward(tensors, tape, nowhere).shape();
    return tape.numbers;
  };
  Probed probed;
  probed.kept = forward(0, probed);
  probed.least = part->recomputes_itself() ? forward(1, probed) : read;
  return probed;
}

}  // namespace hybrid_trainer::graph
