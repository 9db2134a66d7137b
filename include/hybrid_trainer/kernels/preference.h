#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

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
