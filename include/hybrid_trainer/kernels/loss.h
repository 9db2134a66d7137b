#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// losses[n] = −log softmax(logits[n])[targets[n]] over the first `vocabulary` columns; and, where
/// `gradient_scale` is not 0, logits become their own gradient in place: (softmax −
/// onehot)·gradient_scale, 0 in the padding columns. logits: (N, padded vocabulary) f32 or bf16.
/// targets: (N) i32, in [0, vocabulary), or kNoTarget, of which loss and gradient are 0: any other
/// throws DataError on a processor and gives the loss NaN on CUDA. losses: (N) f32. Sums in f32.
void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream);

/// Targets that are smoothed: each shares ε of its weight among all columns of the vocabulary.
struct SmoothedTargets {
  std::int64_t vocabulary = 0;
  float smoothing = 0;  // ε, at least 0 and below 1
};

/// softmax_cross_entropy of smoothed targets, as PyTorch's label_smoothing: losses[n] = (1 − ε)·loss of
/// the target + ε·mean of the losses of all columns of the vocabulary; the gradient is (softmax − (1 −
/// ε)·onehot − ε/vocabulary)·gradient_scale. Without smoothing, the same bits.
void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream);

/// Bytes of logits that are best computed at a time. On a processor 512 rows of GPT-2 in bf16, 256
/// in f32: more saves little of the additions to the table's gradient. On CUDA 8192 and 4096: each
/// chunk reads and writes the whole of that gradient, which is 309 MB of GPT-2 124M.
std::int64_t logits_chunk_bytes(const Stream& stream);

enum class Distance {
  kSquared,  // d²
  kHuber,    // d²/2 where |d| ≤ delta, else delta·(|d| − delta/2)
};

/// losses[i] = distance of d = x[i] − targets[i]; and, where `gradient_scale` is not 0, x becomes its own
/// gradient in place: the distance's slope times gradient_scale. x, targets, losses: of as many
/// elements, f32. delta: above 0.
void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream);

/// What the losses of a grid's cells consist of.
struct GridLossSpec {
  float positive_weight = 1;  // of cells with an object, in the binary cross entropy
  float box_weight = 1, class_weight = 1;
  float beta = 1;  // of boxes, above 0
};

/// The loss of each cell of a grid that has an object, of the class classes[n] at boxes[n], or none, where
/// classes[n] is kNoTarget. x: (N, 5 + classes) f32, rows hold a logit for whether there is an object,
/// four numbers for its box, and the logits of its class. losses[n], f32: the binary cross entropy of the
/// first, as PyTorch's binary_cross_entropy_with_logits with pos_weight; and of cells with an object,
/// box_weight times the sum over the box of d²/(2·beta) where |d| < beta, else |d| − beta/2, and
/// class_weight times the cross entropy of the class. Where `gradient_scale` is not 0, x becomes its own
/// gradient in place, times that. classes: (N) i32, kNoTarget or in [0, classes): any other throws
/// DataError on a processor and gives the loss NaN on CUDA. boxes: (N, 4) f32.
void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream);

/// Loss of a pair of texts, c that is chosen and r that is rejected. log p is that of a text's target
/// tokens, ref what a reference model gives in its place, σ the logistic function:
///   kDpo   −log σ(β·[(log p_c − ref_c) − (log p_r − ref_r)])
///   kOrpo  −m_c − β·log σ(o_c − o_r), with m = log p / tokens and o = m − log(1 − e^m)
struct PreferenceForm {
  enum class Kind { kDpo, kOrpo };
  Kind kind = Kind::kDpo;
  float beta = 0.1f;
};

/// Numbers of preference_loss's `measures`: sums over pairs of the rewards of both texts, of those
/// whose reward is the larger one for the chosen text, and their count. A reward is β·(log p − ref), in
/// kOrpo β·m.
inline constexpr std::int64_t kPreferenceMeasures = 4;

/// B sequences of T places hold pairs of texts. `halves` (B, T) i32 says which text the target at a
/// place belongs to: 2·i to the chosen one of the sequence's pair i, 2·i + 1 to the rejected one, −1 to
/// none. `losses` (B, T) f32 are those of the targets, −log p. `references` (B, T) f32 holds at h the
/// reference's log p of half h; kOrpo ignores it.
/// Writes to `pair_losses` (B, T) f32 at i the loss of pair i, 0 elsewhere; to `weights` (B, T) f32
/// the derivative of the sum of these losses by each target's loss, 0 where there is no half; to
/// `sums` (B, T) f64 at h the log p of half h, 0 elsewhere. Adds to `measures`
/// (kPreferenceMeasures) f64, unless that is undefined. Sums in f64, in a fixed order.
struct PreferenceTensors {
  Tensor losses, halves, references;            // read
  Tensor pair_losses, weights, sums, measures;  // written
};
void preference_loss(const PreferenceTensors& tensors, const PreferenceForm& form,
                     const Stream& stream);

/// x (N, C) f32 or bf16: multiplies each row in place by its factor, (N) f32.
void scale_rows(const Tensor& x, const Tensor& factors, const Stream& stream);

}  // namespace hybrid_trainer::kernels
