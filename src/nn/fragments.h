#pragma once

#include <memory>

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer::graph {

/// Cuts videos (B, T, H, W, C) into fragments of `frames` frames, which its module sees as videos of their
/// own. What that makes of them, (B·T/frames, …, D), becomes the tokens (B, N, D) of the video.
class Fragments final : public Module {
 public:
  /// `example`: what the module makes of all fragments of one video.
  Fragments(std::int64_t frames, std::unique_ptr<Module> module, const Shape& example)
      : frames_(frames), module_(std::move(module)), example_(example) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    module_->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { module_->visit_linears(visit); }
  Module& module() { return *module_; }
  const Shape& example() const { return example_; }

 private:
  Tensor cut(const Tensor& x) const;
  std::int64_t frames_;
  std::unique_ptr<Module> module_;
  Shape example_;
};

}  // namespace hybrid_trainer::graph
