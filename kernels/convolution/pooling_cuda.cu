// Pooling and upsampling by integer factors. Memory-bound: threads read packs of channels.

#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/elements.cuh"
#include "kernels/convolution/spatial_window.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

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

/// Runs the body for all elements. Uses packs of channels if these are aligned.
template <class T, class Body>
void for_channels(const char* name, std::int64_t elements, const Body& body, const T* to,
                  const T* from, const Stream& stream) {
  for_packs_if<kPackSize<T>>(body.of.channels % kPackSize<T> == 0, stream, name, elements, body, to,
                             from);
}

}  // namespace

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    const MeanForward<T> body{y.data<T>(), x.data<T>(), SpatialWindow(x.shape(), window),
                              divisor == Divisor::kWindow};
    for_channels<T>("mean_pooling_forward", y.elements(), body, body.y, body.x, stream);
  });
}

void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream) {
  visit_real(dx.dtype(), [&]<class T>(T) {
    const MeanBackward<T> body{dx.data<T>(), dy.data<T>(), SpatialWindow(dx.shape(), window),
                               divisor == Divisor::kWindow};
    for_channels<T>("mean_pooling_backward", dx.elements(), body, body.dx, body.dy, stream);
  });
}

void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    const MaxForward<T> body{y.data<T>(), places.data<std::int32_t>(), x.data<T>(),
                             SpatialWindow(x.shape(), window)};
    for_channels<T>("max_pooling_forward", y.elements(), body, body.y, body.x, stream);
  });
}

void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream) {
  visit_real(dx.dtype(), [&]<class T>(T) {
    const MaxBackward<T> body{dx.data<T>(), dy.data<T>(), places.data<std::int32_t>(),
                              SpatialWindow(dx.shape(), window)};
    for_channels<T>("max_pooling_backward", dx.elements(), body, body.dx, body.dy, stream);
  });
}

namespace {

template <class T>
struct UpsamplingForward {
  T* y;
  const T* x;
  UpsampledSizes of;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels;
    const T* const from = x + row / of.outputs() * of.inputs() * of.channels + i % of.channels;
    float sums[N] = {};
    for_sources(of, row % of.outputs(), [&](float share, std::int64_t place) {
      float more[N];
      load_pack(more, from + place * of.channels);
      for (int k = 0; k < N; ++k) sums[k] += share * more[k];
    });
    store_pack(y + i, sums);
  }
};

template <class T>
struct UpsamplingBackward {
  T* dx;
  const T* dy;
  UpsampledSizes of;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels;
    const T* const from = dy + row / of.inputs() * of.outputs() * of.channels + i % of.channels;
    float sums[N] = {};
    for_targets(of, row % of.inputs(), [&](float share, std::int64_t place) {
      float more[N];
      load_pack(more, from + place * of.channels);
      for (int k = 0; k < N; ++k) sums[k] += share * more[k];
    });
    store_pack(dx + i, sums);
  }
};

}  // namespace

void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    const UpsamplingForward<T> body{y.data<T>(), x.data<T>(),
                                    UpsampledSizes(x.shape(), factors, interpolation)};
    for_channels<T>("upsampling_forward", y.elements(), body, body.y, body.x, stream);
  });
}

void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream& stream) {
  visit_real(dx.dtype(), [&]<class T>(T) {
    const UpsamplingBackward<T> body{dx.data<T>(), dy.data<T>(),
                                     UpsampledSizes(dx.shape(), factors, interpolation)};
    for_channels<T>("upsampling_backward", dx.elements(), body, body.dx, body.dy, stream);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
