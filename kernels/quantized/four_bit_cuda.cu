// Kernels for blocks of 4-bit numbers; see kernels/quantized/quantization.h.

#include <algorithm>

#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/quantized/four_bit_levels.h"
#include "kernels/quantized/quantization.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

__device__ const std::array<float, 16> kDeviceNormals = kFourBitValues;
__device__ const std::array<float, 16> kDeviceFloats = kFourBitFloats;
__device__ const std::array<float, 256> kDeviceLevels = make_four_bit_levels();

struct FourBitBlocks {
  const std::uint8_t *codes, *levels;  // levels: null if the scales are the magnitudes
  const float* scales;
  float offset;
  FourBitType type;

  /// Returns the values of the codes, to be multiplied by the block's magnitude.
  __device__ const float* values() const {
    return type == FourBitType::kNormal ? kDeviceNormals.data() : kDeviceFloats.data();
  }
  __device__ float magnitude(std::int64_t block) const {
    if (levels == nullptr) return scales[block];
    const float level = kDeviceLevels.data()[levels[block]];
    return __fadd_rn(__fmul_rn(level, scales[block / kFourBitLevelBlock]), offset);
  }
};

FourBitBlocks blocks_of(const FourBitTensors& from) {
  return {from.codes.data<std::uint8_t>(), optional_data<std::uint8_t>(from.levels),
          from.scales.data<float>(), from.offset, from.type};
}

__device__ const std::array<float, 15> kMiddles = kFourBitMiddles;

constexpr int kCodes = 8;  // codes per thread, read together

template <class T>
struct DequantizeFourBit {
  T* values;
  FourBitBlocks from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float size = from.magnitude(i / kFourBitBlock);
    const float* const of_codes = from.values();
    using Bytes = Pack<std::uint8_t, (N + 1) / 2>;
    const Bytes bytes = *reinterpret_cast<const Bytes*>(from.codes + i / 2);
    float pack[N];
    for (int k = 0; k < N; ++k)
      pack[k] = of_codes[bytes.values[k / 2] >> ((i + k) % 2 == 0 ? 4 : 0) & 15] * size;
    store_pack(values + i, pack);
  }
};

struct QuantizeFourBit {
  std::uint8_t* codes;
  float* scales;
  const float* x;
  std::int64_t count;
  /// Returns the largest magnitude, 0 if this magnitude is subnormal, or NaN if a value is infinite
  /// or NaN.
  __device__ float largest(std::int64_t first, std::int64_t last) const {
    unsigned int largest = 0;  // bits; a NaN's exceed every number's
    for (std::int64_t i = first; i < last; ++i) {
      const unsigned int bits = std::bit_cast<unsigned int>(x[i]) & 0x7FFFFFFFu;
      largest = bits > largest ? bits : largest;
    }
    if (largest >= 0x7F800000u) return std::bit_cast<float>(0x7FC00000u);
    return largest < 0x00800000u ? 0.0f : std::bit_cast<float>(largest);
  }
  __device__ int code(std::int64_t i, float scale) const {
    if (!(scale > 0) || i >= count) return kFourBitZero;
    int place = 0;
    for (int k = 0; k < 15; ++k) place += x[i] > kMiddles.data()[k] * scale ? 1 : 0;
    return place;
  }
  template <int N>
  __device__ void at(std::int64_t block) const {
    const std::int64_t first = block * kFourBitBlock;
    const std::int64_t last = first + kFourBitBlock < count ? first + kFourBitBlock : count;
    const float scale = scales[block] = largest(first, last);
    for (std::int64_t i = first; i < last; i += 2)
      codes[i / 2] = static_cast<std::uint8_t>(code(i, scale) << 4 | code(i + 1, scale));
  }
};

}  // namespace

void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream& stream) {
  const QuantizeFourBit body{to.codes.data<std::uint8_t>(), to.scales.data<float>(),
                             values.data<float>(), values.elements()};
  for_packs<1>(stream, "quantize_four_bit", to.scales.elements(), body);
}

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  visit_real(values.dtype(), [&]<class T>(T) {
    const DequantizeFourBit<T> body{values.data<T>(), blocks_of(from)};
    for_packs<kCodes>(stream, "dequantize_four_bit", values.elements(), body, values.raw(),
                      from.codes.raw());
  });
}

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kOutputs = 4;      // rows of w per block, for which x is read once
constexpr int kCodesAtOnce = 8;  // 4 bytes per operand, read together by a thread
constexpr int kMaxRows = 8;      // maximum rows of x

template <class T>
struct FourBitProduct {
  T* y;  // starts at the column of w's first row, like bias and residual
  const T* x;
  FourBitBlocks w;
  const float* bias;  // may be null, like the residual
  const T* residual;
  std::int64_t rows, inputs, outputs;
  std::int64_t columns;  // columns of y
};

/// Values of kOutputs rows of w from `first` on, at inputs from i on. Rows past the last repeat it.
struct FourBitWeights {
  float values[kOutputs][kCodesAtOnce];
  float magnitudes[kOutputs];
  template <class T>
  __device__ FourBitWeights(const FourBitProduct<T>& of, const float* table, std::int64_t first,
                            std::int64_t i) {
    std::uint32_t words[kOutputs];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const std::int64_t row = first + o < of.outputs ? first + o : of.outputs - 1;
      const std::int64_t at = row * of.inputs + i;
      words[o] = *reinterpret_cast<const std::uint32_t*>(of.w.codes + at / 2);
      magnitudes[o] = of.w.magnitude(at / kFourBitBlock);
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int k = 0; k < kCodesAtOnce; ++k)
        values[o][k] = table[words[o] >> (k / 2 * 8 + (k % 2 == 0 ? 4 : 0)) & 15];
    }
  }
};

/// Adds a thread's products to sum[n][o], which is for row n of x and output o.
template <int kRows, class T>
__device__ void add_products(float (&sum)[kRows][kOutputs], const FourBitProduct<T>& of,
                             const FourBitWeights& weights, std::int64_t i) {
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    float x[kCodesAtOnce] = {};
    if (n < of.rows) load_pack(x, of.x + n * of.inputs + i);
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      float dot = 0;
#pragma unroll
      for (int k = 0; k < kCodesAtOnce; ++k) dot += weights.values[o][k] * x[k];
      sum[n][o] += dot * weights.magnitudes[o];
    }
  }
}

/// One block for kOutputs rows of w, whose threads share the inputs and a table of values.
template <int kRows, class T>
__global__ void __launch_bounds__(kThreads) four_bit_linear_kernel(FourBitProduct<T> of) {
  __shared__ float table[16];
  __shared__ float of_warps[kWarps][kRows * kOutputs];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 16) table[thread] = of.w.values()[thread];
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kOutputs;
  float sum[kRows][kOutputs] = {};
  for (std::int64_t i = thread * kCodesAtOnce; i < of.inputs; i += kThreads * kCodesAtOnce)
    add_products(sum, of, FourBitWeights(of, table, first, i), i);
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float of_warp = reduce_warp(sum[n][o], Sum{});
      if (thread % kWarp == 0) of_warps[thread / kWarp][n * kOutputs + o] = of_warp;
    }
  }
  __syncthreads();
  const std::int64_t n = thread / kOutputs, o = first + thread % kOutputs;
  if (n >= kRows || n >= of.rows || o >= of.outputs) return;
  float total = 0;
  for (const auto& sums : of_warps) total += sums[thread];
  if (of.bias != nullptr) total += of.bias[o];
  if (of.residual != nullptr) total += load(of.residual + n * of.columns + o);
  store(of.y + n * of.columns + o, total);
}

template <class T>
void start(const FourBitProduct<T>& of, const Stream& stream) {
  const auto with = [&](auto* kernel) {
    const auto blocks = static_cast<unsigned int>((of.outputs + kOutputs - 1) / kOutputs);
    launch(stream, "four_bit_linear", kernel, Grid{.x = blocks, .threads = kThreads}, of);
  };
  if (of.rows == 1) return with(four_bit_linear_kernel<1, T>);
  if (of.rows == 2) return with(four_bit_linear_kernel<2, T>);
  if (of.rows <= 4) return with(four_bit_linear_kernel<4, T>);
  with(four_bit_linear_kernel<kMaxRows, T>);
}

}  // namespace

void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream) {
  require(packs_aligned(x.raw(), w.tensors.codes.raw()),
          "four_bit_linear: x and the codes must be aligned to 16 bytes");
  const std::int64_t columns = y.size(1), inputs = x.size(1);
  visit_real(y.dtype(), [&]<class T>(T) {
    for (std::int64_t row = 0; row < x.size(0); row += kMaxRows) {
      const std::int64_t at = row * columns + w.first;
      start(FourBitProduct<T>{.y = y.data<T>() + at,
                              .x = x.data<T>() + row * inputs,
                              .w = blocks_of(w.tensors),
                              .bias = bias ? bias.data<float>() + w.first : nullptr,
                              .residual = residual ? residual.data<T>() + at : nullptr,
                              .rows = std::min<std::int64_t>(kMaxRows, x.size(0) - row),
                              .inputs = inputs,
                              .outputs = w.count,
                              .columns = columns},
            stream);
    }
  });
}

}  // namespace hybrid_trainer::kernels::cuda
