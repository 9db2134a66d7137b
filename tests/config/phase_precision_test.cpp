#include "hybrid_trainer/config/phase_precision.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer {
namespace {

constexpr Device kProcessor{}, kCuda{DeviceType::kCuda, 0}, kSimulated{DeviceType::kCuda, 0, true};

TEST(AutomaticPrecision, IsBFloat16WhereTheProcessorMultipliesIt) {
  const AutomaticPrecision wide = automatic_precision(768, kProcessor);
  EXPECT_EQ(wide.dtype == DType::kBF16, multiplies_bfloat16());
  EXPECT_TRUE(wide.reason.starts_with(precision_name(wide.dtype))) << wide.reason;
}

TEST(AutomaticPrecision, IsFp32ForNarrowModelsOnTheProcessor) {
  const AutomaticPrecision narrow = automatic_precision(16, kProcessor);
  EXPECT_EQ(narrow.dtype, DType::kF32);
  EXPECT_TRUE(narrow.reason.starts_with("fp32, as ")) << narrow.reason;
}

TEST(AutomaticPrecision, IsBFloat16OnAnyDevice) {
  for (const Device device : {kCuda, kSimulated}) {
    for (const std::int64_t width : {16, 768})
      EXPECT_EQ(automatic_precision(width, device).dtype, DType::kBF16);
  }
}

TEST(PhasePrecision, SaysWhyOnlyWhereSomethingWasChosen) {
  EXPECT_EQ(PhasePrecision({"fp32", "bf16", "bf16", "fp32"}, 768, kProcessor).reason(), "");
  const PhasePrecision one({"fp32", "fp32", "auto", "bf16"}, 768, kCuda);
  EXPECT_EQ(one.reason(), "bf16, as on every CUDA device");
  EXPECT_EQ(one.of(Phase::kWarmup), DType::kF32);
  EXPECT_EQ(one.of(Phase::kPredict), DType::kBF16);
  EXPECT_EQ(one.of(Phase::kCorrect), DType::kBF16);
}

TEST(PhasePrecision, KeepsTheSavedChoiceAndSaysSo) {
  State state;
  PhasePrecision({"auto", "auto", "auto", "fp32"}, 16, kProcessor).save(state);
  PhasePrecision resumed({"auto", "auto", "auto", "fp32"}, 768, kCuda);
  resumed.load(state);
  for (const Phase phase : kAllPhases) EXPECT_EQ(resumed.of(phase), DType::kF32);
  EXPECT_EQ(resumed.reason(), "what it was when the run began");
}

}  // namespace
}  // namespace hybrid_trainer
