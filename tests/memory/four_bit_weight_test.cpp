#include "hybrid_trainer/memory/four_bit_weight.h"

#include <gtest/gtest.h>

#include <cstring>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/io/safetensors.h"
#include "support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

/// Against what bitsandbytes made (tests/golden/README.md).
TEST(FourBit, HasTheBytesOfBitsandbytes) {
  const Stream stream = test_stream();
  const SafetensorsFile golden(concat(HT_TEST_DATA_DIR, "/four_bit.safetensors"));
  for (const std::int64_t count : {63, 64, 65, 129, 16'650}) {
    const auto load = [&](const char* name) {
      return golden.load(concat(count, '.', name), MemoryKind::kData, stream);
    };
    const Tensor values = Tensor::empty({count}, DType::kF32, MemoryKind::kData, stream);
    golden.read(concat(count, ".values"), values);
    kernels::FourBitTensors ours = quantize_four_bit(values, stream);
    EXPECT_TRUE(same_bits(ours.codes, load("codes"))) << count;
    EXPECT_TRUE(same_bits(ours.levels, load("levels"))) << count;
    const float offset = load("offset").data<float>()[0];
    EXPECT_NEAR(ours.offset, offset, 1e-7f * offset) << count << ": another order of its sum";
    EXPECT_LT(relative_error(values_of(ours.scales), values_of(load("scales"))), 1e-6) << count;
    const Tensor again = Tensor::empty({count}, DType::kF32, MemoryKind::kData, stream);
    kernels::dequantize_four_bit(again, {load("codes"), load("levels"), load("scales"), offset},
                                 stream);
    EXPECT_TRUE(same_bits(again, load("again").view({count}))) << count;
  }
}

TEST(FourBit, TakesHalfAByteAndALittleForAWeight) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({512, 1024}, 1, stream);
  const Stream home(make_device_pool());
  const FourBitWeight weight(values, {256, 256}, home);
  const auto bytes = static_cast<double>(home.pool()->use().live_total);
  EXPECT_LT(bytes / static_cast<double>(values.elements()), 0.52);
}

TEST(FourBit, PartsAreQuantizedEachByItselfAndHeldWhileTheyAreRead) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({6, 64}, 1, stream);
  FourBitWeight whole(values, {6}, stream);
  Parameter parameter(
      "w", values.shape(), Role::kMatrix,
      std::make_unique<FourBitWeight>(values, std::vector<std::int64_t>{2, 4}, stream));
  const std::size_t before = stream.pool()->use().live_total;
  {
    const Weight held = parameter.acquire_master(stream), again = parameter.acquire_master(stream);
    EXPECT_EQ(held.tensor().raw(), again.tensor().raw());
    EXPECT_LT(relative_error(values_of(held.tensor()), values_of(values)), 0.12);
    EXPECT_FALSE(same_bits(held.tensor(), whole.acquire(DType::kF32, stream)));
    whole.release(DType::kF32, Use::kRead, stream);
  }
  EXPECT_EQ(stream.pool()->use().live_total, before);
}

}  // namespace
}  // namespace hybrid_trainer::testing
