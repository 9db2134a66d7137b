#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/products/product_cpu.h"
#include "kernels/products/tiles_cpu.h"
#include "src/core/machine.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kBlockDepth = 1024;  // maximum k that is processed at a time
constexpr std::int64_t kSums = kMaxBlockSide * kMaxBlockSide;
constexpr std::int64_t kRowPadding = 16;   // words
constexpr std::int64_t kStepsOfPart = 32;  // steps of k between two groups of prefetches
constexpr std::int64_t kOperand = kMaxBlockSide * (kBlockDepth + kRowPadding);
static_assert(kBlockDepth % kTileDepth == 0 && kMaxBlockSide % kPanel == 0);

template <class T>
inline void finish_row(const ProductBlock& block, T* to, const float* from) {
#pragma omp simd
  for (std::int64_t i = 0; i < block.n; ++i) {
    const float shift = block.bias != nullptr ? block.bias[i] : 0.0f;
    store(to + i, from[i] + shift + (block.accumulate ? load(to + i) : 0.0f));
  }
}

/// Adds bias and the previous values to sums (m, n), and writes them to C.
template <class T>
void finish(const ProductBlock& block, const float* sums, std::int64_t stride) {
  T* const c = static_cast<T*>(block.c);
  run_on(instruction_set(), [=, &block]() {
    for (std::int64_t row = 0; row < block.m; ++row)
      finish_row(block, c + row * block.stride_c, sums + row * stride);
  });
}

void finish(const ProductBlock& block, const float* sums, std::int64_t stride) {
  if (block.output == DType::kF32) return finish<float>(block, sums, stride);
  finish<BFloat16>(block, sums, stride);
}

void multiply_by_library(const ProductBlock& block) {
  multiply_alone({.transpose_a = block.transpose_a,
                  .transpose_b = block.transpose_b,
                  .m = block.m,
                  .n = block.n,
                  .k = block.k,
                  .a = static_cast<const float*>(block.a),
                  .stride_a = block.stride_a,
                  .b = static_cast<const float*>(block.b),
                  .stride_b = block.stride_b,
                  .c = static_cast<float*>(block.c),
                  .stride_c = block.stride_c,
                  .accumulate = block.accumulate});
  if (block.bias == nullptr) return;
  ProductBlock bias = block;
  bias.accumulate = false;
  finish(bias, static_cast<const float*>(block.c), block.stride_c);
}

void widen(float* to, const BFloat16* from, std::int64_t stride, std::int64_t rows,
           std::int64_t columns) {
  run_on(instruction_set(), [=]() {
    for (std::int64_t row = 0; row < rows; ++row) {
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        to[row * columns + i] = load(from + row * stride + i);
    }
  });
}

/// The part [begin, begin + depth) of k of an operand, whose other dimension has size `side`.
struct Part {
  const BFloat16* from;
  std::int64_t stride, rows, columns;
};
Part part_of(const void* operand, std::int64_t stride, bool k_is_columns, std::int64_t side,
             std::int64_t begin, std::int64_t depth) {
  const auto* const from = static_cast<const BFloat16*>(operand);
  if (k_is_columns) return {from + begin, stride, side, depth};
  return {from + begin * stride, stride, depth, side};
}

void multiply_converted(const ProductBlock& block, float* scratch) {
  float *const sums = scratch, *const left = scratch + kSums, *const right = left + kOperand;
  const bool a_by_rows = block.transpose_a == Transpose::kNo,
             b_by_rows = block.transpose_b == Transpose::kYes;
  for (std::int64_t k = 0; k < block.k; k += kBlockDepth) {
    const std::int64_t depth = std::min(kBlockDepth, block.k - k);
    const Part a = part_of(block.a, block.stride_a, a_by_rows, block.m, k, depth),
               b = part_of(block.b, block.stride_b, b_by_rows, block.n, k, depth);
    widen(left, a.from, a.stride, a.rows, a.columns);
    widen(right, b.from, b.stride, b.rows, b.columns);
    multiply_alone({.transpose_a = block.transpose_a,
                    .transpose_b = block.transpose_b,
                    .m = block.m,
                    .n = block.n,
                    .k = depth,
                    .a = left,
                    .stride_a = a.columns,
                    .b = right,
                    .stride_b = b.columns,
                    .c = sums,
                    .stride_c = block.n,
                    .accumulate = k > 0});
  }
  finish(block, sums, block.n);
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

/// Location of an operand's elements or pairs: (r, k) is at first + r·row + k·step bytes.
struct RowsInPlace {
  const char* first;
  std::int64_t row, step;
};

/// Lines of a matrix to prefetch into the L2 cache, a few at a time.
class PrefetchedLines {
 public:
  PrefetchedLines() = default;
  PrefetchedLines(const void* first, std::int64_t row_bytes, std::int64_t rows, std::int64_t bytes)
      : first_(static_cast<const char*>(first)),
        row_bytes_(row_bytes),
        lines_((bytes + 63) / 64),
        all_(first == nullptr ? 0 : rows * lines_) {}
  void set_parts(std::int64_t parts) {
    part_ = (all_ + parts - 1) / std::max<std::int64_t>(parts, 1);
  }
  void take_part() {
    const std::int64_t end = std::min(all_, at_ + part_);
    for (; at_ < end; ++at_)
      _mm_prefetch(first_ + at_ / lines_ * row_bytes_ + at_ % lines_ * 64, _MM_HINT_T1);
  }

 private:
  const char* first_ = nullptr;
  std::int64_t row_bytes_ = 0, lines_ = 1, all_ = 0, part_ = 0, at_ = 0;
};

/// sums = or += kRows rows times a panel of 32 columns, in f32 or in pairs of bf16 along k.
template <int kRows, bool kPairs>
inline void multiply_rows(float* sums, std::int64_t stride, const RowsInPlace& a, const void* b,
                          std::int64_t steps, Sum sum, PrefetchedLines& ahead) {
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const bool adds = sum == Sum::kAdded;
    left[r] = adds ? _mm512_loadu_ps(sums + r * stride) : _mm512_setzero_ps();
    right[r] = adds ? _mm512_loadu_ps(sums + r * stride + 16) : _mm512_setzero_ps();
  }
  const auto* column = static_cast<const char*>(b);
  const char* line = a.first;
  for (std::int64_t k = 0; k < steps; ++k, column += 128, line += a.step) {
    if (k % kStepsOfPart == 0) ahead.take_part();
    const __m512 of_left = _mm512_loadu_ps(column), of_right = _mm512_loadu_ps(column + 64);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      float word;
      __builtin_memcpy(&word, line + r * a.row, 4);
      const __m512 both = _mm512_set1_ps(word);
      if constexpr (kPairs) {
        const auto pair = reinterpret_cast<__m512bh>(both);
        left[r] = _mm512_dpbf16_ps(left[r], pair, reinterpret_cast<__m512bh>(of_left));
        right[r] = _mm512_dpbf16_ps(right[r], pair, reinterpret_cast<__m512bh>(of_right));
      } else {
        left[r] = _mm512_fmadd_ps(both, of_left, left[r]);
        right[r] = _mm512_fmadd_ps(both, of_right, right[r]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(sums + r * stride, left[r]);
    _mm512_storeu_ps(sums + r * stride + 16, right[r]);
  }
}

/// multiply_rows for any number of rows. The bits of a row are independent of other rows.
template <bool kPairs>
void multiply_panel(float* sums, std::int64_t stride, RowsInPlace a, const void* b,
                    std::int64_t steps, std::int64_t rows, Sum sum, PrefetchedLines& ahead) {
  const auto take = [&]<int kRows>(std::integral_constant<int, kRows>) {
    for (; rows >= kRows; rows -= kRows, a.first += kRows * a.row, sums += kRows * stride)
      multiply_rows<kRows, kPairs>(sums, stride, a, b, steps, sum, ahead);
  };
  take(std::integral_constant<int, 12>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 1>());
}

/// Packs 32·panels columns of B (k, n): for each panel `depth` steps of 32 floats.
void pack_words(float* to, const float* b, std::int64_t stride, std::int64_t panels,
                std::int64_t depth) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const float* const from = b + k * stride + panel * kPanel;
      float* const at = to + (panel * depth + k) * kPanel;
      _mm512_storeu_ps(at, _mm512_loadu_ps(from));
      _mm512_storeu_ps(at + 16, _mm512_loadu_ps(from + 16));
    }
  }
}

/// pack_words for a B stored as rows (n, k); `depth` may be any number.
void pack_words_of_transposed(float* to, const float* b, std::int64_t stride, std::int64_t panels,
                              std::int64_t depth) {
  for (std::int64_t half = 0; half < 2 * panels; ++half) {
    const float* const rows = b + half * 16 * stride;
    float* const panel = to + half / 2 * kPanel * depth + half % 2 * 16;
    for (std::int64_t k = 0; k < depth; k += 16) {
      const std::int64_t count = std::min<std::int64_t>(16, depth - k);
      const auto there = static_cast<__mmask16>((1u << count) - 1);
      __m512i words[16];
      for (int i = 0; i < 16; ++i)
        words[i] = _mm512_maskz_loadu_epi32(there, rows + i * stride + k);
      transpose_words(words);
      for (std::int64_t i = 0; i < count; ++i)
        _mm512_storeu_si512(panel + (k + i) * kPanel, words[i]);
    }
  }
}

/// Writes sums to C, bypassing the caches.
void stream_out(const ProductBlock& block, const float* sums, std::int64_t stride) {
  for (std::int64_t row = 0; row < block.m; ++row) {
    float* const to = static_cast<float*>(block.c) + row * block.stride_c;
    for (std::int64_t i = 0; i < block.n; i += 16)
      _mm512_stream_ps(to + i, _mm512_loadu_ps(sums + row * stride + i));
  }
  _mm_sfence();
}

/// Writes the sums to C, whose columns are whole panels.
void finish_panels(const ProductBlock& block, const float* sums, std::int64_t stride) {
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(block.c) % 64 == 0 && block.stride_c % 16 == 0;
  const bool is_plain = block.output == DType::kF32 && !block.accumulate && block.bias == nullptr;
  if (block.streams && is_aligned && is_plain) return stream_out(block, sums, stride);
  finish(block, sums, stride);
}

/// Packs 32·panels columns of a bf16 operand as pairs of k, the last with a zero if `depth` is odd.
void pack_pairs(float* to, const BFloat16* from, std::int64_t stride, std::int64_t panels,
                std::int64_t depth) {
  static constexpr BFloat16 kZeros[kPanel] = {};
  const std::int64_t steps = (depth + 1) / 2;
  for (std::int64_t step = 0; step < steps; ++step) {
    const BFloat16* const even = from + 2 * step * stride;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const BFloat16* const at = even + panel * kPanel;
      const Pairs pairs = pairs_of(at, 2 * step + 1 < depth ? at + stride : kZeros);
      float* const word = to + (panel * steps + step) * kPanel;
      _mm512_storeu_si512(word, pairs.left);
      _mm512_storeu_si512(word + 16, pairs.right);
    }
  }
}

/// Computes a block with vectors of words, which are floats, or pairs of bf16 along k.
template <class T>
class VectorBlock {
 public:
  VectorBlock(const ProductBlock& block, float* scratch)
      : block_(block), sums_(scratch), left_(scratch + kSums), right_(left_ + kOperand) {}

  void run() {
    for (std::int64_t k = 0; k < block_.k; k += kBlockDepth) {
      const std::int64_t depth = std::min(kBlockDepth, block_.k - k);
      steps_ = (depth + kElements - 1) / kElements;
      if (block_.transpose_a == Transpose::kYes) {
        pack_transposed(left_, static_cast<const T*>(block_.a) + k * block_.stride_a,
                        block_.stride_a, block_.m / kPanel, depth);
      } else {
        copy_rows(k);
      }
      pack_right(k, depth);
      multiply(k, prefetch_for(k));
    }
    finish_panels(block_, sums_, block_.n);
  }

 private:
  static constexpr std::int64_t kElements = 4 / static_cast<std::int64_t>(sizeof(T));  // per word
  static constexpr bool kPairs = kElements == 2;
  static constexpr std::int64_t kBytes = sizeof(T);
  /// Returns the number of words between rows. Padding prevents equal positions in neighboring rows
  /// from mapping to one cache set, as with a power-of-two number of columns.
  std::int64_t row_words() const { return steps_ + kRowPadding; }

  static void pack_transposed(float* to, const T* from, std::int64_t stride, std::int64_t panels,
                              std::int64_t depth) {
    if constexpr (kPairs) {
      pack_pairs(to, from, stride, panels, depth);
    } else {
      pack_words(to, from, stride, panels, depth);
    }
  }
  void copy_rows(std::int64_t k) {
    const T* const from = static_cast<const T*>(block_.a) + k;
    for (std::int64_t row = 0; row < block_.m; ++row)
      std::copy_n(from + row * block_.stride_a, steps_ * kElements,
                  reinterpret_cast<T*>(left_ + row * row_words()));
  }
  void pack_right(std::int64_t k, std::int64_t depth) {
    const T* const b = static_cast<const T*>(block_.b);
    const std::int64_t panels = block_.n / kPanel;
    if (block_.transpose_b == Transpose::kNo)
      return pack_transposed(right_, b + k * block_.stride_b, block_.stride_b, panels, depth);
    pack_words_of_transposed(right_, reinterpret_cast<const float*>(b + k),
                             block_.stride_b / kElements, panels, steps_);
  }
  /// Returns the lines that the next pack_right will read, for this block or the next one.
  PrefetchedLines prefetch_for(std::int64_t k) const {
    const std::int64_t next = k + kBlockDepth < block_.k ? k + kBlockDepth : 0;
    const T* const b = static_cast<const T*>(next > 0 ? block_.b : block_.next_b);
    if (b == nullptr) return {};
    const std::int64_t depth = std::min(kBlockDepth, block_.k - next),
                       row = block_.stride_b * kBytes;
    if (block_.transpose_b == Transpose::kYes) return {b + next, row, block_.n, depth * kBytes};
    return {b + next * block_.stride_b, row, depth, block_.n * kBytes};
  }
  void multiply(std::int64_t k, PrefetchedLines ahead) {
    const std::int64_t chunks = (block_.m + 11) / 12 * (block_.n / kPanel);
    ahead.set_parts(chunks * ((steps_ + kStepsOfPart - 1) / kStepsOfPart));
    const bool by_panels = block_.transpose_a == Transpose::kYes;
    const std::int64_t alike = by_panels ? kPanel : block_.m;
    for (std::int64_t column = 0; column < block_.n; column += kPanel) {
      for (std::int64_t row = 0; row < block_.m; row += alike) {
        const auto* const first = reinterpret_cast<const char*>(left_ + row * steps_);
        const RowsInPlace rows =
            by_panels ? RowsInPlace{first, 4, 4 * kPanel} : RowsInPlace{first, 4 * row_words(), 4};
        multiply_panel<kPairs>(sums_ + row * block_.n + column, block_.n, rows,
                               right_ + column * steps_, steps_, std::min(alike, block_.m - row),
                               k > 0 ? Sum::kAdded : Sum::kNew, ahead);
      }
    }
  }
  const ProductBlock& block_;
  float *sums_, *left_, *right_;
  std::int64_t steps_ = 0;
};

/// Computes a block of bf16. Packs operands for a part of k at a time, in the layout of tiles.
class PackedBlock {
 public:
  PackedBlock(const ProductBlock& block, float* scratch)
      : block_(block),
        sums_(scratch),
        left_(reinterpret_cast<BFloat16*>(scratch + kSums)),
        right_(left_ + kOperand),
        edge_(right_ + kOperand) {}

  /// Calls multiply(sums, stride, rows of A, row count, panel of B, depth, sum) for each panel.
  template <class Multiply>
  void run(const Multiply& multiply) {
    for (std::int64_t k = 0; k < block_.k; k += kBlockDepth) {
      depth_ = std::min(kBlockDepth, block_.k - k);
      padded_ = (depth_ + kTileDepth - 1) / kTileDepth * kTileDepth;
      pack_right(k);
      if (block_.transpose_a == Transpose::kYes) pack_left(k);
      for (std::int64_t row = 0; row < block_.m; row += kPanel) {
        const std::int64_t rows = std::min(kPanel, block_.m - row);
        const RowPanel a = row_panel(row, rows, k);
        for (std::int64_t column = 0; column < block_.n; column += kPanel) {
          multiply(sums_ + row * block_.n + column, block_.n, a, rows, right_ + column * padded_,
                   padded_, k > 0 ? Sum::kAdded : Sum::kNew);
        }
      }
    }
    finish_panels(block_, sums_, block_.n);
  }

 private:
  /// Returns the last rows of an operand (k, …), which do not fill a tile, with zeros appended.
  const BFloat16* padded_rows(const BFloat16* from, std::int64_t stride, std::int64_t columns) {
    const std::int64_t whole = depth_ / kTileDepth * kTileDepth;
    std::fill_n(edge_, kTileDepth * columns, BFloat16{});
    for (std::int64_t p = whole; p < depth_; ++p)
      std::copy_n(from + p * stride, columns, edge_ + (p - whole) * columns);
    return edge_;
  }
  /// Packs panels of `columns` columns of an operand (k, …) by pack(to, from, stride, 1, depth).
  template <class Pack>
  void pack_panels(BFloat16* to, const BFloat16* from, std::int64_t stride, std::int64_t columns,
                   const Pack& pack) {
    const std::int64_t whole = depth_ / kTileDepth * kTileDepth;
    for (std::int64_t column = 0; column < columns; column += kPanel)
      pack(to + column * padded_, from + column, stride, 1, whole);
    if (whole == depth_) return;
    const BFloat16* const rest = padded_rows(from, stride, columns);
    for (std::int64_t column = 0; column < columns; column += kPanel)
      pack(to + column * padded_ + whole * kPanel, rest + column, columns, 1, kTileDepth);
  }
  void pack_right(std::int64_t k) {
    const auto* const b = static_cast<const BFloat16*>(block_.b);
    if (block_.transpose_b == Transpose::kYes)
      return pack_columns_of_transposed(right_, b + k, block_.stride_b, block_.n / kPanel, depth_);
    pack_panels(right_, b + k * block_.stride_b, block_.stride_b, block_.n, pack_columns);
  }
  void pack_left(std::int64_t k) {
    pack_panels(left_, static_cast<const BFloat16*>(block_.a) + k * block_.stride_a,
                block_.stride_a, block_.m, pack_rows_of_transposed);
  }
  /// Returns a panel of 32 rows. The first `rows` are rows of A; the others are zeros.
  RowPanel row_panel(std::int64_t row, std::int64_t rows, std::int64_t k) {
    if (block_.transpose_a == Transpose::kYes) return RowPanel::packed(left_ + row * padded_);
    const BFloat16* const a = static_cast<const BFloat16*>(block_.a) + row * block_.stride_a + k;
    if (rows == kPanel) return RowPanel::in_place(a, block_.stride_a);
    std::fill_n(edge_, kPanel * depth_, BFloat16{});
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(a + r * block_.stride_a, depth_, edge_ + r * depth_);
    return RowPanel::in_place(edge_, depth_);
  }
  const ProductBlock& block_;
  float* sums_;
  BFloat16 *left_, *right_, *edge_;
  std::int64_t depth_ = 0, padded_ = 0;
};

void multiply_by_tiles(PackedBlock& packed) {
  const TileRegisters registers;
  packed.run([](float* sums, std::int64_t stride, const RowPanel& a, std::int64_t,
                const BFloat16* b, std::int64_t depth, Sum sum) {
    if (sum == Sum::kAdded) {
      multiply_panels<Sum::kAdded>(sums, stride, a, b, depth, b);
    } else {
      multiply_panels<Sum::kNew>(sums, stride, a, b, depth, b);
    }
  });
}

#pragma GCC pop_options

/// Returns whether all vectors or tiles to be read are whole.
bool fits_vectors(const ProductBlock& block) {
  if (instruction_set() != InstructionSet::kAvx512 || block.n % kPanel != 0) return false;
  if (block.inputs == DType::kF32)
    return block.transpose_a == Transpose::kNo || block.m % kPanel == 0;
  const bool fits_a = block.transpose_a == Transpose::kYes
                          ? block.m % kPanel == 0
                          : block.k % 2 == 0 && block.stride_a % 2 == 0;
  const bool fits_b =
      block.transpose_b == Transpose::kNo || (block.k % 2 == 0 && block.stride_b % 2 == 0);
  return multiplies_bfloat16() && fits_a && fits_b;
}

bool fits_tiles(const ProductBlock& block) {
  const bool reads_k_in_rows =
      block.transpose_a == Transpose::kNo || block.transpose_b == Transpose::kYes;
  return multiplies_tiles() && (!reads_k_in_rows || block.k % kTileDepth == 0);
}

void fill_zero(const ProductBlock& block) {
  const auto bytes = static_cast<std::int64_t>(size_of(block.output));
  for (std::int64_t row = 0; row < block.m; ++row)
    std::fill_n(static_cast<char*>(block.c) + row * block.stride_c * bytes, block.n * bytes, '\0');
}

}  // namespace

std::int64_t block_scratch_elements(DType) { return kSums + 2 * kOperand; }

void multiply_block(const ProductBlock& block, float* scratch) {
  if (block.m == 0 || block.n == 0 || (block.k == 0 && block.accumulate)) return;
  if (block.k == 0) return fill_zero(block);
  if (!fits_vectors(block)) {
    if (block.inputs == DType::kF32) return multiply_by_library(block);
    return multiply_converted(block, scratch);
  }
  if (block.inputs == DType::kF32) return VectorBlock<float>(block, scratch).run();
  if (!fits_tiles(block)) return VectorBlock<BFloat16>(block, scratch).run();
  PackedBlock packed(block, scratch);
  multiply_by_tiles(packed);
}

}  // namespace hybrid_trainer::kernels::cpu
