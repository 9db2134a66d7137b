#include "hybrid_trainer/trainer/phase_precision.h"

#include <algorithm>
#include <chrono>

#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer {
namespace {

double product_seconds(DType dtype, std::int64_t rows, std::int64_t width, const Stream& stream) {
  using Clock = std::chrono::steady_clock;
  const Tensor x = Tensor::zeros({rows, width}, dtype, MemoryKind::kWorkspace, stream);
  const Tensor w = Tensor::zeros({4 * width, width}, dtype, MemoryKind::kWorkspace, stream);
  const Tensor y = Tensor::zeros({rows, 4 * width}, dtype, MemoryKind::kWorkspace, stream);
  double best = 1e30;
  for (int i = 0; i < 8; ++i) {
    const auto begin = Clock::now();
    kernels::linear_forward(y, x, w, Tensor{}, Tensor{}, stream);
    stream.synchronize();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

DType faster_dtype(std::int64_t rows, std::int64_t width, const Stream& stream) {
  const bool on_processor = stream.device().type == DeviceType::kCpu;
  if (on_processor && !multiplies_bfloat16()) return DType::kF32;
  const bool faster = product_seconds(DType::kBF16, rows, width, stream) <
                      product_seconds(DType::kF32, rows, width, stream);
  return faster ? DType::kBF16 : DType::kF32;
}

}  // namespace

const char* precision_name(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

PhasePrecision::PhasePrecision(const MixedPrecisionConfig& config, std::int64_t rows,
                               std::int64_t width, const Stream& stream) {
  const bool any_auto = std::any_of(kAllPhases.begin(), kAllPhases.end(),
                                    [&](Phase phase) { return config.of(phase) == "auto"; });
  const DType automatic = any_auto ? faster_dtype(rows, width, stream) : DType::kF32;
  for (Phase phase : kAllPhases) {
    const std::string& name = config.of(phase);
    dtypes_[static_cast<std::size_t>(phase)] = name == "auto"   ? automatic
                                               : name == "bf16" ? DType::kBF16
                                                                : DType::kF32;
  }
}

void PhasePrecision::save(State& state) const {
  for (Phase phase : kAllPhases)
    state.texts[concat("precision.", name_of(phase))] = precision_name(of(phase));
}

void PhasePrecision::load(const State& state) {
  for (Phase phase : kAllPhases) {
    const bool bf16 = state.text(concat("precision.", name_of(phase))) == "bf16";
    dtypes_[static_cast<std::size_t>(phase)] = bf16 ? DType::kBF16 : DType::kF32;
  }
}

}  // namespace hybrid_trainer
