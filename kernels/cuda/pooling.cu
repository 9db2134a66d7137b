// Pooling. Bound by memory: a thread reads the places of its windows in packs of channels.

#include "hybrid_trainer/kernels/pooling.h"

#include "kernels/cuda/for_packs.cuh"
#include "kernels/joined_places.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// 1 / the divisor of a window.
__device__ float share_of(const SpatialWindow& of, const Place& window, bool counts_all) {
  std::int64_t places = 1;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t begin = window.at[i] * of.stride[i] - of.padding[i];
    const std::int64_t end = begin + of.kernel[i];
    places *=
        counts_all ? of.kernel[i] : (end < of.in[i] ? end : of.in[i]) - (begin > 0 ? begin : 0);
  }
  return 1.0f / static_cast<float>(places);
}

template <class T>
struct MeanForward {
  T* y;
  const T* x;
  SpatialWindow of;
  bool counts_all;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels;
    const T* const from = x + row / of.outputs() * of.inputs() * of.channels + i % of.channels;
    const Place window = spatial_place(row % of.outputs(), of.out);
    float sums[N] = {};
    for_joined<false>(of, window, [&](std::int64_t, std::int64_t place) {
      float more[N];
      load_pack(more, from + place * of.channels);
      for (int k = 0; k < N; ++k) sums[k] += more[k];
    });
    const float share = share_of(of, window, counts_all);
    for (int k = 0; k < N; ++k) sums[k] *= share;
    store_pack(y + i, sums);
  }
};

template <class T>
struct MeanBackward {
  T* dx;
  const T* dy;
  SpatialWindow of;
  bool counts_all;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels;
    const T* const from = dy + row / of.inputs() * of.outputs() * of.channels + i % of.channels;
    float sums[N] = {};
    for_joined<true>(of, spatial_place(row % of.inputs(), of.in),
                     [&](std::int64_t, std::int64_t window) {
                       const float share = share_of(of, spatial_place(window, of.out), counts_all);
                       float more[N];
                       load_pack(more, from + window * of.channels);
                       for (int k = 0; k < N; ++k) sums[k] += share * more[k];
                     });
    store_pack(dx + i, sums);
  }
};

template <class T>
struct MaxForward {
  T* y;
  std::int32_t* places;
  const T* x;
  SpatialWindow of;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels;
    const T* const from = x + row / of.outputs() * of.inputs() * of.channels + i % of.channels;
    float most[N];
    std::int32_t index[N];
    for (int k = 0; k < N; ++k) most[k] = -INFINITY, index[k] = -1;
    for_joined<false>(of, spatial_place(row % of.outputs(), of.out),
                      [&](std::int64_t, std::int64_t place) {
                        float values[N];
                        load_pack(values, from + place * of.channels);
                        for (int k = 0; k < N; ++k) {
                          if (index[k] >= 0 && !(values[k] > most[k]) && values[k] == values[k])
                            continue;
                          most[k] = values[k];
                          index[k] = static_cast<std::int32_t>(place);
                        }
                      });
    store_pack(y + i, most);
    for (int k = 0; k < N; ++k) places[i + k] = index[k];
  }
};

template <class T>
struct MaxBackward {
  T* dx;
  const T* dy;
  const std::int32_t* places;
  SpatialWindow of;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels;
    const std::int64_t first = row / of.inputs() * of.outputs() * of.channels + i % of.channels;
    const auto number = static_cast<std::int32_t>(row % of.inputs());
    float sums[N] = {};
    for_joined<true>(of, spatial_place(row % of.inputs(), of.in),
                     [&](std::int64_t, std::int64_t window) {
                       const std::int64_t at = first + window * of.channels;
                       float more[N];
                       load_pack(more, dy + at);
                       for (int k = 0; k < N; ++k)
                         sums[k] += places[at + k] == number ? more[k] : 0.0f;
                     });
    store_pack(dx + i, sums);
  }
};

/// Body of all elements, in packs of channels where they fit.
template <class T, class Body>
void for_channels(const char* name, std::int64_t elements, const Body& body, const T* to,
                  const T* from, const Stream& stream) {
  if (body.of.channels % kPackSize<T> == 0)
    return for_packs<kPackSize<T>>(stream, name, elements, body, to, from);
  for_packs<1>(stream, name, elements, body);
}

}  // namespace

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const MeanForward<T> body{y.data<T>(), x.data<T>(), SpatialWindow(x.shape(), window),
                              divisor == Divisor::kWindow};
    for_channels<T>("mean_pooling_forward", y.elements(), body, body.y, body.x, stream);
  });
}

void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream) {
  visit_real(dx.dtype(), [&](auto real) {
    using T = decltype(real);
    const MeanBackward<T> body{dx.data<T>(), dy.data<T>(), SpatialWindow(dx.shape(), window),
                               divisor == Divisor::kWindow};
    for_channels<T>("mean_pooling_backward", dx.elements(), body, body.dx, body.dy, stream);
  });
}

void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const MaxForward<T> body{y.data<T>(), places.data<std::int32_t>(), x.data<T>(),
                             SpatialWindow(x.shape(), window)};
    for_channels<T>("max_pooling_forward", y.elements(), body, body.y, body.x, stream);
  });
}

void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream) {
  visit_real(dx.dtype(), [&](auto real) {
    using T = decltype(real);
    const MaxBackward<T> body{dx.data<T>(), dy.data<T>(), places.data<std::int32_t>(),
                              SpatialWindow(dx.shape(), window)};
    for_channels<T>("max_pooling_backward", dx.elements(), body, body.dx, body.dy, stream);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
