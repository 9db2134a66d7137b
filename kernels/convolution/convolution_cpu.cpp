#include "kernels/convolution/convolution_cpu.h"

#include <cstring>

#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/generated/matmul.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Number of channels whose sums fit in the L1 cache.
constexpr std::int64_t kBlockChannels = 256;
constexpr int kSummedChannels = 64;  // whose sums stay in registers

template <class T>
struct JoinedTap {
  const float* weight;
  const T* x;
};

typedef float SixteenFloats [[gnu::vector_size(64)]];
inline void load_sixteen(SixteenFloats& to, const float* from) {
  std::memcpy(&to, from, sizeof to);
}
inline void load_sixteen(SixteenFloats& to, const BFloat16* from) {
  typedef std::uint16_t Halves [[gnu::vector_size(32)]];
  typedef std::uint32_t Words [[gnu::vector_size(64)]];
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

/// Computes channels [first, first + 64) of a place, with sums in registers. start may be null.
template <class T>
inline void sum_channels(T* to, const JoinedTap<T>* taps, std::size_t count, const float* start,
                         std::int64_t first) {
  constexpr int kVectors = kSummedChannels / 16;
  SixteenFloats sums[kVectors] = {};
#pragma GCC unroll 4
  for (int v = 0; v < kVectors && start != nullptr; ++v)
    load_sixteen(sums[v], start + first + 16 * v);
  for (std::size_t t = 0; t < count; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      SixteenFloats weight, x;
      load_sixteen(weight, taps[t].weight + first + 16 * v);
      load_sixteen(x, taps[t].x + first + 16 * v);
      sums[v] += weight * x;
    }
  }
  float values[kSummedChannels];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) std::memcpy(values + 16 * v, &sums[v], sizeof sums[v]);
#pragma omp simd
  for (int c = 0; c < kSummedChannels; ++c) store(to + first + c, values[c]);
}

/// to[place] = start + Σ weight·from[connected place] over the taps of the place.
template <bool kBack, class T>
void sum_joined(T* to, const T* from, const ChannelTaps& taps, const float* start,
                const SpatialWindow& of) {
  const std::int64_t results = kBack ? of.inputs() : of.outputs(),
                     sources = kBack ? of.outputs() : of.inputs(), channels = of.channels;
  const ChannelTaps* const weights = &taps;
  const SpatialWindow* const shape = &of;
  parallel_rows(
      of.batch * results, channels * of.taps(), [=](std::int64_t begin, std::int64_t end) {
        std::vector<JoinedTap<T>> joined(static_cast<std::size_t>(shape->taps()));
        for (std::int64_t row = begin; row < end; ++row) {
          const T* const x = from + row / results * sources * channels;
          std::size_t count = 0;
          for_joined<kBack>(*shape, spatial_place(row % results, kBack ? shape->in : shape->out),
                            [&](std::int64_t tap, std::int64_t place) {
                              joined[count++] = {weights->tap(tap), x + place * channels};
                            });
          T* const out = to + row * channels;
          std::int64_t first = 0;
          for (; first + kSummedChannels <= channels; first += kSummedChannels)
            sum_channels(out, joined.data(), count, start, first);
          float sums[kSummedChannels];
          for (std::int64_t c = first; c < channels; ++c) sums[c - first] = start ? start[c] : 0.0f;
          for (std::size_t t = 0; t < count; ++t) {
#pragma omp simd
            for (std::int64_t c = first; c < channels; ++c)
              sums[c - first] += joined[t].weight[c] * load(joined[t].x + c);
          }
          for (std::int64_t c = first; c < channels; ++c) store(out + c, sums[c - first]);
        }
      });
}

/// sums[c] = Σ dy·x over all windows at `tap`. Each plane of windows is summed separately.
template <class T>
inline void sum_tap(float* sums, const T* dy, const T* x, const SpatialWindow& of, std::int64_t tap,
                    std::int64_t first, std::int64_t count) {
  const Place at = spatial_place(tap, of.kernel);
  const auto place = [&](int i, std::int64_t window) {
    const std::int64_t found = window * of.stride[i] - of.padding[i] + at.at[i] * of.dilation[i];
    return found < of.in[i] ? found : -1;
  };
  std::fill_n(sums, count, 0.0f);
  for (std::int64_t plane = 0; plane < of.batch * of.out[0] * of.out[1]; ++plane) {
    const std::int64_t example = plane / (of.out[0] * of.out[1]);
    const std::int64_t i0 = place(0, plane / of.out[1] % of.out[0]),
                       i1 = place(1, plane % of.out[1]);
    if (i0 < 0 || i1 < 0) continue;
    const T* const line =
        x + (((example * of.in[0] + i0) * of.in[1] + i1) * of.in[2]) * of.channels + first;
    const T* const gradient = dy + plane * of.out[2] * of.channels + first;
    float part[kBlockChannels] = {};
    for (std::int64_t window = 0; window < of.out[2]; ++window) {
      const std::int64_t i2 = place(2, window);
      if (i2 < 0) continue;
      const T *const g = gradient + window * of.channels, *const v = line + i2 * of.channels;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) part[c] += load(g + c) * load(v + c);
    }
    for (std::int64_t c = 0; c < count; ++c) sums[c] += part[c];
  }
}

/// Returns whether each window reads one place, so that the convolution is a product of rows.
bool is_product(const SpatialWindow& window, std::int64_t groups) {
  return groups == 1 && window.is_pointwise();
}

bool is_by_channel(const SpatialWindow& window, const Tensor& weight, std::int64_t groups) {
  return groups == window.channels && weight.size(0) == groups;
}

SlidingProduct sliding_of(const SpatialWindow& window, const Tensor& weight, std::int64_t groups) {
  SlidingProduct product{.dtype = weight.dtype(), .batch = window.batch, .groups = groups};
  std::copy_n(window.kernel, 3, product.kernel);
  return product;
}

/// Returns the places of x with index `rest` modulo the stride, and the taps that reach them.
SlidingDimension reached_places(const SpatialWindow& window, int i, std::int64_t rest) {
  const std::int64_t stride = window.stride[i];
  SlidingDimension of{.places = window.out[i],
                      .windows = (window.in[i] - rest + stride - 1) / stride,
                      .taps = {},
                      .results = window.in[i],
                      .first = rest,
                      .spread = stride};
  for (std::int64_t tap = window.kernel[i] - 1; tap >= 0; --tap) {
    const std::int64_t distance = rest + window.padding[i] - tap * window.dilation[i];
    if (distance % stride == 0) of.taps.push_back({distance / stride, tap});
  }
  if (of.taps.empty()) return of;
  of.origin = of.taps.front().offset;
  for (SlidingTap& tap : of.taps) tap.offset -= of.origin;
  return of;
}

}  // namespace

ChannelTaps::ChannelTaps(const Tensor& weight, const Stream& stream)
    : channels(weight.size(0)),
      taps(weight.size(1)),
      values_(empty_workspace(weight.elements(), DType::kF32, stream)) {
  if (simulated(stream)) return;
  visit_real(weight.dtype(), [&]<class T>(T) {
    const auto* const from = weight.data<T>();
    float* const to = values_.data<float>();
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        to[tap * channels + c] = load(from + c * taps + tap);
  });
}

void convolve_channels(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const SpatialWindow& window, const Stream& stream) {
  const ChannelTaps taps(weight, stream);
  if (simulated(stream)) return;
  visit_real(x.dtype(), [&]<class T>(T) {
    sum_joined<false>(y.data<T>(), x.data<T>(), taps, optional_data<float>(bias), window);
  });
}

void convolve_channels_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                      const SpatialWindow& window, const Stream& stream) {
  const ChannelTaps taps(weight, stream);
  if (simulated(stream)) return;
  visit_real(dx.dtype(), [&]<class T>(T) {
    sum_joined<true>(dx.data<T>(), dy.data<T>(), taps, nullptr, window);
  });
}

void convolve_channels_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                       const SpatialWindow& window, GradientMode mode,
                                       const Stream& stream) {
  if (simulated(stream)) return;
  const bool adds = mode == GradientMode::kAccumulate;
  const std::int64_t taps = window.taps(),
                     blocks = (window.channels + kBlockChannels - 1) / kBlockChannels;
  float* const to = dweight.data<float>();
  const SpatialWindow* const of = &window;
  visit_real(x.dtype(), [&]<class T>(T) {
    const T *const gradient = dy.data<T>(), *const in = x.data<T>();
    parallel_items(taps * blocks, [=](std::int64_t, std::int64_t item) {
      const std::int64_t tap = item / blocks, first = item % blocks * kBlockChannels;
      const std::int64_t count = std::min(kBlockChannels, of->channels - first);
      float sums[kBlockChannels];
      sum_tap(sums, gradient, in, *of, tap, first, count);
      for (std::int64_t c = 0; c < count; ++c) {
        float& out = to[(first + c) * taps + tap];
        out = (adds ? out : 0.0f) + sums[c];
      }
    });
  });
}

void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream) {
  const SpatialWindow of(x.shape(), window);
  if (is_product(of, groups))
    return cpu::linear_forward(y.as_rows(), x.as_rows(), weight, bias, Tensor{}, stream);
  if (is_by_channel(of, weight, groups)) return convolve_channels(y, x, weight, bias, of, stream);
  SlidingProduct product = sliding_of(of, weight, groups);
  const std::int64_t columns = weight.size(1);
  product.inputs = of.channels / groups, product.outputs = weight.size(0) / groups;
  product.x = x.raw(), product.result = y.raw();
  product.bias = optional_data<float>(bias);
  product.weight = {weight.raw(), product.outputs * columns, columns, product.inputs, 1};
  for (int i = 0; i < 3; ++i) {
    SlidingDimension& dimension = product.dimensions[static_cast<std::size_t>(i)];
    dimension = {.places = of.in[i],
                 .windows = of.out[i],
                 .step = of.stride[i],
                 .origin = -of.padding[i],
                 .taps = {},
                 .results = of.out[i]};
    for (std::int64_t tap = 0; tap < of.kernel[i]; ++tap)
      dimension.taps.push_back({tap * of.dilation[i], tap});
  }
  multiply_sliding({&product, 1}, stream);
}

void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream) {
  const SpatialWindow of(dx.shape(), window);
  if (is_product(of, groups)) {
    return cpu::matmul(dx.as_rows(), dy.as_rows(), Transpose::kNo, weight, Transpose::kNo,
                       GradientMode::kOverwrite, stream);
  }
  if (is_by_channel(of, weight, groups))
    return convolve_channels_backward_input(dx, dy, weight, of, stream);
  SlidingProduct product = sliding_of(of, weight, groups);
  const std::int64_t columns = weight.size(1);
  product.inputs = weight.size(0) / groups, product.outputs = of.channels / groups;
  product.x = dy.raw(), product.result = dx.raw();
  product.weight = {weight.raw(), product.inputs * columns, 1, product.outputs, columns};
  // With a stride, places with different remainders are reached by different taps.
  const auto rests = [&](int i) { return std::min(of.stride[i], of.in[i]); };
  std::vector<SlidingProduct> products;
  for (std::int64_t first = 0; first < rests(0); ++first) {
    for (std::int64_t second = 0; second < rests(1); ++second) {
      for (std::int64_t third = 0; third < rests(2); ++third) {
        product.dimensions = {reached_places(of, 0, first), reached_places(of, 1, second),
                              reached_places(of, 2, third)};
        products.push_back(product);
      }
    }
  }
  multiply_sliding(products, stream);
}

void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream) {
  const SpatialWindow of(x.shape(), window);
  if (is_product(of, groups)) {
    return cpu::matmul(dweight, dy.as_rows(), Transpose::kYes, x.as_rows(), Transpose::kNo, mode,
                       stream);
  }
  if (is_by_channel(of, dweight, groups))
    return convolve_channels_backward_weight(dweight, dy, x, of, mode, stream);
  convolve_backward_weight(dweight, dy, x, of, groups, mode, stream);
}

}  // namespace hybrid_trainer::kernels::cpu
