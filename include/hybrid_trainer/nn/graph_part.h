#pragma once

#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer::graph {

/// A tensor that a part reads. In backward it is there if it is one of the batch's, else undefined.
struct PartInput {
  Tensor tensor{};
  bool wants_gradient = false;
};
using PartInputs = std::span<const PartInput>;

/// A differentiable function of one tensor or several: what one entry of a network's list computes. It
/// leaves its inputs as they are, also those that backward takes from the tape: other parts may read
/// them.
class Part {
 public:
  virtual ~Part() = default;
  virtual Tensor forward(PartInputs inputs, ActivationTape& tape, const Stream& stream) = 0;
  /// The gradients of the inputs, in their order; undefined ones where nobody wants them. May
  /// overwrite dy. No two of them share memory.
  virtual std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape& tape,
                                       const Stream& stream) = 0;
  virtual void visit_parameters(const ParameterVisitor&) {}
  /// The linear maps that may get adapters.
  virtual void visit_linears(const LinearVisitor&) {}
  virtual void visit_routings(const RoutingVisitor&) {}
  /// Draws the first weights from the seed; by default matrices as first_matrices does.
  virtual void initialize(std::uint64_t seed, const Stream& stream);
  /// Of forward and backward of one example, whose inputs have these shapes with a first dimension of
  /// 1; `wants_gradient`: of any input.
  virtual TokenFlops flops(std::span<const Shape> inputs, const Shape& output,
                           bool wants_gradient) = 0;
  /// Of those of forward, how many backward adds where `share` of the activations is computed again.
  virtual double recomputed_flops(std::span<const Shape> inputs, const Shape& output,
                                  double share) {
    return share > 0 ? flops(inputs, output, true).forward : 0;
  }
  /// Whether it heeds Pass::recompute, as a stack of blocks does; else it is computed again as a whole.
  virtual bool recomputes_itself() const { return false; }
  /// Patterns of its weights' names, in the order in which it uses them; by default one for all.
  virtual std::vector<std::string> patterns(const std::string& name) const { return {name + ".*"}; }
};

/// Makes a part of a name that reads tensors of these shapes, each with a first dimension of 1 for the
/// batch. Throws ShapeMismatch where it cannot. It is called twice: first for a device that computes
/// nothing, where the part's result shows its shape.
using PartMaker = std::function<std::unique_ptr<Part>(
    const ModuleName& name, std::span<const Shape> inputs, const Stream& stream)>;

/// The same of a module.
using ModuleMaker = std::function<std::unique_ptr<Module>(
    const ModuleName& name, const Shape& input, const Stream& stream)>;

/// Fills matrices with normally distributed values of deviation 1/√inputs, and tables with those of
/// deviation 0.02; vectors stay, and what is not trained.
void first_matrices(const std::function<void(const ParameterVisitor&)>& visit_parameters,
                    std::uint64_t seed, const Stream& stream);

/// The shape of what a module makes of an input of this shape, without computing it.
Shape output_shape(const ModuleMaker& make, const ModuleName& name, const Shape& input);

/// A tensor of a batch. `shape`: of one example, with a first dimension of 1.
struct BatchTensor {
  std::string name;
  Shape shape{};
  DType dtype = DType::kF32;
};

/// What the end of a network is held against: the losses of rows, and the gradients of predictions.
class Loss {
 public:
  virtual ~Loss() = default;
  /// The tensors of the batch that it reads.
  virtual std::vector<BatchTensor> targets() const = 0;
  /// How many losses an example has.
  virtual std::int64_t rows() const = 0;
  /// Whether their sum is divided by Batch::loss_divisor, which heeds targets that are not learnt; else
  /// by their number.
  virtual bool counts_targets() const { return false; }
  /// How the losses are computed.
  struct Way {
    float gradient_scale =
        0;  // where it is not 0, x becomes its own gradient, of their sum times that
    float label_smoothing =
        0;  // Pass::label_smoothing, which losses other than cross entropies ignore
  };
  /// Writes the losses, (rows of all examples) f32, of x, f32.
  virtual void compute(const Tensor& losses, const Tensor& x, std::span<const Tensor> targets,
                       const Way& way, const Stream& stream) const = 0;
  /// How good predictions are, beside the loss itself. x, f32, targets and losses in host memory; names
  /// begin with `name` and a dot.
  virtual std::vector<Measure> measures(const std::string& name, const Tensor& x,
                                        std::span<const Tensor> targets,
                                        const Tensor& losses) const = 0;
};

/// Makes a loss of predictions of this shape, whose first dimension is 1, that reads targets of these
/// names. Throws ShapeMismatch.
using LossMaker = std::function<std::unique_ptr<Loss>(const Shape& predictions,
                                                      const std::vector<std::string>& targets)>;

/// The mean of the measure of this name. Throws Error, which names those that are there, where there is
/// none.
double mean_of(const std::vector<Measure>& measures, const std::string& name);

/// R² of a regression: 1 − Σ(x − y)²/Σ(y − mean of y)², from its measures, added over batches. NaN where
/// all targets are equal.
double r_squared(const std::vector<Measure>& measures, const std::string& loss);

}  // namespace hybrid_trainer::graph
