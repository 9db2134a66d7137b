#include "memory/compressed_store.h"

#include "hybrid_trainer/kernels/quantization.h"

namespace hybrid_trainer {
namespace {

kernels::QuantizationMap map_of(SlotRounding rounding) {
  return rounding == SlotRounding::kNonNegative ? kernels::QuantizationMap::kUnsigned
                                                : kernels::QuantizationMap::kSigned;
}

}  // namespace

void CompressedStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  try {
    for (const OffloadSlot& slot : slots) {
      const Tensor& tensor = *slot.tensor;
      Kept kept{tensor, Tensor{}, slot.rounding};
      if (tensor.dtype() == DType::kF32 && slot.rounding != SlotRounding::kNone) {
        const Shape blocks{kernels::quantization_blocks(tensor.elements())};
        kept.codes = Tensor::empty(tensor.shape(), DType::kU8, tensor.kind(), stream);
        kept.scales = Tensor::empty(blocks, DType::kF32, tensor.kind(), stream);
        kernels::quantize(kept.codes, kept.scales, tensor, map_of(kept.rounding), stream);
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
    const auto& [codes, scales, rounding] = kept_[i];
    if (scales) {
      kernels::dequantize(tensors[i], codes, scales, map_of(rounding), stream);
    } else {
      copy(tensors[i], codes, stream);
    }
  }
}

}  // namespace hybrid_trainer
