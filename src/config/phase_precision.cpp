#include "hybrid_trainer/config/phase_precision.h"

#include "src/core/machine.h"

namespace hybrid_trainer {

namespace {

/// Minimum width for bf16. Narrower models gain little from it (docs/RESULTS.md), and may become
/// slower on CPUs without matrix tiles.
constexpr std::int64_t kMinWidth = 64;

}  // namespace

AutomaticPrecision automatic_precision(std::int64_t width, Device device) {
  if (device.type != DeviceType::kCpu) return {DType::kBF16, "bf16, as on every CUDA device"};
  if (const std::string& limit = onednn_limit_of_user(); !onednn_limit_allows_bfloat16(limit))
    return {DType::kF32,
            concat("fp32, as ONEDNN_MAX_CPU_ISA=", limit, " does not allow bf16 products")};
  if (!multiplies_bfloat16()) return {DType::kF32, "fp32, as this CPU has no bf16 instructions"};
  if (width < kMinWidth)
    return {DType::kF32, concat("fp32, as bf16 gains little below a width of ", kMinWidth)};
  return {DType::kBF16, multiplies_tiles() ? "bf16, supported by this CPU's matrix tiles"
                                           : "bf16, supported by this CPU"};
}

const char* precision_name(const Precision& precision) {
  if (precision.products == ProductForm::kFp16) return "fp16";
  if (precision.products == ProductForm::kFp8) return "fp8";
  return precision.dtype == DType::kBF16 ? "bf16" : "fp32";
}

Precision precision_named(const std::string& name, Device device) {
  if (name == "fp16") return {DType::kF32, ProductForm::kFp16};
  if (name == "fp8")
    return {device.type == DeviceType::kCpu ? DType::kF32 : DType::kBF16, ProductForm::kFp8};
  return {name == "bf16" ? DType::kBF16 : DType::kF32};
}

PhasePrecision::PhasePrecision(const MixedPrecisionConfig& config, std::int64_t width,
                               Device device)
    : device_(device) {
  const auto [automatic, reason] = automatic_precision(width, device);
  for (Phase phase : kAllPhases) {
    const std::string& name = config.of(phase);
    if (name == "auto") reason_ = reason;
    all_[static_cast<std::size_t>(phase)] =
        name == "auto" ? Precision{automatic} : precision_named(name, device);
  }
}

void PhasePrecision::save(State& state) const {
  for (Phase phase : kAllPhases)
    state.texts[concat("precision.", name_of(phase))] = precision_name(of(phase));
}

void PhasePrecision::load(const State& state) {
  const auto chosen = all_;
  for (Phase phase : kAllPhases)
    all_[static_cast<std::size_t>(phase)] =
        precision_named(state.text(concat("precision.", name_of(phase))), device_);
  if (all_ != chosen && !reason_.empty()) reason_ = "chosen at the start of the run";
}

}  // namespace hybrid_trainer
