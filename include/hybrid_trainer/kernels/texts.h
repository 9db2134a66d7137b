#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

// Pooling and losses of texts. Each of B sequences of length T contains up to S texts in
// consecutive slots; R = B·S. Two tensors describe the slots:
//   ends (B, S) i32: a text's end in the sequence, exclusive. Text s begins at the end of text
//     s − 1, the first one at 0. 0: empty slot; all later slots of the sequence are also empty.
//   roles (B, S) i32: 0 first text of an example, 1 second text (positive or rejected), 2 and above
//     negatives, −1 empty slot. The texts of an example have consecutive slots.
// Values of ends or roles that contradict this throw DataError on the CPU. On CUDA they make the
// vector, loss or cosine of the slot NaN. Losses, cosines, scores and labels are f32 with R elements
// unless stated otherwise; slots that do not take part have loss and gradient 0. A loss with
// `gradient_scale` other than 0 replaces its input by the gradient of the summed losses times
// gradient_scale. Sums are in f64, in pooling in f32, and have a fixed order.

enum class Pooling { kFirst, kMean, kLast };

/// Writes a vector for each text: its first token's hidden state, the mean over its tokens, or its
/// last token's; zeros for empty slots. pooled: (R, W) f32. hidden: (B·T, W) f32 or bf16.
void pool_texts(const Tensor& pooled, const Tensor& hidden, const Tensor& ends, Pooling pooling,
                const Stream& stream);
/// Writes all of dhidden, zeros for tokens without gradient. dhidden: (B·T, W) f32 or bf16.
/// dpooled: (R, W) f32.
void pool_texts_backward(const Tensor& dhidden, const Tensor& dpooled, const Tensor& ends,
                         Pooling pooling, const Stream& stream);

/// Divides the first `dimensions` columns of each row of x by their Euclidean norm, and sets the
/// other columns to 0. norms: (R) f32, the norm, at least 1e-12 as in
/// torch.nn.functional.normalize. y and x: (R, W) f32.
void normalize_rows(const Tensor& y, const Tensor& norms, const Tensor& x, std::int64_t dimensions,
                    const Stream& stream);
/// `y` and `norms` are the results of normalize_rows. Ignores dy from column `dimensions` on. dx may
/// be dy.
void normalize_rows_backward(const Tensor& dx, GradientMode mode, const Tensor& dy, const Tensor& y,
                             const Tensor& norms, std::int64_t dimensions, const Stream& stream);

/// Rows and columns of the similarities that a contrastive loss uses. kAnchors: the row of each
/// text of role 0, over the columns of all roles from 1 on; its target is the next slot.
/// kPositives: the row of each text of role 1, over the columns of role 0; its target is the
/// previous slot.
enum class ContrastiveRows { kAnchors, kPositives };

/// Maximum `scale` of contrastive_loss and cosent_loss, so that e^(2·scale) fits in f64.
inline constexpr float kMaxCosineScale = 300;

/// losses[i] = cross entropy of row i of scale·similarities and its target: sentence-transformers'
/// MultipleNegativesRankingLoss. similarities: (R, R) f32, cosines; replaced by their gradient, 0
/// in rows and columns that are not used. 0 < scale ≤ kMaxCosineScale.
void contrastive_loss(const Tensor& losses, const Tensor& similarities, const Tensor& roles,
                      ContrastiveRows rows, float scale, float gradient_scale,
                      const Stream& stream);

/// cosines[i] = dot product of rows i and i + 1 of y (R, W) f32 for each i of role 0, which role 1
/// must follow; 0 for other roles.
void pair_cosines(const Tensor& cosines, const Tensor& y, const Tensor& roles,
                  const Stream& stream);
/// Overwrites all of dy.
void pair_cosines_backward(const Tensor& dy, const Tensor& dcosines, const Tensor& y,
                           const Tensor& roles, const Stream& stream);

/// Sentence-transformers' CoSENTLoss over the slots of role 0: log(1 + Σ e^(scale·(cosine_j −
/// cosine_i))), summed over all i and j with label_i > label_j. losses[0] is the loss, other
/// elements are 0. Replaces cosines, in [−1, 1], by their gradient. 0 < scale ≤ kMaxCosineScale.
void cosent_loss(const Tensor& losses, const Tensor& cosines, const Tensor& labels,
                 const Tensor& roles, float scale, float gradient_scale, const Stream& stream);

/// Size of reward_loss's `measures`: the number of pairs whose chosen text has the larger score,
/// the sum of chosen − rejected scores, and the number of pairs.
inline constexpr std::int64_t kRewardMeasures = 3;

/// Bradley-Terry loss of pairs of a chosen text, role 0, and a rejected one in the next slot, role
/// 1: losses[i] = −log σ(scores[i] − scores[i + 1]) for role 0, else 0. Replaces scores by their
/// gradient. `measures`, (kRewardMeasures) f64 or undefined, is added to.
void reward_loss(const Tensor& losses, const Tensor& scores, const Tensor& roles,
                 const Tensor& measures, float gradient_scale, const Stream& stream);

/// losses[i] = mean over C labels of PyTorch's binary_cross_entropy_with_logits for role 0, else 0.
/// Replaces logits by their gradient. logits: (R, C) f32. labels: R·C elements, in [0, 1].
void binary_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                          const Tensor& roles, float gradient_scale, const Stream& stream);
/// Like binary_cross_entropy, for the mean of (x − label)². Labels are any numbers.
void mean_squared_error(const Tensor& losses, const Tensor& x, const Tensor& labels,
                        const Tensor& roles, float gradient_scale, const Stream& stream);

}  // namespace hybrid_trainer::kernels
