#include "kernels/quantized/quantization.h"

#include <algorithm>
#include <limits>

#include "kernels/quantized/quantization_table.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr QuantizationMap kMaps[] = {QuantizationMap::kSigned, QuantizationMap::kUnsigned};

struct Quantized {
  Quantized(const Tensor& x, QuantizationMap map, const Stream& stream)
      : codes(Tensor::empty(x.shape(), DType::kU8, MemoryKind::kOptimizerState, stream)),
        scales(Tensor::empty({quantization_blocks(x.elements())}, DType::kF32,
                             MemoryKind::kOptimizerState, stream)),
        back(Tensor::empty_like(x, MemoryKind::kWorkspace, stream)) {
    quantize(codes, scales, x, map, stream);
    dequantize(back, codes, scales, map, stream);
  }
  float at(std::int64_t i) const { return back.data<float>()[i]; }
  Tensor codes, scales, back;
};

Tensor row_of(const std::vector<float>& values, const Stream& stream) {
  const Tensor x = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::kF32,
                                 MemoryKind::kActivations, stream);
  std::copy(values.begin(), values.end(), x.data<float>());
  return x;
}

/// Normal numbers of many magnitudes, 1e-9 to 10; nonnegative for the unsigned map.
Tensor mixed_numbers(std::int64_t n, QuantizationMap map, const Stream& stream) {
  const Tensor x = random_tensor({n}, DType::kF32, 7, stream);
  float* const data = x.data<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    data[i] *= std::pow(10.0f, -static_cast<float>(i * 7 % 10));
    if (map == QuantizationMap::kUnsigned) data[i] = std::abs(data[i]);
  }
  return x;
}

/// Half of the gap around y, in [0, 1]: 0.45 · 10^-decade divided by the decade's intervals.
double largest_error(double y, QuantizationMap map) {
  double error = map == QuantizationMap::kSigned ? 0.45 / 64 : 0.45 / 128;
  for (int decade = 0; decade < 6 && y < std::pow(10, -decade - 1); ++decade) error /= 5;
  return 1.0001 * error;
}

TEST(Quantization, RoundTripErrorStaysWithinMapSpacing) {
  const Stream stream = cpu_stream();
  for (const QuantizationMap map : kMaps) {
    const Tensor x = mixed_numbers(20011, map, stream);
    const Quantized quantized(x, map, stream);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const double scale = quantized.scales.data<float>()[i / kQuantizationBlock];
      const double y = x.data<float>()[i] / scale, back = quantized.at(i) / scale;
      const double least = 4e-7;  // half of the first value or the complete value
      ASSERT_LE(std::abs(back - y), std::max(largest_error(std::abs(y), map), least))
          << i << " " << y;
    }
  }
}

TEST(Quantization, ChoosesNearestCodeAndTiesRoundDown) {
  const Stream stream = cpu_stream();
  for (const QuantizationMap map : kMaps) {
    const QuantizationTable table = make_quantization_table(map);
    for (const float scale : {1.0f, 3.1e-5f, 7e12f}) {
      for (int place = 1; place < kCodes; ++place) {
        const float bound = table.bounds[place] * scale;
        const float infinity = std::numeric_limits<float>::infinity();
        const Tensor x = row_of(
            {std::nextafter(bound, -infinity), bound, std::nextafter(bound, infinity), scale},
            stream);
        const Quantized quantized(x, map, stream);
        const std::uint8_t* const codes = quantized.codes.data<std::uint8_t>();
        EXPECT_EQ(codes[0], code_of(map, place - 1)) << place;
        EXPECT_EQ(codes[1], code_of(map, place - 1)) << place;
        EXPECT_EQ(codes[2], code_of(map, place)) << place;
        EXPECT_EQ(codes[3], code_of(map, kCodes - 1));
        EXPECT_EQ(quantized.at(3), scale);
      }
    }
  }
}

/// Complete blocks, whose codes are computed instead of looked up.
TEST(Quantization, WholeBlocksMatchLookupTable) {
  const Stream stream = cpu_stream();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const QuantizationMap map : kMaps) {
    const QuantizationTable table = make_quantization_table(map);
    for (const float scale : {1.0f, 3.1e-5f, 7e12f}) {
      std::vector<float> values, below, above;
      for (int place = 1; place < kCodes; ++place) {
        const float bound = table.bounds[place] * scale;
        values.push_back(bound);
        below.push_back(std::nextafter(bound, -infinity));
        above.push_back(std::nextafter(bound, infinity));
      }
      for (std::vector<float>* each : {&values, &below, &above}) each->push_back(scale);
      const Quantized at(row_of(values, stream), map, stream),
          under(row_of(below, stream), map, stream), over(row_of(above, stream), map, stream);
      for (int place = 1; place < kCodes; ++place) {
        EXPECT_EQ(at.codes.data<std::uint8_t>()[place - 1], code_of(map, place - 1)) << place;
        EXPECT_EQ(under.codes.data<std::uint8_t>()[place - 1], code_of(map, place - 1)) << place;
        EXPECT_EQ(over.codes.data<std::uint8_t>()[place - 1], code_of(map, place)) << place;
      }
      for (const Quantized* each : {&at, &under, &over}) {
        for (int i = 0; i < kCodes; ++i) {
          EXPECT_EQ(each->at(i), table.values[each->codes.data<std::uint8_t>()[i]] * scale) << i;
        }
      }
    }
  }
}

TEST(Quantization, MapsAscendAndFollowDynamicTree) {
  for (const QuantizationMap map : kMaps) {
    const QuantizationTable table = make_quantization_table(map);
    for (int place = 1; place < kCodes; ++place) {
      EXPECT_LT(table.values[code_of(map, place - 1)], table.values[code_of(map, place)]);
    }
    EXPECT_EQ(table.values[0], 0);
    EXPECT_EQ(table.values[code_of(map, kCodes - 1)], 1);
  }
  const QuantizationTable with_sign = make_quantization_table(QuantizationMap::kSigned);
  // The paper's example: three leading zeros, a one, and the bits of the fraction.
  EXPECT_NEAR(with_sign.values[0b0001'010], 1e-3 * (0.1 + 0.9 * 2.5 / 8), 1e-9);
  for (int code = 1; code < 128; ++code) {
    EXPECT_EQ(with_sign.values[code], -with_sign.values[kCodes - code]);
  }
}

TEST(Quantization, PreservesOrderWithinBlock) {
  const Stream stream = cpu_stream();
  for (const QuantizationMap map : kMaps) {
    const Tensor x = mixed_numbers(kQuantizationBlock, map, stream);
    std::sort(x.data<float>(), x.data<float>() + x.elements());
    const Quantized quantized(x, map, stream);
    for (std::int64_t i = 1; i < x.elements(); ++i) EXPECT_LE(quantized.at(i - 1), quantized.at(i));
  }
}

TEST(Quantization, ZeroIsCodeZeroAndSecondMomentsStayPositive) {
  const Stream stream = cpu_stream();
  for (const QuantizationMap map : kMaps) {
    const Tensor x = Tensor::zeros({513}, DType::kF32, MemoryKind::kActivations, stream);
    x.data<float>()[3] = -0.0f;
    x.data<float>()[300] = 2;
    const Quantized quantized(x, map, stream);
    for (std::int64_t i = 0; i < 513; ++i) {
      EXPECT_EQ(quantized.codes.data<std::uint8_t>()[i] == 0, i != 300) << i;
      EXPECT_EQ(quantized.at(i), i == 300 ? 2 : 0) << i;
    }
    EXPECT_EQ(quantized.scales.data<float>()[0], 0);
  }
  const Quantized squares(row_of({1, 1e-30f, -1}, stream), QuantizationMap::kUnsigned, stream);
  EXPECT_GT(squares.at(1), 0);
  EXPECT_EQ(squares.at(2), 0);
  const Quantized means(row_of({1, 1e-30f, -1}, stream), QuantizationMap::kSigned, stream);
  EXPECT_EQ(means.at(1), 0);
  EXPECT_NEAR(means.at(2), -1, 0.0071);
}

TEST(Quantization, NonFiniteValueTurnsOnlyItsBlockNaN) {
  const Stream stream = cpu_stream();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const QuantizationMap map : kMaps) {
      const Tensor x = mixed_numbers(700, map, stream);
      x.data<float>()[400] = bad;
      const Quantized quantized(x, map, stream);
      for (std::int64_t i = 0; i < 700; ++i) {
        EXPECT_EQ(std::isnan(quantized.at(i)), i / kQuantizationBlock == 1) << i;
      }
    }
  }
}

TEST(Quantization, SupportsExtremeMagnitudes) {
  const Stream stream = cpu_stream();
  for (const float size : {std::numeric_limits<float>::max(), std::numeric_limits<float>::min()}) {
    const Quantized quantized(row_of({size, -size / 2, 0}, stream), QuantizationMap::kSigned,
                              stream);
    EXPECT_EQ(quantized.at(0), size);
    EXPECT_NEAR(quantized.at(1) / size, -0.5, 0.0071);
    EXPECT_EQ(quantized.at(2), 0);
  }
  const float tiny = std::numeric_limits<float>::denorm_min();
  const Quantized denormal(row_of({tiny}, stream), QuantizationMap::kUnsigned, stream);
  EXPECT_EQ(denormal.at(0), 0);
}

TEST(Quantization, SupportsAnySize) {
  const Stream stream = cpu_stream();
  const Tensor all = mixed_numbers(1025, QuantizationMap::kSigned, stream);
  const Quantized whole(all, QuantizationMap::kSigned, stream);
  for (const std::int64_t n : {0, 1, 255, 256, 257, 1024}) {
    const Quantized part(all.rows(0, n), QuantizationMap::kSigned, stream);
    const std::int64_t full = n / kQuantizationBlock * kQuantizationBlock;
    EXPECT_TRUE(full == 0 ||
                std::equal(part.codes.data<std::uint8_t>(), part.codes.data<std::uint8_t>() + full,
                           whole.codes.data<std::uint8_t>()));
    for (std::int64_t i = full; i < n; ++i) {
      EXPECT_NEAR(part.at(i), all.data<float>()[i], 0.0071 * 5) << n << " " << i;
    }
  }
}

TEST(Quantization, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({300}, DType::kF32, 1, stream);
  const Quantized good(x, QuantizationMap::kSigned, stream);
  const auto run = [&](const Tensor& codes, const Tensor& scales) {
    quantize(codes, scales, x, QuantizationMap::kSigned, stream);
  };
  EXPECT_THROW(run(good.codes.rows(0, 299), good.scales), ShapeMismatch);
  EXPECT_THROW(run(good.codes, good.scales.rows(0, 1)), ShapeMismatch);
  EXPECT_THROW(run(x, good.scales), Error);
  EXPECT_THROW(dequantize(good.codes, good.codes, good.scales, QuantizationMap::kSigned, stream),
               Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
