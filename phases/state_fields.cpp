#include "phases/state_fields.h"

namespace hybrid_trainer {

void save_tensors(State& state, const std::string& name, const std::vector<Tensor>& tensors) {
  state.integers[name + ".count"] = static_cast<std::int64_t>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    state.tensors[name + "." + std::to_string(i)] = tensors[i];
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
  state.integers[name + ".count"] = static_cast<std::int64_t>(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::string at = concat(name, ".", i);
    state.integers[at + ".tokens_per_example"] = batches[i].tokens_per_example();
    state.reals[at + ".targets"] = batches[i].targets();
    for (std::size_t part = 0; part < batches[i].tensors().size(); ++part) {
      const NamedTensor& named = batches[i].tensors()[part];
      state.tensors[concat(at, ".", part, ".", named.name)] = named.tensor;
    }
  }
}

static Batch load_batch(const State& state, const std::string& at) {
  std::vector<NamedTensor> tensors;
  for (;;) {
    const std::string prefix = concat(at, ".", tensors.size(), ".");
    const auto found = state.tensors.lower_bound(prefix);
    if (found == state.tensors.end() || !found->first.starts_with(prefix)) break;
    tensors.push_back({found->first.substr(prefix.size()), found->second});
  }
  Batch batch(std::move(tensors), state.integer(at + ".tokens_per_example"));
  batch.set_targets(state.real(at + ".targets"));
  return batch;
}

std::vector<Batch> load_batches(const State& state, const std::string& name, Trainable& model) {
  std::vector<Batch> batches;
  const std::int64_t count = state.integer(name + ".count");
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back(model.rollback().keep_batch(load_batch(state, concat(name, ".", i))));
  return batches;
}

}  // namespace hybrid_trainer
