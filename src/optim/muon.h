#pragma once

#include <optional>

#include "hybrid_trainer/core/tensor.h"
#include "src/optim/momentum_optimizers.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// Replaces a matrix by the nearest one whose singular values are all near 1 (0.7 to 1.2), with
/// five Newton–Schulz steps X ← a·X + (b·G + c·G²)·X, G = X·Xᵀ, from X = U/‖U‖. Allocates its
/// memory once, for bf16 with the first such matrix. In f32, one whose sides are as 2 to 1 or more
/// iterates on G alone and is multiplied by what came of it, the same within 3e-3 in spectral norm;
/// bf16 would lose G's small eigenvalues. Source: Jordan et al. 2024, "Muon: an optimizer for
/// hidden layers in neural networks".
class Orthogonalizer {
 public:
  /// Room for matrices of at most `max_elements` elements and `max_side` rows or columns, whichever
  /// is fewer.
  Orthogonalizer(std::int64_t max_elements, std::int64_t max_side, const Stream& stream);

  /// An f32 (rows, columns) view of the workspace for the caller to fill, until the next call.
  Tensor input(std::int64_t rows, std::int64_t columns) const;
  /// The orthogonalized `matrix`, which came from input() and is overwritten. Does not block. Zeros
  /// stay zeros. `products`: the dtype that operands of products are rounded to; sums are f32.
  Tensor orthogonal(const Tensor& matrix, DType products, const Stream& stream) {
    return orthogonal_blocks(matrix, matrix.size(0), products, stream);
  }
  /// The same of each block of so many rows, the last of which may have fewer.
  Tensor orthogonal_blocks(const Tensor& matrix, std::int64_t block_rows, DType products,
                           const Stream& stream);
  /// Operations of the products in orthogonal_blocks.
  static double flops(const Shape& matrix, std::int64_t block_rows, DType products);

 private:
  static bool iterates_on_gram(const Shape& matrix, DType products);
  void orthogonalize(const Tensor& result, const Tensor& matrix, DType products,
                     const Stream& stream);
  void iterate(const Tensor& result, const Tensor& matrix, DType products, const Stream& stream);
  void iterate_on_gram(const Tensor& result, const Tensor& x, const Stream& stream);
  Tensor factor(const Tensor& matrix, const Tensor& rounded, const Stream& stream) const;

  Tensor input_;
  Tensor other_;
  Tensor gram_;
  Tensor polynomial_;
  Tensor rounded_input_, rounded_gram_;  // bf16
};

/// Muon: tensors of two dimensions move by the orthogonalised Nesterov momentum, times 0.2·√(larger
/// side), which gives their updates the root mean square of AdamW's, so that one learning rate and
/// one decay serve both. State: m for each. Products of the orthogonalisation run in the phase's
/// precision, or f32 where bf16 is slower. Between two steps that are orthogonalised as a whole
/// (orthogonalization_period, counted in steps taken), blocks of rows are, each by itself, and
/// `larger side` is a block's, so that the root mean square stays. Directions are whole. A matrix
/// whose gradient is exactly 0, such as an expert without tokens, only decays. Sources:
/// Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is scalable for LLM training", eq. 4; Khaled
/// et al. 2025, "MuonBP", algorithm 1, whose two rates are these two scales.
class Muon final : public MomentumOptimizer {
 public:
  Muon(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
       const StateHome& home);
  void set_orthogonalization_period(std::int64_t steps) override {
    config_.orthogonalization_period = steps;
  }

 private:
  void update(const Slot& slot, const Tensor& gradient, float learning_rate, float gradient_scale,
              const Stream& stream) override;
  void write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                       const Stream& stream) override;
  OptimizerConfig config_;
  std::optional<Orthogonalizer> orthogonalizer_;  // none where there is no matrix
};

/// 0.2·√(larger side): an orthogonal (R, C) matrix has root mean square 1/√max(R, C), an AdamW
/// update about 0.2.
float update_scale(const Shape& shape);
/// Rows of a matrix that the step of this number, from 1, orthogonalises together: all, or a block's.
/// Rows, as those of a block lie together, a head's are next to each other, and the products of a
/// block cost least where it is as wide as it can be.
std::int64_t rows_together(const OptimizerConfig& config, const Shape& shape, std::int64_t step);
/// The precision of the phase: bf16 if weights have bf16 copies, unless bf16 is slower here.
DType products_of(const Parameter& parameter, const Stream& stream);
/// kernels::muon_momentum with the squares of this gradient.
void add_to_momentum(const Tensor& u, const Tensor& m, const Tensor& gradient,
                     const OptimizerConfig& config, float gradient_scale, const Stream& stream);
/// Operations of the products that orthogonalise a matrix, on average over steps.
double orthogonalization_flops(const OptimizerConfig& config, const Parameter& matrix,
                               const Stream& stream);
/// With room for the largest of these matrices. Throws ShapeMismatch for another shape.
Orthogonalizer orthogonalizer_for(const std::vector<Parameter*>& parameters, const Stream& stream);

std::unique_ptr<UpdatePredictor> make_muon_predictor(const PredictedUpdates& updates);

}  // namespace hybrid_trainer
