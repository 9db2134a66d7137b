#include "hybrid_trainer/kernels/rotary.h"
#include "kernels/cuda/for_packs.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// Element i is a pair: of row i / (heads·half), head i / half % heads, place i % half.
template <class T>
struct Rotate {
  T* rows;
  const float* table;             // from the first position on
  const std::int32_t* positions;  // of the rows, or null
  std::int64_t length, stride, heads, size, half;
  float sign;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t place = i % half, row = i / (heads * half);
    T* const first = rows + row * stride + i / half % heads * size + place;
    const std::int64_t position = positions ? positions[row] : row % length;
    const float* const cosines = table + position * 2 * half + place;
    float u[N], v[N], c[N], s[N];
    load_pack(u, first);
    load_pack(v, first + half);
    load_pack(c, cosines);
    load_pack(s, cosines + half);
    for (int j = 0; j < N; ++j) {
      const float rotated = u[j] * c[j] - v[j] * sign * s[j];
      v[j] = v[j] * c[j] + u[j] * sign * s[j];
      u[j] = rotated;
    }
    store_pack(first, u);
    store_pack(first + half, v);
  }
};

}  // namespace

void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream) {
  const std::int64_t half = table.size(1) / 2;
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const Rotate<T> body{x.data<T>(),
                         table.data<float>() + (positions ? 0 : first_position) * 2 * half,
                         positions ? positions.data<std::int32_t>() : nullptr,
                         x.size(1),
                         x.size(2),
                         heads.count,
                         heads.size_or(2 * half),
                         half,
                         rotation == Rotation::kForward ? 1.0f : -1.0f};
    const std::int64_t pairs = x.size(0) * x.size(1) * heads.count * half;
    if (half % kPackSize<T> == 0 && body.size % kPackSize<T> == 0 &&
        packs_fit<T>(x.size(2), body.rows, body.table)) {
      for_packs<kPackSize<T>>(stream, "rotate", pairs, body);
    } else {
      for_packs<1>(stream, "rotate", pairs, body);
    }
  });
}

}  // namespace hybrid_trainer::kernels::cuda
