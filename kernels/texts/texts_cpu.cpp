#include "hybrid_trainer/kernels/texts.h"

#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/texts/text_terms.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

TextEnds ends_of(const Tensor& ends, std::int64_t sequence, std::int64_t length) {
  return {ends.data<std::int32_t>() + sequence * ends.size(1), ends.size(1), length};
}

TextRoles roles_of(const Tensor& roles) { return {roles.data<std::int32_t>(), roles.elements()}; }

void check_ends(const char* kernel, const Tensor& ends, std::int64_t length) {
  for (std::int64_t b = 0; b < ends.size(0); ++b) {
    const TextEnds of = ends_of(ends, b, length);
    for (std::int64_t slot = 0; slot < of.slots; ++slot) {
      if (of.is_valid(slot)) continue;
      throw DataError(concat(kernel, ": text ", slot, " of sequence ", b, " ends at ",
                             of.ends[slot], ", but the previous text ends at ", of.begin(slot),
                             "; want a larger end, at most ", length,
                             ", and empty slots only after all texts"));
    }
  }
}

[[noreturn]] void report_partner(const char* kernel, const TextRoles& of, std::int64_t slot,
                                 std::int64_t partner) {
  const bool exists = partner >= 0 && partner < of.slots;
  throw DataError(concat(kernel, ": slot ", slot, " has role ", of.roles[slot], " and slot ",
                         partner,
                         exists ? concat(" has role ", of.roles[partner]) : " does not exist",
                         "; want a text of role 0, followed by its text of role 1"));
}

void check_pairs(const char* kernel, const TextRoles& of) {
  for (std::int64_t i = 0; i < of.slots; ++i)
    if (of.has(i, 0) && !of.is_pair(i)) report_partner(kernel, of, i, i + 1);
}

/// Computes the mean over labels of term(x, label) for each text of role 0.
template <class Term>
void label_loss(const Tensor& losses, const Tensor& x, const Tensor& labels, const Tensor& roles,
                float gradient_scale, const Term& term) {
  const TextRoles of = roles_of(roles);
  const std::int64_t columns = x.size(1);
  float *const loss = losses.data<float>(), *const values = x.data<float>();
  const float* const wanted = labels.data<float>();
  for_each_row(of.slots, columns, [=](std::int64_t n) {
    const bool joins = of.has(n, 0);
    double sum = 0;
    for (std::int64_t i = n * columns; i < (n + 1) * columns; ++i) {
      const LabelTerm at =
          joins ? term(static_cast<double>(values[i]), static_cast<double>(wanted[i]))
                : LabelTerm{};
      sum += at.loss;
      if (gradient_scale != 0.0f)
        values[i] = static_cast<float>(at.slope / static_cast<double>(columns)) * gradient_scale;
    }
    loss[n] = static_cast<float>(sum / static_cast<double>(columns));
  });
}

}  // namespace

void pool_texts(const Tensor& pooled, const Tensor& hidden, const Tensor& ends, Pooling pooling,
                const Stream&) {
  const std::int64_t length = hidden.size(0) / ends.size(0), columns = hidden.size(1),
                     slots = ends.size(1);
  check_ends("pool_texts", ends, length);
  float* const out = pooled.data<float>();
  visit_real(hidden.dtype(), [&]<class T>(T) {
    const T* const in = hidden.data<T>();
    for_each_row(ends.elements(), columns * length / std::max<std::int64_t>(slots, 1),
                 [=, &ends](std::int64_t n) {
                   const std::int64_t sequence = n / slots;
                   const PooledTokens of =
                       ends_of(ends, sequence, length).pooled(n % slots, pooling);
                   float* const sums = out + n * columns;
                   std::fill_n(sums, columns, 0.0f);
                   for (std::int64_t t = of.begin; t < of.end; ++t) {
                     const T* const row = in + (sequence * length + t) * columns;
#pragma omp simd
                     for (std::int64_t i = 0; i < columns; ++i) sums[i] += load(row + i);
                   }
                   for (std::int64_t i = 0; i < columns; ++i) sums[i] *= of.share;
                 });
  });
}

void pool_texts_backward(const Tensor& dhidden, const Tensor& dpooled, const Tensor& ends,
                         Pooling pooling, const Stream&) {
  const std::int64_t length = dhidden.size(0) / ends.size(0), columns = dhidden.size(1),
                     slots = ends.size(1);
  check_ends("pool_texts_backward", ends, length);
  const float* const in = dpooled.data<float>();
  visit_real(dhidden.dtype(), [&]<class T>(T) {
    T* const out = dhidden.data<T>();
    for_each_row(dhidden.size(0), columns, [=, &ends](std::int64_t n) {
      const std::int64_t sequence = n / length, token = n % length;
      const TextEnds of = ends_of(ends, sequence, length);
      const std::int64_t slot = of.slot_of(token);
      const float share = of.share_of(token, slot, pooling);
      T* const row = out + n * columns;
      if (share == 0.0f) {
        std::fill_n(row, columns, T{});
        return;
      }
      const float* const from = in + (sequence * slots + slot) * columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) store(row + i, share * from[i]);
    });
  });
}

void normalize_rows(const Tensor& y, const Tensor& norms, const Tensor& x, std::int64_t dimensions,
                    const Stream&) {
  const std::int64_t columns = x.size(1);
  const float* const in = x.data<float>();
  float *const out = y.data<float>(), *const norm = norms.data<float>();
  for_each_row(x.size(0), columns, [=](std::int64_t n) {
    const float* const from = in + n * columns;
    float* const to = out + n * columns;
    double squares = 0;
    for (std::int64_t i = 0; i < dimensions; ++i)
      squares += static_cast<double>(from[i]) * static_cast<double>(from[i]);
    norm[n] = std::max(static_cast<float>(std::sqrt(squares)), kMinNorm);
    for (std::int64_t i = 0; i < dimensions; ++i) to[i] = from[i] / norm[n];
    std::fill_n(to + dimensions, columns - dimensions, 0.0f);
  });
}

void normalize_rows_backward(const Tensor& dx, GradientMode mode, const Tensor& dy, const Tensor& y,
                             const Tensor& norms, std::int64_t dimensions, const Stream&) {
  const std::int64_t columns = y.size(1);
  const float *const gradient = dy.data<float>(), *const unit = y.data<float>(),
                     *const norm = norms.data<float>();
  float* const out = dx.data<float>();
  const bool adds = mode == GradientMode::kAccumulate;
  for_each_row(y.size(0), columns, [=](std::int64_t n) {
    const std::int64_t at = n * columns;
    double dot = 0;
    for (std::int64_t i = at; i < at + dimensions; ++i)
      dot += static_cast<double>(gradient[i]) * static_cast<double>(unit[i]);
    const float along = norm[n] > kMinNorm ? static_cast<float>(dot) : 0.0f;
    for (std::int64_t i = 0; i < columns; ++i) {
      const float value =
          i < dimensions ? (gradient[at + i] - along * unit[at + i]) / norm[n] : 0.0f;
      out[at + i] = adds ? out[at + i] + value : value;
    }
  });
}

void contrastive_loss(const Tensor& losses, const Tensor& similarities, const Tensor& roles,
                      ContrastiveRows rows, float scale, float gradient_scale, const Stream&) {
  const TextRoles slots = roles_of(roles);
  const ContrastiveTexts of{slots, rows == ContrastiveRows::kAnchors, scale};
  for (std::int64_t i = 0; i < slots.slots; ++i)
    if (of.is_row(i) && !of.has_target(i))
      report_partner("contrastive_loss", slots, i, of.target(i));
  float *const loss = losses.data<float>(), *const matrix = similarities.data<float>();
  for_each_row(slots.slots, slots.slots, [=](std::int64_t i) {
    float* const row = matrix + i * slots.slots;
    loss[i] = 0;
    if (!of.is_row(i)) {
      if (gradient_scale != 0.0f) std::fill_n(row, slots.slots, 0.0f);
      return;
    }
    const double of_target = static_cast<double>(row[of.target(i)]);
    double sum = 0;
    for (std::int64_t j = 0; j < slots.slots; ++j)
      sum += j == of.target(i) ? 0 : of.ratio(j, static_cast<double>(row[j]), of_target);
    loss[i] = static_cast<float>(std::log1p(sum));
    if (gradient_scale == 0.0f) return;
    for (std::int64_t j = 0; j < slots.slots; ++j)
      row[j] = static_cast<float>(of.slope(i, j, static_cast<double>(row[j]), of_target, sum)) *
               gradient_scale;
  });
}

void pair_cosines(const Tensor& cosines, const Tensor& y, const Tensor& roles, const Stream&) {
  const TextRoles of = roles_of(roles);
  check_pairs("pair_cosines", of);
  const std::int64_t columns = y.size(1);
  const float* const in = y.data<float>();
  float* const out = cosines.data<float>();
  for_each_row(of.slots, columns, [=](std::int64_t n) {
    double sum = 0;
    if (of.is_pair(n))
      for (std::int64_t i = n * columns; i < (n + 1) * columns; ++i)
        sum += static_cast<double>(in[i]) * static_cast<double>(in[i + columns]);
    out[n] = static_cast<float>(sum);
  });
}

void pair_cosines_backward(const Tensor& dy, const Tensor& dcosines, const Tensor& y,
                           const Tensor& roles, const Stream&) {
  const TextRoles of = roles_of(roles);
  check_pairs("pair_cosines_backward", of);
  const std::int64_t columns = y.size(1);
  const float *const in = y.data<float>(), *const gradient = dcosines.data<float>();
  float* const out = dy.data<float>();
  for_each_row(of.slots, columns, [=](std::int64_t n) {
    const PairPartner partner = of.partner(n);
    for (std::int64_t i = n * columns; i < (n + 1) * columns; ++i)
      out[i] =
          partner.row < 0 ? 0.0f : gradient[partner.pair] * in[i + (partner.row - n) * columns];
  });
}

void cosent_loss(const Tensor& losses, const Tensor& cosines, const Tensor& labels,
                 const Tensor& roles, float scale, float gradient_scale, const Stream& stream) {
  const TextRoles slots = roles_of(roles);
  const Tensor space = empty_workspace(2 * slots.slots, DType::kF64, stream);
  if (simulated(stream)) return;
  float *const loss = losses.data<float>(), *const values = cosines.data<float>();
  double *const sums = space.data<double>(), *const slopes = sums + slots.slots;
  const RankedCosines of{values, labels.data<float>(), slots, scale};
  for_each_row(slots.slots, slots.slots, [=](std::int64_t i) {
    sums[i] = slopes[i] = 0;
    for (std::int64_t j = 0; j < slots.slots; ++j) {
      const double term = of.term(i, j);
      sums[i] += term;
      slopes[i] += of.term(j, i) - term;
    }
  });
  double total = 0;
  for (std::int64_t i = 0; i < slots.slots; ++i) total += sums[i];
  for (std::int64_t i = 0; i < slots.slots; ++i) {
    loss[i] = i == 0 ? static_cast<float>(std::log1p(total)) : 0.0f;
    if (gradient_scale != 0.0f)
      values[i] = static_cast<float>(of.scale * slopes[i] / (1 + total)) * gradient_scale;
  }
}

void reward_loss(const Tensor& losses, const Tensor& scores, const Tensor& roles,
                 const Tensor& measures, float gradient_scale, const Stream&) {
  const TextRoles of = roles_of(roles);
  check_pairs("reward_loss", of);
  float *const loss = losses.data<float>(), *const score = scores.data<float>();
  double* const sums = optional_data<double>(measures);
  for (std::int64_t i = 0; i < of.slots; ++i) {
    loss[i] = 0;
    if (!of.is_pair(i)) {
      if (gradient_scale != 0.0f && !of.is_pair(i - 1)) score[i] = 0;
      continue;
    }
    const double margin = static_cast<double>(score[i]) - static_cast<double>(score[i + 1]);
    loss[i] = static_cast<float>(-log_sigmoid(margin));
    if (gradient_scale != 0.0f) {
      score[i + 1] = static_cast<float>(sigmoid_of(-margin)) * gradient_scale;
      score[i] = -score[i + 1];
    }
    if (sums == nullptr) continue;
    sums[0] += margin > 0 ? 1 : 0;
    sums[1] += margin;
    sums[2] += 1;
  }
}

void binary_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                          const Tensor& roles, float gradient_scale, const Stream&) {
  label_loss(losses, logits, labels, roles, gradient_scale, binary_term);
}

void mean_squared_error(const Tensor& losses, const Tensor& x, const Tensor& labels,
                        const Tensor& roles, float gradient_scale, const Stream&) {
  label_loss(losses, x, labels, roles, gradient_scale, squared_term);
}

}  // namespace hybrid_trainer::kernels::cpu
