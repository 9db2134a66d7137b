#include <algorithm>

#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/graph_node.h"

namespace hybrid_trainer::graph {
namespace {

/// Behind one another along one dimension.
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
      if (inputs[i].wants_gradient) {
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
  /// A row for each place before the dimension.
  Tensor joined(const Tensor& x) const {
    std::int64_t rows = 1;
    for (int i = 0; i < dimension_; ++i) rows *= x.size(i);
    return x.view({rows, x.elements() / rows});
  }
  std::vector<std::int64_t> sizes_;  // of the inputs along it
  int dimension_;
};

/// Throws where two of the inputs differ in more than dimension `free`.
void want_alike(const ModuleName& name, std::span<const Shape> inputs, int free) {
  if (inputs.size() < 2)
    throw ShapeMismatch(concat(name.here, " joins one input, want two or more"));
  const Shape& first = inputs.front();
  for (const Shape& other : inputs) {
    bool are_alike = first.rank() == other.rank();
    for (int i = 0; are_alike && i < first.rank(); ++i)
      are_alike = i == free || first[i] == other[i];
    if (are_alike) continue;
    const std::string but =
        free < 0 ? std::string() : concat(", but for dimension ", free, ", along which they go");
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
  /// Copies of dy, and last dy itself.
  std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape&,
                               const Stream& stream) override {
    std::vector<Tensor> gradients(inputs.size());
    bool is_taken = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].wants_gradient) continue;
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

Node concatenate(const ModuleName& name, std::vector<std::string> reads, Along along) {
  return part(name, std::move(reads),
              [along](const ModuleName& of, std::span<const Shape> inputs,
                      const Stream&) -> std::unique_ptr<Part> {
                const int dimension =
                    along == Along::kTokens || inputs.empty() ? 1 : inputs.front().rank() - 1;
                want_alike(of, inputs, dimension);
                if (inputs.front().rank() <= std::max(dimension, 1) ||
                    (along == Along::kTokens && inputs.front().rank() != 3))
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
                want_alike(of, inputs, -1);
                return std::make_unique<Sum>();
              });
}

}  // namespace hybrid_trainer::graph
