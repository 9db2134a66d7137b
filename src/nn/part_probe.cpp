#include "src/nn/part_probe.h"

#include <algorithm>

#include "hybrid_trainer/core/pools.h"

namespace hybrid_trainer::graph {
namespace {

/// Counts the numbers that it keeps, but for those of the batch, which are there anyway.
class CountingTape final : public PlainTape {
 public:
  CountingTape(const Pass& pass, const std::vector<Tensor>& batch)
      : PlainTape(pass), batch_(batch) {}
  double numbers = 0;

 private:
  Tensor pack(const Activation& activation, const Stream&) override {
    const TensorIdentity identity(activation.tensor);
    if (std::ranges::none_of(batch_, [&](const Tensor& of) { return identity.is_of(of); }))
      numbers += static_cast<double>(activation.tensor.elements());
    return activation.tensor;
  }
  const std::vector<Tensor>& batch_;
};

}  // namespace

Probed probe(const PartMaker& make, const ModuleName& name, const std::vector<ProbeInput>& inputs) {
  const Stream nowhere(make_device_pool({.simulated = true}));
  std::vector<Shape> shapes;
  std::vector<PartInput> tensors;
  std::vector<Tensor> batch;
  double read = 0;
  for (const ProbeInput& input : inputs) {
    shapes.push_back(input.shape);
    tensors.push_back({Tensor::empty(input.shape, input.dtype, MemoryKind::kData, nowhere)});
    if (input.is_of_batch) batch.push_back(tensors.back().tensor);
    read += input.is_of_batch ? 0 : static_cast<double>(input.shape.elements());
  }
  const std::unique_ptr<Part> part = make(name, shapes, nowhere);
  const auto forward = [&](double share, Probed& probed) {
    CountingTape tape(Pass{.recompute = share}, batch);
    probed.output = part->forward(tensors, tape, nowhere).shape();
    return tape.numbers;
  };
  Probed probed;
  probed.kept = forward(0, probed);
  probed.least = part->recomputes_itself() ? forward(1, probed) : read;
  return probed;
}

}  // namespace hybrid_trainer::graph
