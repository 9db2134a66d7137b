#include "hybrid_trainer/io/checkpoint_digest.h"

#include <filesystem>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/io/safetensors.h"

namespace hybrid_trainer {
namespace {

/// What the digest over all tensors takes of one of them.
struct DigestedTensor {
  std::string checksum;
  std::string described;  // dtype and shape
};

DigestedTensor digest_of_entry(const SafetensorsFile& file, const SafetensorsEntry& entry,
                               const Stream& stream) {
  const Tensor tensor = file.load(entry.name, MemoryKind::kData, stream);
  return {checksum_of({static_cast<const char*>(tensor.raw()), tensor.bytes()}),
          concat(entry.dtype, " ", entry.tensor_shape().text())};
}

}  // namespace

CheckpointDigest digest_of(const CheckpointInfo& checkpoint) {
  if (const std::string damage = checkpoint_damage(checkpoint); !damage.empty())
    throw DataError(concat(checkpoint.path, " is damaged: ", damage));
  const Stream stream(make_host_pool());
  std::map<std::string, DigestedTensor> tensors;
  for (const auto& [name, file_digest] : checkpoint.files) {
    const std::filesystem::path path = std::filesystem::path(checkpoint.path) / name;
    if (path.extension() != ".safetensors") continue;
    const SafetensorsFile file(path.string());
    for (const SafetensorsEntry& entry : file.entries())
      tensors[entry.name] = digest_of_entry(file, entry, stream);
  }
  CheckpointDigest digest;
  std::string all;
  for (const auto& [name, tensor] : tensors) {
    digest.tensors.push_back({name, tensor.checksum});
    all += concat(name, "\n", tensor.described, "\n", tensor.checksum, "\n");
  }
  digest.all = checksum_of(all);
  return digest;
}

}  // namespace hybrid_trainer
