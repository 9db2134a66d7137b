#include "compressed_store.h"

#include "hybrid_trainer/kernels/quantization.h"

namespace hybrid_trainer {
namespace {

kernels::QuantizationMap map_of(bool never_negative) {
  return never_negative ? kernels::QuantizationMap::kUnsigned : kernels::QuantizationMap::kSigned;
}

}  // namespace

void CompressedStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  try {
    for (const OffloadSlot& slot : slots) {
      const Tensor& tensor = *slot.tensor;
      Kept kept{tensor, Tensor{}, slot.never_negative};
      if (tensor.dtype() == DType::kF32) {
        const Shape blocks{kernels::quantization_blocks(tensor.elements())};
        kept.codes = Tensor::empty(tensor.shape(), DType::kU8, tensor.kind(), stream);
        kept.scales = Tensor::empty(blocks, DType::kF32, tensor.kind(), stream);
        kernels::quantize(kept.codes, kept.scales, tensor, map_of(kept.never_negative), stream);
      }
      kept_.push_back(std::move(kept));
    }
  } catch (...) {
    stream.synchronize();
    forget();
    throw;
  }
}

void CompressedStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [codes, scales, never_negative] = kept_[i];
    if (scales) {
      kernels::dequantize(tensors[i], codes, scales, map_of(never_negative), stream);
    } else {
      copy(tensors[i], codes, stream);
    }
  }
}

}  // namespace hybrid_trainer
