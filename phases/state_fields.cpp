#include "phases/state_fields.h"

namespace hybrid_trainer {
namespace {

Tensor copy_of(const Tensor& source, MemoryKind kind, const Stream& stream) {
  const Tensor target = Tensor::empty_like(source, kind, stream);
  copy(target, source, stream);
  return target;
}

}  // namespace

void save_tensors(State& state, const std::string& name, const std::vector<Tensor>& tensors) {
  state.integers[name + ".count"] = static_cast<std::int64_t>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    state.tensors[name + "." + std::to_string(i)] = tensors[i];
  }
}

std::vector<Tensor> load_tensors(const State& state, const std::string& name, MemoryKind kind,
                                 const Stream& stream) {
  std::vector<Tensor> tensors;
  const std::int64_t count = state.integer(name + ".count");
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor& saved = state.tensor(name + "." + std::to_string(i));
    tensors.push_back(Tensor::empty_like(saved, kind, stream));
    wait_for_copy(tensors.back(), saved, stream);
  }
  return tensors;
}

Batch copy_of(const Batch& batch, const Stream& stream) {
  return {copy_of(batch.inputs, MemoryKind::kData, stream),
          copy_of(batch.targets, MemoryKind::kData, stream)};
}

}  // namespace hybrid_trainer
