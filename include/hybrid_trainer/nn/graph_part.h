#pragma once

#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer::graph {

/// A tensor that a part reads. In backward, `tensor` is defined only for tensors of the batch.
struct PartInput {
  Tensor tensor{};
  bool requires_gradient = false;
};
using PartInputs = std::span<const PartInput>;

/// A differentiable function of one or more tensors; an entry of a network's list. Must not modify
/// its inputs or the tensors that backward takes from the tape, since other parts may read them.
class Part {
 public:
  virtual ~Part() = default;
  virtual Tensor forward(PartInputs inputs, ActivationTape& tape, const Stream& stream) = 0;
  /// Returns the gradients of the inputs, in order. Gradients that are not wanted are undefined.
  /// May overwrite dy. Gradients do not share memory.
  virtual std::vector<Tensor> backward(const Tensor& dy, PartInputs inputs, ActivationTape& tape,
                                       const Stream& stream) = 0;
  virtual void visit_parameters(const ParameterVisitor&) {}
  /// Visits the linear maps that may get adapters.
  virtual void visit_linears(const LinearVisitor&) {}
  virtual void visit_routings(const RoutingVisitor&) {}
  /// Initializes weights from the seed. The default calls initialize_matrices.
  virtual void initialize(std::uint64_t seed, const Stream& stream);
  /// Returns the FLOPs of forward and backward for one example. `inputs` and `output`: shapes with
  /// a first dimension of 1. `requires_gradient`: whether any input needs a gradient.
  virtual TokenFlops flops(std::span<const Shape> inputs, const Shape& output,
                           bool requires_gradient) = 0;
  /// Returns the FLOPs that backward repeats if it recomputes the share `share` of the activations.
  virtual double recomputed_flops(std::span<const Shape> inputs, const Shape& output,
                                  double share) {
    return share > 0 ? flops(inputs, output, true).forward : 0;
  }
  /// Returns whether the part implements Pass::recompute. Other parts are recomputed completely.
  virtual bool recomputes_itself() const { return false; }
  /// Returns patterns of the part's weight names, in order of use; by default one that matches all.
  virtual std::vector<std::string> patterns(const std::string& name) const { return {name + ".*"}; }
};

/// Makes a part for inputs of these shapes with a batch dimension of 1. Throws ShapeMismatch.
/// Called twice: first on a simulated device, to infer the result's shape.
using PartMaker = std::function<std::unique_ptr<Part>(
    const ModuleName& name, std::span<const Shape> inputs, const Stream& stream)>;

/// Makes a module with this name for an input of this shape; see PartMaker.
using ModuleMaker = std::function<std::unique_ptr<Module>(
    const ModuleName& name, const Shape& input, const Stream& stream)>;

/// Initializes weights with normally distributed values. The standard deviation is 1/√inputs for
/// matrices and 0.02 for tables. Does not change vectors and frozen weights.
void initialize_matrices(const std::function<void(const ParameterVisitor&)>& visit_parameters,
                         std::uint64_t seed, const Stream& stream);

/// Returns the shape of a module's output for an input of this shape, without computing it.
Shape output_shape(const ModuleMaker& make, const ModuleName& name, const Shape& input);

/// A tensor of a batch. `shape`: shape of one example, with a first dimension of 1.
struct BatchTensor {
  std::string name;
  Shape shape{};
  DType dtype = DType::kF32;
};

/// A loss at the end of a network. Computes one loss per row, and the gradient of the predictions.
class Loss {
 public:
  virtual ~Loss() = default;
  /// Returns the tensors of the batch that the loss reads.
  virtual std::vector<BatchTensor> targets() const = 0;
  /// Returns the number of losses per example.
  virtual std::int64_t rows() const = 0;
  /// Returns whether Batch::loss_divisor, not the number of losses, divides the sum.
  virtual bool counts_targets() const { return false; }
  struct LossOptions {
    float gradient_scale =
        0;  // if not 0, x is replaced by gradient_scale · the gradient of the summed losses
    float label_smoothing = 0;  // Pass::label_smoothing; used only by cross entropies
  };
  /// Writes the loss of each row of the predictions x to `losses`. x: f32. losses: (rows of all
  /// examples) f32.
  virtual void compute(const Tensor& losses, const Tensor& x, std::span<const Tensor> targets,
                       const LossOptions& options, const Stream& stream) const = 0;
  /// Returns measures of the predictions other than the loss; names begin with `name` and a dot. x,
  /// f32, targets and losses are in host memory.
  virtual std::vector<Measure> measures(const std::string& name, const Tensor& x,
                                        std::span<const Tensor> targets,
                                        const Tensor& losses) const = 0;
};

/// Makes a loss for predictions (1, …) of this shape and the named targets. Throws ShapeMismatch.
using LossMaker = std::function<std::unique_ptr<Loss>(const Shape& predictions,
                                                      const std::vector<std::string>& targets)>;

/// Returns the mean of the named measure. Throws Error, with the existing names, if there is none.
double mean_of(const std::vector<Measure>& measures, const std::string& name);

/// Returns R² of a regression, 1 − Σ(x − y)²/Σ(y − mean of y)², from the measures of the loss named
/// `loss`, summed over batches. NaN if all targets y are equal.
double r_squared(const std::vector<Measure>& measures, const std::string& loss);

}  // namespace hybrid_trainer::graph
