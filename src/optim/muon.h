#pragma once

#include "src/optim/momentum_optimizers.h"

namespace hybrid_trainer {

/// Orthogonalizes a matrix approximately: all singular values become 0.7 to 1.2. Uses five
/// Newton–Schulz steps X ← a·X + (b·G + c·G²)·X with G = X·Xᵀ, starting from X = U/‖U‖. Allocates
/// its memory once, and memory for bf16 with the first bf16 matrix. In f32, if the aspect ratio is
/// 2 or more, iterates only on G and multiplies the matrix by the result, which is equal within
/// 3e-3 in spectral norm. In bf16, this would lose small eigenvalues of G. Source: Jordan et al.
/// 2024, "Muon: an optimizer for hidden layers in neural networks".
class Orthogonalizer {
 public:
  /// Allocates for matrices of up to `max_elements` elements whose smaller side is up to
  /// `max_side`.
  Orthogonalizer(std::int64_t max_elements, std::int64_t max_side, const Stream& stream);

  /// Returns an f32 (rows, columns) view of the workspace to fill, valid until the next call.
  Tensor input(std::int64_t rows, std::int64_t columns) const;
  /// Returns the orthogonalized `matrix`, which is a result of input() and is overwritten. Zero
  /// stays zero. `products`: dtype to which operands are rounded; sums are f32. Does not block.
  Tensor orthogonal(const Tensor& matrix, DType products, const Stream& stream) {
    return orthogonal_blocks(matrix, matrix.size(0), products, stream);
  }
  /// Orthogonalizes each block of `block_rows` rows separately; the last block may have fewer.
  Tensor orthogonal_blocks(const Tensor& matrix, std::int64_t block_rows, DType products,
                           const Stream& stream);
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

/// Muon: the update of a matrix is the orthogonalized Nesterov momentum, multiplied by 0.2·√(larger
/// side). With this factor, updates have the same root mean square as AdamW's updates, so that the
/// same learning rate and weight decay suit both. State: m per parameter.
///
/// Whole matrices are orthogonalized every orthogonalization_period steps, counted in steps taken.
/// Each block of rows is orthogonalized separately in the other steps, and scaled by the block's
/// larger side, which keeps the root mean square. write_momentum_directions uses whole matrices. A
/// matrix with a gradient of exactly 0, such as an expert without tokens, only decays. Sources:
/// Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is scalable for LLM training", eq. 4; Khaled
/// et al. 2025, "MuonBP", algorithm 1, whose two learning rates correspond to the two scales.
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
  std::optional<Orthogonalizer> orthogonalizer_;  // empty if there is no matrix
};

/// Returns the FLOPs to orthogonalize a matrix, averaged over steps.
double orthogonalization_flops(const OptimizerConfig& config, const Parameter& matrix,
                               const Stream& stream);

std::unique_ptr<UpdatePredictor> make_muon_predictor(const PredictedUpdates& updates);

}  // namespace hybrid_trainer
