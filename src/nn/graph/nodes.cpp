#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/graph_part.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/nn/graph/modules.h"

namespace hybrid_trainer::graph {

void Part::initialize(std::uint64_t seed, const Stream& stream) {
  initialize_matrices([&](const ParameterVisitor& visit) { visit_parameters(visit); }, seed,
                      stream);
}

void initialize_matrices(const std::function<void(const ParameterVisitor&)>& visit_parameters,
                         std::uint64_t seed, const Stream& stream) {
  constexpr double kOfTables = 0.02;
  visit_parameters([&](Parameter& parameter) {
    if (parameter.role() == Role::kVector || !parameter.trainable()) return;
    const Shape& shape = parameter.shape();
    const auto inputs = static_cast<double>(shape[shape.rank() - 1]);
    const bool is_table = parameter.role() == Role::kEmbedding;
    initialize_normal(parameter, is_table ? kOfTables : 1 / std::sqrt(inputs), seed, stream);
  });
}

Shape output_shape(const ModuleMaker& make, const ModuleName& name, const Shape& input) {
  const Stream nowhere(make_device_pool({.simulated = true}));
  const std::unique_ptr<Module> module = make(name, input, nowhere);
  ForwardOnlyTape tape{Pass{.training = false}};
  const DType dtype = reads_tokens(*module) ? DType::kI32 : DType::kF32;
  const Tensor x = Tensor::empty(input, dtype, MemoryKind::kData, nowhere);
  return module->forward(x, tape, nowhere).shape();
}

namespace {

class ModulePart final : public Part {
 public:
  explicit ModulePart(std::unique_ptr<Module> module) : module_(std::move(module)) {}
  Tensor forward(PartInputs inputs, ActivationTape& tape, const Stream& stream) override {
    check_dtype(inputs[0].tensor);
    return module_->forward(inputs[0].tensor, tape, stream);
  }
  std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape& tape,
                               const Stream& stream) override {
    if (inputs[0].requires_gradient) return {module_->backward(dy, tape, stream)};
    module_->backward_parameters(dy, tape, stream);
    return {Tensor{}};
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    module_->visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override { module_->visit_linears(visit); }
  TokenFlops flops(std::span<const Shape>, const Shape& output, bool requires_gradient) override {
    return flops_of(*module_, output, requires_gradient);
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
    throw ShapeMismatch(
        are_tokens ? "its input is tokens, so its first module must be an embedding table"
                   : "its first module is an embedding table, so its input must be tokens");
  }
  std::unique_ptr<Module> module_;
};

Shape of_one(const Shape& example) {
  if (example.rank() >= Shape::kMaxRank)
    throw ShapeMismatch(concat("an example has the shape ", example.text(), ", want at most ",
                               Shape::kMaxRank - 1, " dimensions"));
  Shape shape{1};
  for (int i = 0; i < example.rank(); ++i) shape.append(example[i]);
  return shape;
}

Node batch_tensor(const std::string& name, const Shape& example, DType dtype) {
  return {.name = name, .tensor = BatchTensor{name, of_one(example), dtype}};
}

class Concatenation final : public Part {
 public:
  Concatenation(std::vector<std::int64_t> sizes, int dimension)
      : sizes_(std::move(sizes)), dimension_(dimension) {}

  Tensor forward(PartInputs inputs, ActivationTape&, const Stream& stream) override {
    const Shape& first = inputs.front().tensor.shape();
    std::int64_t all = 0;
    for (const std::int64_t size : sizes_) all += size;
    Tensor y = Tensor::empty(with_size(first, all), inputs.front().tensor.dtype(),
                             MemoryKind::kActivations, stream);
    std::int64_t at = 0;
    for (const PartInput& input : inputs) {
      const Tensor rows = joined(input.tensor);
      kernels::copy_columns({joined(y), at}, {rows, 0}, rows.size(1), stream);
      at += rows.size(1);
    }
    return y;
  }

  std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape&,
                               const Stream& stream) override {
    std::vector<Tensor> gradients(inputs.size());
    const Tensor all = joined(dy);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Shape shape = with_size(dy.shape(), sizes_[i]);
      const std::int64_t columns = shape.elements() / all.size(0);
      if (inputs[i].requires_gradient) {
        gradients[i] = Tensor::empty(shape, dy.dtype(), MemoryKind::kActivations, stream);
        kernels::copy_columns({joined(gradients[i]), 0}, {all, at}, columns, stream);
      }
      at += columns;
    }
    return gradients;
  }

  TokenFlops flops(std::span<const Shape>, const Shape&, bool) override { return {}; }
  std::vector<std::string> patterns(const std::string&) const override { return {}; }

 private:
  Shape with_size(const Shape& shape, std::int64_t size) const {
    Shape other;
    for (int i = 0; i < shape.rank(); ++i) other.append(i == dimension_ ? size : shape[i]);
    return other;
  }
  Tensor joined(const Tensor& x) const {
    std::int64_t rows = 1;
    for (int i = 0; i < dimension_; ++i) rows *= x.size(i);
    return x.view({rows, x.elements() / rows});
  }
  std::vector<std::int64_t> sizes_;  // sizes of the inputs along the dimension
  int dimension_;
};

/// Throws if two inputs differ in a dimension other than `free`.
void require_equal_shapes(const ModuleName& name, std::span<const Shape> inputs, int free) {
  if (inputs.size() < 2)
    throw ShapeMismatch(concat(name.here, " joins one input, want two or more"));
  const Shape& first = inputs.front();
  for (const Shape& other : inputs) {
    bool are_alike = first.rank() == other.rank();
    for (int i = 0; are_alike && i < first.rank(); ++i)
      are_alike = i == free || first[i] == other[i];
    if (are_alike) continue;
    const std::string but =
        free < 0 ? std::string()
                 : concat(" except in dimension ", free, ", along which they are joined");
    throw ShapeMismatch(concat(name.here, ": its inputs are ", first.text(), " and ", other.text(),
                               ", want the same shape", but));
  }
}

class Sum final : public Part {
 public:
  Tensor forward(PartInputs inputs, ActivationTape&, const Stream& stream) override {
    Tensor y = Tensor::empty_like(inputs[0].tensor, MemoryKind::kActivations, stream);
    kernels::add(y, inputs[0].tensor, inputs[1].tensor, stream);
    for (const PartInput& input : inputs.subspan(2)) kernels::add(y, y, input.tensor, stream);
    return y;
  }
  /// Returns copies of dy, and dy itself as the last gradient.
  std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape&,
                               const Stream& stream) override {
    std::vector<Tensor> gradients(inputs.size());
    bool is_taken = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].requires_gradient) continue;
      gradients[i] = is_taken ? Tensor::empty_like(dy, MemoryKind::kActivations, stream) : dy;
      if (is_taken) copy(gradients[i], dy, stream);
      is_taken = true;
    }
    return gradients;
  }
  TokenFlops flops(std::span<const Shape>, const Shape&, bool) override { return {}; }
  std::vector<std::string> patterns(const std::string&) const override { return {}; }
};

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

Node concatenate(const ModuleName& name, std::vector<std::string> reads, ConcatAxis along) {
  return part(name, std::move(reads),
              [along](const ModuleName& of, std::span<const Shape> inputs,
                      const Stream&) -> std::unique_ptr<Part> {
                const int dimension =
                    along == ConcatAxis::kTokens || inputs.empty() ? 1 : inputs.front().rank() - 1;
                require_equal_shapes(of, inputs, dimension);
                if (inputs.front().rank() <= std::max(dimension, 1) ||
                    (along == ConcatAxis::kTokens && inputs.front().rank() != 3))
                  throw ShapeMismatch(concat(of.here, ": its inputs are ", inputs.front().text(),
                                             ", want (batch, tokens, channels)"));
                std::vector<std::int64_t> sizes;
                for (const Shape& shape : inputs) sizes.push_back(shape[dimension]);
                return std::make_unique<Concatenation>(std::move(sizes), dimension);
              });
}

Node sum(const ModuleName& name, std::vector<std::string> reads) {
  return part(name, std::move(reads),
              [](const ModuleName& of, std::span<const Shape> inputs,
                 const Stream&) -> std::unique_ptr<Part> {
                require_equal_shapes(of, inputs, -1);
                return std::make_unique<Sum>();
              });
}

}  // namespace hybrid_trainer::graph
