#include "hybrid_trainer/nn/graph_node.h"

#include "src/nn/module_sequence.h"

namespace hybrid_trainer::graph {
namespace {

/// One module.
class ModulePart final : public Part {
 public:
  explicit ModulePart(std::unique_ptr<Module> module) : module_(std::move(module)) {}
  Tensor forward(PartInputs inputs, ActivationTape& tape, const Stream& stream) override {
    check_dtype(inputs[0].tensor);
    return module_->forward(inputs[0].tensor, tape, stream);
  }
  std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape& tape,
                               const Stream& stream) override {
    if (inputs[0].wants_gradient) return {module_->backward(dy, tape, stream)};
    module_->backward_parameters(dy, tape, stream);
    return {Tensor{}};
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    module_->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { module_->visit_linears(visit); }
  TokenFlops flops(std::span<const Shape>, const Shape& output, bool wants_gradient) override {
    return flops_of(*module_, output, wants_gradient);
  }
  std::vector<std::string> patterns(const std::string& name) const override {
    bool has_weights = false;
    module_->visit_parameters([&](Parameter&) { has_weights = true; });
    return has_weights ? Part::patterns(name) : std::vector<std::string>{};
  }

 private:
  void check_dtype(const Tensor& x) const {
    const bool are_tokens = x.dtype() == DType::kI32;
    if (are_tokens == reads_tokens(*module_)) return;
    throw ShapeMismatch(are_tokens ? "it reads tokens, want a table (embedding) first"
                                   : "it begins with a table (embedding), want tokens to read");
  }
  std::unique_ptr<Module> module_;
};

Shape of_one(const Shape& example) {
  if (example.rank() >= Shape::kMaxRank)
    throw ShapeMismatch(concat("an example of ", example.text(), ", want at most ",
                               Shape::kMaxRank - 1, " dimensions"));
  Shape shape{1};
  for (int i = 0; i < example.rank(); ++i) shape.append(example[i]);
  return shape;
}

Node batch_tensor(const std::string& name, const Shape& example, DType dtype) {
  return {.name = name, .tensor = BatchTensor{name, of_one(example), dtype}};
}

}  // namespace

Node input(const std::string& name, const Shape& example) {
  return batch_tensor(name, example, DType::kF32);
}
Node token_input(const std::string& name, const Shape& example) {
  return batch_tensor(name, example, DType::kI32);
}

Node part(const ModuleName& name, const std::string& reads, ModuleMaker make) {
  return part(name, std::vector<std::string>{reads},
              [make = std::move(make)](const ModuleName& of, std::span<const Shape> inputs,
                                       const Stream& stream) -> std::unique_ptr<Part> {
                return std::make_unique<ModulePart>(make(of, inputs[0], stream));
              });
}

Node part(const ModuleName& name, std::vector<std::string> reads, PartMaker make) {
  return {.name = name, .reads = std::move(reads), .part = std::move(make)};
}

}  // namespace hybrid_trainer::graph
