#include "memory/stored_tape.h"

#include <unordered_map>

#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/quantized/quantization.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

namespace {

constexpr auto kMap = kernels::QuantizationMap::kSigned;

constexpr std::int64_t kPart = 1 << 22;

/// Calls part(x, codes, scales) with consecutive parts of the three tensors.
template <class Part>
void for_parts(const Tensor& x, const Tensor& codes, const Tensor& scales, const Part& part) {
  const std::int64_t count = x.elements();
  const Tensor flat = x.view({count}), flat_codes = codes.view({count});
  for (std::int64_t begin = 0; begin < count; begin += kPart) {
    const std::int64_t end = std::min(count, begin + kPart);
    part(flat.rows(begin, end), flat_codes.rows(begin, end),
         scales.rows(begin / kernels::kQuantizationBlock, kernels::quantization_blocks(end)));
  }
}

class StoredTape final : public PlainTape {
 public:
  StoredTape(const Pass& pass, const TapeStorage& storage, const Stream& device)
      : PlainTape(pass),
        storage_(storage),
        is_offloaded_(storage.home.pool() != device.pool()),
        copies_(storage.slow && device.device().type == DeviceType::kCpu ? Copies::kInBackground
                                                                         : Copies::kInStream) {}

 private:
  Tensor pack(const Activation& activation, const Stream& stream) override;
  Tensor unpack(const Tensor& kept, const Activation& activation, const Stream& stream) override;
  /// Reads the next tensor from the file while backward computes with the current one.
  void ahead(const Tensor& kept, const Stream& stream) override {
    if (is_offloaded_) copies_.expect(kept, stream);
  }
  Tensor quantized(const Tensor& x, const Stream& stream);
  Tensor sent(const Tensor& tensor, const Stream& stream) {
    if (!is_offloaded_) return tensor;
    copies_.finish_writes();
    const Tensor there = Tensor::empty_like(tensor, MemoryKind::kActivations, storage_.home);
    copies_.write(there, tensor, stream);
    return there;
  }
  Tensor fetched(const Tensor& kept, const Stream& stream) {
    if (!is_offloaded_) return kept;
    copies_.finish_writes();
    return copies_.take(kept, stream);
  }

  TapeStorage storage_;
  bool is_offloaded_;
  Prefetcher copies_;                               // performs the last write and the next read
  std::unordered_map<const void*, Tensor> scales_;  // by the address of the kept codes
};

Tensor StoredTape::quantized(const Tensor& x, const Stream& stream) {
  const Tensor codes = Tensor::empty(x.shape(), DType::kU8, MemoryKind::kActivations, stream);
  const Tensor scales = Tensor::empty({kernels::quantization_blocks(x.elements())}, DType::kF32,
                                      MemoryKind::kActivations, stream);
  for_parts(x, codes, scales, [&](const Tensor& part, const Tensor& to, const Tensor& scale) {
    Tensor exact = part;
    if (part.dtype() != DType::kF32) {
      exact = Tensor::empty(part.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
      kernels::cast(exact, part, stream);
    }
    kernels::quantize(to, scale, exact, kMap, stream);
  });
  const Tensor kept_scales = sent(scales, stream),
               kept = sent(codes, stream);  // writes the small tensor first
  scales_[kept.raw()] = kept_scales;
  return kept;
}

Tensor StoredTape::pack(const Activation& activation, const Stream& stream) {
  const Tensor& x = activation.tensor;
  const bool is_real = x.dtype() == DType::kF32 || x.dtype() == DType::kBF16;
  if (!activation.may_be_lossy || !is_real || storage_.bits == 32) return sent(x, stream);
  if (storage_.bits == 8) return quantized(x, stream);
  if (x.dtype() == DType::kBF16) return sent(x, stream);
  const Tensor half = Tensor::empty(x.shape(), DType::kBF16, MemoryKind::kActivations, stream);
  kernels::cast(half, x, stream);
  return sent(half, stream);
}

Tensor StoredTape::unpack(const Tensor& kept, const Activation& activation, const Stream& stream) {
  const Tensor here = fetched(kept, stream);
  const DType wanted = pass().dtype;
  if (!activation.may_be_lossy || kept.dtype() == wanted) return here;
  const Tensor x = Tensor::empty(kept.shape(), wanted, MemoryKind::kActivations, stream);
  if (kept.dtype() == DType::kBF16) {
    kernels::cast(x, here, stream);
    return x;
  }
  const auto found = scales_.find(kept.raw());
  const Tensor scales = fetched(found->second, stream);
  for_parts(x, here, scales, [&](const Tensor& part, const Tensor& codes, const Tensor& scale) {
    if (part.dtype() == DType::kF32) return kernels::dequantize(part, codes, scale, kMap, stream);
    const Tensor exact = Tensor::empty(part.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    kernels::dequantize(exact, codes, scale, kMap, stream);
    kernels::cast(part, exact, stream);
  });
  scales_.erase(found);
  return x;
}

}  // namespace

std::unique_ptr<PlainTape> make_tape(const Pass& pass, const TapeStorage& storage,
                                     const Stream& device) {
  if (storage.home.pool() == device.pool() && storage.bits == 32)
    return std::make_unique<PlainTape>(pass);
  return std::make_unique<StoredTape>(pass, storage, device);
}

}  // namespace hybrid_trainer
