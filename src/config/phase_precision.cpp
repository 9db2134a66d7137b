#include "hybrid_trainer/config/phase_precision.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer {
namespace {

/// Narrower models gain little by bf16, docs/RESULTS.md; on processors without tiles they may lose.
constexpr std::int64_t kLeastWidth = 64;

}  // namespace

AutomaticPrecision automatic_precision(std::int64_t width, Device device) {
  if (device.type != DeviceType::kCpu) return {DType::kBF16, "bf16, as on every CUDA device"};
  if (!multiplies_bfloat16()) return {DType::kF32, "fp32, as this processor multiplies no bf16"};
  if (width < kLeastWidth)
    return {DType::kF32, concat("fp32, as bf16 gains little below a width of ", kLeastWidth)};
  return {DType::kBF16, multiplies_tiles() ? "bf16, which this processor's matrix tiles multiply"
                                           : "bf16, which this processor multiplies"};
}

const char* precision_name(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

PhasePrecision::PhasePrecision(const MixedPrecisionConfig& config, std::int64_t width,
                               Device device) {
  const auto [automatic, reason] = automatic_precision(width, device);
  for (Phase phase : kAllPhases) {
    const std::string& name = config.of(phase);
    if (name == "auto") reason_ = reason;
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
  const auto chosen = dtypes_;
  for (Phase phase : kAllPhases) {
    const bool bf16 = state.text(concat("precision.", name_of(phase))) == "bf16";
    dtypes_[static_cast<std::size_t>(phase)] = bf16 ? DType::kBF16 : DType::kF32;
  }
  if (dtypes_ != chosen && !reason_.empty()) reason_ = "what it was when the run began";
}

}  // namespace hybrid_trainer
