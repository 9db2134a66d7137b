#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

// Pooling and losses of texts. Each of B sequences of length T contains up to S texts in
// consecutive slots; R = B·S. Two tensors describe the slots:
//   ends (B, S) i32: the end of a text in its sequence, exclusive. Text 0 begins at 0, text s at
//   the end of text s − 1. 0 is an empty slot; all later slots of the sequence are then empty, too.
//   roles (B, S) i32: 0 is the first text of an example, 1 the second (positive or rejected), 2 and
//   above are negatives, −1 is an empty slot. The texts of an example have consecutive slots.
// Invalid ends or roles throw DataError on the CPU and give NaN on CUDA. Losses, cosines, scores
// and labels are f32 with R elements; unused slots have loss and gradient 0. If `gradient_scale` is
// not 0, a loss replaces its input by the scaled gradient of the summed losses. Sums have a fixed
// order and use f64, or f32 in pooling.

enum class Pooling { kFirst, kMean, kLast };

/// Pools the hidden states of each text: the first token's, the last token's, or the mean. Writes
/// zeros for empty slots. pooled: (R, W) f32. hidden: (B·T, W) f32 or bf16.
void pool_texts(const Tensor& pooled, const Tensor& hidden, const Tensor& ends, Pooling pooling,
                const Stream& stream);
/// Computes the gradient of pool_texts. Overwrites dhidden, (B·T, W) f32 or bf16.
void pool_texts_backward(const Tensor& dhidden, const Tensor& dpooled, const Tensor& ends,
                         Pooling pooling, const Stream& stream);

/// Divides the first `dimensions` columns of each row of x by their Euclidean norm, at least 1e-12
/// as in torch.nn.functional.normalize, and sets others to 0. norms: (R) f32. y, x: (R, W) f32.
void normalize_rows(const Tensor& y, const Tensor& norms, const Tensor& x, std::int64_t dimensions,
                    const Stream& stream);
/// Computes the gradient of normalize_rows from its results. dx may be dy.
void normalize_rows_backward(const Tensor& dx, GradientMode mode, const Tensor& dy, const Tensor& y,
                             const Tensor& norms, std::int64_t dimensions, const Stream& stream);

/// Direction of a contrastive loss. kAnchors: each text of role 0 selects its positive, in the next
/// slot, among all texts of roles 1 and above. kPositives: each text of role 1 selects its anchor,
/// in the previous slot, among all texts of role 0.
enum class ContrastiveRows { kAnchors, kPositives };

/// Maximum `scale` of contrastive_loss and cosent_loss, so that e^(2·scale) fits in f64.
inline constexpr float kMaxCosineScale = 300;

/// losses[i] = cross entropy of row i of scale·similarities: sentence-transformers'
/// MultipleNegativesRankingLoss. similarities: (R, R) f32, cosines; replaced by their gradient.
void contrastive_loss(const Tensor& losses, const Tensor& similarities, const Tensor& roles,
                      ContrastiveRows rows, float scale, float gradient_scale,
                      const Stream& stream);

/// cosines[i] = dot product of rows i and i + 1 of y, (R, W) f32, if slot i has role 0; else 0.
void pair_cosines(const Tensor& cosines, const Tensor& y, const Tensor& roles,
                  const Stream& stream);
/// Computes the gradient of pair_cosines. Overwrites dy.
void pair_cosines_backward(const Tensor& dy, const Tensor& dcosines, const Tensor& y,
                           const Tensor& roles, const Stream& stream);

/// Computes sentence-transformers' CoSENTLoss over role 0: log(1 + Σ e^(scale·(cosine_j −
/// cosine_i))) over all label_i > label_j. losses[0] is the loss. Replaces cosines by their
/// gradient.
void cosent_loss(const Tensor& losses, const Tensor& cosines, const Tensor& labels,
                 const Tensor& roles, float scale, float gradient_scale, const Stream& stream);

/// Size of reward_loss's `measures`: number of correct pairs, sum of score differences, number of
/// pairs.
inline constexpr std::int64_t kRewardMeasures = 3;

/// Computes the Bradley-Terry loss of pairs of a chosen text, role 0, and a rejected text in the
/// next slot, role 1: losses[i] = −log σ(scores[i] − scores[i + 1]). Replaces scores by their
/// gradient.
void reward_loss(const Tensor& losses, const Tensor& scores, const Tensor& roles,
                 const Tensor& measures, float gradient_scale, const Stream& stream);

/// losses[i] = PyTorch's binary_cross_entropy_with_logits, averaged over the C labels in [0, 1], if
/// slot i has role 0. Replaces logits by their gradient. logits: (R, C) f32.
void binary_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                          const Tensor& roles, float gradient_scale, const Stream& stream);
/// losses[i] = mean of (x − label)² over the C labels if slot i has role 0, else 0.
void mean_squared_error(const Tensor& losses, const Tensor& x, const Tensor& labels,
                        const Tensor& roles, float gradient_scale, const Stream& stream);

}  // namespace hybrid_trainer::kernels
