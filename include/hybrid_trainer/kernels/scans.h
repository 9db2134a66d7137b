#pragma once

#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Sizes of a state-space scan: H heads of P channels. Each group of H/G consecutive heads shares
/// one key B and one query C, vectors of N numbers.
struct StateSpaceSpec {
  std::int64_t heads = 1;       // H
  std::int64_t head_size = 0;   // P
  std::int64_t groups = 1;      // G; divides H
  std::int64_t state_size = 0;  // N
  float least_step = 0;         // minimum and maximum of Δ
  float most_step = std::numeric_limits<float>::infinity();
  bool reversed = false;  // scans from the last token to the first
  bool shifted = false;   // y of a token excludes the token itself
  std::int64_t values() const { return heads * head_size; }                    // values per token
  std::int64_t columns() const { return values() + 2 * groups * state_size; }  // x, B and C
};

/// Decay parameters, each (H) f32. If all are undefined, Δ = 1 without decay: y = tril(C·Bᵀ)·x.
struct StateSpaceDecay {
  Tensor log_rate{};   // "A_log": a_t = −exp(log_rate)·Δ_t
  Tensor step_bias{};  // "dt_bias": Δ_t = clamp(softplus(step_t + step_bias), least, most)
};

/// Inputs of a state-space scan over B sequences of T tokens.
struct StateSpaceInput {
  Tensor values{};  // (B, T, columns()) f32 or bf16: x (H·P), B (G·N), C (G·N) of each token
  /// (B, T, any) of values' dtype; the last H columns are step_t. Undefined if Δ = 1.
  Tensor steps{};
  Tensor skip{};         // "D", (H) f32 or undefined: y += D·x
  Tensor first_state{};  // (B, H, P, N) f32, or undefined: zeros
  Tensor
      positions{};  // (B, T) i32, or undefined; see attention_forward. Position 0 resets the state
};

/// Multiplies x by a causal semiseparable matrix, in chunks of 64 tokens:
///   S_t = e^{a_t}·S_{t−1} + Δ_t·x_t·B_tᵀ,  y_t = S_t·C_t + D·x_t.
/// y: (B, T, H·P) of the input's dtype. last_state: (B, H, P, N) f32, S after the last token;
/// undefined if it is not wanted. Sums and states are f32; T >= 1. If `reversed`, t runs from T − 1
/// down to 0, and the state of each document starts at its last token. If `shifted`, y_t excludes
/// the term Δ_t·x_t·B_tᵀ of S_t. Source: Dao & Gu 2024, "SSD", listing 1.
void state_space_scan_forward(const Tensor& y, const Tensor& last_state,
                              const StateSpaceInput& input, const StateSpaceDecay& decay,
                              const StateSpaceSpec& spec, const Stream& stream);

/// Gradients of a scan. Unwanted gradients may be undefined.
struct StateSpaceGradients {
  Tensor values{};       // see StateSpaceInput::values; overwritten
  Tensor steps{};        // see StateSpaceInput::steps; only the last H columns are overwritten
  Tensor skip{};         // (H) f32, (+)= according to `mode`, like the next two
  Tensor log_rate{};     // (H) f32
  Tensor step_bias{};    // (H) f32
  Tensor first_state{};  // (B, H, P, N) f32; overwritten
  GradientMode mode = GradientMode::kOverwrite;
};

/// Computes gradients from dy and dlast_state (undefined: zeros). Sums in a fixed order.
void state_space_scan_backward(const StateSpaceGradients& gradients, const Tensor& dy,
                               const Tensor& dlast_state, const StateSpaceInput& input,
                               const StateSpaceDecay& decay, const StateSpaceSpec& spec,
                               const Stream& stream);

/// Computes the scan of one new token of each of N texts. values: (N, columns()), steps: (N, any)
/// or undefined, y: (N, H·P). state: (texts, H, P, N) f32, updated by the token. texts: (N) i32,
/// each text at most once (unchecked). The bits of a row do not depend on other rows.
void state_space_scan_step(const Tensor& y, const Tensor& state, const Tensor& values,
                           const Tensor& steps, const Tensor& skip, const StateSpaceDecay& decay,
                           const Tensor& texts, const StateSpaceSpec& spec, const Stream& stream);

/// Sizes of a delta rule. Each group of V/K consecutive value heads shares one query/key head.
struct DeltaRuleSpec {
  std::int64_t key_heads = 1;                                       // K
  std::int64_t value_heads = 1;                                     // V; a multiple of K
  std::int64_t key_size = 0;                                        // D_k
  std::int64_t value_size = 0;                                      // D_v
  std::int64_t keys() const { return key_heads * key_size; }        // key columns per token
  std::int64_t values() const { return value_heads * value_size; }  // value columns per token
  std::int64_t columns() const { return 2 * keys() + values(); }
};

/// Inputs of a delta-rule scan over B sequences of T tokens.
struct DeltaRuleInput {
  Tensor qkv;    // (B, T, columns()) f32 or bf16: queries (K·D_k), keys (K·D_k), values (V·D_v)
  Tensor gates;  // (B, T, any) of that dtype: its last 2·V columns are b_t (V), then a_t (V)
  Tensor log_rate;       // "A_log", (V) f32
  Tensor step_bias;      // "dt_bias", (V) f32
  Tensor first_state{};  // (B, V, D_k, D_v) f32, or undefined: zeros
  /// (B, T) i32, or undefined; see attention_forward. Position 0 resets the state.
  Tensor positions{};
};

/// Computes the gated delta rule, in chunks of 64 tokens with one unit triangular solve each:
///   q = q/√(|q|² + 1e-6)/√D_k, k = k/√(|k|² + 1e-6), β_t = σ(b_t),
///   g_t = −exp(log_rate)·softplus(a_t + step_bias),
///   S ← e^{g_t}·S;  S ← S + k_t·(β_t·(v_t − Sᵀ·k_t))ᵀ;  y_t = Sᵀ·q_t.
/// y: (B, T, V·D_v) of the input's dtype. last_state: (B, V, D_k, D_v) f32, S after the last token,
/// or undefined. Sums and S are f32; T >= 1. If e^{g_t} underflows in f32 (g_t < −87.3), S becomes
/// 0 and a_t has no gradient. Source: Yang et al. 2024, "Gated Delta Networks", section 3.3.
void delta_rule_scan_forward(const Tensor& y, const Tensor& last_state, const DeltaRuleInput& input,
                             const DeltaRuleSpec& spec, const Stream& stream);

/// Gradients of a scan. Unwanted gradients may be undefined.
struct DeltaRuleGradients {
  Tensor qkv{};  // see DeltaRuleInput::qkv; overwritten
  /// See DeltaRuleInput::gates; only the last 2·V columns are overwritten.
  Tensor gates{};
  Tensor log_rate{};     // (V) f32, (+)= according to `mode`, like the next
  Tensor step_bias{};    // (V) f32
  Tensor first_state{};  // (B, V, D_k, D_v) f32; overwritten
  GradientMode mode = GradientMode::kOverwrite;
};

/// Computes exact gradients from dy and dlast_state (undefined: zeros). Sums in a fixed order.
void delta_rule_scan_backward(const DeltaRuleGradients& gradients, const Tensor& dy,
                              const Tensor& dlast_state, const DeltaRuleInput& input,
                              const DeltaRuleSpec& spec, const Stream& stream);

/// Computes the scan of one new token of each of N texts. qkv: (N, columns()), gates: (N, any), y:
/// (N, V·D_v). state: (texts, V, D_k, D_v) f32, updated. texts: (N) i32, each at most once
/// (unchecked).
void delta_rule_scan_step(const Tensor& y, const Tensor& state, const Tensor& qkv,
                          const Tensor& gates, const Tensor& log_rate, const Tensor& step_bias,
                          const Tensor& texts, const DeltaRuleSpec& spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
