#include "hybrid_trainer/planning/device_share.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

// The figures of Rajbhandari et al. for 7.5 G parameters are of this kind; ours are round.
TEST(DeviceShare, OfSevenGigaParametersOnEightDevices) {
  const BytesPerParameter bytes = BytesPerParameter::parse("2+2+4");
  const double wanted[] = {56e9, 31.5e9, 19.25e9, 7e9};
  for (int zero = 0; zero <= 3; ++zero) {
    EXPECT_DOUBLE_EQ(model_state_bytes(7e9, bytes, {.devices = 8, .zero = zero}), wanted[zero])
        << zero;
  }
}

TEST(DeviceShare, SaysWhatMakesSeventyGigaParametersFit) {
  const BytesPerParameter bytes = BytesPerParameter::parse("2+2+12");
  const DeviceSplit split{.devices = 8, .zero = 3};
  EXPECT_DOUBLE_EQ(model_state_bytes(70e9, bytes, split), 140e9);
  const auto ways = advice_to_fit(70e9, bytes, split, 0, 80e9);
  ASSERT_FALSE(ways.empty());
  for (const SplitAdvice& way : ways) EXPECT_LE(way.bytes, 80e9) << way.what;
  EXPECT_EQ(ways.front().what, "ZeRO 3 with optimizer state and masters on the host");
  EXPECT_EQ(ways.back().what, "16 devices, ZeRO 3");
  EXPECT_TRUE(advice_to_fit(7e9, bytes, split, 0, 80e9).empty()) << "it fits";
}

TEST(DeviceShare, CutsLayersAndStages) {
  const BytesPerParameter bytes = BytesPerParameter::parse("2+2+12");
  const DeviceSplit split{.devices = 128, .tensor = 8, .pipeline = 4, .zero = 1};
  EXPECT_EQ(split.data_parallel(), 4);
  EXPECT_DOUBLE_EQ(model_state_bytes(405e9, bytes, split), 405e9 * (2 + 2 + 3) / 32);
  EXPECT_EQ(split.text(), "128 devices, 8 to a layer, 4 stages, ZeRO 1");
}

TEST(DeviceShare, RefusesWhatIsNoSum) {
  for (const char* text : {"", "2+2", "2+2+", "a+b+c", "2+2+4x", "0+2+4", "2+-2+4", "1e9+0+0"})
    EXPECT_THROW(BytesPerParameter::parse(text), UsageError) << text;
}

}  // namespace
}  // namespace hybrid_trainer
