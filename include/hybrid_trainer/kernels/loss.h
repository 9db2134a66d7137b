#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// losses[n] = −log softmax(logits[n])[targets[n]] over the first `vocabulary` columns. If
/// `gradient_scale` is not 0, replaces logits by their gradient (softmax − onehot)·gradient_scale,
/// 0 in padding columns. logits: (N, padded vocabulary) f32 or bf16. targets: (N) i32 in [0,
/// vocabulary), or kNoTarget for loss and gradient 0; other values throw DataError on the CPU and
/// make the loss NaN on CUDA. losses: (N) f32. Accumulates in f32.
void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream);

/// Label smoothing: each target spreads ε of its weight evenly over the vocabulary.
struct SmoothedTargets {
  std::int64_t vocabulary = 0;
  float smoothing = 0;  // ε, at least 0 and below 1
};

/// softmax_cross_entropy with PyTorch's label_smoothing: losses[n] = (1 − ε)·loss of the target +
/// ε·mean loss of all columns of the vocabulary; the gradient is (softmax − (1 − ε)·onehot −
/// ε/vocabulary)·gradient_scale. With ε = 0 the results are bit-identical to softmax_cross_entropy.
void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream);

/// Returns the fastest size of a chunk of logits, in bytes: 52 MiB on the CPU (512 rows of GPT-2 in
/// bf16) and 790 MiB on CUDA (8192 rows). CUDA uses fewer chunks, because each also reads and
/// writes the embedding's gradient.
std::int64_t logits_chunk_bytes(const Stream& stream);

enum class Distance {
  kSquared,  // d²
  kHuber,    // d²/2 if |d| ≤ delta, else delta·(|d| − delta/2)
};

/// losses[i] = the distance, a function of d = x[i] − targets[i]. If `gradient_scale` is not 0,
/// replaces x by its gradient, the derivative times gradient_scale. x, targets, losses: f32 of
/// equal size. delta > 0.
void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream);

/// Weights of the loss terms of a grid cell.
struct GridLossSpec {
  float positive_weight = 1;  // weight of cells with an object in the binary cross entropy
  float box_weight = 1, class_weight = 1;
  float beta = 1;  // beta of the smooth L1 loss of boxes, above 0
};

/// Computes the detection loss of each grid cell. Cell n has an object of class classes[n] at
/// boxes[n], or none if classes[n] is kNoTarget. x: (N, 5 + classes) f32: objectness logit, four
/// box coordinates, class logits. losses[n], f32, is the binary cross entropy of the objectness
/// (PyTorch's, with pos_weight); cells with an object add box_weight times the sum over coordinates
/// of d²/(2·beta) if |d| < beta, else |d| − beta/2, and class_weight times the cross entropy of the
/// class. If `gradient_scale` is not 0, replaces x by its gradient. classes: (N) i32; invalid ones
/// throw DataError on the CPU and give NaN on CUDA.
void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream);

/// Preference loss of a chosen text c and a rejected text r. log p is the log-probability of a
/// text's target tokens, ref its log-probability under the reference model, and σ the logistic
/// function:
///   kDpo   −log σ(β·[(log p_c − ref_c) − (log p_r − ref_r)])
///   kOrpo  −m_c − β·log σ(o_c − o_r), with m = log p / tokens and o = m − log(1 − e^m)
struct PreferenceForm {
  enum class Kind { kDpo, kOrpo };
  Kind kind = Kind::kDpo;
  float beta = 0.1f;
};

/// Size of preference_loss's `measures`: the sum of the chosen texts' rewards, the sum of the
/// rejected texts' rewards, the number of pairs whose chosen text has the larger reward, and the
/// number of pairs. A reward is β·(log p − ref), or β·m for kOrpo.
inline constexpr std::int64_t kPreferenceMeasures = 4;

/// Tensors of preference_loss for B sequences of length T. `halves` (B, T) i32 assigns targets to
/// texts: 2·i to the chosen text of pair i, 2·i + 1 to its rejected text, −1 to none. `losses` (B,
/// T) f32: −log p of the targets. `references` (B, T) f32: the reference log p of text h at index
/// h. Outputs: `pair_losses` (B, T) f32, the loss of pair i at index i; `weights` (B, T) f32, the
/// derivative of the summed pair losses by each target's loss; `sums` (B, T) f64, log p of text h
/// at index h; other elements are 0. Adds to `measures`, f64 or undefined. Sums in f64, in a fixed
/// order.
struct PreferenceTensors {
  Tensor losses, halves, references;            // read
  Tensor pair_losses, weights, sums, measures;  // written
};
void preference_loss(const PreferenceTensors& tensors, const PreferenceForm& form,
                     const Stream& stream);

/// Multiplies row n of x by factors[n] in place. x: (N, C) f32 or bf16. factors: (N) f32.
void scale_rows(const Tensor& x, const Tensor& factors, const Stream& stream);

}  // namespace hybrid_trainer::kernels
