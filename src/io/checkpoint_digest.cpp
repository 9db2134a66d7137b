#include "hybrid_trainer/io/checkpoint_digest.h"

#include <algorithm>

#include "hybrid_trainer/core/pools.h"
#include "src/io/checkpoint_tensors.h"
#include "src/io/safetensors_header.h"

namespace hybrid_trainer {
namespace {

/// What the digest over all tensors takes of one of them.
struct DigestedTensor {
  std::string checksum;
  std::string described;  // dtype and shape
};

/// Piece by piece, so that a large tensor is never in memory as a whole.
DigestedTensor digest_of_tensor(CheckpointTensors& tensors, const std::string& name,
                                const StoredTensor& stored, const Stream& stream) {
  constexpr std::int64_t kPieceElements = std::int64_t{1} << 21;
  const std::int64_t elements = stored.shape.elements();
  Checksum checksum;
  for (std::int64_t first = 0; first < elements; first += kPieceElements) {
    const Tensor piece = Tensor::empty({std::min(kPieceElements, elements - first)}, stored.dtype,
                                       MemoryKind::kData, stream);
    tensors.read(name, stored, first, piece);
    checksum.add(piece.raw(), piece.bytes());
  }
  return {checksum.text(), concat(safetensors_name_of(stored.dtype), " ", stored.shape.text())};
}

}  // namespace

CheckpointDigest digest_of(const CheckpointInfo& checkpoint) {
  if (const std::string damage = checkpoint_damage(checkpoint); !damage.empty())
    throw DataError(concat(checkpoint.path, " is damaged: ", damage));
  const Stream stream(make_host_pool());
  CheckpointTensors files(checkpoint);
  CheckpointDigest digest;
  std::string all;
  for (const auto& [name, stored] : stored_tensors(checkpoint)) {
    const DigestedTensor tensor = digest_of_tensor(files, name, stored, stream);
    digest.tensors.push_back({name, tensor.checksum});
    all += concat(name, "\n", tensor.described, "\n", tensor.checksum, "\n");
  }
  digest.all = checksum_of(all);
  return digest;
}

}  // namespace hybrid_trainer
