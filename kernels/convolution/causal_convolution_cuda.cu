// Convolution along the tokens. Memory-bound. For each channel of a token, forward reads x and
// writes y, 4 bytes in bf16 and 8 in f32, with 2·K operations. Backward reads x and dy and writes
// dx, 6 bytes and 12, with 7·K operations. A 1,024-token row of 1,792 channels in bf16 takes 7.3
// MB, 2.4 µs at 3 TB/s.

#include <algorithm>

#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Numbers of tokens and channels, and the documents of the tokens. A tap with `lag` reads the
/// token `lag` positions earlier.
struct ConvolutionSizes {
  std::int64_t length, channels;
  std::int64_t stride, first;     // row stride of x; first column
  const std::int32_t* positions;  // (B, T), or null
  int taps, ahead;
  std::int64_t run;  // tokens per thread
  std::int64_t runs, packs;

  __device__ int rows_before() const { return taps - 1 - ahead; }
  /// Returns the offset of a sequence's rows in tensor `before`, or of a text's rows in `state`.
  __device__ std::int64_t before_at(std::int64_t sequence, std::int64_t channel) const {
    return sequence * rows_before() * channels + channel;
  }
  /// Returns whether a tap reads a position in the token's document, and not after the end of the
  /// sequence. `at` is the index of the sequence's first token in positions.
  __device__ bool reads(std::int64_t at, std::int64_t token, int lag) const {
    if (lag < 0 && token - lag >= length) return false;
    if (positions == nullptr || lag == 0) return true;
    return lag > 0 ? positions[at + token] >= lag : positions[at + token - lag] >= -lag;
  }
};

/// Rows that the taps of one token read, newest last, as kTaps packs of N channels.
template <class T, int N, int kTaps>
struct TapWindow {
  float rows[kTaps][N] = {};

  /// Reads all rows that the taps of `token` read, except the last one.
  __device__ void fill(const T* x, const T* before, std::int64_t token,
                       const ConvolutionSizes& sizes) {
    for (std::int64_t t = token - sizes.taps + 1; t < token; ++t)
      push(x, before, t + sizes.ahead, sizes);
  }
  /// Appends row `token` of the sequence. Rows before the sequence are read from `before`.
  __device__ void push(const T* x, const T* before, std::int64_t token,
                       const ConvolutionSizes& sizes) {
#pragma unroll
    for (int tap = 0; tap + 1 < kTaps; ++tap)
      for (int i = 0; i < N; ++i) rows[tap][i] = rows[tap + 1][i];
    for (int i = 0; i < N; ++i) rows[kTaps - 1][i] = 0;
    const std::int64_t of_before = token + sizes.rows_before();
    if (token >= 0 && token < sizes.length) {
      load_pack(rows[kTaps - 1], x + token * sizes.stride);
    } else if (token < 0 && of_before >= 0 && before != nullptr) {
      load_pack(rows[kTaps - 1], before + of_before * sizes.channels);
    }
  }
};

template <int N, int kTaps>
struct TapWeights {
  float weight[kTaps][N] = {}, bias[N] = {};

  __device__ TapWeights(const float* weights, const float* biases, std::int64_t channel, int taps) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int from = tap - (kTaps - taps);
      for (int i = 0; i < N && from >= 0; ++i)
        weight[tap][i] = weights[(channel + i) * taps + from];
    }
    for (int i = 0; i < N && biases != nullptr; ++i) bias[i] = biases[channel + i];
  }
  /// Computes the sums of a token. `reads` has a bit for each tap that reads a row.
  template <class T>
  __device__ void sum(float (&sums)[N], const TapWindow<T, N, kTaps>& window,
                      unsigned int reads) const {
    for (int i = 0; i < N; ++i) sums[i] = bias[i];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if ((reads >> tap & 1) == 0) continue;
      for (int i = 0; i < N; ++i) sums[i] += weight[tap][i] * window.rows[tap][i];
    }
  }
};

/// Returns a bit mask of the taps that read a row. If fewer than kTaps are used, they are the last.
template <int kTaps>
__device__ unsigned int taps_read(const ConvolutionSizes& sizes, std::int64_t at,
                                  std::int64_t token) {
  unsigned int reads = 0;
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    const int from = tap - (kTaps - sizes.taps);
    if (from < 0 || !sizes.reads(at, token, sizes.rows_before() - from)) continue;
    reads |= 1u << tap;
  }
  return reads;
}

struct ConvolutionRun {
  __device__ ConvolutionRun(const ConvolutionSizes& sizes, int pack) {
    const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    channel = item % sizes.packs * pack;
    line = item / sizes.packs;
    sequence = line / sizes.runs;
    begin = line % sizes.runs * sizes.run;
    end = begin + sizes.run < sizes.length ? begin + sizes.run : sizes.length;
  }
  std::int64_t channel, line, sequence, begin, end;
};

template <class T>
struct ConvolutionTensors {
  T* y;
  const T* x;
  const T* before;
  const float* weight;
  const float* bias;
};

template <class T, int N, int kTaps>
__global__ void causal_convolution_forward_kernel(ConvolutionTensors<T> at, ConvolutionSizes sizes,
                                                  std::int64_t sequences, bool silu) {
  const ConvolutionRun run(sizes, N);
  if (run.sequence >= sequences) return;
  const TapWeights<N, kTaps> taps(at.weight, at.bias, run.channel, sizes.taps);
  const std::int64_t row = run.sequence * sizes.length;
  const T* const x = at.x + row * sizes.stride + sizes.first + run.channel;
  const T* const before =
      at.before == nullptr ? nullptr : at.before + sizes.before_at(run.sequence, run.channel);
  TapWindow<T, N, kTaps> window;
  window.fill(x, before, run.begin, sizes);
  for (std::int64_t t = run.begin; t < run.end; ++t) {
    window.push(x, before, t + sizes.ahead, sizes);
    float sums[N];
    taps.sum(sums, window, taps_read<kTaps>(sizes, row, t));
    for (int i = 0; i < N && silu; ++i) sums[i] *= sigmoid(sums[i]);
    store_pack(at.y + (row + t) * sizes.channels + run.channel, sums);
  }
}

template <class T>
struct ConvolutionGradients {
  T* dx;           // gradient of x, in x's shape
  T* dbefore;      // or null
  float* dweight;  // one line per run, or null
  float* dbias;    // one line per run, or null
  const T* dy;
};

/// The thread's gradient sums: of the rows in the window, and of weight and bias.
template <int N, int kTaps>
struct TapGradients {
  float dx[kTaps][N] = {}, dweight[kTaps][N] = {}, dbias[N] = {};

  /// Adds a token's contributions; if `own`, also to the gradients of weight and bias.
  template <class T>
  __device__ void add(const float (&dsum)[N], const TapWeights<N, kTaps>& taps,
                      const TapWindow<T, N, kTaps>& window, unsigned int reads, bool own) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if ((reads >> tap & 1) == 0) continue;
      for (int i = 0; i < N; ++i) {
        dx[tap][i] += taps.weight[tap][i] * dsum[i];
        if (own) dweight[tap][i] += dsum[i] * window.rows[tap][i];
      }
    }
    for (int i = 0; i < N && own; ++i) dbias[i] += dsum[i];
  }
  /// Advances the window by one row, because no later token reads the first one.
  __device__ void pop() {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      for (int i = 0; i < N; ++i) dx[tap][i] = tap + 1 < kTaps ? dx[(tap + 1) % kTaps][i] : 0.0f;
  }
  /// Writes the gradients of weight and bias to lines that start at the thread's first channel.
  __device__ void write(float* of_weight, float* of_bias, int used) const {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int from = tap - (kTaps - used);
      for (int i = 0; i < N && from >= 0 && of_weight != nullptr; ++i)
        of_weight[i * used + from] = dweight[tap][i];
    }
    for (int i = 0; i < N && of_bias != nullptr; ++i) of_bias[i] = dbias[i];
  }
};

/// Computes each row's gradient from the tokens that read it, while the window passes over it.
template <class T, int N, int kTaps>
__global__ void causal_convolution_backward_kernel(ConvolutionGradients<T> to,
                                                   ConvolutionTensors<T> at, ConvolutionSizes sizes,
                                                   std::int64_t sequences, bool silu) {
  const ConvolutionRun run(sizes, N);
  if (run.sequence >= sequences) return;
  const TapWeights<N, kTaps> taps(at.weight, at.bias, run.channel, sizes.taps);
  const std::int64_t row = run.sequence * sizes.length;
  const std::int64_t x_at = row * sizes.stride + sizes.first + run.channel;
  const std::int64_t of_before = sizes.before_at(run.sequence, run.channel);
  const T* const before = at.before == nullptr ? nullptr : at.before + of_before;
  TapWindow<T, N, kTaps> window;
  TapGradients<N, kTaps> sums;
  const std::int64_t first = run.begin < sizes.ahead ? 0 : run.begin - sizes.ahead;
  const std::int64_t width = kTaps - 1 - sizes.ahead;
  window.fill(at.x + x_at, before, first, sizes);
  for (std::int64_t t = first; t < run.end + width; ++t) {
    window.push(at.x + x_at, before, t + sizes.ahead, sizes);
    const unsigned int reads = t < sizes.length ? taps_read<kTaps>(sizes, row, t) : 0;
    float dsum[N] = {}, sum[N];
    if (t < sizes.length) load_pack(dsum, to.dy + (row + t) * sizes.channels + run.channel);
    taps.sum(sum, window, reads);
    for (int i = 0; i < N && silu; ++i) dsum[i] *= silu_derivative(sum[i]);
    sums.add(dsum, taps, window, reads, t >= run.begin && t < run.end);
    const std::int64_t done = t - width, place = done + sizes.rows_before();
    if (done >= run.begin && done < run.end) {
      store_pack(to.dx + x_at + done * sizes.stride, sums.dx[0]);
    } else if (done < 0 && place >= 0 && run.begin == 0 && to.dbefore != nullptr) {
      store_pack(to.dbefore + of_before + place * sizes.channels, sums.dx[0]);
    }
    sums.pop();
  }
  const std::int64_t line = run.line * sizes.channels + run.channel;
  sums.write(to.dweight == nullptr ? nullptr : to.dweight + line * sizes.taps,
             to.dbias == nullptr ? nullptr : to.dbias + line, sizes.taps);
}

template <class T, int N, int kTaps>
__global__ void causal_convolution_step_kernel(ConvolutionTensors<T> at, T* state,
                                               const std::int32_t* texts, ConvolutionSizes sizes,
                                               std::int64_t rows, bool silu) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t n = item / sizes.packs, channel = item % sizes.packs * N;
  if (n >= rows) return;
  const TapWeights<N, kTaps> taps(at.weight, at.bias, channel, sizes.taps);
  T* const of_text = state + sizes.before_at(texts[n], channel);
  TapWindow<T, N, kTaps> window;
  // The state of a text takes the place of the rows before a sequence of one token.
  window.fill(at.x + n * sizes.stride + sizes.first + channel, of_text, 0, sizes);
  window.push(at.x + n * sizes.stride + sizes.first + channel, of_text, 0, sizes);
  float sums[N];
  taps.sum(sums, window, (1u << kTaps) - (1u << (kTaps - sizes.taps)));
  for (int i = 0; i < N && silu; ++i) sums[i] *= sigmoid(sums[i]);
  store_pack(at.y + n * sizes.channels + channel, sums);
#pragma unroll
  for (int tap = 1; tap < kTaps; ++tap) {
    const int to = tap - 1 - (kTaps - sizes.taps);
    if (to >= 0) store_pack(of_text + to * sizes.channels, window.rows[tap]);
  }
}

constexpr int kFewTaps = 4;
constexpr std::int64_t kConvolutionThreads = 1 << 17;  // enough to fill a device
constexpr unsigned int kConvolutionBlock = 128;

/// Returns the sizes without runs and packs. Each thread processes one pack over one run.
ConvolutionSizes convolution_sizes(const Tensor& x, std::int64_t first, const Tensor& weight,
                                   const Tensor& positions, int ahead, bool is_step) {
  ConvolutionSizes sizes{};
  sizes.length = is_step ? 1 : x.size(1);
  sizes.channels = weight.size(0);
  sizes.stride = is_step ? x.size(1) : x.size(2);
  sizes.first = first;
  sizes.positions = optional_data<std::int32_t>(positions);
  sizes.taps = static_cast<int>(weight.size(1));
  sizes.ahead = ahead;
  return sizes;
}

/// Divides tokens into enough runs of at least 32 to occupy a device, and channels into packs.
void split_into_runs(ConvolutionSizes& sizes, int pack, std::int64_t sequences) {
  sizes.packs = sizes.channels / pack;
  const std::int64_t wanted = std::max<std::int64_t>(
      1, kConvolutionThreads / std::max<std::int64_t>(1, sizes.packs * sequences));
  sizes.run = std::max<std::int64_t>(32, (sizes.length + wanted - 1) / wanted);
  sizes.runs = (sizes.length + sizes.run - 1) / sizes.run;
}

/// Calls `call` with the elements per pack, N or 1, and the number of taps kept in registers.
template <int N, class Call>
void with_pack_and_taps(bool packed, int taps, const Call& call) {
  constexpr std::integral_constant<int, kFewTaps> few;
  constexpr std::integral_constant<int, static_cast<int>(kMaxTaps)> most;
  constexpr std::integral_constant<int, 1> one;
  if (taps > kFewTaps) return call(one, most);
  if (packed) return call(std::integral_constant<int, N>{}, few);
  call(one, few);
}

template <class T>
ConvolutionTensors<T> tensors_of(const Tensor& y, const Tensor& x, const Tensor& before,
                                 const Tensor& weight, const Tensor& bias) {
  return {optional_data<T>(y), x.data<T>(), optional_data<T>(before), weight.data<float>(),
          optional_data<float>(bias)};
}

/// Returns whether packs of N elements fit these arrays and x's columns.
template <int N, class... Pointers>
bool columns_fit(const ConvolutionSizes& sizes, Pointers... begins) {
  return sizes.channels % N == 0 && sizes.stride % N == 0 && sizes.first % N == 0 &&
         packs_aligned(begins...);
}

/// Sums the partial gradients `of_weight` (lines, C·K) and `of_bias` (lines, C) over lines into dweight
/// and dbias. Skips undefined gradients.
void sum_lines(const Tensor& dweight, const Tensor& dbias, const float* of_weight,
               const float* of_bias, std::int64_t lines, GradientMode mode, const Stream& stream) {
  const bool adds = mode == GradientMode::kAccumulate;
  if (dweight)
    column_sums<float>(dweight.data<float>(), of_weight, lines, dweight.elements(), adds, stream);
  if (dbias)
    column_sums<float>(dbias.data<float>(), of_bias, lines, dbias.elements(), adds, stream);
}

}  // namespace

void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream) {
  ConvolutionSizes sizes =
      convolution_sizes(x, first, weight, positions, static_cast<int>(spec.ahead), false);
  visit_real(x.dtype(), [&]<class T>(T) {
    constexpr int kPack = kPackSize<T>;
    const ConvolutionTensors<T> at = tensors_of<T>(y, x, before, weight, bias);
    const bool packed = columns_fit<kPack>(sizes, at.y, at.x, at.before);
    with_pack_and_taps<kPack>(packed, sizes.taps, [&](auto pack, auto taps) {
      split_into_runs(sizes, pack, x.size(0));
      launch(stream, "causal_convolution_forward", causal_convolution_forward_kernel<T, pack, taps>,
             grid_for(x.size(0) * sizes.runs * sizes.packs, kConvolutionBlock), at, sizes,
             x.size(0), spec.silu);
    });
  });
}

void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream) {
  constexpr int kPack = 4;  // so that a thread's sums fit in registers
  ConvolutionSizes sizes =
      convolution_sizes(x, first, weight, positions, static_cast<int>(spec.ahead), false);
  const std::int64_t sequences = x.size(0);
  visit_real(x.dtype(), [&]<class T>(T) {
    ConvolutionGradients<T> to{dx.data<T>(), optional_data<T>(dbefore), nullptr, nullptr,
                               dy.data<T>()};
    const ConvolutionTensors<T> at = tensors_of<T>({}, x, before, weight, bias);
    const bool packed = columns_fit<kPack>(sizes, to.dx, to.dbefore, to.dy, at.x, at.before);
    with_pack_and_taps<kPack>(packed, sizes.taps, [&](auto pack, auto taps) {
      split_into_runs(sizes, pack, sequences);
      const std::int64_t lines = sequences * sizes.runs;
      const Tensor of_weight =
          dweight ? empty_workspace(lines * weight.elements(), DType::kF32, stream) : Tensor{};
      const Tensor of_bias =
          dbias ? empty_workspace(lines * sizes.channels, DType::kF32, stream) : Tensor{};
      to.dweight = dweight ? of_weight.data<float>() : nullptr;
      to.dbias = dbias ? of_bias.data<float>() : nullptr;
      launch(stream, "causal_convolution_backward",
             causal_convolution_backward_kernel<T, pack, taps>,
             grid_for(lines * sizes.packs, kConvolutionBlock), to, at, sizes, sequences, spec.silu);
      sum_lines(dweight, dbias, to.dweight, to.dbias, lines, mode, stream);
    });
  });
}

void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream) {
  ConvolutionSizes sizes = convolution_sizes(x, first, weight, {}, 0, true);
  visit_real(x.dtype(), [&]<class T>(T) {
    constexpr int kPack = kPackSize<T>;
    const ConvolutionTensors<T> at = tensors_of<T>(y, x, {}, weight, bias);
    const bool packed = columns_fit<kPack>(sizes, at.y, at.x, state.data<T>());
    with_pack_and_taps<kPack>(packed, sizes.taps, [&](auto pack, auto taps) {
      sizes.packs = sizes.channels / pack;
      launch(stream, "causal_convolution_step", causal_convolution_step_kernel<T, pack, taps>,
             grid_for(x.size(0) * sizes.packs, kConvolutionBlock), at, state.data<T>(),
             texts.data<std::int32_t>(), sizes, x.size(0), spec.silu);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cuda
