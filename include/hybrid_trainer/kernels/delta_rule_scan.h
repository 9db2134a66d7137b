#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// V heads of values, of which each V/K consecutive ones share a head of queries and keys.
struct DeltaRuleSpec {
  std::int64_t key_heads = 1;                                       // K
  std::int64_t value_heads = 1;                                     // V; a multiple of K
  std::int64_t key_size = 0;                                        // D_k
  std::int64_t value_size = 0;                                      // D_v
  std::int64_t keys() const { return key_heads * key_size; }        // columns of a token's keys
  std::int64_t values() const { return value_heads * value_size; }  // of its values
  std::int64_t columns() const { return 2 * keys() + values(); }
};

/// What a scan reads of a batch of B sequences of T tokens.
struct DeltaRuleInput {
  Tensor qkv;    // (B, T, columns()) f32 or bf16: queries (K·D_k), keys (K·D_k), values (V·D_v)
  Tensor gates;  // (B, T, any) of that dtype: its last 2·V columns are b_t (V), then a_t (V)
  Tensor log_rate;       // "A_log", (V) f32
  Tensor step_bias;      // "dt_bias", (V) f32
  Tensor first_state{};  // (B, V, D_k, D_v) f32, or undefined: zeros
  /// (B, T) i32, or undefined; see attention_forward. Where it is 0 the state is 0.
  Tensor positions{};
};

/// The gated delta rule, by chunks of 64 tokens with one solve of a unit triangular system each:
///   q = q/√(|q|² + 1e-6)/√D_k, k = k/√(|k|² + 1e-6), β_t = σ(b_t),
///   g_t = −exp(log_rate)·softplus(a_t + step_bias),
///   S ← e^{g_t}·S;  S ← S + k_t·(β_t·(v_t − Sᵀ·k_t))ᵀ;  y_t = Sᵀ·q_t.
/// y: (B, T, V·D_v) of the input's dtype. last_state: (B, V, D_k, D_v) f32, S behind the last token;
/// undefined where not wanted. Sums and states in f32; any T from 1 on. An e^{g_t} that is 0 in f32
/// (g_t < −87.3) gives the state 0, and a_t no gradient. Source: Yang et al. 2024, "Gated Delta
/// Networks", section 3.3.
void delta_rule_scan_forward(const Tensor& y, const Tensor& last_state, const DeltaRuleInput& input,
                             const DeltaRuleSpec& spec, const Stream& stream);

/// Where the gradients of a scan go. Undefined: not wanted.
struct DeltaRuleGradients {
  Tensor qkv{};  // as DeltaRuleInput::qkv; overwritten
  /// As DeltaRuleInput::gates: its last 2·V columns are overwritten, the others stay.
  Tensor gates{};
  Tensor log_rate{};     // (V) f32, (+)= as `mode` says, like the next
  Tensor step_bias{};    // (V) f32
  Tensor first_state{};  // (B, V, D_k, D_v) f32; overwritten
  GradientMode mode = GradientMode::kOverwrite;
};

/// Exact gradients for dy, as y, and dlast_state, as last_state, or undefined: zeros. What forward
/// computed is computed again. Sums over tokens and heads in a fixed order.
void delta_rule_scan_backward(const DeltaRuleGradients& gradients, const Tensor& dy,
                              const Tensor& dlast_state, const DeltaRuleInput& input,
                              const DeltaRuleSpec& spec, const Stream& stream);

/// One token of each of N texts, for generation. qkv: (N, columns()), gates: (N, any), y: (N,
/// V·D_v). state: (texts, V, D_k, D_v) f32, of each text, to which the token joins. texts: (N) i32,
/// each text once, which nothing checks. A row has the same bits whatever rows are beside it.
void delta_rule_scan_step(const Tensor& y, const Tensor& state, const Tensor& qkv,
                          const Tensor& gates, const Tensor& log_rate, const Tensor& step_bias,
                          const Tensor& texts, const DeltaRuleSpec& spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
