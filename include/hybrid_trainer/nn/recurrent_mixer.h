#pragma once

#include "hybrid_trainer/kernels/gated_norm.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/segment_carry.h"
#include "hybrid_trainer/nn/token_convolution.h"

namespace hybrid_trainer {

/// A mixer that goes over the tokens by a recurrence: y = residual + c_proj(norm(scan(conv(p)), z)),
/// where p, the gate z and what else the scan reads are columns of c_in(x). A text's state has one
/// size whatever its length. What the scan makes is kept for backward, or computed again (Rebuild::
/// kAttended); convolution and norm always are.
class RecurrentMixer : public TwoProductBranch, public Rebuilder {
 public:
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) final;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) final;
  /// What the scan made, from the first product.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) final;
  /// x: (1, T, C) of one text or (B, 1, C) of several. `state`: of make_state.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) final;
  std::unique_ptr<BranchState> make_state(TextRoom room, DType dtype,
                                          const Stream& stream) const final;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  bool goes_in_segments() const override { return true; }
  bool carries_state() const final { return true; }
  TokenFlops flops(std::int64_t time) const final;
  KeptNumbers kept() const final;
  void visit_parameters(const ParameterVisitor& visit) override;

 protected:
  /// `gate`: first column of z. `gain`: the norm's numbers.
  RecurrentMixer(const ModuleName& name, Linear first, Linear projection,
                 const TokenConvolution::Spec& convolution, const kernels::GatedNormSpec& norm,
                 std::int64_t gate, std::int64_t gain, const Stream& stream);

 private:
  /// What a scan begins and ends with, as StateSpaceInput::first_state; undefined: zeros, not wanted.
  struct States {
    Tensor first{}, last{};
  };
  /// What a scan began with, and the gradients of its states; undefined as in StateSpaceGradients.
  struct StateGradients {
    Tensor first{}, dlast{}, dfirst{};
  };
  virtual Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
                      const Pass& pass, const Stream& stream) = 0;
  /// Writes its columns of dproduct and the gradients of its parameters. Returns dconvolved.
  virtual Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                               const Tensor& product, const StateGradients& states,
                               const Pass& pass, const Stream& stream) = 0;
  /// Of one token of each text, with rows (N, any).
  virtual Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                           const Tensor& texts, const Stream& stream) = 0;
  virtual Shape scan_state(std::int64_t texts) const = 0;
  /// For a token of a long sequence.
  virtual double scan_flops() const = 0;
  friend class StateSpaceMixer;
  friend class DeltaRuleMixer;
  friend class HydraMixer;

  /// What the pass's carry hands over; nothing where there is none.
  SegmentCarry::Slot* slot(const Pass& pass) const;
  void fill_last(SegmentCarry::Slot& slot, const Tensor& product, const Stream& stream) const;
  void scan_and_convolution_backward(const Tensor& dproduct, const Tensor& dscan,
                                     const Tensor& product, const Pass& pass, const Stream& stream);
  Tensor normed(const Tensor& y, const Tensor& product, const Stream& stream);
  Tensor begin_text(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                    const Pass& pass, const Stream& stream);
  Tensor go_on_at_once(const Tensor& product, std::int64_t text, BranchState& state,
                       const Pass& pass, const Stream& stream);
  Tensor go_on(const Tensor& product, const DecodeTexts& texts, BranchState& state,
               const Pass& pass, const Stream& stream);
  std::int64_t inner() const { return projection_.weight().shape()[1]; }
  TokenConvolution convolution_;
  kernels::GatedNormSpec norm_;
  std::int64_t gate_;
  Parameter gain_;
};

}  // namespace hybrid_trainer
