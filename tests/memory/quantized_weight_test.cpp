#include "memory/quantized_weight.h"

#include <gtest/gtest.h>

#include <map>

#include "hybrid_trainer/core/memory_pool.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

std::unique_ptr<QuantizedWeight> in_parts(const Tensor& values, std::int64_t rows_of_first,
                                          const char* form, const Stream& home) {
  std::vector<QuantizedRows> parts;
  if (rows_of_first > 0) parts.push_back(quantize_rows(values.rows(0, rows_of_first), form, home));
  parts.push_back(quantize_rows(values.rows(rows_of_first, values.size(0)), form, home));
  return std::make_unique<QuantizedWeight>(values.shape(), std::move(parts));
}

TEST(QuantizedWeight, StaysWithinBytesPerWeight) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({512, 1024}, 1, stream);
  const std::map<const char*, double> most{{"nf4", 0.52}, {"fp4", 0.52}, {"int8", 1.01}};
  for (const auto& [form, bytes_of_one] : most) {
    const Stream home(make_device_pool());
    const auto weight = in_parts(values, 256, form, home);
    const auto bytes = static_cast<double>(home.pool()->use().live_total);
    EXPECT_LT(bytes / static_cast<double>(values.elements()), bytes_of_one) << form;
  }
}

TEST(QuantizedWeight, QuantizesPartsSeparatelyAndSharesHeldCopy) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({6, 64 / 2 + 1}, 1, stream);
  const std::map<const char*, double> worst{{"nf4", 0.12}, {"fp4", 0.16}, {"int8", 0.01}};
  for (const auto& [form, error] : worst) {
    const auto whole = in_parts(values, 0, form, stream);
    Parameter parameter("w", values.shape(), Role::kMatrix, in_parts(values, 2, form, stream));
    const std::size_t before = stream.pool()->use().live_total;
    {
      const Weight held = parameter.acquire_master(stream),
                   again = parameter.acquire_master(stream);
      EXPECT_EQ(held.tensor().raw(), again.tensor().raw());
      EXPECT_LT(relative_error(values_of(held.tensor()), values_of(values)), error) << form;
      EXPECT_EQ(same_bits(held.tensor(), whole->acquire(DType::kF32, stream)),
                std::string(form) == "int8")
          << form << ": int8 quantizes each row separately";
      whole->release(DType::kF32, Use::kRead, stream);
    }
    EXPECT_EQ(stream.pool()->use().live_total, before);
  }
}

/// Rows of Q8_0 blocks with scale 1 and codes derived from their index.
QuantizedRows rows_of_blocks(std::int64_t rows, std::int64_t columns, const Stream& home) {
  const auto blocks =
      kernels::BlockTensors::empty(rows, columns, kernels::BlockFormat::kQ8_0, home);
  auto* const bytes = blocks.bytes.data<std::uint8_t>();
  for (std::int64_t i = 0; i < blocks.bytes.elements(); ++i) {
    const std::int64_t place = i % 34;
    const auto code = static_cast<std::uint8_t>(i * 7 % 251);
    bytes[i] = place == 0 ? std::uint8_t{0} : place == 1 ? std::uint8_t{0x3C} : code;
  }
  return {rows, blocks};
}

class BlockQuantizedWeight : public ::testing::Test {
 protected:
  Tensor empty(const Shape& shape) const {
    return Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream_);
  }
  std::unique_ptr<QuantizedWeight> weight(std::vector<std::int64_t> rows) const {
    std::vector<QuantizedRows> parts;
    std::int64_t all = 0;
    for (const std::int64_t count : rows) {
      parts.push_back(rows_of_blocks(count, 64, stream_));
      all += count;
    }
    return std::make_unique<QuantizedWeight>(Shape{all, 64}, std::move(parts));
  }
  const Stream stream_ = test_stream();
};

TEST_F(BlockQuantizedWeight, MultipliesByCodesWithRoundedInputs) {
  const auto held = weight({5, 3});
  const Tensor values = held->acquire(DType::kF32, stream_);
  for (const std::int64_t count : {1, 40}) {
    const Tensor x = Tensor::zeros({count, 64}, DType::kF32, MemoryKind::kWorkspace, stream_),
                 y = empty({count, 8});
    for (std::int64_t n = 0; n < count; ++n) x.data<float>()[n * 64 + n] = 127;
    held->round_inputs(false);
    ASSERT_FALSE(held->multiply(y, x, Tensor{}, Tensor{}, stream_))
        << "inputs are rounded only on request";
    held->round_inputs(true);
    ASSERT_TRUE(held->multiply(y, x, Tensor{}, Tensor{}, stream_));
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t o = 0; o < 8; ++o)
        EXPECT_EQ(y.data<float>()[n * 8 + o], 127 * values.data<float>()[o * 64 + n]);
  }
  held->release(DType::kF32, Use::kRead, stream_);
}

TEST_F(BlockQuantizedWeight, LooksUpRowsOnlyInSinglePart) {
  const auto held = weight({8}), cut = weight({5, 3});
  const Tensor values = held->acquire(DType::kF32, stream_), y = empty({2, 64});
  const Tensor indices = Tensor::empty({2}, DType::kI32, MemoryKind::kData, stream_);
  indices.data<std::int32_t>()[0] = 7;
  indices.data<std::int32_t>()[1] = 2;
  EXPECT_FALSE(cut->look_up(y, indices, stream_));
  ASSERT_TRUE(held->look_up(y, indices, stream_));
  EXPECT_TRUE(same_bits(y.rows(0, 1), values.rows(7, 8)));
  EXPECT_TRUE(same_bits(y.rows(1, 2), values.rows(2, 3)));
  held->release(DType::kF32, Use::kRead, stream_);
}

}  // namespace
}  // namespace hybrid_trainer::testing
