// One block per row for sums, one thread per element otherwise.

#include "hybrid_trainer/kernels/texts.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/texts/text_terms.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Texts of B sequences and their hidden states of `columns` elements.
struct PackedTexts {
  const std::int32_t* ends;
  std::int64_t slots, length, columns;

  PackedTexts(const Tensor& ends_of, const Tensor& hidden)
      : ends(ends_of.data<std::int32_t>()),
        slots(ends_of.size(1)),
        length(hidden.size(0) / ends_of.size(0)),
        columns(hidden.size(1)) {}
  __device__ TextEnds sequence(std::int64_t b) const { return {ends + b * slots, slots, length}; }
};

template <class T>
struct PoolTexts {
  float* pooled;
  const T* hidden;
  PackedTexts of;
  Pooling pooling;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t b = i / of.columns / of.slots, slot = i / of.columns % of.slots;
    const TextEnds texts = of.sequence(b);
    const PooledTokens tokens = texts.pooled(slot, pooling);
    const T* const from = hidden + b * of.length * of.columns + i % of.columns;
    float sum = texts.is_valid(slot) ? 0.0f : NAN;
#pragma unroll 4
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) sum += load(from + t * of.columns);
    pooled[i] = sum * tokens.share;
  }
};

template <class T>
struct PoolTextsBackward {
  T* dhidden;
  const float* dpooled;
  PackedTexts of;
  Pooling pooling;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t b = i / of.columns / of.length, token = i / of.columns % of.length;
    const TextEnds texts = of.sequence(b);
    const std::int64_t slot = texts.slot_of(token);
    const float share = texts.share_of(token, slot, pooling);
    float values[N] = {};
    if (share != 0.0f) {
      const float* const from = dpooled + (b * of.slots + slot) * of.columns + i % of.columns;
      for (int k = 0; k < N; ++k) values[k] = share * from[k];
    }
    store_pack(dhidden + i, values);
  }
};

struct EuclideanNorm {
  float* norms;
  const float* x;
  std::int64_t dimensions;

  __device__ double term(std::int64_t i, std::int64_t column) const {
    return column < dimensions ? static_cast<double>(x[i]) * static_cast<double>(x[i]) : 0;
  }
  __device__ void finish(std::int64_t row, double sum) const {
    const auto norm = static_cast<float>(sqrt(sum));
    norms[row] = norm < kMinNorm ? kMinNorm : norm;
  }
};

struct DivideByNorm {
  float* y;
  const float *norms, *x;
  std::int64_t columns, dimensions;

  template <int N>
  __device__ void at(std::int64_t i) const {
    y[i] = i % columns < dimensions ? x[i] / norms[i / columns] : 0.0f;
  }
};

/// Dot product of a row's gradient and unit vector; 0 if the norm was limited.
struct DotAlongRow {
  double* dots;
  const float *dy, *y, *norms;
  std::int64_t dimensions;

  __device__ double term(std::int64_t i, std::int64_t column) const {
    return column < dimensions ? static_cast<double>(dy[i]) * static_cast<double>(y[i]) : 0;
  }
  __device__ void finish(std::int64_t row, double sum) const {
    dots[row] = norms[row] > kMinNorm ? sum : 0;
  }
};

struct NormalizeBackward {
  float* dx;
  const float *dy, *y, *norms;
  const double* dots;
  std::int64_t columns, dimensions;
  bool adds;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / columns;
    const float value = i % columns < dimensions
                            ? (dy[i] - static_cast<float>(dots[row]) * y[i]) / norms[row]
                            : 0.0f;
    dx[i] = adds ? dx[i] + value : value;
  }
};

/// Sums the ratios of a row, and copies the target's similarity.
struct ContrastiveSums {
  float* losses;
  double *sums, *of_targets;
  const float* similarities;
  ContrastiveTexts of;

  __device__ double term(std::int64_t at, std::int64_t j) const {
    const std::int64_t i = at / of.of.slots;
    if (!of.is_row(i)) return 0;
    if (!of.has_target(i)) return NAN;
    const std::int64_t target = of.target(i);
    return j == target ? 0 : of.ratio(j, similarities[at], similarities[at - j + target]);
  }
  __device__ void finish(std::int64_t i, double sum) const {
    losses[i] = static_cast<float>(log1p(sum));
    sums[i] = sum;
    of_targets[i] =
        of.is_row(i) && of.has_target(i) ? similarities[i * of.of.slots + of.target(i)] : 0.0f;
  }
};

struct ContrastiveGradient {
  float* similarities;
  const double *sums, *of_targets;
  ContrastiveTexts of;
  float gradient_scale;

  template <int N>
  __device__ void at(std::int64_t at) const {
    const std::int64_t i = at / of.of.slots, j = at % of.of.slots;
    similarities[at] =
        of.is_row(i)
            ? static_cast<float>(of.slope(i, j, similarities[at], of_targets[i], sums[i])) *
                  gradient_scale
            : 0.0f;
  }
};

struct PairCosines {
  float* cosines;
  const float* y;
  TextRoles of;
  std::int64_t columns;

  __device__ double term(std::int64_t i, std::int64_t) const {
    const std::int64_t slot = i / columns;
    if (of.is_pair(slot)) return static_cast<double>(y[i]) * static_cast<double>(y[i + columns]);
    return of.has(slot, 0) ? NAN : 0.0f;
  }
  __device__ void finish(std::int64_t slot, double sum) const {
    cosines[slot] = static_cast<float>(sum);
  }
};

struct PairCosinesBackward {
  float* dy;
  const float *dcosines, *y;
  TextRoles of;
  std::int64_t columns;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t slot = i / columns;
    const PairPartner partner = of.partner(slot);
    dy[i] = partner.row < 0 ? 0.0f : dcosines[partner.pair] * y[i + (partner.row - slot) * columns];
  }
};

/// Sums the terms in which the row's label is the larger one, and copies the cosine.
struct RankedSums {
  double* sums;
  float* copies;
  RankedCosines of;

  __device__ double term(std::int64_t at, std::int64_t j) const {
    return of.term(at / of.of.slots, j);
  }
  __device__ void finish(std::int64_t i, double sum) const {
    sums[i] = sum;
    copies[i] = of.cosines[i];
  }
};

struct SumOfRows {
  double* total;
  const double* sums;

  __device__ double term(std::int64_t i, std::int64_t) const { return sums[i]; }
  __device__ void finish(std::int64_t, double sum) const { *total = sum; }
};

struct RankedGradient {
  float *losses, *cosines;
  const double* total;
  RankedCosines of;  // of the copies
  float gradient_scale;

  __device__ double term(std::int64_t at, std::int64_t j) const {
    const std::int64_t i = at / of.of.slots;
    return of.term(j, i) - of.term(i, j);
  }
  __device__ void finish(std::int64_t i, double sum) const {
    losses[i] = i == 0 ? static_cast<float>(log1p(*total)) : 0.0f;
    if (gradient_scale != 0.0f)
      cosines[i] = static_cast<float>(of.scale * sum / (1 + *total)) * gradient_scale;
  }
};

/// Writes the gradient of each label while it sums the losses.
template <bool kBinary>
struct LabelLoss {
  float *losses, *x;
  const float* labels;
  TextRoles of;
  std::int64_t columns;
  float gradient_scale;

  __device__ double term(std::int64_t i, std::int64_t) const {
    LabelTerm at{};
    if (of.has(i / columns, 0)) {
      if constexpr (kBinary) at = binary_term(x[i], labels[i]);
      if constexpr (!kBinary) at = squared_term(x[i], labels[i]);
    }
    if (gradient_scale != 0.0f)
      x[i] = static_cast<float>(at.slope / static_cast<double>(columns)) * gradient_scale;
    return at.loss;
  }
  __device__ void finish(std::int64_t slot, double sum) const {
    losses[slot] = static_cast<float>(sum / static_cast<double>(columns));
  }
};

/// One block. The thread of a pair's chosen text also writes the rejected text's gradient.
__global__ void __launch_bounds__(kRowThreads)
    reward_loss_kernel(float* losses, float* scores, TextRoles of, double* measures,
                       float gradient_scale) {
  double right = 0, margins = 0, pairs = 0;
  for (std::int64_t i = threadIdx.x; i < of.slots; i += kRowThreads) {
    losses[i] = of.has(i, 0) ? NAN : 0.0f;
    if (!of.is_pair(i)) {
      if (gradient_scale != 0.0f && !of.is_pair(i - 1)) scores[i] = 0;
      continue;
    }
    const double margin = static_cast<double>(scores[i]) - static_cast<double>(scores[i + 1]);
    losses[i] = static_cast<float>(-log_sigmoid(margin));
    if (gradient_scale != 0.0f) {
      const float slope = static_cast<float>(sigmoid_of(-margin)) * gradient_scale;
      scores[i] = -slope;
      scores[i + 1] = slope;
    }
    right += margin > 0 ? 1 : 0;
    margins += margin;
    pairs += 1;
  }
  if (measures == nullptr) return;
  right = reduce_block(right, Sum{}, 0.0);
  margins = reduce_block(margins, Sum{}, 0.0);
  pairs = reduce_block(pairs, Sum{}, 0.0);
  if (threadIdx.x != 0) return;
  measures[0] += right;
  measures[1] += margins;
  measures[2] += pairs;
}

TextRoles roles_of(const Tensor& roles) { return {roles.data<std::int32_t>(), roles.elements()}; }

template <bool kBinary>
void label_loss(const char* name, const Tensor& losses, const Tensor& x, const Tensor& labels,
                const Tensor& roles, float gradient_scale, const Stream& stream) {
  for_rows(stream, name,
           LabelLoss<kBinary>{losses.data<float>(), x.data<float>(), labels.data<float>(),
                              roles_of(roles), x.size(1), gradient_scale},
           x.size(0), x.size(1));
}

}  // namespace

void pool_texts(const Tensor& pooled, const Tensor& hidden, const Tensor& ends, Pooling pooling,
                const Stream& stream) {
  visit_real(hidden.dtype(), [&]<class T>(T) {
    const PoolTexts<T> body{pooled.data<float>(), hidden.data<T>(), PackedTexts(ends, hidden),
                            pooling};
    for_packs<1>(stream, "pool_texts", pooled.elements(), body);
  });
}

void pool_texts_backward(const Tensor& dhidden, const Tensor& dpooled, const Tensor& ends,
                         Pooling pooling, const Stream& stream) {
  visit_real(dhidden.dtype(), [&]<class T>(T) {
    const PoolTextsBackward<T> body{dhidden.data<T>(), dpooled.data<float>(),
                                    PackedTexts(ends, dhidden), pooling};
    for_packs_if<kPackSize<T>>(body.of.columns % kPackSize<T> == 0, stream, "pool_texts_backward",
                               dhidden.elements(), body, body.dhidden);
  });
}

void normalize_rows(const Tensor& y, const Tensor& norms, const Tensor& x, std::int64_t dimensions,
                    const Stream& stream) {
  float* const norm = norms.data<float>();
  for_rows(stream, "euclidean_norms", EuclideanNorm{norm, x.data<float>(), dimensions}, x.size(0),
           x.size(1));
  const DivideByNorm body{y.data<float>(), norm, x.data<float>(), x.size(1), dimensions};
  for_packs<1>(stream, "normalize_rows", x.elements(), body);
}

void normalize_rows_backward(const Tensor& dx, GradientMode mode, const Tensor& dy, const Tensor& y,
                             const Tensor& norms, std::int64_t dimensions, const Stream& stream) {
  const Tensor dots = empty_workspace(y.size(0), DType::kF64, stream);
  const DotAlongRow of_row{dots.data<double>(), dy.data<float>(), y.data<float>(),
                           norms.data<float>(), dimensions};
  for_rows(stream, "dots_along_rows", of_row, y.size(0), y.size(1));
  const NormalizeBackward body{
      dx.data<float>(), of_row.dy, of_row.y,   of_row.norms,
      of_row.dots,      y.size(1), dimensions, mode == GradientMode::kAccumulate};
  for_packs<1>(stream, "normalize_rows_backward", y.elements(), body);
}

void contrastive_loss(const Tensor& losses, const Tensor& similarities, const Tensor& roles,
                      ContrastiveRows rows, float scale, float gradient_scale,
                      const Stream& stream) {
  const std::int64_t slots = roles.elements();
  const Tensor space = empty_workspace(2 * slots, DType::kF64, stream);
  const ContrastiveTexts of{roles_of(roles), rows == ContrastiveRows::kAnchors, scale};
  double* const sums = space.data<double>();
  for_rows(
      stream, "contrastive_loss",
      ContrastiveSums{losses.data<float>(), sums, sums + slots, similarities.data<float>(), of},
      slots, slots);
  if (gradient_scale == 0.0f) return;
  const ContrastiveGradient body{similarities.data<float>(), sums, sums + slots, of,
                                 gradient_scale};
  for_packs<1>(stream, "contrastive_gradient", similarities.elements(), body);
}

void pair_cosines(const Tensor& cosines, const Tensor& y, const Tensor& roles,
                  const Stream& stream) {
  for_rows(stream, "pair_cosines",
           PairCosines{cosines.data<float>(), y.data<float>(), roles_of(roles), y.size(1)},
           y.size(0), y.size(1));
}

void pair_cosines_backward(const Tensor& dy, const Tensor& dcosines, const Tensor& y,
                           const Tensor& roles, const Stream& stream) {
  const PairCosinesBackward body{dy.data<float>(), dcosines.data<float>(), y.data<float>(),
                                 roles_of(roles), y.size(1)};
  for_packs<1>(stream, "pair_cosines_backward", dy.elements(), body);
}

void cosent_loss(const Tensor& losses, const Tensor& cosines, const Tensor& labels,
                 const Tensor& roles, float scale, float gradient_scale, const Stream& stream) {
  const std::int64_t slots = roles.elements();
  const Tensor space = empty_workspace(slots + 1, DType::kF64, stream),
               copies = empty_workspace(slots, DType::kF32, stream);
  double *const sums = space.data<double>(), *const total = sums + slots;
  RankedCosines of{cosines.data<float>(), labels.data<float>(), roles_of(roles), scale};
  for_rows(stream, "ranked_sums", RankedSums{sums, copies.data<float>(), of}, slots, slots);
  for_rows(stream, "ranked_total", SumOfRows{total, sums}, 1, slots);
  of.cosines = copies.data<float>();
  for_rows(stream, "cosent_loss",
           RankedGradient{losses.data<float>(), cosines.data<float>(), total, of, gradient_scale},
           slots, gradient_scale == 0.0f ? 0 : slots);
}

void reward_loss(const Tensor& losses, const Tensor& scores, const Tensor& roles,
                 const Tensor& measures, float gradient_scale, const Stream& stream) {
  launch(stream, "reward_loss", reward_loss_kernel, Grid{.threads = kRowThreads},
         losses.data<float>(), scores.data<float>(), roles_of(roles),
         optional_data<double>(measures), gradient_scale);
}

void binary_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                          const Tensor& roles, float gradient_scale, const Stream& stream) {
  label_loss<true>("binary_cross_entropy", losses, logits, labels, roles, gradient_scale, stream);
}

void mean_squared_error(const Tensor& losses, const Tensor& x, const Tensor& labels,
                        const Tensor& roles, float gradient_scale, const Stream& stream) {
  label_loss<false>("mean_squared_error", losses, x, labels, roles, gradient_scale, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
