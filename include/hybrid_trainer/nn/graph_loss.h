#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/network.h"

namespace hybrid_trainer::graph {

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
