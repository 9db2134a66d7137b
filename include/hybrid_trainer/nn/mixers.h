#pragma once

#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/kernels/scans.h"
#include "hybrid_trainer/kernels/structured.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/segmented_pass.h"
#include "hybrid_trainer/nn/token_convolution.h"

namespace hybrid_trainer {

/// Returns the FLOPs per token of a scan in chunks of 64, counting the causal half.
inline double scan_flops_of(const kernels::StateSpaceSpec& scan) {
  constexpr double kChunk = 64;
  const auto values = static_cast<double>(scan.values()),
             state = static_cast<double>(scan.state_size);
  return values * (kChunk + 4 * state) + static_cast<double>(scan.groups) * kChunk * state;
}

/// Ratio of a scan's backward FLOPs to its forward FLOPs: two gradients, recomputed states.
inline constexpr double kScanBackward = 2.6;

/// A recurrent mixer: y = residual + c_proj(norm(scan(conv(p)), z)). c_in(x) contains p, z and the
/// scan's other inputs. A text's state has a constant size. Backward recomputes the convolution and
/// the norm and, from Rebuild::kAttended on, the output of the scan.
class RecurrentMixer : public TwoProductBranch, public Rebuilder {
 public:
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) final;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) final;
  /// Recomputes the scan's output from the first product.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) final;
  /// Decodes x, (1, T, C) for one text or (B, 1, C) for several. `state` comes from make_state.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) final;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const final;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override {
    TwoProductBranch::initialize(deviations, seed, stream);
    convolution_.initialize(seed, stream);
  }
  bool supports_segments() const override { return true; }
  bool carries_state() const final { return true; }
  TokenFlops flops(std::int64_t) const final { return flops_with(scan_flops(), kScanBackward); }
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    convolution_.visit_parameters(visit);
    visit(gain_);
    projection_.visit_parameters(visit);
  }

 protected:
  /// `gate`: first column of z. `gain`: size of the norm's gain.
  RecurrentMixer(const ModuleName& name, Linear first, Linear projection,
                 const TokenConvolution::Spec& convolution, const kernels::GatedNormSpec& norm,
                 std::int64_t gate, std::int64_t gain, const Stream& stream);

 private:
  /// First state, undefined for zeros, and last state, undefined if it is not wanted.
  struct States {
    Tensor first{}, last{};
  };
  /// First state and the gradients of both states. Each may be undefined.
  struct StateGradients {
    Tensor first{}, dlast{}, dfirst{};
  };
  virtual Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
                      const Pass& pass, const Stream& stream) = 0;
  /// Writes the scan's columns of dproduct and its parameters' gradients. Returns dconvolved.
  virtual Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                               const Tensor& product, const StateGradients& states,
                               const Pass& pass, const Stream& stream) = 0;
  /// Computes the scan's output for one token of each text and updates the states. `convolved` and
  /// `product`: (N, any), one row per token.
  virtual Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                           const Tensor& texts, const Stream& stream) = 0;
  virtual Shape scan_state(std::int64_t texts) const = 0;
  virtual double scan_flops() const = 0;
  friend class StateSpaceMixer;
  friend class DeltaRuleMixer;
  friend class HydraMixer;

  SegmentCarry::Slot* slot(const Pass& pass) const {
    return pass.carry == nullptr ? nullptr : &pass.carry->of(this);
  }
  void fill_last(SegmentCarry::Slot& slot, const Tensor& product, const Stream& stream) const;
  void scan_and_convolution_backward(const Tensor& dproduct, const Tensor& dscan,
                                     const Tensor& product, const Pass& pass, const Stream& stream);
  Tensor normed(const Tensor& y, const Tensor& product, const Stream& stream);
  Tensor decode_chunked(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                        const Pass& pass, const Stream& stream);
  Tensor decoded(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                 const Pass& pass, const Stream& stream);
  std::int64_t inner() const { return projection_.weight().shape()[1]; }
  TokenConvolution convolution_;
  kernels::GatedNormSpec norm_;
  std::int64_t gate_;
  Parameter gain_;
};

/// The mixer of Mamba-2: y = residual + c_proj(norm(scan(conv(x B C), dt) ⊙ silu(z))). The rows of
/// c_in are z, x, B, C and dt, in this order. Vectors: "<name>.conv.weight" (channels, taps) and
/// "conv.bias", "A_log", "D", "dt_bias" (heads), "norm.weight". Source: Dao & Gu 2024, figure 6.
class StateSpaceMixer : public RecurrentMixer {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::StateSpaceSpec scan{};
    std::int64_t taps = 4;  // K of the convolution
    bool biases = false;    // of both products
    bool convolution_bias = true;
    float norm_epsilon = 1e-5f;
    ProductFiles files{};
  };

  StateSpaceMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    RecurrentMixer::visit_parameters(visit);
    for (Parameter* vector : {&log_rate_, &skip_, &step_bias_}) visit(*vector);
  }

 protected:
  StateSpaceMixer(const ModuleName& name, const Spec& spec, std::int64_t rows_of_c_in,
                  const TokenConvolution::Spec& convolution, const kernels::GatedNormSpec& norm,
                  const Stream& stream);
  kernels::StateSpaceSpec scan_;
  Parameter log_rate_, skip_, step_bias_;

 private:
  Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
              const Pass& pass, const Stream& stream) override;
  Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                       const Tensor& product, const StateGradients& states, const Pass& pass,
                       const Stream& stream) override;
  Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                   const Tensor& texts, const Stream& stream) override;
  Shape scan_state(std::int64_t texts) const override {
    return {texts, scan_.heads, scan_.head_size, scan_.state_size};
  }
  double scan_flops() const override { return scan_flops_of(scan_); }
};

/// Bidirectional Mamba-2, for encoders. One scan per direction computes a triangle of the mixer's
/// matrix, without the diagonal, which contains D. y = residual + c_proj(norm(scans(conv(x B C B′
/// C′), dt, dt′)) ⊙ silu(z)), with c_in rows z, x, B, C, B′, C′, dt′, dt. The convolution reads
/// taps/2 later tokens. Has the vectors of StateSpaceMixer; "A_log" and "dt_bias" contain both
/// directions. Source: Hwang et al. 2024, "Hydra", whose D also depends on the token.
class HydraMixer final : public StateSpaceMixer {
 public:
  HydraMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  bool supports_segments() const override { return false; }
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;

 private:
  struct ScanInput {
    kernels::StateSpaceSpec spec;
    Tensor values, steps;
  };
  ScanInput forwards(const Tensor& convolved, const Tensor& product, const Stream& stream) const;
  ScanInput backwards(const Tensor& convolved, const Tensor& product, const Stream& stream) const;
  Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
              const Pass& pass, const Stream& stream) override;
  Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                       const Tensor& product, const StateGradients& states, const Pass& pass,
                       const Stream& stream) override;
  Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                   const Tensor& texts, const Stream& stream) override;
  double scan_flops() const override { return 2 * scan_flops_of(scan_); }
  std::int64_t keys() const { return scan_.columns() - scan_.values(); }  // columns of B and C
};

/// The mixer of Gated DeltaNet: y = residual + c_proj(norm(scan(conv(q k v), b, a)) ⊙ silu(z)). The
/// rows of c_in are q, k, v, z, b and a, in this order. The norm is per head. Vectors:
/// "<name>.conv.weight" (channels, taps), "A_log", "dt_bias" (heads), "norm.weight" (head size).
/// Source: Yang et al. 2024, "Gated Delta Networks", figure 1.
class DeltaRuleMixer final : public RecurrentMixer {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::DeltaRuleSpec scan{};
    std::int64_t taps = 4;  // K of the convolution
    float norm_epsilon = 1e-6f;
    ProductFiles files{};  // the parts: q k v together, z, b, a
  };

  DeltaRuleMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    RecurrentMixer::visit_parameters(visit);
    visit(log_rate_), visit(step_bias_);
  }

 private:
  Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
              const Pass& pass, const Stream& stream) override;
  Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                       const Tensor& product, const StateGradients& states, const Pass& pass,
                       const Stream& stream) override;
  Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                   const Tensor& texts, const Stream& stream) override;
  Shape scan_state(std::int64_t texts) const override {
    return {texts, scan_.value_heads, scan_.key_size, scan_.value_size};
  }
  double scan_flops() const override;
  kernels::DeltaRuleSpec scan_;
  Parameter log_rate_, step_bias_;
};

/// A gated short convolution: y = residual + c_proj(C ⊙ conv(B ⊙ x)), with c_in rows B, C, x, and a
/// causal convolution over `taps` tokens, "<name>.conv.weight" (channels, taps) and optionally
/// "conv.bias". Source: Liquid AI 2025, "LFM2 technical report".
class ShortConvolution final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    std::int64_t taps = 3;
    bool biases = false;  // biases of both products and the convolution
    ProductFiles files{};
  };

  ShortConvolution(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// Decodes x (see RecurrentMixer::decode).
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    convolution_.visit_parameters(visit);
    projection_.visit_parameters(visit);
  }

 private:
  std::int64_t width() const { return projection_.weight().shape()[1]; }
  Tensor gated(const Tensor& product, const Stream& stream) const;
  void gate(const Tensor& convolved, const Tensor& product, const Stream& stream) const;
  std::int64_t taps_;
  TokenConvolution convolution_;
};

/// The BK core as an encoder's mixer: y = residual + c_proj(norm(g ⊙ silu(gate))), with M
/// potentials v and the gate in c_in(x). g contains the real and imaginary parts of the diagonals
/// of (T − z·I)⁻¹. z is a constant, and T is the second difference along the tokens with v added to
/// its diagonal. It cannot generate. The gain is "<name>.norm.weight" (2·M).
class ResolventMixer final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;       // C of the residual stream
    std::int64_t potentials = 8;  // M
    double imaginary = 1;         // smaller values have a longer range
    double limit = 3;             // v is clamped to [−limit, limit]
    bool biases = true;
    float norm_epsilon = 1e-5f;
    ProductFiles files{};
  };

  /// Throws Error if `imaginary` is not above 0.
  ResolventMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// Always throws Error, since later tokens would change earlier outputs.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  /// Counts one complex quotient and product per pivot in forward, slightly more in backward.
  TokenFlops flops(std::int64_t) const override {
    return flops_with(40 * static_cast<double>(potentials_), 2.5);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    visit(gain_);
    projection_.visit_parameters(visit);
  }

 private:
  Tensor normed(const Tensor& diagonals, const Tensor& product, const Stream& stream);
  std::int64_t potentials_;
  kernels::ResolventSpec resolvent_;
  kernels::GatedNormSpec norm_;
  Parameter gain_;
};

/// Multiplies each head's values along the tokens by a matrix T + U·Vᵀ: y = residual + c_proj((T +
/// D⁻¹·U·Vᵀ)·x). D contains the number of tokens that each row sums over. If causal, uses the lower
/// triangle of U·Vᵀ and taps for a token and the previous one. If bidirectional, uses all of U·Vᵀ
/// and a tap for the next token, and cannot generate. If `positions` is 0, the rows of c_in are x,
/// V, U and the taps. Otherwise, V, U and the taps are learned per position:
/// "<name>.factors.weight" (positions, 2·heads·rank) and "<name>.taps.weight" (positions,
/// heads·taps). O(T·rank).
class SemiseparableMixer final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    std::int64_t heads = 1;
    std::int64_t head_size = 0;
    std::int64_t rank = 8;
    bool bidirectional = false;
    std::int64_t positions = 0;  // longest document if U, V and T depend on position; else 0
    bool biases = false;         // of both products
    ProductFiles files{};
  };

  SemiseparableMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override {
    return multiplied(parts_of(source, pass.positions, stream), {}, pass, stream);
  }
  /// Decodes x (see RecurrentMixer::decode). Throws Error if bidirectional.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  /// Makes the state for generation; null if bidirectional.
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    if (tables_) visit(tables_->factors), visit(tables_->taps);
    projection_.visit_parameters(visit);
  }

 private:
  struct Tables {
    Parameter factors, taps;
  };
  struct Parts {
    Tensor values;  // (B, T, scan_.columns()): x, V, U
    kernels::Columns taps;
  };
  Parts parts_of(const Tensor& product, const Tensor& positions, const Stream& stream);
  /// States before and after the tokens, for generation. Each may be undefined.
  struct BoundaryStates {
    Tensor first_state{}, last_state{};  // initial and final state of the scan
    Tensor value{};                      // (1, 1, H·P), x before the first token
  };
  Tensor multiplied(const Parts& parts, const BoundaryStates& ends, const Pass& pass,
                    const Stream& stream);
  kernels::TokenTapsInput taps_input(const Parts& parts, const Pass& pass) const {
    return {.x = {parts.values.as_rows(), 0}, .taps = parts.taps, .positions = pass.positions};
  }
  Tensor dvalues(const Tensor& dlow, const Parts& parts, const Pass& pass, const Stream& stream);
  void remember_value(const Tensor& kept, const Parts& parts, const Stream& stream) const;
  Tensor decode_chunked(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                        const Pass& pass, const Stream& stream);
  Tensor decoded(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                 const Pass& pass, const Stream& stream);
  std::int64_t table_columns() const { return scan_.columns() - scan_.values(); }
  std::int64_t tap_columns() const { return taps_.heads * taps_.taps(); }

  /// Scans in both directions; back_ excludes the token itself.
  kernels::StateSpaceSpec scan_, back_;
  kernels::TokenTapsSpec taps_;
  std::optional<Tables> tables_;
};

}  // namespace hybrid_trainer
