#include "src/models/fragments.h"

namespace hybrid_trainer {
namespace {

class Fragments final : public Module {
 public:
  Fragments(std::int64_t frames, std::unique_ptr<Module> module)
      : frames_(frames), module_(std::move(module)) {}

  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override {
    const Tensor y = module_->forward(cut(x), tape, stream);
    tape.save_shape(y.shape());
    const std::int64_t width = y.size(y.shape().rank() - 1);
    return y.view({x.size(0), y.elements() / x.size(0) / width, width});
  }
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    const Tensor dx = module_->backward(dy.view(tape.take_shape()), tape, stream);
    const Shape cut = dx.shape();
    return dx.view({dy.size(0), cut[0] * cut[1] / dy.size(0), cut[2], cut[3], cut[4]});
  }
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    module_->backward_parameters(dy.view(tape.take_shape()), tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    module_->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { module_->visit_linears(visit); }

 private:
  Tensor cut(const Tensor& x) const {
    const Shape whole = x.shape();
    return x.view({whole[0] * whole[1] / frames_, frames_, whole[2], whole[3], whole[4]});
  }
  std::int64_t frames_;
  std::unique_ptr<Module> module_;
};

}  // namespace

graph::ModuleMaker fragments(std::int64_t frames, graph::ModuleMaker module) {
  return [frames, module = std::move(module)](const ModuleName& name, const Shape& input,
                                              const Stream& stream) -> std::unique_ptr<Module> {
    const Shape fragment{input[0] * input[1] / frames, frames, input[2], input[3], input[4]};
    return std::make_unique<Fragments>(frames, module(name, fragment, stream));
  };
}

}  // namespace hybrid_trainer
