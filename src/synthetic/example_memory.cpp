#include "src/synthetic/example_memory.h"

namespace hybrid_trainer {

Batch empty_examples(std::int64_t examples, const std::vector<ExampleTensor>& tensors,
                     const Stream& stream) {
  std::vector<NamedTensor> parts;
  for (const ExampleTensor& tensor : tensors) {
    Shape shape{examples};
    for (const std::int64_t size : tensor.sizes) shape.append(size);
    parts.push_back({tensor.name, Tensor::empty(shape, tensor.dtype, MemoryKind::kData, stream)});
  }
  return Batch(std::move(parts));
}

}  // namespace hybrid_trainer
