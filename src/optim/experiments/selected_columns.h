#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/exact_weight.h"
#include "src/optim/given_gradients.h"

namespace hybrid_trainer {

/// A tenth of each matrix's columns (input features), at least one, and every other weight as a
/// whole, with an optimizer of their own on the stream's device. A column is kept as a row: those of
/// a matrix (R, C) are (K, R), and Muon orthogonalises them as a matrix of its own.
class SelectedColumns {
 public:
  SelectedColumns(const OptimizerConfig& config, const std::vector<ExactWeight>& weights,
                  const Stream& stream);

  /// On the host: from now on weight `index`'s columns are those of the largest norms in x, of two
  /// equal ones the first.
  void select(std::size_t index, const Tensor& x, const Stream& host);
  /// Values and state of the columns from a weight's, and the other way, which all lie at hand.
  void gather(std::size_t index, const Tensor& master, const std::vector<Tensor*>& state,
              const Stream& stream) const;
  void scatter(std::size_t index, const Tensor& master, const std::vector<Tensor*>& state,
               const Stream& stream) const;
  /// Columns, values and state as in `from`, wherever that lies.
  void copy_from(const SelectedColumns& from, std::size_t index, const Stream& stream) const;
  /// The optimizer's update number `step` of these columns by the whole weight's gradient.
  void update(std::size_t index, const Tensor& gradient, std::int64_t step, float learning_rate,
              float gradient_scale, const Stream& stream);
  /// weight (f32 or bf16): its columns become these.
  void write_to(std::size_t index, const Tensor& weight, const Stream& stream) const;
  /// visit(name of the part, tensor): the columns' indices, undefined for a whole weight, their values
  /// and state.
  template <class Visitor>
  void visit_tensors(std::size_t index, const Visitor& visit) const {
    const Part& part = parts_[index];
    visit("columns", part.indices);
    visit("values", part.values->home_master());
    for (std::size_t i = 0; i < part.state.size(); ++i) visit(i == 0 ? "m" : "v", *part.state[i]);
  }

 private:
  struct Part {
    std::unique_ptr<Parameter> values;
    Tensor indices;  // (K) i32, ascending; undefined: all of the weight
    std::vector<Tensor*> state{};
  };
  static void take(const Part& part, const Tensor& to, const Tensor& from, const Stream& stream);
  static void put(const Part& part, const Tensor& to, const Tensor& from, const Stream& stream);

  GivenGradients given_;
  std::vector<Part> parts_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace hybrid_trainer
