#pragma once

#include "hybrid_trainer/kernels/state_space_scan.h"
#include "hybrid_trainer/kernels/token_taps.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// Multiplies each head's values along the tokens by a matrix T + U·Vᵀ: y = residual + c_proj((T +
/// D⁻¹·U·Vᵀ)·x). U and V have `rank` columns, D the tokens that a row sums over. Causal, it is the
/// lower triangle, and T has taps of a token and the one before; two-way, of the one after too, and it
/// cannot generate. With `positions` = 0 values x, V, U and taps are the rows of c_in, in this order;
/// else those of the tables "<name>.factors.weight" (positions, 2·heads·rank), V before U, and
/// "<name>.taps.weight" (positions, heads·taps), the same for all texts. O(T·rank).
class SemiseparableMixer final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    std::int64_t heads = 1;
    std::int64_t head_size = 0;
    std::int64_t rank = 8;
    bool two_way = false;
    std::int64_t positions = 0;  // most tokens of a document where U, V and T go by position
    bool biases = false;         // of both products
    ProductFiles files{};
  };

  SemiseparableMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// The matrices' product with x, from the first product.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// x: (1, T, C) of one text or (B, 1, C) of several. `state`: of make_state. Throws Error where it
  /// is two-way.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  /// Null where it is two-way.
  std::unique_ptr<BranchState> make_state(TextRoom room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  struct Tables {
    Parameter factors, taps;
  };
  /// What the matrices are made of, for rows of tokens.
  struct Parts {
    Tensor values;  // (B, T, scan_.columns()): x, V, U
    kernels::Columns taps;
  };
  Parts parts_of(const Tensor& product, const Tensor& positions, const Stream& stream);
  /// What goes before and behind the tokens, in generation. Undefined: nothing, not wanted.
  struct Ends {
    Tensor first_state{}, last_state{};  // of the scan
    Tensor value{};                      // (1, 1, H·P), x before the first token
  };
  Tensor multiplied(const Parts& parts, const Ends& ends, const Pass& pass, const Stream& stream);
  kernels::TokenTapsInput taps_input(const Parts& parts, const Pass& pass) const;
  Tensor dvalues(const Tensor& dlow, const Parts& parts, const Pass& pass, const Stream& stream);
  void remember_value(const Tensor& kept, const Parts& parts, const Stream& stream) const;
  Tensor at_once(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                 const Pass& pass, const Stream& stream);
  Tensor decoded(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                 const Pass& pass, const Stream& stream);
  std::int64_t table_columns() const { return scan_.columns() - scan_.values(); }
  std::int64_t tap_columns() const { return taps_.heads * taps_.taps(); }

  kernels::StateSpaceSpec scan_, back_;  // forwards, and backwards without the token itself
  kernels::TokenTapsSpec taps_;
  std::optional<Tables> tables_;
};

}  // namespace hybrid_trainer
