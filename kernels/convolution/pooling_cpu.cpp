
#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/convolution/spatial_window.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kPooledChannels = 128;  // whose results fit in the L1 cache

/// Calls body(row, first channel, count) for all rows. Each example has `results` rows.
template <class Body>
void for_pooled(const SpatialWindow& of, std::int64_t results, const Body& body) {
  const std::int64_t channels = of.channels;
  for_each_row(of.batch * results, channels * of.taps(), [=](std::int64_t row) {
    for (std::int64_t first = 0; first < channels; first += kPooledChannels)
      body(row, first, std::min(kPooledChannels, channels - first));
  });
}

inline float share_of(const SpatialWindow& of, const Place& window, Divisor divisor) {
  if (divisor == Divisor::kWindow) return 1.0f / static_cast<float>(of.taps());
  std::int64_t places = 1;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t begin = window.at[i] * of.stride[i] - of.padding[i];
    places *= std::min(begin + of.kernel[i], of.in[i]) - std::max<std::int64_t>(begin, 0);
  }
  return 1.0f / static_cast<float>(places);
}

constexpr std::int64_t kUpsampledChannels = 128;  // whose sums fit in the L1 cache

template <class T>
struct UpsampledSums {
  std::int64_t first, count;
  float sums[kUpsampledChannels];
  void add(float share, const T* from) {
    if (share == 0.0f) return;
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) sums[c] += share * load(from + first + c);
  }
};

/// Sets to[row] to the sums that sum(row, its UpsampledSums) adds, for all rows and channels.
template <class T, class Sum>
void for_upsampled(T* to, std::int64_t rows, std::int64_t channels, std::int64_t work,
                   const Sum& sum) {
  for_each_row(rows, channels * work, [=](std::int64_t row) {
    for (std::int64_t first = 0; first < channels; first += kUpsampledChannels) {
      UpsampledSums<T> sums{first, std::min(kUpsampledChannels, channels - first), {}};
      sum(row, sums);
      T* const out = to + row * channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < sums.count; ++c) store(out + c, sums.sums[c]);
    }
  });
}

}  // namespace

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream&) {
  const SpatialWindow of(x.shape(), window);
  visit_real(x.dtype(), [&]<class T>(T) {
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
  visit_real(dx.dtype(), [&]<class T>(T) {
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
  visit_real(x.dtype(), [&]<class T>(T) {
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
  visit_real(dx.dtype(), [&]<class T>(T) {
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

void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream&) {
  const UpsampledSizes of(x.shape(), factors, interpolation);
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const in = x.data<T>();
    for_upsampled(y.data<T>(), of.batch * of.outputs(), of.channels, of.linear ? 8 : 1,
                  [=](std::int64_t row, UpsampledSums<T>& sums) {
                    const std::int64_t at = row % of.outputs();
                    const UpsampledPlace p0 = upsampled_place(of, 0, at / (of.out(1) * of.out(2))),
                                         p1 = upsampled_place(of, 1, at / of.out(2) % of.out(1)),
                                         p2 = upsampled_place(of, 2, at % of.out(2));
                    const T* const example = in + row / of.outputs() * of.inputs() * of.channels;
                    for (int corner = 0; corner < 8; ++corner) {
                      const bool high0 = (corner & 4) != 0, high1 = (corner & 2) != 0,
                                 high2 = (corner & 1) != 0;
                      const float share = (high0 ? p0.share_high : p0.share_low) *
                                          (high1 ? p1.share_high : p1.share_low) *
                                          (high2 ? p2.share_high : p2.share_low);
                      const std::int64_t place =
                          ((high0 ? p0.high : p0.low) * of.in[1] + (high1 ? p1.high : p1.low)) *
                              of.in[2] +
                          (high2 ? p2.high : p2.low);
                      sums.add(share, example + place * of.channels);
                    }
                  });
  });
}

void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream&) {
  const UpsampledSizes of(dx.shape(), factors, interpolation);
  visit_real(dx.dtype(), [&]<class T>(T) {
    const T* const in = dy.data<T>();
    for_upsampled(dx.data<T>(), of.batch * of.inputs(), of.channels, of.outputs() / of.inputs(),
                  [=](std::int64_t row, UpsampledSums<T>& sums) {
                    const std::int64_t at = row % of.inputs();
                    const std::int64_t places[3] = {at / (of.in[1] * of.in[2]),
                                                    at / of.in[2] % of.in[1], at % of.in[2]};
                    const T* const example = in + row / of.inputs() * of.outputs() * of.channels;
                    const UpsampledReach reach0 = upsampled_reach(of, 0, places[0]),
                                         reach1 = upsampled_reach(of, 1, places[1]),
                                         reach2 = upsampled_reach(of, 2, places[2]);
                    for (std::int64_t i0 = reach0.begin; i0 < reach0.end; ++i0) {
                      const float share0 = upsampled_share(of, 0, places[0], i0);
                      for (std::int64_t i1 = reach1.begin; share0 != 0 && i1 < reach1.end; ++i1) {
                        const float share1 = share0 * upsampled_share(of, 1, places[1], i1);
                        for (std::int64_t i2 = reach2.begin; share1 != 0 && i2 < reach2.end; ++i2) {
                          sums.add(
                              share1 * upsampled_share(of, 2, places[2], i2),
                              example + ((i0 * of.out(1) + i1) * of.out(2) + i2) * of.channels);
                        }
                      }
                    }
                  });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
