#include <cstring>

#include "hybrid_trainer/kernels/semiseparable.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/half_float.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/generated/elementwise.h"
#include "kernels/generated/matmul.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr int kRowsAtOnce = 8;
constexpr std::int64_t kColumnLanes = 16;
typedef float ColumnVector [[gnu::vector_size(4 * kColumnLanes)]];

inline void load_vector(ColumnVector& vector, const float* from) {
  std::memcpy(&vector, from, sizeof vector);
}

/// H or Hᵀ in vectors of 16 columns, padded with zeros. For each vector, `in` has the vectors of
/// V's columns; `out` has c[n − 1], a[n], b[n] and the vectors of U's columns. A tile of rows
/// streams both.
struct PackedSemiseparable {
  std::int64_t size, rank;
  float *in, *out;
  std::int64_t vectors() const { return (size + kColumnLanes - 1) / kColumnLanes; }
  std::int64_t padded() const { return (vectors() + 2) * kColumnLanes; }  // per row in scratch
  std::int64_t in_step() const { return rank * kColumnLanes; }
  std::int64_t out_step() const { return (rank + 3) * kColumnLanes; }
  std::int64_t floats() const { return vectors() * (in_step() + out_step()); }
};

/// Converts row k of a factor to f32 and stores it as vector k of each block of kColumnLanes
/// columns. `step`: floats per block.
template <class T>
void pack_row(float* packed, std::int64_t step, std::int64_t k, const T* row, std::int64_t size,
              float scale) {
  for (std::int64_t n = 0; n < size; ++n) {
    float value = 0;
    if constexpr (std::is_same_v<T, std::uint16_t>) {
      value = from_half_bits(row[n]);
    } else if constexpr (std::is_same_v<T, std::int8_t>) {
      value = scale * static_cast<float>(row[n]);
    } else {
      value = load(row + n);
    }
    packed[n / kColumnLanes * step + k * kColumnLanes + n % kColumnLanes] = value;
  }
}

void pack_factor(float* packed, std::int64_t step, const Tensor& factor, const Tensor& scales) {
  const auto pack = [&](const auto* from) {
    const std::int64_t size = factor.size(1);
    for (std::int64_t k = 0; k < factor.size(0); ++k)
      pack_row(packed, step, k, from + k * size, size, scales ? scales.data<float>()[k] : 1);
  };
  if (factor.dtype() == DType::kU16) return pack(factor.data<std::uint16_t>());
  if (factor.dtype() == DType::kI8) return pack(factor.data<std::int8_t>());
  visit_real(factor.dtype(), [&]<class T>(T) { pack(factor.data<T>()); });
}

/// Copies kRows rows of x to f32 rows that have zeros before and after.
template <int kRows, class T>
void pad_rows(float* padded, const T* x, const PackedSemiseparable& h) {
  for (int row = 0; row < kRows; ++row) {
    float* const to = padded + row * h.padded() + kColumnLanes;
    const T* const from = x + row * h.size;
#pragma omp simd
    for (std::int64_t n = 0; n < h.size; ++n) to[n] = load(from + n);
  }
}

/// sums[row·rank + k] = Σ_n x[row, n]·in[n, k] for kCount values of k, starting with `first`.
template <int kRows, int kCount>
inline void project_some(float* sums, std::int64_t first, const float* padded,
                         const PackedSemiseparable& h) {
  ColumnVector parts[kRows][kCount] = {};
  const float* in = h.in + first * kColumnLanes;
  const float* x = padded + kColumnLanes;
  for (std::int64_t i = 0; i < h.vectors(); ++i, in += h.in_step(), x += kColumnLanes) {
    ColumnVector factor[kCount];
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) load_vector(factor[k], in + k * kColumnLanes);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      ColumnVector value;
      load_vector(value, x + row * h.padded());
#pragma GCC unroll 8
      for (int k = 0; k < kCount; ++k) parts[row][k] += value * factor[k];
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kCount; ++k) {
      float lanes[kColumnLanes], sum = 0;
      std::memcpy(lanes, &parts[row][k], sizeof lanes);
      for (const float lane : lanes) sum += lane;
      sums[row * h.rank + first + k] = sum;
    }
  }
}

template <int kRows>
inline void project_tile(float* sums, const float* padded, const PackedSemiseparable& h) {
  std::int64_t k = 0;
  for (; k + 3 <= h.rank; k += 3) project_some<kRows, 3>(sums, k, padded, h);
  if (h.rank - k == 2) project_some<kRows, 2>(sums, k, padded, h);
  if (h.rank - k == 1) project_some<kRows, 1>(sums, k, padded, h);
}

inline void store_partial(float* to, const ColumnVector& vector, std::int64_t count) {
  std::memcpy(to, &vector, static_cast<std::size_t>(count) * sizeof(float));
}
inline void store_partial(BFloat16* to, const ColumnVector& vector, std::int64_t count) {
  float lanes[kColumnLanes];
  std::memcpy(lanes, &vector, sizeof lanes);
  if (count < kColumnLanes) {
    for (std::int64_t i = 0; i < count; ++i) store(to + i, lanes[i]);
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < kColumnLanes; ++i) store(to + i, lanes[i]);
}

/// Computes kVectors vectors of each row of y, which has `count` columns, from vector `first` on.
template <int kRows, int kVectors, class T>
inline void expand_some(T* y, const float* sums, const float* padded, std::int64_t first,
                        std::int64_t count, const PackedSemiseparable& h) {
  ColumnVector total[kRows][kVectors];
  const float* const out = h.out + first * h.out_step();
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) {
      const float* const x = padded + row * h.padded() + (1 + first + i) * kColumnLanes;
      ColumnVector before, own, behind, left, middle, right;
      load_vector(before, x - 1), load_vector(own, x), load_vector(behind, x + 1);
      load_vector(left, out + i * h.out_step());
      load_vector(middle, out + i * h.out_step() + kColumnLanes);
      load_vector(right, out + i * h.out_step() + 2 * kColumnLanes);
      total[row][i] = left * before + middle * own + right * behind;
    }
  }
  for (std::int64_t k = 0; k < h.rank; ++k) {
    ColumnVector factor[kVectors];
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i)
      load_vector(factor[i], out + i * h.out_step() + (3 + k) * kColumnLanes);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float sum = sums[row * h.rank + k];
#pragma GCC unroll 2
      for (int i = 0; i < kVectors; ++i) total[row][i] += sum * factor[i];
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t left = std::min(kColumnLanes, count - i * kColumnLanes);
      T* const to = y + row * h.size + (first + i) * kColumnLanes;
      left == kColumnLanes ? store_partial(to, total[row][i], kColumnLanes)
                           : store_partial(to, total[row][i], left);
    }
  }
}

template <int kRows, class T>
inline void expand_tile(T* y, const float* sums, const float* padded,
                        const PackedSemiseparable& h) {
  const std::int64_t whole = h.size / (2 * kColumnLanes) * 2;
  for (std::int64_t i = 0; i < whole; i += 2)
    expand_some<kRows, 2>(y, sums, padded, i, 2 * kColumnLanes, h);
  for (std::int64_t i = whole; i < h.vectors(); ++i)
    expand_some<kRows, 1>(y, sums, padded, i, std::min(kColumnLanes, h.size - i * kColumnLanes), h);
}

/// Computes `sums` (rows, r), and from these y. y may be null.
template <class T>
void multiply_rows(T* y, float* sums, const T* x, std::int64_t rows, float* scratch,
                   const PackedSemiseparable& h) {
  std::fill_n(scratch, kRowsAtOnce * h.padded(), 0.0f);
  const auto tile = [&]<int kRows>(std::integral_constant<int, kRows>) {
    pad_rows<kRows>(scratch, x, h);
    project_tile<kRows>(sums, scratch, h);
    if (y != nullptr) expand_tile<kRows>(y, sums, scratch, h);
    x += kRows * h.size;
    sums += kRows * h.rank;
    if (y != nullptr) y += kRows * h.size;
  };
  for (; rows >= kRowsAtOnce; rows -= kRowsAtOnce) tile(std::integral_constant<int, kRowsAtOnce>{});
  for (; rows > 0; --rows) tile(std::integral_constant<int, 1>{});
}

/// Packs H or, with b and c swapped and U and V swapped, Hᵀ.
void pack(const PackedSemiseparable& packed, const Semiseparable& h, bool transposed) {
  std::fill_n(packed.in, packed.floats(), 0.0f);
  const Tensor& left = transposed ? h.above : h.below;
  const Tensor& right = transposed ? h.below : h.above;
  pack_factor(packed.in, packed.in_step(), transposed ? h.u : h.v,
              transposed ? h.u_scales : h.v_scales);
  pack_factor(packed.out + 3 * kColumnLanes, packed.out_step(), transposed ? h.v : h.u,
              transposed ? h.v_scales : h.u_scales);
  const std::int64_t size = packed.size, step = packed.out_step();
  for (std::int64_t n = 0; n < size; ++n) {
    float* const to = packed.out + n / kColumnLanes * step + n % kColumnLanes;
    to[0] = n > 0 ? left.data<float>()[n - 1] : 0.0f;
    to[kColumnLanes] = h.diagonal.data<float>()[n];
    to[2 * kColumnLanes] = n + 1 < size ? right.data<float>()[n] : 0.0f;
  }
}

/// Computes y = H·x (if defined) and sums = Vᵀ·x, or if transposed y = Hᵀ·x and sums = Uᵀ·x.
void multiply_semiseparable(const Tensor& y, const Tensor& sums, const Tensor& x,
                            const Semiseparable& h, Transpose transpose, const Stream& stream) {
  PackedSemiseparable packed{h.size(), h.rank(), nullptr, nullptr};
  const std::int64_t batch = x.size(0), tiles = (batch + kRowsAtOnce - 1) / kRowsAtOnce;
  const std::int64_t room = kRowsAtOnce * packed.padded();
  const Tensor factors = empty_workspace(packed.floats(), DType::kF32, stream);
  const Tensor scratch =
      empty_workspace(std::min<std::int64_t>(threads(), tiles) * room, DType::kF32, stream);
  if (simulated(stream) || batch == 0) return;
  packed.in = factors.data<float>();
  packed.out = packed.in + packed.vectors() * packed.in_step();
  pack(packed, h, transpose == Transpose::kYes);
  float *const sum = sums.data<float>(), *const pads = scratch.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const to = optional_data<T>(y);
    const T* const from = x.data<T>();
    parallel_shares(
        tiles, min_rows_per_thread(kRowsAtOnce * h.size()),
        [=](std::int64_t share, std::int64_t begin, std::int64_t end) {
          const std::int64_t first = begin * kRowsAtOnce, last = std::min(end * kRowsAtOnce, batch);
          multiply_rows(to == nullptr ? to : to + first * packed.size, sum + first * packed.rank,
                        from + first * packed.size, last - first, pads + share * room, packed);
        });
  });
}

Tensor plain_rows(const Tensor& x, const Stream& stream) {
  if (x.dtype() == DType::kF32) return x;
  const Tensor plain = empty_workspace(x.elements(), DType::kF32, stream).view(x.shape());
  if (!simulated(stream)) cpu::cast(plain, x, stream);
  return plain;
}

/// da[n] = or += Σ g[n]·x[n], db[n] = or += Σ g[n]·x[n + 1], dc[n] = or += Σ g[n + 1]·x[n], summed
/// over the rows in order. Skips undefined gradients.
void add_tridiagonal(const SemiseparableGradients& to, const Tensor& g, const Tensor& x) {
  const std::int64_t size = g.size(1), batch = g.size(0);
  const auto data = [](const Tensor& part) { return optional_data<float>(part); };
  float *const da = data(to.diagonal), *const db = data(to.above), *const dc = data(to.below);
  const float *const gs = g.data<float>(), *const xs = x.data<float>();
  const bool overwrites = to.mode == GradientMode::kOverwrite;
  parallel_parts(size, min_rows_per_thread(batch), 64, [=](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end, size - 1);  // end of b and c
    if (overwrites && da != nullptr) std::fill(da + begin, da + end, 0.0f);
    for (float* const edge : {db, dc})
      if (overwrites && edge != nullptr && begin < last) std::fill(edge + begin, edge + last, 0.0f);
    for (std::int64_t row = 0; row < batch; ++row) {
      const float *const gr = gs + row * size, *const xr = xs + row * size;
      for (std::int64_t n = begin; da != nullptr && n < end; ++n) da[n] += gr[n] * xr[n];
      for (std::int64_t n = begin; db != nullptr && n < last; ++n) db[n] += gr[n] * xr[n + 1];
      for (std::int64_t n = begin; dc != nullptr && n < last; ++n) dc[n] += gr[n + 1] * xr[n];
    }
  });
}

}  // namespace

void semiseparable_forward(const Tensor& y, const Tensor& x, const Semiseparable& h,
                           Transpose transpose, const Stream& stream) {
  const Tensor sums =
      empty_workspace(x.size(0) * h.rank(), DType::kF32, stream).view({x.size(0), h.rank()});
  multiply_semiseparable(y, sums, x, h, transpose, stream);
}

void semiseparable_backward(const SemiseparableGradients& gradients, const Tensor& dy,
                            const Tensor& x, const Semiseparable& h, const Stream& stream) {
  const auto sums = [&] {
    return empty_workspace(x.size(0) * h.rank(), DType::kF32, stream).view({x.size(0), h.rank()});
  };
  const Tensor of_dy = sums(), of_x = sums();
  multiply_semiseparable(gradients.x, of_dy, dy, h, Transpose::kYes, stream);
  if (gradients.u) multiply_semiseparable(Tensor{}, of_x, x, h, Transpose::kNo, stream);
  const Tensor plain_x = plain_rows(x, stream), plain_dy = plain_rows(dy, stream);
  if (gradients.u)
    cpu::matmul(gradients.u, of_x, Transpose::kYes, plain_dy, Transpose::kNo, gradients.mode,
                stream);
  if (gradients.v)
    cpu::matmul(gradients.v, of_dy, Transpose::kYes, plain_x, Transpose::kNo, gradients.mode,
                stream);
  if (simulated(stream)) return;
  add_tridiagonal(gradients, plain_dy, plain_x);
}

}  // namespace hybrid_trainer::kernels::cpu
