#include "hybrid_trainer/kernels/pooling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/joined_places.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kPooledChannels = 128;  // whose results stand in the nearest cache

/// body(row, first channel, count) for all rows of so many results an example.
template <class Body>
void for_pooled(const SpatialWindow& of, std::int64_t results, const Body& body) {
  const std::int64_t channels = of.channels;
  parallel_rows(of.batch * results, channels * of.taps(),
                [=](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t row = begin; row < end; ++row)
                    for (std::int64_t first = 0; first < channels; first += kPooledChannels)
                      body(row, first, std::min(kPooledChannels, channels - first));
                });
}

/// 1 / the divisor of a window.
inline float share_of(const SpatialWindow& of, const Place& window, Divisor divisor) {
  if (divisor == Divisor::kWindow) return 1.0f / static_cast<float>(of.taps());
  std::int64_t places = 1;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t begin = window.at[i] * of.stride[i] - of.padding[i];
    places *= std::min(begin + of.kernel[i], of.in[i]) - std::max<std::int64_t>(begin, 0);
  }
  return 1.0f / static_cast<float>(places);
}

}  // namespace

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream&) {
  const SpatialWindow of(x.shape(), window);
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    for_pooled(of, of.outputs(), [=](std::int64_t row, std::int64_t first, std::int64_t count) {
      const Place at = spatial_place(row % of.outputs(), of.out);
      const T* const example = in + row / of.outputs() * of.inputs() * of.channels + first;
      float sums[kPooledChannels] = {};
      for_joined<false>(of, at, [&](std::int64_t, std::int64_t place) {
        const T* const from = example + place * of.channels;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) sums[c] += load(from + c);
      });
      const float share = share_of(of, at, divisor);
      T* const to = out + row * of.channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) store(to + c, share * sums[c]);
    });
  });
}

void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream&) {
  const SpatialWindow of(dx.shape(), window);
  visit_real(dx.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = dx.data<T>();
    const T* const in = dy.data<T>();
    for_pooled(of, of.inputs(), [=](std::int64_t row, std::int64_t first, std::int64_t count) {
      const T* const example = in + row / of.inputs() * of.outputs() * of.channels + first;
      float sums[kPooledChannels] = {};
      for_joined<true>(
          of, spatial_place(row % of.inputs(), of.in), [&](std::int64_t, std::int64_t window_at) {
            const float share = share_of(of, spatial_place(window_at, of.out), divisor);
            const T* const from = example + window_at * of.channels;
#pragma omp simd
            for (std::int64_t c = 0; c < count; ++c) sums[c] += share * load(from + c);
          });
      T* const to = out + row * of.channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) store(to + c, sums[c]);
    });
  });
}

void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream&) {
  const SpatialWindow of(x.shape(), window);
  std::int32_t* const indices = places.data<std::int32_t>();
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    for_pooled(of, of.outputs(), [=](std::int64_t row, std::int64_t first, std::int64_t count) {
      const T* const example = in + row / of.outputs() * of.inputs() * of.channels + first;
      float most[kPooledChannels];
      std::int32_t index[kPooledChannels];
      bool begun = false;
      for_joined<false>(of, spatial_place(row % of.outputs(), of.out),
                        [&](std::int64_t, std::int64_t place) {
                          const T* const from = example + place * of.channels;
                          const auto number = static_cast<std::int32_t>(place);
#pragma omp simd
                          for (std::int64_t c = 0; c < count; ++c) {
                            const float value = load(from + c);
                            const bool is_more = !begun || value > most[c] || value != value;
                            most[c] = is_more ? value : most[c];
                            index[c] = is_more ? number : index[c];
                          }
                          begun = true;
                        });
      const std::int64_t at = row * of.channels + first;
      for (std::int64_t c = 0; c < count; ++c) {
        store(out + at + c, begun ? most[c] : -std::numeric_limits<float>::infinity());
        indices[at + c] = begun ? index[c] : -1;
      }
    });
  });
}

void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream&) {
  const SpatialWindow of(dx.shape(), window);
  const std::int32_t* const indices = places.data<std::int32_t>();
  visit_real(dx.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = dx.data<T>();
    const T* const in = dy.data<T>();
    for_pooled(of, of.inputs(), [=](std::int64_t row, std::int64_t first, std::int64_t count) {
      const auto number = static_cast<std::int32_t>(row % of.inputs());
      const std::int64_t example = row / of.inputs() * of.outputs() * of.channels + first;
      float sums[kPooledChannels] = {};
      for_joined<true>(of, spatial_place(row % of.inputs(), of.in),
                       [&](std::int64_t, std::int64_t window_at) {
                         const std::int64_t from = example + window_at * of.channels;
#pragma omp simd
                         for (std::int64_t c = 0; c < count; ++c)
                           sums[c] += indices[from + c] == number ? load(in + from + c) : 0.0f;
                       });
      T* const to = out + row * of.channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) store(to + c, sums[c]);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
