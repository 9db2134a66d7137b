#include "hybrid_trainer/kernels/scans.h"
#include "kernels/scans/delta_rule_scan_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// A worker's scratch: for a chunk, and for the forward sweep's results by chunk and member.
struct DeltaRuleBackwardScratch {
  DeltaRuleBackwardScratch(float* base, const DeltaRuleSizes& sizes)
      : cutter(base), chunk(cutter, sizes) {
    const std::int64_t kept = sizes.chunks() * sizes.group, values = kDeltaChunk * sizes.value_size;
    states = cutter.take<float>(kept * sizes.state());
    inverses = cutter.take<float>(kept * kDeltaChunk * kDeltaChunk);
    deltas = cutter.take<float>(kept * values);
    dstates = cutter.take<float>(sizes.group * sizes.state());
    rows = cutter.take<float>(2 * values);
    ddeltas = cutter.take<float>(values);
    dscores = cutter.take<float>(2 * kDeltaChunk * kDeltaChunk);
    score_sums = cutter.take<float>(2 * kDeltaChunk * kDeltaChunk);
    outputs = cutter.take<float>(kDeltaChunk * kDeltaChunk);
    dkeys = cutter.take<float>(2 * kDeltaChunk * sizes.key_size);
    dkeys_of_state = cutter.take<float>(2 * kDeltaChunk * sizes.key_size);
  }
  ScratchArena cutter;
  DeltaRuleScratch chunk;
  float* states;                  // states before the chunk
  float* inverses;                // M⁻¹
  float* deltas;                  // δ
  float* dstates;                 // (group, key_size, value_size): of the state after the chunk
  float* rows;                    // (2, n, value_size): dR, then dy; later dN, then dU
  float* ddeltas;                 // (n, value_size)
  float* dscores;                 // (2, n, n): dR·δᵀ, then dy·δᵀ
  float* score_sums;              // (2, n, n): gradients of K·Kᵀ and Q·Kᵀ, over the members
  float* outputs;                 // (n, n): Q·Kᵀ∘L
  float *dkeys, *dkeys_of_state;  // (2, n, key_size): for keys, then for queries
};

template <class T>
struct DeltaRuleTargets {
  T *qkv, *gates;
  float* first_state;
  float* vectors;  // (B, V, 2): gradients of log_rate and step_bias, by sequence
  const T* dy;
  const float* dlast_state;
};

inline float dot_rows(const float* x, const float* y, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

template <class T>
class DeltaRuleBackward {
 public:
  DeltaRuleBackward(const DeltaRuleSizes& sizes, const DeltaRuleArrays<T>& arrays,
                    const DeltaRuleTargets<T>& targets, const DeltaRuleBackwardScratch& scratch,
                    std::int64_t item)
      : sizes_(sizes),
        arrays_(arrays),
        targets_(targets),
        scratch_(scratch),
        chunk_(sizes, arrays, scratch.chunk, item),
        item_(item) {}

  void run() {
    sweep_forward();
    sizes_.read_states(scratch_.dstates, targets_.dlast_state, item_);
    std::fill_n(targets_.vectors + item_ * sizes_.group * 2, sizes_.group * 2, 0.0f);
    for (std::int64_t at = sizes_.chunks() - 1; at >= 0; --at) differentiate(at);
    sizes_.write_states(targets_.first_state, scratch_.dstates, item_);
  }

 private:
  std::int64_t kept_at(std::int64_t chunk, std::int64_t member) const {
    return chunk * sizes_.group + member;
  }
  float* state(std::int64_t chunk, std::int64_t member) const {
    return scratch_.states + kept_at(chunk, member) * sizes_.state();
  }
  float* inverse(std::int64_t chunk, std::int64_t member) const {
    return scratch_.inverses + kept_at(chunk, member) * kDeltaChunk * kDeltaChunk;
  }
  float* deltas(std::int64_t chunk, std::int64_t member) const {
    return scratch_.deltas + kept_at(chunk, member) * kDeltaChunk * sizes_.value_size;
  }

  void sweep_forward() {
    sizes_.read_states(scratch_.states, arrays_.first_state, item_);
    for (std::int64_t at = 0; at < sizes_.chunks(); ++at) {
      chunk_.read_keys(at, false);
      for (std::int64_t member = 0; member < sizes_.group; ++member) {
        chunk_.read_gates(member);
        chunk_.invert(inverse(at, member));
        chunk_.solve(deltas(at, member), inverse(at, member), state(at, member), false);
        if (at + 1 < sizes_.chunks())
          chunk_.advance(state(at + 1, member), state(at, member), deltas(at, member));
      }
    }
  }

  void differentiate(std::int64_t at) {
    chunk_.read_keys(at, true);
    const std::int64_t rows = chunk_.rows(), size = sizes_.key_size;
    std::fill_n(scratch_.score_sums, 2 * rows * rows, 0.0f);
    std::fill_n(scratch_.dkeys, 2 * rows * size, 0.0f);
    for (std::int64_t member = 0; member < sizes_.group; ++member) {
      chunk_.read_gates(member);
      std::fill_n(dlogs_, rows, 0.0);
      differentiate_deltas(at, member);
      differentiate_scores(deltas(at, member));
      differentiate_right_sides(at, member);
      differentiate_state(at, member);
      write_gates(member);
    }
    add_scores_to_keys();
    if (targets_.qkv != nullptr) write_keys();
  }

  /// rows = dR, then dy. Computes dδ = Pᵀ·dy + e^{c_last − c}∘(K·dS') with P = Q·Kᵀ∘L, and from it
  /// dR = M⁻ᵀ·dδ.
  void differentiate_deltas(std::int64_t at, std::int64_t member) {
    const std::int64_t rows = chunk_.rows(), size = sizes_.value_size;
    float* const dy = scratch_.rows + rows * size;
    const float* const delta = deltas(at, member);
    multiply(scratch_.ddeltas, scratch_.chunk.keys, scratch_.dstates + member * sizes_.state(),
             {rows, size, sizes_.key_size});
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const from = targets_.dy + sizes_.outputs_at(item_, member, chunk_.first() + i);
      float* const ddelta = scratch_.ddeltas + i * size;
      const float kept = chunk_.decay().to_end[i];
#pragma omp simd
      for (std::int64_t v = 0; v < size; ++v) {
        dy[i * size + v] = load(from + v);
        ddelta[v] *= kept;
      }
      const auto out = static_cast<double>(dot_rows(ddelta, delta + i * size, size));
      dlogs_[i] -= out;
      dlogs_[rows - 1] += out;
    }
    chunk_.weigh_queries(scratch_.outputs);
    multiply_transposed(scratch_.ddeltas, scratch_.outputs, dy, {rows, size, rows, true});
    multiply_transposed(scratch_.rows, inverse(at, member), scratch_.ddeltas, {rows, size, rows});
  }

  /// Computes lower triangles dM = −dR·δᵀ and dP = dy·δᵀ, then the gradients of K·Kᵀ, Q·Kᵀ and L.
  void differentiate_scores(const float* delta) {
    const std::int64_t rows = chunk_.rows();
    multiply_by_transposed(scratch_.dscores, scratch_.rows, delta,
                           {2 * rows, rows, sizes_.value_size});
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t first = chunk_.decay().first(i);
      const float* const dmatrix = scratch_.dscores + i * rows;
      const float* const doutput = scratch_.dscores + (rows + i) * rows;
      const float* const weights = scratch_.chunk.weights + i * rows;
      const float* const outputs = scratch_.outputs + i * rows;
      const float* const scores = scratch_.chunk.scores + i * rows;
      float* const dkey_scores = scratch_.score_sums + i * rows;
      float* const dquery_scores = scratch_.score_sums + (rows + i) * rows;
      const float beta = chunk_.gate(i).beta;
      double of_row = 0;
#pragma omp simd reduction(+ : of_row)
      for (std::int64_t j = first; j < i; ++j) {
        const float dscore = -beta * weights[j] * dmatrix[j];
        dkey_scores[j] += dscore;
        dquery_scores[j] += doutput[j] * weights[j];
        const auto dlog = static_cast<double>(dscore * scores[j] + doutput[j] * outputs[j]);
        dlogs_[j] -= dlog;
        of_row += dlog;
      }
      dlogs_[i] += of_row;
      dquery_scores[i] += doutput[i];
    }
  }

  /// Computes dv = β∘dR and db. Replaces rows by dN = −β∘e^c∘dR, then dU = e^c∘dy.
  void differentiate_right_sides(std::int64_t at, std::int64_t member) {
    const std::int64_t rows = chunk_.rows(), size = sizes_.value_size;
    const float* const delta = deltas(at, member);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t t = chunk_.first() + i;
      const DeltaRuleGate& gate = chunk_.gate(i);
      float *const dright = scratch_.rows + i * size, *const dread = dright + rows * size;
      const float kept = chunk_.decay().from_start[i], factor = -gate.beta * kept;
      if (targets_.gates != nullptr) {
        store(targets_.gates + sizes_.gates_at(item_, member, t),
              gate.not_beta * dot_rows(dright, delta + i * size, size));
      }
      if (targets_.qkv != nullptr) {
        T* const dvalue = targets_.qkv + sizes_.values_at(item_, member, t);
#pragma omp simd
        for (std::int64_t v = 0; v < size; ++v) store(dvalue + v, gate.beta * dright[v]);
      }
#pragma omp simd
      for (std::int64_t v = 0; v < size; ++v) {
        dright[v] *= factor;
        dread[v] *= kept;
      }
    }
  }

  /// Adds contributions through the state to the gradients of keys and queries. Replaces dS' by dS.
  void differentiate_state(std::int64_t at, std::int64_t member) {
    const std::int64_t rows = chunk_.rows(), keys = sizes_.key_size, values = sizes_.value_size;
    const float* const before = state(at, member);
    float* const dstate = scratch_.dstates + member * sizes_.state();
    multiply_by_transposed(scratch_.dkeys_of_state, scratch_.rows, before,
                           {2 * rows, keys, values});
    for (std::int64_t i = 0; i < 2 * rows; ++i) {
      const float* const of_state = scratch_.dkeys_of_state + i * keys;
      float* const sum = scratch_.dkeys + i * keys;
      dlogs_[i % rows] +=
          static_cast<double>(dot_rows(of_state, scratch_.chunk.keys + i * keys, keys));
#pragma omp simd
      for (std::int64_t k = 0; k < keys; ++k) sum[k] += of_state[k];
    }
    chunk_.scale_to_end(deltas(at, member));
    multiply_by_transposed(scratch_.dkeys, scratch_.chunk.scaled, dstate,
                           {rows, keys, values, true});
    double all = 0;
    for (std::int64_t k = 0; k < keys; ++k)
      all += static_cast<double>(dot_rows(dstate + k * values, before + k * values, values));
    dlogs_[rows - 1] += static_cast<double>(chunk_.decay().whole()) * all;
    chunk_.scale_state(dstate, dstate);
    multiply_transposed(dstate, scratch_.chunk.keys, scratch_.rows, {keys, values, 2 * rows, true});
  }

  /// Writes the gradients of the gates. dg_k = Σ_{i ≥ k} of the gradients of c_i.
  void write_gates(std::int64_t member) {
    double dlog = 0, dlog_rate = 0, dstep_bias = 0;
    for (std::int64_t i = chunk_.rows() - 1; i >= 0; --i) {
      const DeltaRuleGate& gate = chunk_.gate(i);
      dlog += dlogs_[i];
      const bool is_reset = chunk_.decay().resets(i);
      const double dstep = is_reset ? 0.0 : dlog * static_cast<double>(gate.slope);
      dlog_rate += is_reset ? 0.0 : dlog * static_cast<double>(gate.log_decay);
      dstep_bias += dstep;
      if (targets_.gates != nullptr)
        store(targets_.gates + sizes_.gates_at(item_, member, chunk_.first() + i) +
                  sizes_.value_heads,
              static_cast<float>(dstep));
    }
    float* const vectors = targets_.vectors + (item_ * sizes_.group + member) * 2;
    vectors[0] += static_cast<float>(dlog_rate);
    vectors[1] += static_cast<float>(dstep_bias);
  }

  /// dK += (X + Xᵀ)·K + Zᵀ·Q, dQ += Z·K, X and Z being the gradients of K·Kᵀ and Q·Kᵀ.
  void add_scores_to_keys() const {
    const std::int64_t rows = chunk_.rows(), size = sizes_.key_size;
    float* const of_keys = scratch_.score_sums;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < i; ++j) of_keys[j * rows + i] = of_keys[i * rows + j];
    multiply(scratch_.dkeys, of_keys, scratch_.chunk.keys, {2 * rows, size, rows, true});
    multiply_transposed(scratch_.dkeys, of_keys + rows * rows, chunk_.queries(),
                        {rows, size, rows, true});
  }

  /// Writes dx = factor·scale·(dn − n·⟨n, dn⟩), with n = factor·x, the normalized x, and dn the
  /// gradient of scale·n.
  void write_keys() const {
    const std::int64_t rows = chunk_.rows(), size = sizes_.key_size;
    const float scale = query_scale(size);
    for (std::int64_t i = 0; i < 2 * rows; ++i) {
      const bool is_key = i < rows;
      const float one = is_key ? 1.0f : scale;
      const std::int64_t t = chunk_.first() + i % rows;
      const float *const normal = scratch_.chunk.keys + i * size, *const dnormal =
                                                                      scratch_.dkeys + i * size;
      T* const to =
          targets_.qkv + (is_key ? sizes_.keys_at(item_, t) : sizes_.queries_at(item_, t));
      const float factor = scratch_.chunk.norms[i] * one,
                  along = dot_rows(normal, dnormal, size) / (one * one);
#pragma omp simd
      for (std::int64_t k = 0; k < size; ++k)
        store(to + k, factor * (dnormal[k] - normal[k] * along));
    }
  }

  const DeltaRuleSizes& sizes_;
  const DeltaRuleArrays<T>& arrays_;
  const DeltaRuleTargets<T>& targets_;
  const DeltaRuleBackwardScratch& scratch_;
  DeltaRuleChunk<T> chunk_;
  std::int64_t item_;
  double dlogs_[kDeltaChunk] = {};  // gradients of c, the sums of logarithms
};

/// target[h] = or += the sum of column `column` of vectors (B, V, 2) over the sequences.
void sum_over_sequences(const Tensor& target, const float* vectors, const DeltaRuleSizes& sizes,
                        std::int64_t column, GradientMode mode) {
  if (!target) return;
  for (std::int64_t h = 0; h < sizes.value_heads; ++h) {
    double sum = 0;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      sum += static_cast<double>(vectors[(b * sizes.value_heads + h) * 2 + column]);
    float& to = target.data<float>()[h];
    to = (mode == GradientMode::kAccumulate ? to : 0.0f) + static_cast<float>(sum);
  }
}

}  // namespace

void delta_rule_scan_backward(const DeltaRuleGradients& gradients, const Tensor& dy,
                              const Tensor& dlast_state, const DeltaRuleInput& input,
                              const DeltaRuleSpec& spec, const Stream& stream) {
  const DeltaRuleSizes sizes(input, spec);
  const std::int64_t floats = DeltaRuleBackwardScratch(nullptr, sizes).cutter.floats();
  const Tensor scratch = empty_workspace(threads() * floats, DType::kF32, stream);
  const Tensor vectors = empty_workspace(sizes.batch * sizes.value_heads * 2, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const base = scratch.data<float>();
  visit_real(input.qkv.dtype(), [&]<class T>(T) {
    const DeltaRuleArrays<T> arrays(input);
    const DeltaRuleTargets<T> targets{optional_data<T>(gradients.qkv),
                                      optional_data<T>(gradients.gates),
                                      optional_data<float>(gradients.first_state),
                                      vectors.data<float>(),
                                      dy.data<T>(),
                                      optional_data<float>(dlast_state)};
    parallel_items(sizes.items(), [=](std::int64_t worker, std::int64_t item) {
      const DeltaRuleBackwardScratch arrays_of_worker(base + worker * floats, sizes);
      DeltaRuleBackward<T>(sizes, arrays, targets, arrays_of_worker, item).run();
    });
  });
  sum_over_sequences(gradients.log_rate, vectors.data<float>(), sizes, 0, gradients.mode);
  sum_over_sequences(gradients.step_bias, vectors.data<float>(), sizes, 1, gradients.mode);
}

}  // namespace hybrid_trainer::kernels::cpu
