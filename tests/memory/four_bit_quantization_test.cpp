#include "memory/quantization.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/memory_pool.h"
#include "src/files/safetensors.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

using kernels::FourBitType;

/// Compares with bitsandbytes (tests/golden/README.md).
TEST(FourBit, Nf4MatchesBitsandbytes) {
  const Stream stream = test_stream();
  const SafetensorsFile golden(concat(HT_TEST_DATA_DIR, "/four_bit.safetensors"));
  for (const std::int64_t count : {63, 64, 65, 129, 16'650}) {
    const auto load = [&](const char* name) {
      return golden.load(concat(count, '.', name), MemoryKind::kData, stream);
    };
    const Tensor values = Tensor::empty({count}, DType::kF32, MemoryKind::kData, stream);
    golden.read(concat(count, ".values"), values);
    kernels::FourBitTensors ours = quantize_four_bit(values, FourBitType::kNormal, stream);
    EXPECT_TRUE(same_bits(ours.codes, load("codes"))) << count;
    EXPECT_TRUE(same_bits(ours.levels, load("levels"))) << count;
    const float offset = load("offset").data<float>()[0];
    EXPECT_NEAR(ours.offset, offset, 1e-7f * offset) << count << ": its sum has a different order";
    EXPECT_LT(relative_error(values_of(ours.scales), values_of(load("scales"))), 1e-6) << count;
    const Tensor again = Tensor::empty({count}, DType::kF32, MemoryKind::kData, stream);
    kernels::dequantize_four_bit(again, {load("codes"), load("levels"), load("scales"), offset},
                                 stream);
    EXPECT_TRUE(same_bits(again, load("again").view({count}))) << count;
  }
}

TEST(FourBit, Fp4MatchesBitsandbytes) {
  const Stream stream = test_stream();
  const SafetensorsFile golden(concat(HT_TEST_DATA_DIR, "/four_bit.safetensors"));
  for (const std::int64_t count : {63, 64, 65, 129, 16'650}) {
    const auto load = [&](const char* name) {
      return golden.load(concat(count, '.', name), MemoryKind::kData, stream);
    };
    const Tensor values = Tensor::empty({count}, DType::kF32, MemoryKind::kData, stream);
    golden.read(concat(count, ".values"), values);
    const auto ours = quantize_four_bit(values, FourBitType::kFloat, stream);
    EXPECT_TRUE(same_bits(ours.codes, load("fp4.codes"))) << count;
    EXPECT_TRUE(same_bits(ours.levels, load("levels"))) << count << ": the scales are as in NF4";
    const Tensor again = Tensor::empty({count}, DType::kF32, MemoryKind::kData, stream);
    const float offset = load("offset").data<float>()[0];
    kernels::dequantize_four_bit(
        again, {ours.codes, load("levels"), load("scales"), offset, FourBitType::kFloat}, stream);
    EXPECT_TRUE(same_bits(again, load("fp4.again").view({count}))) << count;
    kernels::dequantize_four_bit(
        again, {ours.codes, {}, load("magnitudes"), 0, FourBitType::kFloat}, stream);
    EXPECT_TRUE(same_bits(again, load("fp4.plain").view({count}))) << count;
  }
}

/// The memory planner allocates the same sizes on simulated memory, which has no contents.
TEST(FourBit, SimulatedQuantizationOnlyAllocates) {
  const Stream real = test_stream(), nowhere(MemoryPool::create("plan", {}, simulated_memory({})));
  for (const auto& [from, home] : {std::pair(&real, &nowhere), std::pair(&nowhere, &real)}) {
    const Tensor values = Tensor::empty({1000}, DType::kF32, MemoryKind::kData, *from);
    const auto four = quantize_four_bit(values, FourBitType::kNormal, *home);
    EXPECT_EQ(four.codes.bytes(), 500u);
    EXPECT_EQ(four.codes.pool(), home->pool());
    const auto eight = quantize_eight_bit(values.view({10, 100}), *home);
    EXPECT_EQ(eight.codes.bytes(), 1000u);
    EXPECT_EQ(eight.codes.pool(), home->pool());
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
