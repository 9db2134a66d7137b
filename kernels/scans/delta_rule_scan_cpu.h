#pragma once

#include <cstring>

#include "hybrid_trainer/kernels/scans.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/products/product_cpu.h"

namespace hybrid_trainer::kernels::cpu {

inline constexpr std::int64_t kDeltaChunk = 64;
/// Minimum exponent: below it, the decay e^x is 0, outside of f32's range.
inline constexpr float kMinExponent = -87.3f;

/// Returns e^log for log <= 0, or 0 if this underflows f32.
inline float decay_of_log(double log) {
  return log < static_cast<double>(kMinExponent) ? 0.0f : exponential(static_cast<float>(log));
}

/// The share of a state that remains between tokens of a chunk. Logarithms are summed in double,
/// and no decay is a quotient of decays, so that none overflows.
struct ChunkDecay {
  std::int64_t rows = 0;
  double sums[kDeltaChunk];          // c_i = Σ_{j ≤ i} of the logarithms
  std::int32_t begins[kDeltaChunk];  // the first row that row i depends on; -1: before the chunk
  float from_start[kDeltaChunk];     // e^{c_i}: share of the state before the chunk in row i
  float to_end[kDeltaChunk];  // e^{c_last − c_j}: share of row j in the state after the chunk
  float whole() const { return from_start[rows - 1]; }
  /// Returns whether the row begins with a zero state: at a document's start or after a decay to 0.
  bool resets(std::int64_t row) const { return begins[row] == row; }
  /// Returns the first row within the chunk on which `row` depends.
  std::int64_t first(std::int64_t row) const { return std::max(begins[row], 0); }

  /// `logs`: logarithm of the decay before each of `count` rows. `positions` may be null.
  void read(const float* logs, const std::int32_t* positions, std::int64_t count) {
    rows = count;
    double sum = 0;
    std::int32_t begin = -1;
    for (std::int64_t i = 0; i < rows; ++i) {
      const bool is_reset = logs[i] < kMinExponent || (positions != nullptr && positions[i] == 0);
      if (is_reset) begin = static_cast<std::int32_t>(i);
      sum += is_reset ? 0.0 : static_cast<double>(logs[i]);
      sums[i] = sum;
      begins[i] = begin;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      from_start[i] = begins[i] < 0 ? decay_of_log(sums[i]) : 0.0f;
      to_end[i] = begins[i] == begin ? decay_of_log(sum - sums[i]) : 0.0f;
    }
  }

  /// weights (rows, rows) = e^{c_i − c_j} for the rows j <= i that row i depends on, otherwise 0.
  void write_between(float* weights) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      float* const row = weights + i * rows;
      std::fill(row, row + rows, 0.0f);
      const double sum = sums[i];
#pragma omp simd
      for (std::int64_t j = first(i); j <= i; ++j) row[j] = decay_of_log(sum - sums[j]);
    }
  }
};

struct ChunkProduct {
  std::int64_t m, n, k;
  bool accumulate = false;
};

/// C = or += op(A)·op(B). A is (m, k) and B is (k, n), with swapped dimensions if transposed.
inline void multiply(float* c, const float* a, const float* b, const ChunkProduct& product,
                     Transpose transpose_a = Transpose::kNo,
                     Transpose transpose_b = Transpose::kNo) {
  const auto [m, n, k, accumulate] = product;
  multiply({.transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .m = m,
            .n = n,
            .k = k,
            .a = a,
            .stride_a = transpose_a == Transpose::kYes ? m : k,
            .b = b,
            .stride_b = transpose_b == Transpose::kYes ? k : n,
            .c = c,
            .stride_c = n,
            .accumulate = accumulate});
}

/// C = or += Aᵀ·B with A (k, m) and B (k, n).
inline void multiply_transposed(float* c, const float* a, const float* b,
                                const ChunkProduct& product) {
  multiply(c, a, b, product, Transpose::kYes);
}

/// C = or += A·Bᵀ with A (m, k) and B (n, k).
inline void multiply_by_transposed(float* c, const float* a, const float* b,
                                   const ChunkProduct& product) {
  multiply(c, a, b, product, Transpose::kNo, Transpose::kYes);
}

/// Sizes of a scan, and offsets of a head's elements. An item is a key head of a sequence; the
/// item's members are the value heads that share this key head.
struct DeltaRuleSizes {
  DeltaRuleSizes(const DeltaRuleInput& input, const DeltaRuleSpec& spec)
      : batch(input.qkv.size(0)),
        length(input.qkv.size(1)),
        key_heads(spec.key_heads),
        value_heads(spec.value_heads),
        group(spec.value_heads / spec.key_heads),
        key_size(spec.key_size),
        value_size(spec.value_size),
        stride(spec.columns()),
        gate_stride(input.gates.size(2)) {}
  std::int64_t items() const { return batch * key_heads; }
  std::int64_t chunks() const { return (length + kDeltaChunk - 1) / kDeltaChunk; }
  std::int64_t state() const { return key_size * value_size; }
  std::int64_t row(std::int64_t item, std::int64_t t) const {
    return item / key_heads * length + t;
  }
  std::int64_t value_head(std::int64_t item, std::int64_t member) const {
    return item % key_heads * group + member;
  }
  std::int64_t queries_at(std::int64_t item, std::int64_t t) const {
    return row(item, t) * stride + item % key_heads * key_size;
  }
  std::int64_t keys_at(std::int64_t item, std::int64_t t) const {
    return queries_at(item, t) + key_heads * key_size;
  }
  std::int64_t values_at(std::int64_t item, std::int64_t member, std::int64_t t) const {
    return row(item, t) * stride + 2 * key_heads * key_size + value_head(item, member) * value_size;
  }
  /// Returns the offset of b_t in the gates. The offset of a_t is greater by value_heads.
  std::int64_t gates_at(std::int64_t item, std::int64_t member, std::int64_t t) const {
    return row(item, t) * gate_stride + gate_stride - 2 * value_heads + value_head(item, member);
  }
  /// Copies the states of an item's members from states (B, V, D_k, D_v); zeros if these are null.
  void read_states(float* to, const float* states, std::int64_t item) const {
    const std::int64_t count = group * state();
    if (states == nullptr) {
      std::fill_n(to, count, 0.0f);
    } else {
      std::copy_n(states + item * count, count, to);
    }
  }
  void write_states(float* states, const float* from, std::int64_t item) const {
    const std::int64_t count = group * state();
    if (states != nullptr) std::copy_n(from, count, states + item * count);
  }
  std::int64_t output_stride() const { return value_heads * value_size; }
  std::int64_t outputs_at(std::int64_t item, std::int64_t member, std::int64_t t) const {
    return row(item, t) * output_stride() + value_head(item, member) * value_size;
  }

  std::int64_t batch, length, key_heads, value_heads, group, key_size, value_size;
  std::int64_t stride, gate_stride;  // elements between adjacent rows of qkv and of gates
};

template <class T>
struct DeltaRuleArrays {
  DeltaRuleArrays(const DeltaRuleInput& input)
      : qkv(input.qkv.data<T>()),
        gates(input.gates.data<T>()),
        log_rate(input.log_rate.data<float>()),
        step_bias(input.step_bias.data<float>()),
        first_state(optional_data<float>(input.first_state)),
        positions(optional_data<std::int32_t>(input.positions)) {}
  const T *qkv, *gates;
  const float *log_rate, *step_bias, *first_state;
  const std::int32_t* positions;
};

/// β of a token, 1 − β, g, and dg/da.
struct DeltaRuleGate {
  float beta, not_beta, log_decay, slope;
};
inline DeltaRuleGate delta_rule_gate(float b, float a, float log_rate, float step_bias) {
  const float rate = std::exp(log_rate);
  const float x = a + step_bias;
  const float softplus = (x > 0.0f ? x : 0.0f) + std::log1p(exponential(-std::fabs(x)));
  return {sigmoid(b), sigmoid(-b), -rate * softplus, -rate * sigmoid(x)};
}

/// to = x·factor·scale with factor = 1/√(|x|² + 1e-6). Returns the factor.
template <class T>
inline float normalize_row(float* to, const T* x, std::int64_t size, float scale) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < size; ++i) sum += load(x + i) * load(x + i);
  const float inverse = 1.0f / std::sqrt(sum + 1e-6f);
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) to[i] = load(x + i) * inverse * scale;
  return inverse;
}

inline float query_scale(std::int64_t key_size) {
  return 1.0f / std::sqrt(static_cast<float>(key_size));
}

/// Scratch memory of a chunk. With n < kDeltaChunk tokens, shapes have n in place of kDeltaChunk.
struct DeltaRuleScratch {
  DeltaRuleScratch(ScratchArena& cutter, const DeltaRuleSizes& sizes) {
    keys = cutter.take<float>(2 * kDeltaChunk * sizes.key_size);
    norms = cutter.take<float>(2 * kDeltaChunk);
    scores = cutter.take<float>(2 * kDeltaChunk * kDeltaChunk);
    weights = cutter.take<float>(kDeltaChunk * kDeltaChunk);
    matrix = cutter.take<float>(kDeltaChunk * kDeltaChunk);
    reads = cutter.take<float>(2 * kDeltaChunk * sizes.value_size);
    scaled = cutter.take<float>(kDeltaChunk * sizes.value_size);
  }
  float* keys;     // (2, kDeltaChunk, key_size): keys, then queries, normalized
  float* norms;    // (2, kDeltaChunk): normalization factors of keys, then of queries
  float* scores;   // (2, kDeltaChunk, kDeltaChunk): ⟨key, key⟩, then ⟨query, key⟩
  float* weights;  // (kDeltaChunk, kDeltaChunk): L, the decay from one token to another
  float* matrix;   // (kDeltaChunk, kDeltaChunk): M, only below its diagonal
  float* reads;    // (2, kDeltaChunk, value_size): keys and queries times the state
  float* scaled;   // (kDeltaChunk, value_size)
};

/// A chunk of an item. Processes one of the item's members at a time. With S the state before the
/// chunk, N = K·S and R = β∘(V − e^c∘N), δ is the solution of M·δ = R with M = I + strictly lower
/// part of (β∘K·Kᵀ∘L). Then
///   y = e^c∘(Q·S) + (Q·Kᵀ∘L)·δ,  S' = e^{c_last}·S + Kᵀ·(e^{c_last − c}∘δ).
template <class T>
class DeltaRuleChunk {
 public:
  DeltaRuleChunk(const DeltaRuleSizes& sizes, const DeltaRuleArrays<T>& arrays,
                 const DeltaRuleScratch& scratch, std::int64_t item)
      : sizes_(sizes), arrays_(arrays), scratch_(scratch), item_(item) {}

  std::int64_t first() const { return first_; }
  std::int64_t rows() const { return rows_; }
  const ChunkDecay& decay() const { return decay_; }
  const DeltaRuleGate& gate(std::int64_t row) const { return gates_[row]; }
  const float* queries() const { return scratch_.keys + rows_ * sizes_.key_size; }
  const float* query_scores() const { return scratch_.scores + rows_ * rows_; }

  /// Reads and normalizes keys and, if `with_queries`, queries, and computes their scores.
  void read_keys(std::int64_t chunk, bool with_queries) {
    first_ = chunk * kDeltaChunk;
    rows_ = std::min(kDeltaChunk, sizes_.length - first_);
    const std::int64_t size = sizes_.key_size, keys = sizes_.keys_at(item_, first_);
    read_rows(0, arrays_.qkv + keys, 1.0f);
    if (with_queries)
      read_rows(rows_, arrays_.qkv + sizes_.queries_at(item_, first_), query_scale(size));
    multiply_by_transposed(scratch_.scores, scratch_.keys, scratch_.keys,
                           {with_queries ? 2 * rows_ : rows_, rows_, size});
  }

  /// Reads the gates of a member and computes L.
  void read_gates(std::int64_t member) {
    member_ = member;
    const std::int64_t head = sizes_.value_head(item_, member);
    float logs[kDeltaChunk];
    for (std::int64_t i = 0; i < rows_; ++i) {
      const T* const at = arrays_.gates + sizes_.gates_at(item_, member, first_ + i);
      gates_[i] = delta_rule_gate(load(at), load(at + sizes_.value_heads), arrays_.log_rate[head],
                                  arrays_.step_bias[head]);
      logs[i] = gates_[i].log_decay;
    }
    const std::int32_t* const positions =
        arrays_.positions ? arrays_.positions + sizes_.row(item_, first_) : nullptr;
    decay_.read(logs, positions, rows_);
    decay_.write_between(scratch_.weights);
  }

  /// inverse (n, n) = M⁻¹ by substitution in blocks of columns, so that sums stay in registers.
  void invert(float* inverse) const {
    for (std::int64_t i = 0; i < rows_; ++i) {
      const float *const scores = scratch_.scores + i * rows_, *const weights =
                                                                   scratch_.weights + i * rows_;
      float* const row = scratch_.matrix + i * rows_;
      const float beta = gates_[i].beta;
#pragma omp simd
      for (std::int64_t j = 0; j < i; ++j) row[j] = beta * scores[j] * weights[j];
    }
    std::fill_n(inverse, rows_ * rows_, 0.0f);
    for (std::int64_t begin = 0; begin < rows_; begin += kLanes) invert_columns(inverse, begin);
  }

  /// deltas (n, value_size) = δ, given the state before the chunk. If `for_queries`, also computes
  /// the products of the queries with the state.
  void solve(float* deltas, const float* inverse, const float* state, bool for_queries) const {
    const std::int64_t size = sizes_.value_size;
    multiply(scratch_.reads, scratch_.keys, state,
             {for_queries ? 2 * rows_ : rows_, size, sizes_.key_size});
    for (std::int64_t i = 0; i < rows_; ++i) {
      float* const right = scratch_.reads + i * size;
      const T* const value = arrays_.qkv + sizes_.values_at(item_, member_, first_ + i);
      const float beta = gates_[i].beta, kept = decay_.from_start[i];
#pragma omp simd
      for (std::int64_t v = 0; v < size; ++v) right[v] = beta * (load(value + v) - kept * right[v]);
    }
    multiply(deltas, inverse, scratch_.reads, {rows_, size, rows_});
  }

  /// outputs (n, n): Q·Kᵀ∘L.
  void weigh_queries(float* outputs) const {
    const float* const scores = query_scores();
#pragma omp simd
    for (std::int64_t i = 0; i < rows_ * rows_; ++i) outputs[i] = scores[i] * scratch_.weights[i];
  }

  /// scratch.scaled = e^{c_last − c}∘δ.
  void scale_to_end(const float* deltas) const {
    const std::int64_t size = sizes_.value_size;
    for (std::int64_t i = 0; i < rows_; ++i) {
      const float factor = decay_.to_end[i];
#pragma omp simd
      for (std::int64_t v = 0; v < size; ++v)
        scratch_.scaled[i * size + v] = factor * deltas[i * size + v];
    }
  }

  /// to = the state after the chunk; `to` may be `from`.
  void advance(float* to, const float* from, const float* deltas) const {
    scale_to_end(deltas);
    scale_state(to, from);
    multiply_transposed(to, scratch_.keys, scratch_.scaled,
                        {sizes_.key_size, sizes_.value_size, rows_, true});
  }

  /// to = e^{c_last}·from.
  void scale_state(float* to, const float* from) const {
    const float kept = decay_.whole();
#pragma omp simd
    for (std::int64_t i = 0; i < sizes_.state(); ++i) to[i] = kept * from[i];
  }

 private:
  /// Normalizes rows and writes them to scratch.keys, starting with row `to`.
  void read_rows(std::int64_t to, const T* from, float scale) const {
    const std::int64_t size = sizes_.key_size;
    for (std::int64_t i = 0; i < rows_; ++i) {
      scratch_.norms[to + i] =
          normalize_row(scratch_.keys + (to + i) * size, from + i * sizes_.stride, size, scale);
    }
  }

  /// Computes columns [begin, begin + kLanes) of M⁻¹: row i = e_i − Σ_{j < i} M_ij·(row j).
  void invert_columns(float* inverse, std::int64_t begin) const {
    typedef float Lanes [[gnu::vector_size(4 * kLanes)]];
    Lanes columns[kDeltaChunk];
    const auto bytes = static_cast<std::size_t>(std::min(kLanes, rows_ - begin)) * sizeof(float);
    for (std::int64_t i = begin; i < rows_; ++i) {
      const float* const row = scratch_.matrix + i * rows_;
      Lanes even{}, odd{};
      if (i < begin + kLanes) even[i - begin] = 1.0f;
      std::int64_t j = std::max(begin, decay_.first(i));
      for (; j + 1 < i; j += 2) {
        even -= row[j] * columns[j];
        odd -= row[j + 1] * columns[j + 1];
      }
      if (j < i) even -= row[j] * columns[j];
      columns[i] = even + odd;
      std::memcpy(inverse + i * rows_ + begin, &columns[i], bytes);
    }
  }

  static constexpr std::int64_t kLanes = 16;
  const DeltaRuleSizes& sizes_;
  const DeltaRuleArrays<T>& arrays_;
  const DeltaRuleScratch& scratch_;
  std::int64_t item_, member_ = 0, first_ = 0, rows_ = 0;
  ChunkDecay decay_;
  DeltaRuleGate gates_[kDeltaChunk];
};

}  // namespace hybrid_trainer::kernels::cpu
