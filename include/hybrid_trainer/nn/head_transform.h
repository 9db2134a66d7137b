#pragma once

#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/norm.h"

namespace hybrid_trainer {

/// Transform of vectors before a head: y = norm(f(dense(x))).
class HeadTransform final : public Module {
 public:
  enum class Activation { kTanh, kRelu, kGelu, kNone };
  struct Spec {
    std::int64_t width = 0;
    std::int64_t outputs = 0;  // 0: width
    ModuleName dense{"lm_head.dense"};
    bool bias = true;  // whether the dense map has a bias
    Activation activation = Activation::kGelu;
    ModuleName norm{"lm_head.norm"};
    std::optional<NormSpec> norm_kind{};  // none: no norm
    bool prefixed = false;                // whether names in files have the model's prefix
  };
  HeadTransform(const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    dense_.visit_parameters(visit);
    if (norm_) norm_->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { visit(dense_); }
  Linear& dense() { return dense_; }

 private:
  Linear dense_;
  Activation activation_;
  std::unique_ptr<Norm> norm_;  // or null
};

/// Removes the model's prefix from the names of a module's weights in files.
void remove_prefixes(Module& module);

}  // namespace hybrid_trainer
