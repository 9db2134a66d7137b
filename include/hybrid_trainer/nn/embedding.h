#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Sum of token "wte.weight" (V, C), optional position "wpe.weight" and type "wtype.weight" rows.
class Embedding {
 public:
  struct Spec {
    std::int64_t rows = 0;       // V
    std::int64_t positions = 0;  // max T; 0 for none
    std::int64_t types = 0;      // rows of the type table; 0 for none
    std::int64_t width = 0;
    double factor = 1;                // factor of the sum, rounded to the dtype of the sum
    bool scales_only_tokens = false;  // the factor scales only token rows
    std::int64_t first_position = 0;  // position t uses row first_position + t
    ModuleName positions_name{"wpe.weight"};
    /// Token table shared with another embedding, or null for a new one.
    std::shared_ptr<Parameter> tokens{};
  };

  Embedding(const Spec& spec, const Stream& stream);
  /// Embeds tokens, (B, T) i32, with the pass's types and positions, by default 0, 1, ….
  Tensor forward(const Tensor& tokens, const Pass& pass, const Stream& stream);
  /// Overwrites dy if there is a factor.
  void backward(const Tensor& dy, const Tensor& tokens, const Pass& pass, const Stream& stream);
  /// Visits the tables, except a token table shared from another embedding.
  void visit_parameters(const ParameterVisitor& visit) {
    if (owns_tokens_) visit(*tokens_);
    if (positions_) visit(*positions_);
    if (types_) visit(*types_);
  }
  Parameter& tokens() { return *tokens_; }
  const std::shared_ptr<Parameter>& shared_tokens() const { return tokens_; }
  bool has_positions() const { return positions_.has_value(); }
  Parameter& positions() { return *positions_; }
  /// Returns the type table, or null without token types.
  Parameter* types() { return types_ ? &*types_ : nullptr; }

 private:
  Tensor rows_of_positions(const Tensor& table) const {
    return table.rows(first_position_, table.size(0));
  }
  void scale(const Tensor& x, const Stream& stream) const;
  void add_positions(const Tensor& y, const Pass& pass, const Stream& stream) const;
  void add_types(const Tensor& y, const Tensor& tokens, const Pass& pass,
                 const Stream& stream) const;
  bool adds_positions_separately(const Pass& pass) const {
    return positions_ && (pass.positions || (scales_only_tokens_ && factor_ != 1));
  }
  float factor_;
  bool scales_only_tokens_, owns_tokens_;
  std::int64_t first_position_;
  std::shared_ptr<Parameter> tokens_;
  std::optional<Parameter> positions_, types_;
};

}  // namespace hybrid_trainer
