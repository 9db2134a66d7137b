#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/convolution/spatial_window.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kPooledChannels = 128;  // whose results fit in the L1 cache

/// Results for `count` channels of a row, from channel `first` on; at first 0.
template <class T>
struct PooledChannels {
  std::int64_t first, count;
  float values[kPooledChannels];
  /// Adds `share` times the channels of a row.
  void add(float share, const T* row) {
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) values[c] += share * load(row + first + c);
  }
};

/// Sets to[row] to the results of pool(row, its PooledChannels), for all rows and channels. `work`:
/// rows read for each row.
template <class T, class Pool>
void for_pooled(T* to, std::int64_t rows, std::int64_t channels, std::int64_t work,
                const Pool& pool) {
  for_each_row(rows, channels * work, [=](std::int64_t row) {
    for (std::int64_t first = 0; first < channels; first += kPooledChannels) {
      PooledChannels<T> pooled{first, std::min(kPooledChannels, channels - first), {}};
      pool(row, pooled);
      T* const out = to + row * channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < pooled.count; ++c) store(out + c, pooled.values[c]);
    }
  });
}

}  // namespace

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream&) {
  const SpatialWindow of(x.shape(), window);
  const bool counts_all = divisor == Divisor::kWindow;
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const in = x.data<T>();
    for_pooled(y.data<T>(), of.batch * of.outputs(), of.channels, of.taps(),
               [=](std::int64_t row, PooledChannels<T>& means) {
                 const Place window_at = spatial_place(row % of.outputs(), of.out);
                 const T* const example = in + row / of.outputs() * of.inputs() * of.channels;
                 for_joined<false>(of, window_at, [&](std::int64_t, std::int64_t place) {
                   means.add(1.0f, example + place * of.channels);
                 });
                 const float share = share_of(of, window_at, counts_all);
#pragma omp simd
                 for (std::int64_t c = 0; c < means.count; ++c) means.values[c] *= share;
               });
  });
}

void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream&) {
  const SpatialWindow of(dx.shape(), window);
  const bool counts_all = divisor == Divisor::kWindow;
  visit_real(dx.dtype(), [&]<class T>(T) {
    const T* const in = dy.data<T>();
    for_pooled(dx.data<T>(), of.batch * of.inputs(), of.channels, of.taps(),
               [=](std::int64_t row, PooledChannels<T>& sums) {
                 const T* const example = in + row / of.inputs() * of.outputs() * of.channels;
                 for_joined<true>(of, spatial_place(row % of.inputs(), of.in),
                                  [&](std::int64_t, std::int64_t at) {
                                    const Place window_at = spatial_place(at, of.out);
                                    sums.add(share_of(of, window_at, counts_all),
                                             example + at * of.channels);
                                  });
               });
  });
}

void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream&) {
  const SpatialWindow of(x.shape(), window);
  std::int32_t* const indices = places.data<std::int32_t>();
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const in = x.data<T>();
    for_pooled(
        y.data<T>(), of.batch * of.outputs(), of.channels, of.taps(),
        [=](std::int64_t row, PooledChannels<T>& most) {
          const T* const example = in + row / of.outputs() * of.inputs() * of.channels + most.first;
          std::int32_t* const index = indices + row * of.channels + most.first;
          std::fill_n(most.values, most.count, -std::numeric_limits<float>::infinity());
          std::fill_n(index, most.count, -1);
          for_joined<false>(
              of, spatial_place(row % of.outputs(), of.out), [&](std::int64_t, std::int64_t place) {
                const T* const from = example + place * of.channels;
                const auto number = static_cast<std::int32_t>(place);
#pragma omp simd
                for (std::int64_t c = 0; c < most.count; ++c) {
                  const float value = load(from + c);
                  const bool is_more = index[c] < 0 || value > most.values[c] || value != value;
                  most.values[c] = is_more ? value : most.values[c];
                  index[c] = is_more ? number : index[c];
                }
              });
        });
  });
}

void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream&) {
  const SpatialWindow of(dx.shape(), window);
  const std::int32_t* const indices = places.data<std::int32_t>();
  visit_real(dx.dtype(), [&]<class T>(T) {
    const T* const in = dy.data<T>();
    for_pooled(
        dx.data<T>(), of.batch * of.inputs(), of.channels, of.taps(),
        [=](std::int64_t row, PooledChannels<T>& sums) {
          const auto number = static_cast<std::int32_t>(row % of.inputs());
          const std::int64_t example = row / of.inputs() * of.outputs() * of.channels + sums.first;
          for_joined<true>(
              of, spatial_place(row % of.inputs(), of.in), [&](std::int64_t, std::int64_t at) {
                const std::int64_t from = example + at * of.channels;
#pragma omp simd
                for (std::int64_t c = 0; c < sums.count; ++c)
                  sums.values[c] += indices[from + c] == number ? load(in + from + c) : 0.0f;
              });
        });
  });
}

void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream&) {
  const UpsampledSizes of(x.shape(), factors, interpolation);
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const in = x.data<T>();
    for_pooled(y.data<T>(), of.batch * of.outputs(), of.channels, of.linear ? 8 : 1,
               [=](std::int64_t row, PooledChannels<T>& sums) {
                 const T* const example = in + row / of.outputs() * of.inputs() * of.channels;
                 for_sources(of, row % of.outputs(), [&](float share, std::int64_t place) {
                   sums.add(share, example + place * of.channels);
                 });
               });
  });
}

void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream&) {
  const UpsampledSizes of(dx.shape(), factors, interpolation);
  visit_real(dx.dtype(), [&]<class T>(T) {
    const T* const in = dy.data<T>();
    for_pooled(dx.data<T>(), of.batch * of.inputs(), of.channels, of.outputs() / of.inputs(),
               [=](std::int64_t row, PooledChannels<T>& sums) {
                 const T* const example = in + row / of.inputs() * of.outputs() * of.channels;
                 for_targets(of, row % of.inputs(), [&](float share, std::int64_t place) {
                   sums.add(share, example + place * of.channels);
                 });
               });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
