#include "hybrid_trainer/config/phase_precision.h"

#include <gtest/gtest.h>

#include "src/core/machine.h"

namespace hybrid_trainer {
namespace {

constexpr Device kProcessor{}, kCuda{DeviceType::kCuda, 0}, kSimulated{DeviceType::kCuda, 0, true};

TEST(AutomaticPrecision, UsesBf16OnSupportingProcessor) {
  const AutomaticPrecision wide = automatic_precision(768, kProcessor);
  EXPECT_EQ(wide.dtype == DType::kBF16, multiplies_bfloat16());
  EXPECT_TRUE(wide.reason.starts_with(precision_name({wide.dtype}))) << wide.reason;
}

TEST(AutomaticPrecision, UsesFp32ForNarrowModelsOnProcessor) {
  const AutomaticPrecision narrow = automatic_precision(16, kProcessor);
  EXPECT_EQ(narrow.dtype, DType::kF32);
  EXPECT_TRUE(narrow.reason.starts_with("fp32, as ")) << narrow.reason;
}

TEST(AutomaticPrecision, UsesBf16OnAnyDevice) {
  for (const Device device : {kCuda, kSimulated}) {
    for (const std::int64_t width : {16, 768})
      EXPECT_EQ(automatic_precision(width, device).dtype, DType::kBF16);
  }
}

TEST(PhasePrecision, ReasonExistsOnlyForAutomaticChoice) {
  EXPECT_EQ(PhasePrecision({"fp32", "bf16", "bf16", "fp32"}, 768, kProcessor).reason(), "");
  const PhasePrecision one({"fp32", "fp32", "auto", "bf16"}, 768, kCuda);
  EXPECT_EQ(one.reason(), "bf16, as on every CUDA device");
  EXPECT_EQ(one.of(Phase::kWarmup), Precision{DType::kF32});
  EXPECT_EQ(one.of(Phase::kPredict), Precision{DType::kBF16});
  EXPECT_EQ(one.of(Phase::kCorrect), Precision{DType::kBF16});
}

/// The storage dtype holds rounded product inputs exactly: fp16 has 11 significant bits, bf16 8.
TEST(PhasePrecision, StorageDtypeFollowsProductForm) {
  const Precision half{DType::kF32, ProductForm::kFp16};
  EXPECT_EQ(precision_named("fp16", kProcessor), half);
  EXPECT_EQ(precision_named("fp16", kCuda), half);
  EXPECT_EQ(precision_named("fp8", kProcessor), (Precision{DType::kF32, ProductForm::kFp8}));
  EXPECT_EQ(precision_named("fp8", kCuda), (Precision{DType::kBF16, ProductForm::kFp8}));
  for (const char* const name : {"fp32", "bf16", "fp16", "fp8"})
    EXPECT_STREQ(precision_name(precision_named(name, kCuda)), name);
}

TEST(PhasePrecision, SavesPrecisionsByName) {
  State state;
  PhasePrecision({"fp16", "fp8", "bf16", "fp32"}, 16, kProcessor).save(state);
  EXPECT_EQ(state.text("precision.full"), "fp8");
  PhasePrecision resumed({"auto", "auto", "auto", "auto"}, 768, kProcessor);
  resumed.load(state);
  EXPECT_EQ(resumed.of(Phase::kWarmup), precision_named("fp16", kProcessor));
  EXPECT_EQ(resumed.of(Phase::kFull), precision_named("fp8", kProcessor));
}

TEST(PhasePrecision, ResumeKeepsSavedChoice) {
  State state;
  PhasePrecision({"auto", "auto", "auto", "fp32"}, 16, kProcessor).save(state);
  PhasePrecision resumed({"auto", "auto", "auto", "fp32"}, 768, kCuda);
  resumed.load(state);
  for (const Phase phase : kAllPhases) EXPECT_EQ(resumed.of(phase), Precision{DType::kF32});
  EXPECT_EQ(resumed.reason(), "chosen at the start of the run");
}

}  // namespace
}  // namespace hybrid_trainer
