// Convolutions as products of gathered patches (taps·C numbers per window), in chunks that fit a
// workspace. Grouped convolutions are memory-bound: one thread computes each output.

#include <algorithm>

#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/convolution/spatial_window.h"
#include "kernels/generated/elementwise.h"
#include "kernels/generated/matmul.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr std::int64_t kPatchBytes = 64 << 20;  // bytes of patches per chunk

/// Windows [first, end), counted over all examples. Each window has a row of patches.
struct WindowChunk {
  std::int64_t first, end;
};

template <class T>
struct GatherPatches {
  T* patches;
  const T* x;
  SpatialWindow of;
  std::int64_t first_window;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t columns = of.taps() * of.channels;
    const std::int64_t window = first_window + i / columns, column = i % columns;
    const Place tap = spatial_place(column / of.channels, of.kernel),
                from = spatial_place(window % of.outputs(), of.out);
    std::int64_t place = 0;
    bool exists = true;
    for (int k = 0; k < 3; ++k) {
      const std::int64_t at =
          from.at[k] * of.stride[k] - of.padding[k] + tap.at[k] * of.dilation[k];
      exists = exists && at >= 0 && at < of.in[k];
      place = place * of.in[k] + at;
    }
    float values[N] = {};
    if (exists) {
      const std::int64_t row = window / of.outputs() * of.inputs() + place;
      load_pack(values, x + row * of.channels + column % of.channels);
    }
    store_pack(patches + i, values);
  }
};

/// dx = or += the sum of the gradients of a chunk's patches at each place.
template <class T, class Out>
struct SumPatches {
  Out* dx;
  const T* dpatches;
  SpatialWindow of;
  WindowChunk chunk;
  bool adds;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.channels, channel = i % of.channels;
    const std::int64_t example = row / of.inputs(), columns = of.taps() * of.channels;
    float sums[N] = {};
    if (adds) load_pack(sums, dx + i);
    for_joined<true>(
        of, spatial_place(row % of.inputs(), of.in), [&](std::int64_t tap, std::int64_t window) {
          const std::int64_t at = example * of.outputs() + window;
          if (at < chunk.first || at >= chunk.end) return;
          float more[N];
          load_pack(more, dpatches + (at - chunk.first) * columns + tap * of.channels + channel);
          for (int k = 0; k < N; ++k) sums[k] += more[k];
        });
    store_pack(dx + i, sums);
  }
};

/// Calls visit(chunk, its patches) for chunks that cover all windows.
template <class Visit>
void for_chunks(const SpatialWindow& of, DType dtype, const Stream& stream, const Visit& visit) {
  const std::int64_t columns = of.taps() * of.channels, windows = of.batch * of.outputs();
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t most = std::clamp<std::int64_t>(kPatchBytes / row_bytes, 1, windows);
  const Tensor patches = Tensor::empty({most, columns}, dtype, MemoryKind::kWorkspace, stream);
  for (std::int64_t first = 0; first < windows; first += most) {
    const WindowChunk chunk{first, std::min(first + most, windows)};
    visit(chunk, patches.rows(0, chunk.end - chunk.first));
  }
}

void gather(const Tensor& patches, const Tensor& x, const SpatialWindow& of, std::int64_t first,
            const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    const GatherPatches<T> body{patches.data<T>(), x.data<T>(), of, first};
    for_packs_if<kPackSize<T>>(of.channels % kPackSize<T> == 0, stream, "gather_patches",
                               patches.elements(), body, body.patches, body.x);
  });
}

template <class T, class Out>
void sum_patches(Out* dx, const Tensor& dpatches, const SpatialWindow& of, WindowChunk chunk,
                 const Stream& stream) {
  const SumPatches<T, Out> body{dx, dpatches.data<T>(), of, chunk, chunk.first > 0};
  const std::int64_t elements = of.batch * of.inputs() * of.channels;
  for_packs_if<kPackSize<T>>(of.channels % kPackSize<T> == 0, stream, "sum_patches", elements, body,
                             dx, body.dpatches);
}

struct GroupedSizes {
  SpatialWindow of;
  std::int64_t inputs, outputs, all_outputs;  // inputs and outputs per group; all outputs

  GroupedSizes(const SpatialWindow& window, std::int64_t outputs_, std::int64_t groups)
      : of(window),
        inputs(window.channels / groups),
        outputs(outputs_ / groups),
        all_outputs(outputs_) {}
};

template <class T>
struct GroupedForward {
  T* y;
  const T *x, *weight;
  const float* bias;
  GroupedSizes sizes;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const SpatialWindow& of = sizes.of;
    const std::int64_t row = i / sizes.all_outputs, output = i % sizes.all_outputs;
    const T* const from =
        x + row / of.outputs() * of.inputs() * of.channels + output / sizes.outputs * sizes.inputs;
    const T* const weights = weight + output * of.taps() * sizes.inputs;
    float sum = bias != nullptr ? bias[output] : 0.0f;
    for_joined<false>(
        of, spatial_place(row % of.outputs(), of.out), [&](std::int64_t tap, std::int64_t place) {
          for (std::int64_t c = 0; c < sizes.inputs; ++c)
            sum += load(weights + tap * sizes.inputs + c) * load(from + place * of.channels + c);
        });
    store(y + i, sum);
  }
};

template <class T>
struct GroupedInputGradient {
  T* dx;
  const T *dy, *weight;
  GroupedSizes sizes;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const SpatialWindow& of = sizes.of;
    const std::int64_t row = i / of.channels, channel = i % of.channels;
    const std::int64_t first = channel / sizes.inputs * sizes.outputs;
    const T* const from = dy + row / of.inputs() * of.outputs() * sizes.all_outputs + first;
    const T* const weights = weight + first * of.taps() * sizes.inputs + channel % sizes.inputs;
    float sum = 0;
    for_joined<true>(of, spatial_place(row % of.inputs(), of.in),
                     [&](std::int64_t tap, std::int64_t window) {
                       for (std::int64_t o = 0; o < sizes.outputs; ++o)
                         sum += load(weights + (o * of.taps() + tap) * sizes.inputs) *
                                load(from + window * sizes.all_outputs + o);
                     });
    store(dx + i, sum);
  }
};

/// Computes the gradient of each weight as the sum of a row with one term per window.
template <class T>
struct GroupedWeightGradient {
  float* dweight;
  const T *dy, *x;
  GroupedSizes sizes;
  bool adds;

  __device__ float term(std::int64_t element, std::int64_t window) const {
    const SpatialWindow& of = sizes.of;
    const std::int64_t weight = element / (of.batch * of.outputs());
    const std::int64_t channel = weight % sizes.inputs, output = weight / sizes.inputs / of.taps();
    const Place tap = spatial_place(weight / sizes.inputs % of.taps(), of.kernel),
                from = spatial_place(window % of.outputs(), of.out);
    std::int64_t place = window / of.outputs();
    for (int k = 0; k < 3; ++k) {
      const std::int64_t at =
          from.at[k] * of.stride[k] - of.padding[k] + tap.at[k] * of.dilation[k];
      if (at < 0 || at >= of.in[k]) return 0;
      place = place * of.in[k] + at;
    }
    return load(dy + window * sizes.all_outputs + output) *
           load(x + place * of.channels + output / sizes.outputs * sizes.inputs + channel);
  }
  __device__ void finish(std::int64_t weight, double sum) const {
    dweight[weight] = (adds ? dweight[weight] : 0.0f) + static_cast<float>(sum);
  }
};

}  // namespace

void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream) {
  const SpatialWindow of(x.shape(), window);
  const Tensor rows = y.as_rows();
  if (groups > 1) {
    return visit_real(x.dtype(), [&]<class T>(T) {
      const GroupedForward<T> body{y.data<T>(), x.data<T>(), weight.data<T>(),
                                   optional_data<float>(bias),
                                   GroupedSizes(of, weight.size(0), groups)};
      for_packs<1>(stream, "grouped_convolution_forward", y.elements(), body);
    });
  }
  if (of.is_pointwise())
    return cuda::linear_forward(rows, x.as_rows(), weight, bias, Tensor{}, stream);
  for_chunks(of, x.dtype(), stream, [&](WindowChunk chunk, const Tensor& patches) {
    gather(patches, x, of, chunk.first, stream);
    cuda::linear_forward(rows.rows(chunk.first, chunk.end), patches, weight, bias, Tensor{},
                         stream);
  });
}

void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream) {
  const SpatialWindow of(dx.shape(), window);
  const Tensor rows = dy.as_rows();
  if (groups > 1) {
    return visit_real(dx.dtype(), [&]<class T>(T) {
      const GroupedInputGradient<T> body{dx.data<T>(), dy.data<T>(), weight.data<T>(),
                                         GroupedSizes(of, weight.size(0), groups)};
      for_packs<1>(stream, "grouped_convolution_backward_input", dx.elements(), body);
    });
  }
  const auto multiply = [&](const Tensor& to, const Tensor& gradient) {
    cuda::matmul(to, gradient, Transpose::kNo, weight, Transpose::kNo, GradientMode::kOverwrite,
                 stream);
  };
  if (of.is_pointwise()) return multiply(dx.as_rows(), rows);
  // If there are several chunks, they are added in f32.
  Tensor sums = dx;
  for_chunks(of, dx.dtype(), stream, [&](WindowChunk chunk, const Tensor& dpatches) {
    const bool is_all = chunk.first == 0 && chunk.end == rows.size(0);
    if (!is_all && chunk.first == 0 && dx.dtype() != DType::kF32)
      sums = Tensor::empty(dx.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    multiply(dpatches, rows.rows(chunk.first, chunk.end));
    visit_real(dx.dtype(), [&]<class T>(T) {
      visit_real(sums.dtype(), [&](auto out) {
        sum_patches<T>(sums.data<decltype(out)>(), dpatches, of, chunk, stream);
      });
    });
  });
  if (sums.dtype() != dx.dtype()) cuda::cast(dx, sums, stream);
}

void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream) {
  const SpatialWindow of(x.shape(), window);
  const Tensor rows = dy.as_rows();
  if (groups > 1) {
    return visit_real(x.dtype(), [&]<class T>(T) {
      const GroupedWeightGradient<T> body{dweight.data<float>(), dy.data<T>(), x.data<T>(),
                                          GroupedSizes(of, dweight.size(0), groups),
                                          mode == GradientMode::kAccumulate};
      for_rows(stream, "grouped_convolution_backward_weight", body, dweight.elements(),
               rows.size(0));
    });
  }
  const auto multiply = [&](const Tensor& gradient, const Tensor& from, GradientMode how) {
    cuda::matmul(dweight, gradient, Transpose::kYes, from, Transpose::kNo, how, stream);
  };
  if (of.is_pointwise()) return multiply(rows, x.as_rows(), mode);
  for_chunks(of, x.dtype(), stream, [&](WindowChunk chunk, const Tensor& patches) {
    gather(patches, x, of, chunk.first, stream);
    multiply(rows.rows(chunk.first, chunk.end), patches,
             chunk.first > 0 ? GradientMode::kAccumulate : mode);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
