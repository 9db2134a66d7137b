#include "kernels/generated/weight_blocks.h"

#include <array>

#include "kernels/backend/backend.h"
#include "kernels/backend/dispatch.h"
#include "kernels/quantized/block_codes_cpu.h"

namespace hybrid_trainer::kernels {

namespace {

constexpr std::int64_t bytes_of_row(BlockFormat format, std::int64_t columns) {
  const BlockSize size = block_size(format);
  return columns / size.numbers * size.bytes;
}

/// Throws ShapeMismatch or Error if the tensors are not `rows` rows of `columns` columns.
void check_blocks(const KernelCall& call, const BlockTensors& tensors, std::int64_t rows,
                  std::int64_t columns) {
  const std::int64_t numbers = block_size(tensors.format).numbers;
  if (columns == 0 || columns % numbers != 0)
    throw_mismatch(call, "got ", columns, " columns, want a multiple of ", numbers,
                   ", the block size");
  check_shape(call, {"bytes", tensors.bytes}, {rows * bytes_of_row(tensors.format, columns)},
              DType::kU8);
}

void check_processor(const KernelCall& call) {
  if (call.device.type != DeviceType::kCpu)
    throw Error(ExitCode::kInternal,
                concat(call.kernel, ": the stream is on ", name_of(call.device),
                       ", but this kernel runs only on the CPU"));
}

constexpr std::size_t kBlock = 32, kSuperBlock = 256;

using cpu::half_at, cpu::load_bits;

unsigned low(std::byte both) { return std::to_integer<unsigned>(both) & 15; }
unsigned high(std::byte both) { return std::to_integer<unsigned>(both) >> 4; }

/// Calls f(place, code) for each 4-bit code of a block, whose first half is in the low bits.
template <class F>
void for_each_nibble(const std::byte* codes, const F& f) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    f(i, low(codes[i]));
    f(i + kBlock / 2, high(codes[i]));
  }
}

void decode_q4_0(const std::byte* from, float* to) {
  const float scale = half_at(from);
  for_each_nibble(from + 2, [&](std::size_t i, unsigned code) {
    to[i] = static_cast<float>(static_cast<int>(code) - 8) * scale;
  });
}

void decode_q4_1(const std::byte* from, float* to) {
  const float scale = half_at(from), least = half_at(from + 2);
  for_each_nibble(from + 4, [&](std::size_t i, unsigned code) {
    to[i] = static_cast<float>(code) * scale + least;
  });
}

unsigned with_fifth_bit(unsigned code, std::uint32_t bits, std::size_t i) {
  return code | (bits >> i & 1) << 4;
}

void decode_q5_0(const std::byte* from, float* to) {
  const float scale = half_at(from);
  const auto bits = load_bits<std::uint32_t>(from + 2);
  for_each_nibble(from + 6, [&](std::size_t i, unsigned code) {
    to[i] = static_cast<float>(static_cast<int>(with_fifth_bit(code, bits, i)) - 16) * scale;
  });
}

void decode_q5_1(const std::byte* from, float* to) {
  const float scale = half_at(from), least = half_at(from + 2);
  const auto bits = load_bits<std::uint32_t>(from + 4);
  for_each_nibble(from + 8, [&](std::size_t i, unsigned code) {
    to[i] = static_cast<float>(with_fifth_bit(code, bits, i)) * scale + least;
  });
}

void decode_q8_0(const std::byte* from, float* to) {
  const float scale = half_at(from);
  for (std::size_t i = 0; i < kBlock; ++i)
    to[i] = static_cast<float>(load_bits<std::int8_t>(from + 2 + i)) * scale;
}

struct ScaleAndMin {
  float scale, least;
};

/// Returns scale and minimum of part `j` of a superblock's eight, six bits each in twelve bytes.
ScaleAndMin part_of(const std::byte* from, std::size_t j) {
  const auto packed = [&](std::size_t i) { return std::to_integer<unsigned>(from[4 + i]); };
  const unsigned scale = j < 4 ? packed(j) & 63 : (packed(j + 4) & 15) | (packed(j - 4) >> 6) << 4;
  const unsigned least = j < 4 ? packed(j + 4) & 63 : packed(j + 4) >> 4 | (packed(j) >> 6) << 4;
  return {half_at(from) * static_cast<float>(scale), half_at(from + 2) * static_cast<float>(least)};
}

/// Decodes a superblock of Q4_K or Q5_K. `bits` points to the fifth bits of the codes, or is null.
void decode_k(const std::byte* from, const std::byte* bits, const std::byte* codes, float* to) {
  for (std::size_t j = 0; j < kSuperBlock / kBlock; ++j) {
    const ScaleAndMin part = part_of(from, j);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::byte both = codes[j / 2 * kBlock + i];
      unsigned code = j % 2 == 0 ? low(both) : high(both);
      if (bits != nullptr) code |= (std::to_integer<unsigned>(bits[i]) >> j & 1) << 4;
      to[j * kBlock + i] = part.scale * static_cast<float>(code) - part.least;
    }
  }
}

void decode_q4_k(const std::byte* from, float* to) { decode_k(from, nullptr, from + 16, to); }
void decode_q5_k(const std::byte* from, float* to) { decode_k(from, from + 16, from + 48, to); }

void decode_q6_k(const std::byte* from, float* to) {
  const std::byte *lower = from, *upper = from + 128, *scales = from + 192;
  const float scale = half_at(from + 208);
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / kBlock, place = i % kBlock;
    const std::byte both = lower[half * 64 + quarter % 2 * kBlock + place];
    const unsigned four = quarter < 2 ? low(both) : high(both);
    const unsigned two = std::to_integer<unsigned>(upper[half * kBlock + place]) >> 2 * quarter & 3;
    const float own = scale * static_cast<float>(load_bits<std::int8_t>(scales + i / 16));
    to[i] = own * static_cast<float>(static_cast<int>(four | two << 4) - 32);
  }
}

void decode_mxfp4(const std::byte* from, float* to) {
  constexpr std::array<float, 16> kHalves{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float half = micro_scale(std::to_integer<std::uint8_t>(from[0]));
  for_each_nibble(from + 1, [&](std::size_t i, unsigned code) { to[i] = kHalves[code] * half; });
}

using Decode = void (*)(const std::byte* from, float* to);

constexpr Decode kDecoders[kBlockFormats] = {decode_q8_0, decode_q4_0, decode_q4_1,
                                             decode_q5_0, decode_q5_1, decode_q4_k,
                                             decode_q5_k, decode_q6_k, decode_mxfp4};

}  // namespace

void decode_blocks(BlockFormat format, const std::byte* from, std::span<float> values) {
  const BlockSize size = block_size(format);
  const Decode decode = kDecoders[static_cast<int>(format)];
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(size.numbers)) {
    decode(from, values.data() + i);
    from += size.bytes;
  }
}

BlockTensors BlockTensors::empty(std::int64_t rows, std::int64_t columns, BlockFormat format,
                                 const Stream& stream) {
  require(columns % block_size(format).numbers == 0,
          "a row of blocks: want a multiple of the block size");
  return {Tensor::empty({rows * bytes_of_row(format, columns)}, DType::kU8, MemoryKind::kParameters,
                        stream),
          format};
}

void dequantize_blocks(const Tensor& values, const BlockTensors& from, const Stream& stream) {
  const KernelCall call{"dequantize_blocks", stream, Work::kElementwise};
  check_real(call, {"values", values}, 2);
  check_blocks(call, from, values.size(0), values.size(1));
  dispatch<cpu::dequantize_blocks, cuda::dequantize_blocks>(call, values, from);
}

void gather_block_rows(const Tensor& y, const Tensor& indices, const BlockTensors& from,
                       const Stream& stream) {
  const KernelCall call{"gather_block_rows", stream, Work::kElementwise};
  check_real(call, {"y", y}, 2);
  check_shape(call, {"indices", indices}, {y.size(0)}, DType::kI32);
  const std::int64_t row = bytes_of_row(from.format, y.size(1));
  check_blocks(call, from, row == 0 ? 0 : from.bytes.elements() / row, y.size(1));
  check_processor(call);
  count_progress();
  const KernelTimer timer(stream, call.work);
  if (!simulated(stream)) cpu::gather_block_rows(y, indices, from, stream);
}

void block_linear(const Tensor& y, const Tensor& x, std::span<const BlockRows> w,
                  const Tensor& bias, const Tensor& residual, const Stream& stream) {
  const KernelCall call{"block_linear", stream, Work::kProduct};
  check_real(call, {"x", x}, 2);
  std::int64_t outputs = 0;
  for (const BlockRows& part : w) {
    check_blocks(call, part.tensors, part.count, x.size(1));
    outputs += part.count;
  }
  check_shape(call, {"y", y}, {x.size(0), outputs}, x.dtype());
  check_optional_shape(call, {"bias", bias}, {outputs}, DType::kF32);
  check_optional_shape(call, {"residual", residual}, y.shape(), x.dtype());
  check_processor(call);
  count_progress();
  const KernelTimer timer(stream, call.work);
  cpu::block_linear(y, x, w, bias, residual, stream);
}

}  // namespace hybrid_trainer::kernels
