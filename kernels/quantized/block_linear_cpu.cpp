#include <list>

#include "kernels/backend/backend.h"
#include "kernels/backend/half_float.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/quantized/block_codes_cpu.h"
#include "kernels/quantized/block_rows_cpu.h"
#include "kernels/quantized/weight_blocks.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kBlock = 32, kSuperBlock = 256;
constexpr float kMaxCode = 127;
constexpr float kMinNumber = 1e-36f;  // a block of smaller values becomes zeros

/// Rounds to f16. Returns values beyond f16's range unchanged.
float as_half(float value) {
  const float half = std::copysign(nearest_half(value), value);
  return std::isinf(half) ? value : half;
}

/// Rounds to the nearest integer, ties to even. Requires a magnitude below 2^22.
float to_nearest(float value) {
  constexpr float kShift = 3 << 22;
  return (value + kShift) - kShift;
}

/// Returns the largest magnitude, or NaN if a number is NaN or infinite.
float largest_of(const float* x, std::int64_t count) {
  constexpr std::int32_t kInfinity = 0x7F800000;
  std::int32_t largest = 0;  // bits; a NaN's exceed every number's
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF);
  return largest >= kInfinity ? std::numeric_limits<float>::quiet_NaN()
                              : std::bit_cast<float>(largest);
}

/// Writes the codes of the numbers times `inverse`. Returns the sum of the codes.
std::int32_t round_codes(std::int8_t* codes, const float* x, std::int64_t count, float inverse) {
  std::int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::int32_t>(std::min(to_nearest(x[i] * inverse), kMaxCode));
    codes[i] = static_cast<std::int8_t>(code);
    sum += code;
  }
  return sum;
}

struct RowLayout {
  explicit RowLayout(BlockFormat format, std::int64_t inputs)
      : chunks((inputs + kChunk - 1) / kChunk),
        offsets(chunks * kChunk),
        scales(offsets + (offset_of(format) == 0 ? 0 : chunks * kChunk)),
        sums(scales + chunks * 16),
        end(sums + (is_super(format) ? chunks * 4 : 0)) {}
  std::int64_t chunks, offsets, scales, sums, end;
};

struct RowWriter {
  BlockFormat format;
  std::int8_t* codes;
  std::int32_t* offsets;
  float* scales;
  std::int16_t* sums;

  /// Rounds 64 numbers, which are a pair of blocks.
  void round_pair(const float* x, std::int64_t pair) const {
    std::int8_t own[kChunk];
    for (int b = 0; b < 2; ++b) {
      const float largest = largest_of(x + b * kBlock, kBlock);
      const float scale = largest / kMaxCode;
      std::fill_n(own + b * kBlock, kBlock, std::int8_t{0});
      std::int32_t sum = 0;
      if (largest >= kMinNumber)
        sum = round_codes(own + b * kBlock, x + b * kBlock, kBlock, kMaxCode / largest);
      scales[4 * pair + 2 * b] = as_half(scale);
      scales[4 * pair + 2 * b + 1] = has_min(format) ? as_half(scale * static_cast<float>(sum)) : 0;
    }
    std::int8_t* const to = codes + pair * kChunk;
    if (!has_halves(format)) {
      std::copy_n(own, kChunk, to);
      return;
    }
    for (int quarter = 0; quarter < 4; ++quarter)  // swaps the middle two
      std::copy_n(own + 16 * quarter, 16, to + 16 * (quarter % 2 * 2 + quarter / 2));
  }
  void round_super(const float* x, std::int64_t block) const {
    std::int8_t* const to = codes + block * kSuperBlock;
    const float largest = largest_of(x, kSuperBlock);
    if (!(largest >= kMinNumber)) {
      scales[block] = largest < kMinNumber ? 0 : largest;  // NaN
      std::fill_n(to, kSuperBlock, std::int8_t{0});
      std::fill_n(sums + block * 8, 8, std::int16_t{0});
      return;
    }
    const float* const farthest =
        std::find_if(x, x + kSuperBlock, [=](float value) { return std::abs(value) == largest; });
    const float inverse = -kMaxCode / *farthest;
    for (int part = 0; part < 8; ++part)
      sums[8 * block + part] = static_cast<std::int16_t>(
          round_codes(to + kBlock * part, x + kBlock * part, kBlock, inverse));
    scales[block] = 1 / inverse;
  }
  /// Writes the terms that subtract the offset of the codes.
  void write_offsets(std::int64_t lanes) const {
    const int offset = offset_of(format);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::int8_t* const of = codes + 4 * lane;
      offsets[lane] = -offset * (of[0] + of[1] + of[2] + of[3]);
    }
  }
};

}  // namespace

RoundedInputs::RoundedInputs(BlockFormat format, const Tensor& x, const Stream& stream)
    : format_(format) {
  const std::int64_t rows = x.size(0), inputs = x.size(1);
  const RowLayout layout(format, inputs);
  const std::int64_t numbers = layout.chunks * kChunk;
  memory_ = empty_workspace(rows * (layout.end + numbers * 4), DType::kU8, stream);
  if (simulated(stream)) return;
  std::uint8_t* const memory = memory_.data<std::uint8_t>();
  const auto writer_of = [=](std::int64_t row) {
    std::uint8_t* const at = memory + row * layout.end;
    return RowWriter{format, reinterpret_cast<std::int8_t*>(at),
                     reinterpret_cast<std::int32_t*>(at + layout.offsets),
                     reinterpret_cast<float*>(at + layout.scales),
                     reinterpret_cast<std::int16_t*>(at + layout.sums)};
  };
  auto* const plain = reinterpret_cast<float*>(memory + rows * layout.end);
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const from = x.data<T>();
    for_each_row(rows, inputs, [=](std::int64_t row) {
      const RowWriter writer = writer_of(row);
      float* const own = plain + row * numbers;
      for (std::int64_t i = 0; i < inputs; ++i) own[i] = load(from + row * inputs + i);
      std::fill(own + inputs, own + numbers, 0.0f);
      if (is_super(format)) {
        for (std::int64_t block = 0; block < inputs / kSuperBlock; ++block)
          writer.round_super(own + block * kSuperBlock, block);
      } else {
        for (std::int64_t pair = 0; pair < layout.chunks; ++pair)
          writer.round_pair(own + pair * kChunk, pair);
      }
      if (offset_of(format) != 0) writer.write_offsets(layout.chunks * kLanesOfChunk);
    });
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    const RowWriter writer = writer_of(row);
    rows_.push_back({writer.codes, writer.offsets, writer.scales, writer.sums});
  }
}

}  // namespace hybrid_trainer::kernels::cpu

namespace hybrid_trainer::kernels::cpu::plain {

/// Reads the codes of a pair of blocks as unsigned numbers.
template <BlockFormat kFormat>
void read_pair(std::uint8_t (&codes)[kChunk], const std::uint8_t* const (&blocks)[2]) {
  for (int b = 0; b < 2; ++b) {
    const std::uint8_t* const from = blocks[b] + codes_at(kFormat);
    if constexpr (kFormat == BlockFormat::kQ8_0) {
      for (int i = 0; i < 32; ++i) codes[32 * b + i] = from[i] ^ 0x80;
    } else {
      std::uint32_t bits = 0;
      if constexpr (bits_at(kFormat) >= 0)
        bits = load_bits<std::uint32_t>(blocks[b] + bits_at(kFormat));
      for (int i = 0; i < 16; ++i) {
        unsigned first = from[i] & 15, second = from[i] >> 4;
        if constexpr (kFormat == BlockFormat::kMXFP4)
          first = kMicroCodes[first], second = kMicroCodes[second];
        codes[16 * b + i] = static_cast<std::uint8_t>(first | (bits >> i & 1) << 4);
        codes[32 + 16 * b + i] = static_cast<std::uint8_t>(second | (bits >> (i + 16) & 1) << 4);
      }
    }
  }
}

/// Reads the codes of a quarter of a superblock as unsigned numbers.
template <BlockFormat kFormat>
void read_fourth(std::uint8_t (&codes)[kChunk], const std::uint8_t* block, int fourth) {
  const std::uint8_t* const from = block + codes_at(kFormat);
  for (int i = 0; i < kChunk; ++i) {
    if constexpr (kFormat == BlockFormat::kQ6_K) {
      const std::uint8_t both = from[fourth / 2 * 64 + i];
      const unsigned four = fourth % 2 == 0 ? both & 15u : both >> 4;
      const unsigned two =
          from[128 + fourth / 2 * 32 + i % 32] >> (4 * (fourth % 2) + i / 32 * 2) & 3;
      codes[i] = static_cast<std::uint8_t>(four | two << 4);
    } else {
      const std::uint8_t both = from[32 * fourth + i % 32];
      unsigned code = i < 32 ? both & 15u : both >> 4;
      if constexpr (kFormat == BlockFormat::kQ5_K)
        code |= (block[16 + i % 32] >> (2 * fourth + i / 32) & 1) << 4;
      codes[i] = static_cast<std::uint8_t>(code);
    }
  }
}

template <BlockFormat kFormat>
void multiply_chunk(std::int32_t (&lanes)[kLanesOfChunk], const std::uint8_t (&codes)[kChunk],
                    const RoundedRow& x, std::int64_t chunk) {
  const std::int8_t* const of = x.codes + chunk * kChunk;
  for (int lane = 0; lane < kLanesOfChunk; ++lane) {
    lanes[lane] = offset_of(kFormat) == 0 ? 0 : x.offsets[chunk * kLanesOfChunk + lane];
    for (int i = 4 * lane; i < 4 * lane + 4; ++i) lanes[lane] += codes[i] * of[i];
  }
}

template <BlockFormat kFormat>
float scale_of_block(const std::uint8_t* block) {
  if constexpr (kFormat == BlockFormat::kMXFP4) return micro_scale(block[0]);
  return half_at(block);
}

/// Adds lanes in the order in which the vector code adds registers.
inline float sum_of_lanes(float* lanes, int count) {
  for (int half = count / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

template <BlockFormat kFormat>
float multiply_pairs(const std::uint8_t* w, const RoundedRow& x, std::int64_t inputs) {
  float sums[kLanesOfChunk] = {}, least[2] = {};
  const auto add = [&](const std::uint8_t* first, std::int64_t pair) {
    const std::uint8_t* const blocks[2] = {first, first + kBytes<kFormat>};
    std::uint8_t codes[kChunk];
    std::int32_t lanes[kLanesOfChunk];
    read_pair<kFormat>(codes, blocks);
    multiply_chunk<kFormat>(lanes, codes, x, pair);
    float scales[2];
    for (int b = 0; b < 2; ++b) {
      scales[b] = scale_of_block<kFormat>(blocks[b]) * x.scales[4 * pair + 2 * b];
      if constexpr (has_min(kFormat))
        least[b] += half_at(blocks[b] + 2) * x.scales[4 * pair + 2 * b + 1];
    }
    for (int lane = 0; lane < kLanesOfChunk; ++lane) {
      const int block = has_halves(kFormat) ? lane / 4 % 2 : lane / 8;
      sums[lane] = std::fma(scales[block], static_cast<float>(lanes[lane]), sums[lane]);
    }
  };
  std::int64_t pair = 0;
  for (; pair < inputs / kChunk; ++pair) add(w + 2 * pair * kBytes<kFormat>, pair);
  if (inputs % kChunk != 0) add(LastPair<kFormat>(w + 2 * pair * kBytes<kFormat>).bytes, pair);
  const float sum = sum_of_lanes(sums, kLanesOfChunk);
  return has_min(kFormat) ? sum + (least[0] + least[1]) : sum;
}

template <BlockFormat kFormat>
float multiply_supers(const std::uint8_t* w, const RoundedRow& x, std::int64_t inputs) {
  constexpr bool kHasMin = has_min(kFormat);
  float sums[kLanesOfChunk] = {}, least[4] = {};
  for (std::int64_t block = 0; block < inputs / 256; ++block, w += kBytes<kFormat>) {
    std::int32_t totals[kLanesOfChunk] = {};
    const SuperScales packed = kHasMin ? super_scales(w) : SuperScales{};
    for (int fourth = 0; fourth < 4; ++fourth) {
      std::uint8_t codes[kChunk];
      std::int32_t lanes[kLanesOfChunk];
      read_fourth<kFormat>(codes, w, fourth);
      multiply_chunk<kFormat>(lanes, codes, x, 4 * block + fourth);
      for (int lane = 0; lane < kLanesOfChunk; ++lane) {
        const int scale =
            kHasMin ? static_cast<int>(packed.scales >> (8 * (2 * fourth + lane / 8)) & 255)
                    : static_cast<std::int8_t>(w[192 + 4 * fourth + lane / 4]);
        totals[lane] += lanes[lane] * scale;
      }
    }
    const float scale = half_at(w + (kHasMin ? 0 : 208)) * x.scales[block];
    for (int lane = 0; lane < kLanesOfChunk; ++lane)
      sums[lane] = std::fma(scale, static_cast<float>(totals[lane]), sums[lane]);
    if constexpr (kHasMin) {
      const float scale_of_min = half_at(w + 2) * x.scales[block];
      for (int lane = 0; lane < 4; ++lane) {
        std::int32_t total = 0;
        for (int i = 2 * lane; i < 2 * lane + 2; ++i)
          total += static_cast<int>(packed.mins >> (8 * i) & 255) * x.sums[8 * block + i];
        least[lane] = std::fma(scale_of_min, static_cast<float>(total), least[lane]);
      }
    }
  }
  const float sum = sum_of_lanes(sums, kLanesOfChunk);
  return kHasMin ? sum - sum_of_lanes(least, 4) : sum;
}

/// sums = the products of a row of w and kRows rows of x.
template <BlockFormat kFormat, int kRows>
void multiply_row(float* sums, const std::uint8_t* w, const RoundedRow* x, std::int64_t inputs) {
  for (int n = 0; n < kRows; ++n) {
    if constexpr (is_super(kFormat)) {
      sums[n] = multiply_supers<kFormat>(w, x[n], inputs);
    } else {
      sums[n] = multiply_pairs<kFormat>(w, x[n], inputs);
    }
  }
}

}  // namespace hybrid_trainer::kernels::cpu::plain

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr int kRowsAtOnce = 4;  // rows of x for which a row of w is read once

using MultiplyRow = void (*)(float* sums, const std::uint8_t* w, const RoundedRow* x,
                             std::int64_t inputs);

struct RowProducts {
  MultiplyRow one, several;
};

template <std::size_t... kFormats>
RowProducts products_of(BlockFormat format, std::index_sequence<kFormats...>) {
  static const bool has_byte_products = __builtin_cpu_supports("avx512vnni") != 0;
  const InstructionSet set = instruction_set();
  RowProducts products{};
  const auto choose = [&](auto number) {
    constexpr auto kFormat = static_cast<BlockFormat>(decltype(number)::value);
    if (set == InstructionSet::kAvx512 && has_byte_products) {
      products = {vnni::multiply_row<kFormat, 1>, vnni::multiply_row<kFormat, kRowsAtOnce>};
    } else if (set != InstructionSet::kBaseline) {
      products = {avx2::multiply_row<kFormat, 1>, avx2::multiply_row<kFormat, kRowsAtOnce>};
    } else {
      products = {plain::multiply_row<kFormat, 1>, plain::multiply_row<kFormat, kRowsAtOnce>};
    }
  };
  const auto number = static_cast<std::size_t>(format);
  ((number == kFormats ? choose(std::integral_constant<std::size_t, kFormats>()) : void()), ...);
  return products;
}

struct PartProduct {
  std::int64_t first, end, bytes_of_row;  // among all outputs
  const std::uint8_t* w;
  RowProducts products;
  const RoundedRow* x;
};

/// Calls write(row of x, output, sum) for outputs [begin, end) of a part.
template <class Write>
void multiply_part(const PartProduct& part, std::int64_t begin, std::int64_t end, std::int64_t rows,
                   std::int64_t inputs, const Write& write) {
  for (std::int64_t o = begin; o < end; ++o) {
    const std::uint8_t* const w = part.w + (o - part.first) * part.bytes_of_row;
    std::int64_t n = 0;
    for (; n + kRowsAtOnce <= rows; n += kRowsAtOnce) {
      float sums[kRowsAtOnce];
      part.products.several(sums, w, part.x + n, inputs);
      for (int i = 0; i < kRowsAtOnce; ++i) write(n + i, o, sums[i]);
    }
    for (; n < rows; ++n) {
      float sum;
      part.products.one(&sum, w, part.x + n, inputs);
      write(n, o, sum);
    }
  }
}

}  // namespace

void block_linear(const Tensor& y, const Tensor& x, std::span<const BlockRows> w,
                  const Tensor& bias, const Tensor& residual, const Stream& stream) {
  const std::int64_t rows = x.size(0), inputs = x.size(1), outputs = y.size(1);
  std::list<RoundedInputs> rounded;  // one per format
  std::vector<PartProduct> parts;
  std::int64_t first = 0;
  for (const BlockRows& part : w) {
    const BlockFormat format = part.tensors.format;
    auto found = std::ranges::find(rounded, format, &RoundedInputs::format);
    if (found == rounded.end()) found = rounded.emplace(rounded.end(), format, x, stream);
    if (simulated(stream)) continue;
    const BlockSize size = block_size(format);
    parts.push_back({first, first + part.count, inputs / size.numbers * size.bytes,
                     part.tensors.bytes.data<std::uint8_t>(),
                     products_of(format, std::make_index_sequence<kBlockFormats>()),
                     found->rows().data()});
    first += part.count;
  }
  if (simulated(stream)) return;
  const float* const added = optional_data<float>(bias);
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const more = optional_data<T>(residual);
    T* const to = y.data<T>();
    const auto write = [=](std::int64_t n, std::int64_t o, float sum) {
      const std::int64_t at = n * outputs + o;
      if (added != nullptr) sum += added[o];
      store(to + at, more != nullptr ? sum + load(more + at) : sum);
    };
    const PartProduct *const begin_of_parts = parts.data(), *const end_of_parts =
                                                                begin_of_parts + parts.size();
    parallel_rows(outputs, inputs, [=](std::int64_t begin, std::int64_t end) {
      for (const PartProduct* part = begin_of_parts; part != end_of_parts; ++part)
        multiply_part(*part, std::max(begin, part->first), std::min(end, part->end), rows, inputs,
                      write);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
