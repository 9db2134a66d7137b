#pragma once

#include <optional>

#include "src/optim/momentum_optimizer.h"
#include "src/optim/orthogonalizer.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

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
