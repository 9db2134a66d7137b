#include "hybrid_trainer/kernels/convolution.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/convolution/convolution_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kChannels = 128;  // whose sums fit in the L1 cache

/// Input rows that the filter's taps read for one token; null if a row is missing or belongs to
/// another document.
template <class T>
struct RowsOfTaps {
  const T* row[kMaxTaps];
};

template <class T>
struct ConvolvedRows {
  ConvolvedRows(const Tensor& x, std::int64_t first, const Tensor& before, const Tensor& positions,
                const ChannelTaps& weights, std::int64_t ahead)
      : rows(x.data<T>() + first),
        before_rows(optional_data<T>(before)),
        places(optional_data<std::int32_t>(positions)),
        stride(x.size(2)),
        time(x.size(1)),
        channels(weights.channels),
        taps(weights.taps),
        back(weights.taps - 1 - ahead) {}

  /// Returns row t of a sequence, t >= -back, or null if the row is missing.
  T* at(std::int64_t sequence, std::int64_t t) const {
    if (t >= time || (t < 0 && before_rows == nullptr)) return nullptr;
    if (t < 0) return before_rows + (sequence * back + back + t) * channels;
    return rows + (sequence * time + t) * stride;
  }
  /// Returns whether tokens t and t + offset belong to one document.
  bool joined(std::int64_t sequence, std::int64_t t, std::int64_t offset) const {
    if (places == nullptr || t + std::max<std::int64_t>(offset, 0) >= time) return true;
    return places[sequence * time + t + std::max<std::int64_t>(offset, 0)] >= std::abs(offset);
  }
  RowsOfTaps<T> read_by(std::int64_t sequence, std::int64_t t) const {
    RowsOfTaps<T> result;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t offset = tap - back;
      result.row[tap] = joined(sequence, t, offset) ? at(sequence, t + offset) : nullptr;
    }
    return result;
  }
  T* rows;
  T* before_rows;
  const std::int32_t* places;
  std::int64_t stride, time, channels, taps, back;
};

/// sums[c] = bias + the sum of weight·input over the taps, for channels [begin, begin + count).
template <class T>
inline void sum_taps(float* sums, const RowsOfTaps<T>& read, const ChannelTaps& weights,
                     const float* bias, std::int64_t begin, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] = bias != nullptr ? bias[begin + c] : 0.0f;
  for (std::int64_t tap = 0; tap < weights.taps; ++tap) {
    if (read.row[tap] == nullptr) continue;
    const T* const x = read.row[tap] + begin;
    const float* const w = weights.tap(tap) + begin;
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) sums[c] += w[c] * load(x + c);
  }
}

template <class T>
inline void convolve_row(T* y, const RowsOfTaps<T>& read, const ChannelTaps& weights,
                         const float* bias, bool silu) {
  for (std::int64_t begin = 0; begin < weights.channels; begin += kChannels) {
    const std::int64_t count = std::min(kChannels, weights.channels - begin);
    float sums[kChannels];
    sum_taps(sums, read, weights, bias, begin, count);
    if (silu) {
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) sums[c] *= sigmoid(sums[c]);
    }
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) store(y + begin + c, sums[c]);
  }
}

/// Gradients of one block of channels, over all sequences. They are independent of other blocks.
template <class T>
class BlockGradients {
 public:
  BlockGradients(const ConvolvedRows<T>& x, const ConvolvedRows<T>& dx, const ChannelTaps& weights,
                 std::int64_t begin)
      : x_(x),
        dx_(dx),
        weights_(weights),
        begin_(begin),
        count_(std::min(kChannels, weights.channels - begin)) {}

  void add_sequence(std::int64_t sequence, const T* dy, const float* bias, bool silu) {
    for (auto& line : open_) std::fill_n(line, kChannels, 0.0f);
    for (std::int64_t t = 0; t < x_.time; ++t) {
      const RowsOfTaps<T> read = x_.read_by(sequence, t);
      float dsum[kChannels];
      sum_taps(dsum, read, weights_, bias, begin_, count_);
      differentiate(dsum, dy + (sequence * x_.time + t) * x_.channels + begin_, silu);
      for (std::int64_t tap = 0; tap < x_.taps; ++tap) {
        if (read.row[tap] != nullptr) add_weight_gradient(tap, dsum, read.row[tap] + begin_);
        if (x_.joined(sequence, t, tap - x_.back)) add_to_row(t + tap - x_.back, tap, dsum);
      }
      finish_row(sequence, t - x_.back);
    }
    for (std::int64_t t = x_.time - x_.back; t < x_.time; ++t) finish_row(sequence, t);
  }

  void write(float* dweight, float* dbias, bool accumulate) const {
    for (std::int64_t c = 0; c < count_; ++c) {
      if (dbias != nullptr) dbias[begin_ + c] = (accumulate ? dbias[begin_ + c] : 0.0f) + dbias_[c];
      for (std::int64_t tap = 0; dweight != nullptr && tap < x_.taps; ++tap) {
        float& to = dweight[(begin_ + c) * x_.taps + tap];
        to = (accumulate ? to : 0.0f) + dweight_[tap][c];
      }
    }
  }

 private:
  /// Replaces the sums by their gradients, and adds these to the gradient of the bias.
  void differentiate(float* sums, const T* dy, bool silu) {
    if (silu) {
#pragma omp simd
      for (std::int64_t c = 0; c < count_; ++c) {
        const float gate = sigmoid(sums[c]);
        sums[c] = load(dy + c) * (gate * (1.0f + sums[c] * (1.0f - gate)));
      }
    } else {
      for (std::int64_t c = 0; c < count_; ++c) sums[c] = load(dy + c);
    }
    float* const to = dbias_;
#pragma omp simd
    for (std::int64_t c = 0; c < count_; ++c) to[c] += sums[c];
  }
  void add_weight_gradient(std::int64_t tap, const float* dsum, const T* x) {
    float* const to = dweight_[tap];
#pragma omp simd
    for (std::int64_t c = 0; c < count_; ++c) to[c] += dsum[c] * load(x + c);
  }
  /// Returns row t's gradient, to which later tokens may add. A ring of kMaxTaps such rows is kept.
  float* open_row(std::int64_t t) { return open_[(t + kMaxTaps) % kMaxTaps]; }
  void add_to_row(std::int64_t t, std::int64_t tap, const float* dsum) {
    float* const to = open_row(t);
    const float* const w = weights_.tap(tap) + begin_;
#pragma omp simd
    for (std::int64_t c = 0; c < count_; ++c) to[c] += w[c] * dsum[c];
  }
  void finish_row(std::int64_t sequence, std::int64_t t) {
    float* const from = open_row(t);
    if (t >= -x_.back && t < x_.time) {
      if (T* const to = dx_.at(sequence, t); to != nullptr) {
#pragma omp simd
        for (std::int64_t c = 0; c < count_; ++c) store(to + begin_ + c, from[c]);
      }
    }
    std::fill_n(from, kChannels, 0.0f);
  }

  const ConvolvedRows<T>&x_, &dx_;
  const ChannelTaps& weights_;
  std::int64_t begin_, count_;
  float dweight_[kMaxTaps][kChannels] = {};
  float dbias_[kChannels] = {};
  float open_[kMaxTaps][kChannels];
};

}  // namespace

void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream) {
  const ChannelTaps weights(weight, stream);
  if (simulated(stream)) return;
  const float* const shift = optional_data<float>(bias);
  visit_real(x.dtype(), [&]<class T>(T) {
    const ConvolvedRows<T> rows(x, first, before, positions, weights, spec.ahead);
    T* const out = y.data<T>();
    for_each_row(x.size(0) * rows.time, rows.channels, [=, &weights](std::int64_t row) {
      convolve_row(out + row * rows.channels, rows.read_by(row / rows.time, row % rows.time),
                   weights, shift, spec.silu);
    });
  });
}

void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream) {
  const ChannelTaps weights(weight, stream);
  if (simulated(stream)) return;
  const float* const shift = optional_data<float>(bias);
  float* const weight_out = optional_data<float>(dweight);
  float* const bias_out = optional_data<float>(dbias);
  const bool accumulate = mode == GradientMode::kAccumulate;
  visit_real(x.dtype(), [&]<class T>(T) {
    const ConvolvedRows<T> rows(x, first, before, positions, weights, spec.ahead);
    const ConvolvedRows<T> drows(dx, first, dbefore, positions, weights, spec.ahead);
    const T* const gradient = dy.data<T>();
    const std::int64_t blocks = (rows.channels + kChannels - 1) / kChannels;
    parallel_items(blocks, [=, &rows, &drows, &weights](std::int64_t, std::int64_t block) {
      BlockGradients<T> gradients(rows, drows, weights, block * kChannels);
      for (std::int64_t sequence = 0; sequence < x.size(0); ++sequence)
        gradients.add_sequence(sequence, gradient, shift, spec.silu);
      gradients.write(weight_out, bias_out, accumulate);
    });
  });
}

void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream) {
  const ChannelTaps weights(weight, stream);
  if (simulated(stream)) return;
  const float* const shift = optional_data<float>(bias);
  const std::int64_t channels = weights.channels, kept = weights.taps - 1, stride = x.size(1);
  const std::int32_t* const text = texts.data<std::int32_t>();
  visit_real(x.dtype(), [&]<class T>(T) {
    const T* const in = x.data<T>() + first;
    T *const out = y.data<T>(), *const states = state.data<T>();
    for_each_row(x.size(0), channels, [=, &weights](std::int64_t row) {
      T* const old = states + text[row] * kept * channels;
      RowsOfTaps<T> read;
      for (std::int64_t tap = 0; tap < kept; ++tap) read.row[tap] = old + tap * channels;
      read.row[kept] = in + row * stride;
      convolve_row(out + row * channels, read, weights, shift, spec.silu);
      if (kept == 0) return;
      std::copy_n(old + channels, (kept - 1) * channels, old);
      std::copy_n(in + row * stride, channels, old + (kept - 1) * channels);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
