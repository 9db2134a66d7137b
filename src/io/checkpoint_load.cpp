#include "hybrid_trainer/files/input_file.h"
#include "src/io/checkpoint_files.h"
#include "src/io/checkpoint_tensors.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMaxStateBytes = std::size_t{1} << 30;

MemoryKind kind_of(const std::string& tensor) {
  if (tensor.starts_with("model.")) return MemoryKind::kParameters;
  return tensor.starts_with("optimizer.") ? MemoryKind::kOptimizerState : MemoryKind::kSnapshot;
}

bool is_part(const std::string& tensor, CheckpointPart part) {
  switch (part) {
    case CheckpointPart::kWeights:
      return tensor.starts_with("model.") || tensor.starts_with("snapshot.") ||
             tensor.starts_with(kRoutingState);
    case CheckpointPart::kAverage:
      return tensor.starts_with("average.") || tensor.starts_with(kRoutingState);
    case CheckpointPart::kNumbers:
      return false;
    case CheckpointPart::kAll:
      break;
  }
  return true;
}

WantedElements all_of(const StoredTensor& tensor) {
  return {0, tensor.shape.elements(), tensor.shape};
}

State load_numbers(const CheckpointInfo& checkpoint) {
  const std::string path = checkpoint.path + "/" + kStateName;
  const std::string bytes = read_file(path, kMaxStateBytes);
  const auto known = checkpoint.files.find(kStateName);
  if (known == checkpoint.files.end() || checksum_of(bytes) != known->second.checksum)
    throw DataError(path + ": changed while it was read");
  State state;
  read_state_bytes(bytes, state);
  return state;
}

template <class IsLoaded, class Wanted>
State load_some(const CheckpointInfo& checkpoint, const Stream& stream, const IsLoaded& is_loaded,
                const Wanted& wanted) {
  State state = load_numbers(checkpoint);
  CheckpointTensors tensors(checkpoint);
  for (const auto& [name, stored] : stored_tensors(checkpoint)) {
    if (!is_loaded(name)) continue;
    const WantedElements part = wanted(name, stored);
    require(part.first >= 0 && part.last <= stored.shape.elements() &&
                part.shape.elements() == part.last - part.first,
            "load_checkpoint: want elements of the tensor, and a shape of as many");
    const Tensor tensor = Tensor::empty(part.shape, stored.dtype, kind_of(name), stream);
    tensors.read(name, stored, part.first, tensor);
    state.tensors[name] = tensor;
  }
  return state;
}

}  // namespace

State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream, CheckpointPart part) {
  return load_some(
      checkpoint, stream, [part](const std::string& name) { return is_part(name, part); },
      [](const std::string&, const StoredTensor& stored) { return all_of(stored); });
}

State load_checkpoint(
    const CheckpointInfo& checkpoint, const Stream& stream,
    const std::function<WantedElements(const std::string&, const StoredTensor&)>& wanted) {
  return load_some(
      checkpoint, stream, [](const std::string&) { return true; }, wanted);
}

}  // namespace hybrid_trainer
