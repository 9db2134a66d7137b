#include "kernels/cpu/state_space_chunk.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// One head of one token.
struct StepHead {
  float decay, step, skip;
  std::int64_t head_size, state_size;
};

/// row = decay·row + joins·key; returns ⟨row, query⟩, where kShifted without what joins.
template <bool kShifted, class T>
inline float step_row(float* row, float decay, float joins, const T* key, const T* query,
                      std::int64_t size) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t n = 0; n < size; ++n) {
    const float kept = decay * row[n], all = kept + joins * load(key + n);
    sum += (kShifted ? kept : all) * load(query + n);
    row[n] = all;
  }
  return sum;
}

/// state (P, N) = decay·state + step·x·Bᵀ, y = state·C + skip·x.
template <bool kShifted, class T>
inline void step_head(T* y, float* state, const T* x, const T* key, const T* query,
                      const StepHead& head) {
  for (std::int64_t p = 0; p < head.head_size; ++p) {
    const float value = load(x + p);
    const float sum = step_row<kShifted>(state + p * head.state_size, head.decay, head.step * value,
                                         key, query, head.state_size);
    store(y + p, sum + head.skip * value);
  }
}

}  // namespace

void state_space_scan_step(const Tensor& y, const Tensor& state, const Tensor& values,
                           const Tensor& steps, const Tensor& skip, const StateSpaceDecay& decay,
                           const Tensor& texts, const StateSpaceSpec& spec, const Stream&) {
  const float *const rate = decay.log_rate ? decay.log_rate.data<float>() : nullptr,
                     *const bias = decay.step_bias ? decay.step_bias.data<float>() : nullptr,
                     *const skips = skip ? skip.data<float>() : nullptr;
  const std::int64_t of_head = spec.head_size * spec.state_size, width = spec.columns();
  const std::int64_t step_width = steps ? steps.size(1) : 0;
  visit_real(values.dtype(), [&](auto real) {
    using T = decltype(real);
    const T* const in = values.data<T>();
    const T* const raw = steps ? steps.data<T>() + step_width - spec.heads : nullptr;
    T* const out = y.data<T>();
    float* const states = state.data<float>();
    const std::int32_t* const text = texts.data<std::int32_t>();
    parallel_rows(values.size(0) * spec.heads, of_head, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t row = item / spec.heads, h = item % spec.heads;
        const T* const key =
            in + row * width + spec.values() + h / (spec.heads / spec.groups) * spec.state_size;
        StepHead head{1, 1, skips ? skips[h] : 0, spec.head_size, spec.state_size};
        if (raw != nullptr) {
          const Step step = step_of(load(raw + row * step_width + h) + bias[h], spec);
          head.step = step.size;
          head.decay = decay_of(log_decay_of(-std::exp(rate[h]), step.size));
        }
        T* const to = out + row * spec.values() + h * spec.head_size;
        float* const head_state = states + (text[row] * spec.heads + h) * of_head;
        const T *const x = in + row * width + h * spec.head_size, *const query =
                                                                      key +
                                                                      spec.groups * spec.state_size;
        if (spec.shifted) {
          step_head<true>(to, head_state, x, key, query, head);
        } else {
          step_head<false>(to, head_state, x, key, query, head);
        }
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
