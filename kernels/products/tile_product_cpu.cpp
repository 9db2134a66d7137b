#include "kernels/backend/parallel.h"
#include "kernels/products/product_cpu.h"
#include "kernels/products/tiles_cpu.h"
#include "src/core/machine.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kDepth = 1024;        // maximum k of a block's panels
constexpr std::int64_t kBlockColumns = 128;  // columns of C per block
constexpr std::int64_t kMaxBlockRows = 256;  // so that a block's rows of A fit in the L2 cache
constexpr std::int64_t kPackedPanels = 8;    // packed together
/// Maximum size of a packed operand, so that it stays in the outer cache.
constexpr std::int64_t kPackedBytes = std::int64_t{6} << 20;
/// If C is larger, it bypasses the caches: weight gradients and logits.
constexpr std::int64_t kStreamedF32Bytes = std::int64_t{1} << 20;
constexpr std::int64_t kStreamedBF16Bytes = std::int64_t{16} << 20;

std::int64_t rounded_up(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }

/// Returns the largest multiple of 32 up to n that fits in kPackedBytes, but at least min(n, 256).
std::int64_t fitting(std::int64_t n, std::int64_t bytes_each) {
  return std::min(n, std::max<std::int64_t>(256, kPackedBytes / bytes_each / 32 * 32));
}

struct Block {
  std::int64_t first_row, end_row, first_column, end_column;
};

/// A part of the product. Its operands are packed together.
struct TilePart {
  std::int64_t first_row, end_row, first_column, end_column, first_k, end_k;
  std::int64_t rows() const { return end_row - first_row; }
  std::int64_t columns() const { return end_column - first_column; }
  std::int64_t depth() const { return end_k - first_k; }
};

class TileProduct {
 public:
  TileProduct(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream)
      : kind_(kind),
        arrays_(arrays),
        packs_a_(kind.transpose_a == Transpose::kYes),
        part_rows_(packs_a_ ? fitting(kind.m, 2 * kind.k) : kind.m),
        part_depth_(kind.k > 8 * kDepth ? fitting(kind.k, 2 * kind.n) : kind.k),
        part_columns_(part_depth_ < kind.k ? kind.n : fitting(kind.n, 2 * kind.k)),
        block_rows_(block_rows(kind, part_rows_, part_columns_)),
        streams_(streams(kind, arrays)) {
    packed_b_ = bf16_workspace(part_columns_ * part_depth_, stream);
    if (packs_a_) packed_a_ = bf16_workspace(part_rows_ * part_depth_, stream);
    scratch_ = empty_workspace(threads() * scratch_elements(), DType::kF32, stream);
    if (part_depth_ < kind.k)
      sums_ = empty_workspace(rounded_up(kind.m, kPanel) * kind.n, DType::kF32, stream);
  }

  void run() {
    for (std::int64_t row = 0; row < kind_.m; row += part_rows_) {
      for (std::int64_t column = 0; column < kind_.n; column += part_columns_) {
        for (std::int64_t k = 0; k < kind_.k; k += part_depth_) {
          multiply({row, std::min(row + part_rows_, kind_.m), column,
                    std::min(column + part_columns_, kind_.n), k,
                    std::min(k + part_depth_, kind_.k)});
        }
      }
    }
  }

 private:
  static Tensor bf16_workspace(std::int64_t elements, const Stream& stream) {
    return empty_workspace((elements + 1) / 2, DType::kF32, stream);
  }
  /// Returns the number of rows of a block, few enough for several blocks per thread.
  static std::int64_t block_rows(const ProductKind& kind, std::int64_t rows, std::int64_t columns) {
    std::int64_t size = kMaxBlockRows;
    const auto blocks = [&] {
      return (rows + size - 1) / size * ((columns + kBlockColumns - 1) / kBlockColumns);
    };
    while (size > kPanel && blocks() < 4 * kind.threads) size /= 2;
    return size;
  }
  static bool streams(const ProductKind& kind, const ProductArrays& arrays) {
    if (kind.accumulate || reinterpret_cast<std::uintptr_t>(arrays.c) % 64 != 0) return false;
    const std::int64_t elements = kind.m * kind.n;
    return kind.output == DType::kF32 ? 4 * elements > kStreamedF32Bytes
                                      : 2 * elements > kStreamedBF16Bytes;
  }
  /// Returns the scratch size per worker, for the sums of a block and a panel of A's last rows.
  std::int64_t scratch_elements() const {
    return block_rows_ * kBlockColumns + kPanel * kDepth / 2;
  }

  void pack(const TilePart& part) const;
  void pack_panels_of_a(const TilePart& part, std::int64_t group) const;
  void pack_panels_of_b(const TilePart& part, std::int64_t group) const;
  void multiply(const TilePart& part) const;
  void multiply_block(const TilePart& part, const Block& block, float* scratch) const;
  RowPanel row_panel(const TilePart& part, std::int64_t row, std::int64_t k, std::int64_t depth,
                     BFloat16* edge) const;
  void finish(const Block& block, const float* sums, std::int64_t stride) const;

  const ProductKind& kind_;
  const ProductArrays& arrays_;
  bool packs_a_;
  std::int64_t part_rows_, part_depth_, part_columns_, block_rows_;
  bool streams_;
  Tensor packed_a_, packed_b_;
  Tensor scratch_;
  Tensor sums_;  // sums of all of C, if k is split
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

void TileProduct::pack_panels_of_a(const TilePart& part, std::int64_t group) const {
  const std::int64_t panel = group * kPackedPanels, panels = part.rows() / kPanel - panel;
  const auto* const a = static_cast<const BFloat16*>(arrays_.a);
  auto* const to = static_cast<BFloat16*>(packed_a_.raw());
  pack_rows_of_transposed(to + panel * kPanel * part.depth(),
                          a + part.first_k * kind_.m + part.first_row + panel * kPanel, kind_.m,
                          std::min(panels, kPackedPanels), part.depth());
}

void TileProduct::pack_panels_of_b(const TilePart& part, std::int64_t group) const {
  const std::int64_t panel = group * kPackedPanels, depth = part.depth();
  const std::int64_t panels = std::min(part.columns() / kPanel - panel, kPackedPanels);
  const std::int64_t column = part.first_column + panel * kPanel;
  const auto* const b = static_cast<const BFloat16*>(arrays_.b);
  auto* const to = static_cast<BFloat16*>(packed_b_.raw()) + panel * kPanel * depth;
  if (kind_.transpose_b == Transpose::kYes) {
    pack_columns_of_transposed(to, b + column * kind_.k + part.first_k, kind_.k, panels, depth);
  } else {
    pack_columns(to, b + part.first_k * kind_.n + column, kind_.n, panels, depth);
  }
}

/// Returns 32 rows of A over `depth`. If the last rows do not fill a panel, appends rows of zeros.
RowPanel TileProduct::row_panel(const TilePart& part, std::int64_t row, std::int64_t k,
                                std::int64_t depth, BFloat16* edge) const {
  if (packs_a_) {
    const auto* const packed = static_cast<const BFloat16*>(packed_a_.raw());
    return RowPanel::packed(packed + (row - part.first_row) * part.depth() +
                            (k - part.first_k) * kPanel);
  }
  const auto* const a = static_cast<const BFloat16*>(arrays_.a) + row * kind_.k + k;
  if (row + kPanel <= kind_.m) return RowPanel::in_place(a, kind_.k);
  std::fill_n(edge, kPanel * depth, BFloat16{});
  for (std::int64_t r = 0; r < kind_.m - row; ++r)
    std::copy_n(a + r * kind_.k, depth, edge + r * depth);
  return RowPanel::in_place(edge, depth);
}

/// Returns the sums of 16 columns of a row plus bias, residual and previous values.
inline __m512 finished(__m512 sum, const ProductKind& kind, const ProductArrays& arrays,
                       std::int64_t at, std::int64_t column) {
  const auto added = [&](const void* array) {
    if (kind.output == DType::kF32) return _mm512_loadu_ps(static_cast<const float*>(array) + at);
    const auto* const half =
        reinterpret_cast<const __m256i*>(static_cast<const BFloat16*>(array) + at);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(half)), 16));
  };
  if (kind.bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps(arrays.bias + column));
  if (kind.residual) sum = _mm512_add_ps(sum, added(arrays.residual));
  if (kind.accumulate) sum = _mm512_add_ps(sum, added(arrays.c));
  return sum;
}

inline void write(float* to, __m512 left, __m512 right, bool streams) {
  if (streams) {
    _mm512_stream_ps(to, left);
    _mm512_stream_ps(to + 16, right);
  } else {
    _mm512_storeu_ps(to, left);
    _mm512_storeu_ps(to + 16, right);
  }
}
inline void write(BFloat16* to, __m512 left, __m512 right, bool streams) {
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(right, left));
  if (streams) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), both);
  } else {
    _mm512_storeu_si512(to, both);
  }
}

/// Writes a block of C from its sums, whose row stride is `stride`.
void TileProduct::finish(const Block& block, const float* sums, std::int64_t stride) const {
  const auto rows = [&](auto* c) {
    for (std::int64_t row = block.first_row; row < block.end_row; ++row) {
      const float* const from = sums + (row - block.first_row) * stride - block.first_column;
      for (std::int64_t j = block.first_column; j < block.end_column; j += 32) {
        const std::int64_t at = row * kind_.n + j;
        write(c + at, finished(_mm512_loadu_ps(from + j), kind_, arrays_, at, j),
              finished(_mm512_loadu_ps(from + j + 16), kind_, arrays_, at + 16, j + 16), streams_);
      }
    }
  };
  if (kind_.output == DType::kF32) {
    rows(static_cast<float*>(arrays_.c));
  } else {
    rows(static_cast<BFloat16*>(arrays_.c));
  }
  if (streams_) _mm_sfence();
}

void TileProduct::multiply_block(const TilePart& part, const Block& block, float* scratch) const {
  const TileRegisters registers;
  const bool own_sums = !sums_.defined();
  auto* const edge = reinterpret_cast<BFloat16*>(scratch + block_rows_ * kBlockColumns);
  const std::int64_t stride = own_sums ? kBlockColumns : kind_.n;
  float* const sums =
      own_sums ? scratch
               : static_cast<float*>(sums_.raw()) + block.first_row * kind_.n + block.first_column;
  const auto* const packed_b = static_cast<const BFloat16*>(packed_b_.raw());
  for (std::int64_t k = part.first_k; k < part.end_k; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, part.end_k - k);
    for (std::int64_t column = block.first_column; column < block.end_column; column += kPanel) {
      const BFloat16* const panel =
          packed_b + (column - part.first_column) * part.depth() + (k - part.first_k) * kPanel;
      const char* ahead = reinterpret_cast<const char*>(panel + kPanel * part.depth());
      float* to = sums + column - block.first_column;
      for (std::int64_t row = block.first_row; row < block.end_row; row += kPanel) {
        const RowPanel a = row_panel(part, row, k, depth, edge);
        if (k > 0) {
          multiply_panels<Sum::kAdded>(to, stride, a, panel, depth, ahead);
        } else {
          multiply_panels<Sum::kNew>(to, stride, a, panel, depth, ahead);
        }
        to += kPanel * stride;
        ahead += 8 * depth;
      }
    }
  }
  if (part.end_k == kind_.k) finish(block, sums, stride);
}

#pragma GCC pop_options

void TileProduct::pack(const TilePart& part) const {
  constexpr std::int64_t kGroup = kPackedPanels * kPanel;
  const std::int64_t groups_of_b = (part.columns() + kGroup - 1) / kGroup;
  const std::int64_t groups_of_a = packs_a_ ? (part.rows() + kGroup - 1) / kGroup : 0;
  parallel_items(groups_of_a + groups_of_b, [&](std::int64_t, std::int64_t group) {
    if (group < groups_of_b) {
      pack_panels_of_b(part, group);
    } else {
      pack_panels_of_a(part, group - groups_of_b);
    }
  });
}

void TileProduct::multiply(const TilePart& part) const {
  pack(part);
  const std::int64_t across = (part.columns() + kBlockColumns - 1) / kBlockColumns;
  const std::int64_t blocks = (part.rows() + block_rows_ - 1) / block_rows_ * across;
  auto* const scratch = static_cast<float*>(scratch_.raw());
  parallel_items(blocks, [&](std::int64_t worker, std::int64_t item) {
    const std::int64_t row = part.first_row + item / across * block_rows_;
    const std::int64_t column = part.first_column + item % across * kBlockColumns;
    const Block block{row, std::min(row + block_rows_, part.end_row), column,
                      std::min(column + kBlockColumns, part.end_column)};
    multiply_block(part, block, scratch + worker * scratch_elements());
  });
}

}  // namespace

bool fits_tiles(const ProductKind& kind) {
  return multiplies_tiles() && kind.inputs == DType::kBF16 && kind.n % kPanel == 0 && kind.k > 0 &&
         kind.k % kTileDepth == 0 && (kind.transpose_a == Transpose::kNo || kind.m % kPanel == 0);
}

void multiply_by_tiles(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream) {
  TileProduct product(kind, arrays, stream);
  if (!simulated(stream)) product.run();
}

}  // namespace hybrid_trainer::kernels::cpu
