#include "src/nn/recurrent_state.h"

namespace hybrid_trainer {
namespace {

void copy_text(const Tensor& to, const Tensor& from, std::int64_t text, const Stream& stream) {
  copy(to.rows(text, text + 1), from.rows(text, text + 1), stream);
}

}  // namespace

RecurrentState::RecurrentState(const Shape& convolution, const Shape& scan, DType dtype,
                               const Stream& stream)
    : convolution_(Tensor::zeros(convolution, dtype, MemoryKind::kActivations, stream)),
      scan_(Tensor::zeros(scan, DType::kF32, MemoryKind::kActivations, stream)) {}

void RecurrentState::keep(std::int64_t text, const Stream& stream) {
  if (!kept_scan_) {
    kept_convolution_ = Tensor::empty_like(convolution_, MemoryKind::kActivations, stream);
    kept_scan_ = Tensor::empty_like(scan_, MemoryKind::kActivations, stream);
  }
  copy_text(kept_convolution_, convolution_, text, stream);
  copy_text(kept_scan_, scan_, text, stream);
}

void RecurrentState::go_back(std::int64_t text, const Stream& stream) {
  copy_text(convolution_, kept_convolution_, text, stream);
  copy_text(scan_, kept_scan_, text, stream);
}

}  // namespace hybrid_trainer
