#include "kernels/quantized/weight_blocks.h"

#include <algorithm>
#include <cstring>

#include "src/core/machine.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr BlockFormat kFormats[] = {BlockFormat::kQ8_0, BlockFormat::kQ4_0, BlockFormat::kQ4_1,
                                    BlockFormat::kQ5_0, BlockFormat::kQ5_1, BlockFormat::kQ4_K,
                                    BlockFormat::kQ5_K, BlockFormat::kQ6_K, BlockFormat::kMXFP4};

bool has_a_least(BlockFormat format) {
  return format == BlockFormat::kQ4_1 || format == BlockFormat::kQ5_1 ||
         format == BlockFormat::kQ4_K || format == BlockFormat::kQ5_K;
}

double as_half(double value) { return static_cast<double>(static_cast<_Float16>(value)); }

void put_half(std::uint8_t* to, double value) {
  const auto half = static_cast<_Float16>(value);
  std::memcpy(to, &half, sizeof half);
}

/// Random codes with random scales and random block minima.
BlockTensors random_blocks(std::int64_t rows, std::int64_t columns, BlockFormat format,
                           const Stream& stream) {
  const BlockTensors blocks = BlockTensors::empty(rows, columns, format, stream);
  const auto seed = static_cast<std::uint64_t>(format);
  auto* const bytes = blocks.bytes.data<std::uint8_t>();
  const std::int64_t count = blocks.bytes.elements(), size = block_size(format).bytes;
  for (std::int64_t i = 0; i < count; ++i)
    bytes[i] =
        static_cast<std::uint8_t>(random_below({seed, 3, 0}, static_cast<std::uint64_t>(i), 256));
  for (std::int64_t at = 0, n = 0; at < count; at += size, n += 2) {
    const auto random = [&](std::int64_t i) {
      return static_cast<double>(random_normal({seed, 4, 0}, static_cast<std::uint64_t>(n + i)));
    };
    if (format == BlockFormat::kMXFP4) {
      bytes[at] = static_cast<std::uint8_t>(
          120 + random_below({seed, 5, 0}, static_cast<std::uint64_t>(n), 10));
      continue;
    }
    put_half(bytes + at + (format == BlockFormat::kQ6_K ? 208 : 0), 0.01 * random(0));
    if (has_a_least(format)) put_half(bytes + at + 2, 0.1 * random(1));
  }
  return blocks;
}

/// A row of x, quantized as for the product with a block of w.
struct Rounded {
  Values numbers;  // scale times code
  Values sums;     // of each block of 32 numbers; multiplied by the minima of w
};

Rounded rounded_in_blocks(const Values& x, BlockFormat format) {
  Rounded made{Values(x.size()), Values(x.size() / 32)};
  for (std::size_t at = 0; at < x.size(); at += 32) {
    float largest = 0;
    for (std::size_t i = at; i < at + 32; ++i)
      largest = std::max(largest, std::abs(static_cast<float>(x[i])));
    const float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0;
    double sum = 0;
    for (std::size_t i = at; i < at + 32; ++i) {
      const double code = std::nearbyint(static_cast<float>(x[i]) * inverse);
      made.numbers[i] = as_half(static_cast<double>(scale)) * code;
      sum += code;
    }
    made.sums[at / 32] = as_half(static_cast<double>(scale * static_cast<float>(sum)));
  }
  EXPECT_NE(block_size(format).numbers, 256);
  return made;
}

Rounded rounded_in_superblocks(const Values& x) {
  Rounded made{Values(x.size()), Values(x.size() / 32)};
  for (std::size_t at = 0; at < x.size(); at += 256) {
    float farthest = 0;
    for (std::size_t i = at; i < at + 256; ++i)
      if (std::abs(x[i]) > static_cast<double>(std::abs(farthest)))
        farthest = static_cast<float>(x[i]);
    const float inverse = farthest == 0 ? 0 : -127.0f / farthest;
    for (std::size_t i = at; i < at + 256; ++i) {
      const double code =
          std::min(127.0, double{std::nearbyint(static_cast<float>(x[i]) * inverse)});
      made.numbers[i] = inverse == 0 ? 0 : static_cast<double>(1.0f / inverse) * code;
      made.sums[i / 32] += made.numbers[i];
    }
  }
  return made;
}

class BlockLinear : public ::testing::TestWithParam<BlockFormat> {
 protected:
  BlockFormat format() const { return GetParam(); }
  std::int64_t numbers() const { return block_size(format()).numbers; }
  Rounded rounded(const Values& x) const {
    return numbers() == 256 ? rounded_in_superblocks(x) : rounded_in_blocks(x, format());
  }
  /// Computes the minima's terms separately, because x is rounded separately for them.
  Values product(const BlockTensors& w, std::int64_t rows, const Tensor& x) const {
    const std::int64_t columns = x.size(1);
    const Tensor decoded =
        Tensor::empty({rows, columns}, DType::kF32, MemoryKind::kWorkspace, stream_);
    dequantize_blocks(decoded, w, stream_);
    const Values weights = values_of(decoded), of_x = values_of(x);
    Values y;
    for (std::int64_t n = 0; n < x.size(0); ++n) {
      const Rounded row =
          rounded(Values(of_x.begin() + n * columns, of_x.begin() + (n + 1) * columns));
      for (std::int64_t o = 0; o < rows; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < columns; ++i) {
          const std::int64_t block = i / 32;
          const double least =
              numbers() == 32 && has_a_least(format()) ? least_of(w, o, block, columns) : 0;
          const auto at = static_cast<std::size_t>(i);
          sum += (weights[static_cast<std::size_t>(o * columns + i)] - least) * row.numbers[at];
          if (i % 32 == 0) sum += least * row.sums[static_cast<std::size_t>(block)];
        }
        y.push_back(sum);
      }
    }
    return y;
  }
  static double least_of(const BlockTensors& w, std::int64_t row, std::int64_t block,
                         std::int64_t columns) {
    const std::int64_t bytes = block_size(w.format).bytes;
    _Float16 half;
    std::memcpy(&half, w.bytes.data<std::uint8_t>() + (row * columns / 32 + block) * bytes + 2,
                sizeof half);
    return static_cast<double>(half);
  }
  const Stream stream_ = cpu_stream();
};

TEST_P(BlockLinear, MatchesReferenceWithQuantizedInputs) {
  for (const std::int64_t blocks : {1, 2, 5}) {
    for (const std::int64_t count : {1, 3, 4, 6}) {
      const BlockTensors w = random_blocks(7, blocks * numbers(), format(), stream_);
      const Tensor x = random_tensor({count, blocks * numbers()}, DType::kF32, 2, stream_);
      x.data<float>()[0] = 40;  // an outlier
      const Tensor y = random_tensor({count, 7}, DType::kF32, 4, stream_);
      block_linear(y, x, {{{7, w}}}, Tensor{}, Tensor{}, stream_);
      expect_close(y, product(w, 7, x), 2e-6 * 40,
                   concat("format ", static_cast<int>(format()), ", ", blocks, " blocks, ", count));
    }
  }
}

TEST_P(BlockLinear, RowBitsDoNotDependOnBatchOrThreads) {
  const std::int64_t columns = 3 * numbers(), outputs = 101;
  const BlockTensors w = random_blocks(outputs, columns, format(), stream_);
  const Tensor x = random_tensor({6, columns}, DType::kF32, 2, stream_);
  const Tensor y = random_tensor({6, outputs}, DType::kF32, 4, stream_),
               again = random_tensor({6, outputs}, DType::kF32, 5, stream_);
  block_linear(y, x, {{{outputs, w}}}, Tensor{}, Tensor{}, stream_);
  const int all = threads();
  set_threads(1);
  for (std::int64_t n = 0; n < 6; ++n)
    block_linear(again.rows(n, n + 1), x.rows(n, n + 1), {{{outputs, w}}}, Tensor{}, Tensor{},
                 stream_);
  set_threads(all);
  expect_same_bits(y, again);
}

TEST_P(BlockLinear, ZeroInputGivesBiasAndInfinityGivesNaN) {
  const std::int64_t columns = 2 * numbers();
  const BlockTensors w = random_blocks(3, columns, format(), stream_);
  const Tensor x = Tensor::zeros({2, columns}, DType::kF32, MemoryKind::kWorkspace, stream_);
  x.data<float>()[columns + 1] = std::numeric_limits<float>::infinity();
  const Tensor bias = tensor_of({1, 2, 3}, {3}, DType::kF32, stream_);
  const Tensor y = random_tensor({2, 3}, DType::kF32, 4, stream_);
  block_linear(y, x, {{{3, w}}}, bias, Tensor{}, stream_);
  const Values got = values_of(y);
  EXPECT_EQ(Values(got.begin(), got.begin() + 3), (Values{1, 2, 3}));
  for (std::size_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(got[i])) << got[i];
}

TEST_P(BlockLinear, GatheredRowsMatchDequantizedRows) {
  const BlockTensors w = random_blocks(5, numbers(), format(), stream_);
  const Tensor indices = tensor_of({4, 0, 4}, {3}, DType::kI32, stream_);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor all = Tensor::empty({5, numbers()}, dtype, MemoryKind::kWorkspace, stream_),
                 some = Tensor::empty({3, numbers()}, dtype, MemoryKind::kWorkspace, stream_);
    dequantize_blocks(all, w, stream_);
    gather_block_rows(some, indices, w, stream_);
    expect_same_bits(some.rows(0, 1), all.rows(4, 5));
    expect_same_bits(some.rows(1, 2), all.rows(0, 1));
    expect_same_bits(some.rows(2, 3), all.rows(4, 5));
  }
  indices.data<std::int32_t>()[1] = 5;
  const Tensor y = Tensor::empty({3, numbers()}, DType::kF32, MemoryKind::kWorkspace, stream_);
  EXPECT_THROW(gather_block_rows(y, indices, w, stream_), DataError);
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockLinear, ::testing::ValuesIn(kFormats), [](const auto& info) {
  return concat("Number", static_cast<int>(info.param));
});

class BlockLinearParts : public ::testing::Test {
 protected:
  const Stream stream_ = cpu_stream();
  const BlockTensors first_ = random_blocks(3, 256, BlockFormat::kQ6_K, stream_),
                     second_ = random_blocks(2, 256, BlockFormat::kQ4_1, stream_);
  const Tensor x_ = random_tensor({2, 256}, DType::kF32, 2, stream_);
};

TEST_F(BlockLinearParts, ConcatenateOutputsOfMixedFormats) {
  const auto alone = [&](const BlockTensors& w, std::int64_t rows) {
    const Tensor y = random_tensor({2, rows}, DType::kF32, 4, stream_);
    block_linear(y, x_, {{{rows, w}}}, Tensor{}, Tensor{}, stream_);
    return values_of(y);
  };
  const Values first = alone(first_, 3), second = alone(second_, 2);
  const Tensor bias = random_tensor({5}, DType::kF32, 3, stream_),
               residual = random_tensor({2, 5}, DType::kF32, 5, stream_);
  const Values added = values_of(bias), more = values_of(residual);
  Values wanted;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t o = 0; o < 5; ++o)
      wanted.push_back((o < 3 ? first[3 * n + o] : second[2 * n + o - 3]) + added[o] +
                       more[5 * n + o]);
  block_linear(residual, x_, {{{3, first_}, {2, second_}}}, bias, residual, stream_);
  expect_close(residual, wanted, 1e-6);
}

TEST_F(BlockLinearParts, RoundBf16OutputsOnce) {
  const Tensor x = random_tensor({2, 256}, DType::kBF16, 2, stream_),
               y = random_tensor({2, 3}, DType::kBF16, 4, stream_);
  block_linear(y, x, {{{3, first_}}}, Tensor{}, Tensor{}, stream_);
  const Tensor same = tensor_of(values_of(x), {2, 256}, DType::kF32, stream_),
               wanted = random_tensor({2, 3}, DType::kF32, 4, stream_);
  block_linear(wanted, same, {{{3, first_}}}, Tensor{}, Tensor{}, stream_);
  expect_same_bits(y, tensor_of(values_of(wanted), {2, 3}, DType::kBF16, stream_));
}

TEST_F(BlockLinearParts, RefuseMismatchedSizes) {
  const Tensor y = random_tensor({2, 4}, DType::kF32, 4, stream_),
               half = random_tensor({2, 128}, DType::kF32, 4, stream_);
  EXPECT_THROW(block_linear(y, x_, {{{3, first_}}}, Tensor{}, Tensor{}, stream_), ShapeMismatch);
  EXPECT_THROW(block_linear(y, half, {{{4, first_}}}, Tensor{}, Tensor{}, stream_), ShapeMismatch);
  EXPECT_THROW(BlockTensors::empty(1, 128, BlockFormat::kQ6_K, stream_), Error);
}

/// Results of all formats, one after another.
Values all_products(const Stream& stream) {
  Values all;
  for (const BlockFormat format : kFormats) {
    const std::int64_t columns = 5 * block_size(format).numbers;
    const BlockTensors w = random_blocks(9, columns, format, stream);
    const Tensor x = random_tensor({5, columns}, DType::kF32, 2, stream),
                 y = random_tensor({5, 9}, DType::kF32, 4, stream);
    block_linear(y, x, {{{9, w}}}, Tensor{}, Tensor{}, stream);
    const Values values = values_of(y);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Uses child processes, because the instruction set cannot be raised again.
TEST(BlockLinearDeathTest, InstructionSetDoesNotChangeBits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const InstructionSet set : {InstructionSet::kAvx2, InstructionSet::kBaseline}) {
    if (set >= instruction_set()) continue;
    const auto with_less = [=] {
      const Values wanted = all_products(cpu_stream());
      ProcessorUse use = processor_use();
      use.bfloat16 = use.tiles = false;
      use.set = set;
      limit_instruction_set(use);
      std::_Exit(wanted == all_products(cpu_stream()) ? 0 : 1);
    };
    EXPECT_EXIT(with_less(), ::testing::ExitedWithCode(0), "") << name_of(set);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
