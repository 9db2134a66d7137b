#include "phases/state_fields.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

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

std::vector<Tensor> load_directions(const State& state, const std::string& name, Trainable& model) {
  const std::vector<Tensor> tensors = model.weights().empty_directions();
  if (state.integer(name + ".count") == 0) return tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    wait_for_copy(tensors[i], state.tensor(concat(name, ".", i)), model.stream());
  return tensors;
}

void save_batches(State& state, const std::string& name, const std::vector<Batch>& batches) {
  std::vector<Tensor> inputs, targets;
  for (const Batch& batch : batches) {
    const std::string index = std::to_string(inputs.size());
    if (batch.positions) state.tensors[name + ".positions." + index] = batch.positions;
    if (batch.learnt > 0) state.reals[name + ".learnt." + index] = batch.learnt;
    inputs.push_back(batch.inputs);
    targets.push_back(batch.targets);
  }
  save_tensors(state, name + ".inputs", inputs);
  save_tensors(state, name + ".targets", targets);
}

std::vector<Batch> load_batches(const State& state, const std::string& name, Trainable& model) {
  std::vector<Batch> batches;
  const std::int64_t count = state.integer(name + ".inputs.count");
  for (std::int64_t i = 0; i < count; ++i) {
    Batch saved{state.tensor(concat(name, ".inputs.", i)),
                state.tensor(concat(name, ".targets.", i))};
    if (const auto found = state.tensors.find(concat(name, ".positions.", i));
        found != state.tensors.end())
      saved.positions = found->second;
    if (const auto found = state.reals.find(concat(name, ".learnt.", i));
        found != state.reals.end())
      saved.learnt = found->second;
    batches.push_back(model.rollback().keep_batch(saved));
  }
  return batches;
}

}  // namespace hybrid_trainer
