#pragma once

#include <span>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Rows sorted by group. Matrix i applies to rows [offsets[first + i], offsets[first + i + 1]).
struct GroupedRows {
  Tensor offsets;          // (groups + 1) i32, on the stream's device
  std::int64_t first = 0;  // group of the call's first matrix
};

// Results are bit-identical however the groups are divided among calls.

/// y (+)= x·wᵀ + bias in each group. x: (R, I), y: (R, O), w: one (O, I) per group; f32 or bf16, of
/// one dtype. biases: one (O) f32 per group, or empty. Accumulates in f32. On the CPU, if a group
/// has at most kFewRows rows, the bits of a row do not depend on other rows.
void grouped_forward(const Tensor& y, const Tensor& x, const GroupedRows& rows,
                     std::span<const Tensor> w, std::span<const Tensor> biases, GradientMode mode,
                     const Stream& stream);

/// dx (+)= dy·w in each group. dy: (R, O); w: one (O, I) per group; dx: (R, I); all of one dtype.
void grouped_backward_input(const Tensor& dx, const Tensor& dy, const GroupedRows& rows,
                            std::span<const Tensor> w, GradientMode mode, const Stream& stream);

/// dw (+)= dyᵀ·x for each group; an empty group contributes zeros. dy: (R, O), x: (R, I), f32 or
/// bf16; dw: one (O, I) per group, all f32, or bf16 like dy and x.
void grouped_backward_weight(std::span<const Tensor> dw, const Tensor& dy, const Tensor& x,
                             const GroupedRows& rows, GradientMode mode, const Stream& stream);

/// dbias (+)= Σ factors[r]·dy[r] per group. factors: (R) f32, or undefined for ones.
void grouped_bias_backward(std::span<const Tensor> dbiases, const Tensor& dy, const Tensor& factors,
                           const GroupedRows& rows, GradientMode mode, const Stream& stream);

/// sums[r] = dot product of x[r] and the vector of the row's group, for gradients of row factors.
/// x: (R, C), f32 or bf16; vectors: one (C) f32 per group; sums: (R) f32.
void grouped_dots(const Tensor& sums, const Tensor& x, const GroupedRows& rows,
                  std::span<const Tensor> vectors, const Stream& stream);

/// Weights of the selected experts as a function of a token's logits l.
enum class RoutingRule {
  kSoftmax,          // softmax over all experts
  kSoftmaxOfChosen,  // softmax over the selected experts
  kSigmoid,          // σ(l) of the selected experts, divided by their sum if `normalized`
};

struct RoutingSpec {
  std::int64_t experts = 1;  // E
  std::int64_t chosen = 1;   // k, experts per token
  RoutingRule rule = RoutingRule::kSoftmaxOfChosen;
  float scale = 1;         // factor of the weights
  bool normalized = true;  // see kSigmoid
  float epsilon = 1e-20f;  // added to kSigmoid's sum
  /// kSigmoid selects from the best groups, scored by the sum of their two best experts.
  std::int64_t groups = 1, chosen_groups = 1;
};

/// Assignment of N tokens to experts. Pair t·k + j is token t with its j-th expert. The R = N·k
/// rows are these pairs, sorted by expert, then by token.
struct Routing {
  Tensor experts;  // (N, k) i32, best first; ties go to the lower index
  Tensor weights;  // (N, k) f32
  Tensor places;   // (N, k) i32, the row of each pair
  Tensor pairs;    // (R) i32, the pair of each row
  Tensor offsets;  // (E + 1) i32: rows [offsets[e], offsets[e + 1]) go to expert e
  /// (N) i32, 0 for padding, which does not count in losses, statistics and flips; or undefined.
  Tensor is_token{};
  static Routing empty(std::int64_t tokens, const RoutingSpec& spec, const Stream& stream);
};

/// Fills a routing. logits: (N, E) f32 or bf16. selection_bias: (E) f32 or undefined, added to the
/// scores only for the selection. Softmax in f32. NaN logits give NaN weights and valid indices.
/// Sources: Shazeer et al. 2017; kSigmoid and bias: DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2.
void route(const Routing& routing, const Tensor& logits, const Tensor& selection_bias,
           const RoutingSpec& spec, const Stream& stream);

/// Factors of the auxiliary losses of a routing.
struct RoutingLosses {
  float balance =
      0;        // factor of E·Σ f_e·P_e; f_e = pairs of e / tokens, P_e = mean of softmax(l)_e
  float z = 0;  // factor of the mean of (log Σ exp(l))²
};

/// dlogits = the gradient of the logits, through the weights and from the losses. dweights: (N, k)
/// f32. logits, dlogits: (N, E), of one dtype, may alias. f_e is a constant. Sources: Fedus et al.
/// 2022, "Switch transformers", section 2.2; Zoph et al. 2022, "ST-MoE", section 3.
void route_backward(const Tensor& dlogits, const Tensor& logits, const Routing& routing,
                    const Tensor& dweights, const RoutingSpec& spec, const RoutingLosses& losses,
                    const Stream& stream);

/// Returns the size of routing_statistics for E experts.
inline constexpr std::int64_t routing_numbers(std::int64_t experts) { return 2 * experts + 4; }

/// Adds to sums, (routing_numbers(E)) f64: the pairs of each expert; Σ softmax(l)_e of each expert;
/// tokens; sums over tokens of the entropy and of (log Σ exp(l))²; and N·E·Σ f_e·P_e.
void routing_statistics(const Tensor& sums, const Tensor& logits, const Routing& routing,
                        const Stream& stream);

/// bias_e += rate·sign(mean load − load of expert e), f32 (E). Loads are the first E columns of
/// `counts`, f64 (ranks, >= E), summed over rows. Source: Wang et al. 2024, arXiv 2408.15664.
void move_selection_bias(const Tensor& bias, const Tensor& counts, float rate,
                         const Stream& stream);

/// Adds the number of pairs that are not in `before` to sums[0], and the number of all pairs to
/// sums[1], f64.
void routing_flips(const Tensor& sums, const Routing& routing, const Routing& before,
                   const Stream& stream);

/// rows[r] = x[token of row r]. x: (N, C); rows: (R, C); f32 or bf16.
void gather_tokens(const Tensor& rows, const Tensor& x, const Routing& routing,
                   const Stream& stream);

/// y[t] = residual[t] + Σ_j weights[t, j]·rows[places[t, j]], summed in f32 in order. weights: (N,
/// k) f32, or undefined for 1; residual: undefined, or may be y. y: (N, C), rows: (R, C).
void combine_rows(const Tensor& y, const Tensor& rows, const Tensor& weights,
                  const Tensor& residual, const Routing& routing, const Stream& stream);

/// dweights[pair] = ⟨drows[r], rows[r]⟩ + more[r] for each row r and its pair. Then multiplies
/// rows[r] and drows[r] by the pair's weight. rows, drows: (R, C), f32 or bf16; more: (R) f32, or
/// undefined for 0; dweights: (N, k) f32.
void weigh_rows(const Tensor& dweights, const Tensor& more, const Tensor& rows, const Tensor& drows,
                const Routing& routing, const Stream& stream);

}  // namespace hybrid_trainer::kernels
