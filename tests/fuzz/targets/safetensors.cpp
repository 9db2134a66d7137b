#include "src/files/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const SafetensorsFile file(input_file("model.safetensors", input));
  const Stream stream(MemoryPool::create("host"));
  for (const SafetensorsEntry& entry : file.entries()) {
    unless_rejected([&] { file.load(entry.name, MemoryKind::kData, stream); });
    unless_rejected([&] {
      const Tensor tensor =
          Tensor::empty(entry.tensor_shape(), DType::kF32, MemoryKind::kData, stream);
      file.read(entry.name, tensor);
    });
  }
}
