#include "kernels/scans/delta_rule_scan_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

struct DeltaRuleForwardScratch {
  DeltaRuleForwardScratch(float* base, const DeltaRuleSizes& sizes)
      : cutter(base), chunk(cutter, sizes) {
    inverse = cutter.take<float>(kDeltaChunk * kDeltaChunk);
    deltas = cutter.take<float>(kDeltaChunk * sizes.value_size);
    states = cutter.take<float>(sizes.group * sizes.state());
  }
  ScratchArena cutter;
  DeltaRuleScratch chunk;
  float* inverse;
  float* deltas;
  float* states;  // indexed by member
};

template <class T>
struct DeltaRuleOutput {
  T* y;
  float* last_state;  // or null
};

/// Computes y of a chunk from the products of the queries with the state, and from δ.
template <class T>
inline void write_delta_rule_rows(T* y, std::int64_t stride, const DeltaRuleChunk<T>& chunk,
                                  const DeltaRuleForwardScratch& scratch, std::int64_t size) {
  const std::int64_t rows = chunk.rows();
  float* const read = scratch.chunk.reads + rows * size;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float kept = chunk.decay().from_start[i];
#pragma omp simd
    for (std::int64_t v = 0; v < size; ++v) read[i * size + v] *= kept;
  }
  chunk.weigh_queries(scratch.chunk.weights);
  multiply(read, scratch.chunk.weights, scratch.deltas, {rows, size, rows, true});
  for (std::int64_t i = 0; i < rows; ++i) {
    T* const to = y + i * stride;
#pragma omp simd
    for (std::int64_t v = 0; v < size; ++v) store(to + v, read[i * size + v]);
  }
}

template <class T>
inline void scan_delta_rule_item(const DeltaRuleOutput<T>& output, const DeltaRuleArrays<T>& arrays,
                                 const DeltaRuleSizes& sizes, std::int64_t item, float* base) {
  const DeltaRuleForwardScratch scratch(base, sizes);
  DeltaRuleChunk<T> chunk(sizes, arrays, scratch.chunk, item);
  sizes.read_states(scratch.states, arrays.first_state, item);
  for (std::int64_t at = 0; at < sizes.chunks(); ++at) {
    chunk.read_keys(at, true);
    for (std::int64_t member = 0; member < sizes.group; ++member) {
      float* const state = scratch.states + member * sizes.state();
      chunk.read_gates(member);
      chunk.invert(scratch.inverse);
      chunk.solve(scratch.deltas, scratch.inverse, state, true);
      write_delta_rule_rows(output.y + sizes.outputs_at(item, member, chunk.first()),
                            sizes.output_stride(), chunk, scratch, sizes.value_size);
      chunk.advance(state, state, scratch.deltas);
    }
  }
  sizes.write_states(output.last_state, scratch.states, item);
}

/// Processes one token for a key head and for the value heads that share it.
template <class T>
struct DeltaRuleStep {
  T* y;
  float* state;
  const T *qkv, *gates;
  const float *log_rate, *step_bias;
  std::int64_t gate_stride;
  DeltaRuleSpec spec;

  /// Advances the state S (key_size, value_size) of a value head and computes y. Replaces v by δ.
  inline void advance(float* s, T* out, float* v, float* sums, const float* key, const float* query,
                      float beta, float decay) const {
    const std::int64_t size = spec.value_size;
    std::fill_n(sums, size, 0.0f);
    for (std::int64_t k = 0; k < spec.key_size; ++k) {
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) sums[i] += key[k] * s[k * size + i];
    }
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) {
      v[i] = beta * (v[i] - decay * sums[i]);
      sums[i] = 0;
    }
    for (std::int64_t k = 0; k < spec.key_size; ++k) {
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) {
        const float joined = decay * s[k * size + i] + key[k] * v[i];
        s[k * size + i] = joined;
        sums[i] += query[k] * joined;
      }
    }
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) store(out + i, sums[i]);
  }

  inline void run(std::int64_t row, std::int64_t head, std::int64_t text, float* scratch) const {
    const std::int64_t group = spec.value_heads / spec.key_heads, keys = spec.key_size,
                       values = spec.value_size, all = spec.value_heads;
    float *const key = scratch, *const query = key + keys, *const value = query + keys,
                 *const sums = value + values;
    const T* const token = qkv + row * spec.columns();
    normalize_row(query, token + head * keys, keys, query_scale(keys));
    normalize_row(key, token + spec.keys() + head * keys, keys, 1.0f);
    for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
      const T* const gate_at = gates + (row + 1) * gate_stride - 2 * all + h;
      const DeltaRuleGate gate =
          delta_rule_gate(load(gate_at), load(gate_at + all), log_rate[h], step_bias[h]);
      const T* const from = token + 2 * spec.keys() + h * values;
#pragma omp simd
      for (std::int64_t i = 0; i < values; ++i) value[i] = load(from + i);
      advance(state + (text * all + h) * keys * values, y + (row * all + h) * values, value, sums,
              key, query, gate.beta, decay_of_log(static_cast<double>(gate.log_decay)));
    }
  }
};

}  // namespace

void delta_rule_scan_forward(const Tensor& y, const Tensor& last_state, const DeltaRuleInput& input,
                             const DeltaRuleSpec& spec, const Stream& stream) {
  const DeltaRuleSizes sizes(input, spec);
  const std::int64_t floats = DeltaRuleForwardScratch(nullptr, sizes).cutter.floats();
  const Tensor scratch = empty_workspace(threads() * floats, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const base = scratch.data<float>();
  visit_real(input.qkv.dtype(), [&]<class T>(T) {
    const DeltaRuleOutput<T> output{y.data<T>(), optional_data<float>(last_state)};
    const DeltaRuleArrays<T> arrays(input);
    parallel_items(sizes.items(), [=](std::int64_t worker, std::int64_t item) {
      scan_delta_rule_item(output, arrays, sizes, item, base + worker * floats);
    });
  });
}

void delta_rule_scan_step(const Tensor& y, const Tensor& state, const Tensor& qkv,
                          const Tensor& gates, const Tensor& log_rate, const Tensor& step_bias,
                          const Tensor& texts, const DeltaRuleSpec& spec, const Stream& stream) {
  const std::int64_t floats = 2 * (spec.key_size + spec.value_size), heads = spec.key_heads;
  const Tensor scratch = empty_workspace(threads() * floats, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const base = scratch.data<float>();
  const std::int32_t* const text = texts.data<std::int32_t>();
  visit_real(qkv.dtype(), [&]<class T>(T) {
    const DeltaRuleStep<T> step{y.data<T>(),
                                state.data<float>(),
                                qkv.data<T>(),
                                gates.data<T>(),
                                log_rate.data<float>(),
                                step_bias.data<float>(),
                                gates.size(1),
                                spec};
    parallel_items(qkv.size(0) * heads, [=](std::int64_t worker, std::int64_t item) {
      const std::int64_t row = item / heads;
      step.run(row, item % heads, text[row], base + worker * floats);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
