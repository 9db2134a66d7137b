#include <numeric>
#include <vector>

#include "hybrid_trainer/kernels/experts.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kTaken = std::numeric_limits<float>::quiet_NaN();

struct ChosenPairs {
  explicit ChosenPairs(const Routing& routing)
      : tokens(routing.experts.size(0)),
        chosen(routing.experts.size(1)),
        experts(routing.experts.data<std::int32_t>()),
        weights(routing.weights.data<float>()),
        places(routing.places.data<std::int32_t>()),
        pairs(routing.pairs.data<std::int32_t>()),
        offsets(routing.offsets.data<std::int32_t>()),
        is_token(optional_data<std::int32_t>(routing.is_token)) {}
  bool counts(std::int64_t token) const { return is_token == nullptr || is_token[token] != 0; }
  std::int64_t tokens, chosen;
  std::int32_t* experts;
  float* weights;
  std::int32_t *places, *pairs, *offsets, *is_token;
};

/// Numbers of pairs per expert, and of tokens, without padding.
struct Loads {
  Loads(const ChosenPairs& of, std::int64_t experts)
      : pairs(static_cast<std::size_t>(experts)), tokens(of.tokens) {
    for (std::size_t e = 0; e < pairs.size(); ++e) pairs[e] = of.offsets[e + 1] - of.offsets[e];
    for (std::int64_t token = 0; token < of.tokens; ++token) {
      if (of.counts(token)) continue;
      --tokens;
      for (std::int64_t j = 0; j < of.chosen; ++j)
        --pairs[static_cast<std::size_t>(of.experts[token * of.chosen + j])];
    }
  }
  std::vector<std::int64_t> pairs;
  std::int64_t tokens;
};

/// Sets p = softmax(logits). Returns log Σ exp(logits).
float softmax(float* p, const float* logits, std::int64_t count) {
  const float most = *std::max_element(logits, logits + count);
  float sum = 0;
  for (std::int64_t e = 0; e < count; ++e) sum += p[e] = exponential(logits[e] - most);
  for (std::int64_t e = 0; e < count; ++e) p[e] /= sum;
  return most + std::log(sum);
}

/// Returns the index of the first largest score; NaN is less than any other score.
std::int64_t best_of(const float* scores, std::int64_t count) {
  std::int64_t best = 0;
  for (std::int64_t e = 1; e < count; ++e)
    if (scores[e] > scores[best] || (std::isnan(scores[best]) && !std::isnan(scores[e]))) best = e;
  return best;
}

float score_of_group(const float* scores, std::int64_t size) {
  float first = kNone, second = kNone;
  for (std::int64_t e = 0; e < size; ++e) {
    if (scores[e] > first) {
      second = std::exchange(first, scores[e]);
    } else if (scores[e] > second) {
      second = scores[e];
    }
  }
  return size > 1 ? first + second : first;
}

/// Sets the scores of groups that are not selected to kTaken. `scratch` has 2·groups floats.
void leave_groups(float* scores, const RoutingSpec& spec, float* scratch) {
  const std::int64_t size = spec.experts / spec.groups;
  float *const of_groups = scratch, *const stays = scratch + spec.groups;
  for (std::int64_t g = 0; g < spec.groups; ++g)
    of_groups[g] = score_of_group(scores + g * size, size);
  std::fill_n(stays, spec.groups, 0.0f);
  for (std::int64_t i = 0; i < spec.chosen_groups; ++i) {
    const std::int64_t best = best_of(of_groups, spec.groups);
    stays[best] = 1;
    of_groups[best] = kTaken;
  }
  for (std::int64_t e = 0; e < spec.experts; ++e)
    if (stays[e / size] == 0) scores[e] = kTaken;
}

/// Selects the experts of one token and computes their weights. `scratch` has 4·E floats.
void choose(std::int32_t* experts, float* weights, const float* logits, const float* bias,
            const RoutingSpec& spec, float* scratch) {
  float *const scores = scratch, *const shares = scratch + spec.experts;
  const bool is_sigmoid = spec.rule == RoutingRule::kSigmoid;
  for (std::int64_t e = 0; e < spec.experts; ++e) {
    if (is_sigmoid) shares[e] = sigmoid(logits[e]);
    scores[e] = (is_sigmoid ? shares[e] : logits[e]) + (bias != nullptr ? bias[e] : 0.0f);
  }
  if (spec.chosen_groups < spec.groups) leave_groups(scores, spec, scratch + 2 * spec.experts);
  for (std::int64_t j = 0; j < spec.chosen; ++j) {
    std::int64_t best = best_of(scores, spec.experts);
    while (std::find(experts, experts + j, best) != experts + j)  // only NaN remains
      best = (best + 1) % spec.experts;
    scores[best] = kTaken;
    experts[j] = static_cast<std::int32_t>(best);
  }
  if (spec.rule == RoutingRule::kSoftmax) {
    softmax(shares, logits, spec.experts);
  } else if (spec.rule == RoutingRule::kSoftmaxOfChosen) {
    for (std::int64_t j = 0; j < spec.chosen; ++j) scores[j] = logits[experts[j]];
    softmax(weights, scores, spec.chosen);
  }
  float sum = 0;
  for (std::int64_t j = 0; j < spec.chosen; ++j) {
    if (spec.rule != RoutingRule::kSoftmaxOfChosen) weights[j] = shares[experts[j]];
    sum += weights[j];
  }
  const bool divides = is_sigmoid && spec.normalized;
  const float factor = divides ? spec.scale / (sum + spec.epsilon) : spec.scale;
  for (std::int64_t j = 0; j < spec.chosen; ++j) weights[j] *= factor;
}

/// Counts pairs by expert, then assigns each pair its place. Pairs of one expert keep their order.
void sort_pairs(const ChosenPairs& to, std::int64_t experts) {
  const std::int64_t count = to.tokens * to.chosen;
  std::fill_n(to.offsets, experts + 1, 0);
  for (std::int64_t pair = 0; pair < count; ++pair) ++to.offsets[to.experts[pair] + 1];
  for (std::int64_t e = 0; e < experts; ++e) to.offsets[e + 1] += to.offsets[e];
  std::vector<std::int32_t> next(to.offsets, to.offsets + experts);
  for (std::int64_t pair = 0; pair < count; ++pair) {
    const std::int32_t place = next[static_cast<std::size_t>(to.experts[pair])]++;
    to.places[pair] = place;
    to.pairs[place] = static_cast<std::int32_t>(pair);
  }
}

/// Calls body(token, logits, scratch) for each token: its logits are f32, `scratch` has 4·E floats.
template <class Body>
void for_tokens(const Tensor& logits, const Body& body) {
  const std::int64_t experts = logits.size(1);
  visit_real(logits.dtype(), [&]<class T>(T) {
    const auto* const from = logits.data<T>();
    parallel_rows(logits.size(0), 16 * experts, [=, &body](std::int64_t begin, std::int64_t end) {
      std::vector<float> row(static_cast<std::size_t>(5 * experts));
      for (std::int64_t token = begin; token < end; ++token) {
        for (std::int64_t e = 0; e < experts; ++e)
          row[static_cast<std::size_t>(e)] = load(from + token * experts + e);
        body(token, row.data(), row.data() + experts);
      }
    });
  });
}

/// Adds the contribution of the weights to the gradient of one token's logits.
void add_gradient_of_weights(float* dlogits, const float* logits, const float* p,
                             const std::int32_t* experts, const float* weights,
                             const float* dweights, const RoutingSpec& spec) {
  float sum = 0, projection = 0;
  for (std::int64_t j = 0; j < spec.chosen; ++j) {
    projection += weights[j] * dweights[j];
    if (spec.rule == RoutingRule::kSigmoid) sum += sigmoid(logits[experts[j]]);
  }
  const bool is_free = spec.rule == RoutingRule::kSigmoid && !spec.normalized;
  projection = is_free ? 0.0f : projection / spec.scale;
  if (spec.rule == RoutingRule::kSoftmax)
    for (std::int64_t e = 0; e < spec.experts; ++e) dlogits[e] -= spec.scale * p[e] * projection;
  for (std::int64_t j = 0; j < spec.chosen; ++j) {
    const std::int32_t e = experts[j];
    if (spec.rule == RoutingRule::kSoftmax) {
      dlogits[e] += weights[j] * dweights[j];
    } else if (spec.rule == RoutingRule::kSoftmaxOfChosen) {
      dlogits[e] += weights[j] * (dweights[j] - projection);
    } else {
      const float share = sigmoid(logits[e]), all = is_free ? 1.0f : sum + spec.epsilon;
      dlogits[e] += share * (1 - share) * spec.scale / all * (dweights[j] - projection);
    }
  }
}

/// Calls body(row, pair) for each row and the pair that it belongs to.
template <class Body>
void for_pairs(const ChosenPairs& of, std::int64_t columns, const Body& body) {
  for_each_row(of.tokens * of.chosen, columns, [=](std::int64_t row) { body(row, of.pairs[row]); });
}

}  // namespace

void route(const Routing& routing, const Tensor& logits, const Tensor& selection_bias,
           const RoutingSpec& spec, const Stream&) {
  const ChosenPairs to(routing);
  const float* const bias = optional_data<float>(selection_bias);
  for_tokens(logits, [&](std::int64_t token, const float* row, float* scratch) {
    const std::int64_t at = token * to.chosen;
    choose(to.experts + at, to.weights + at, row, bias, spec, scratch);
  });
  sort_pairs(to, spec.experts);
}

void route_backward(const Tensor& dlogits, const Tensor& logits, const Routing& routing,
                    const Tensor& dweights, const RoutingSpec& spec, const RoutingLosses& losses,
                    const Stream&) {
  const ChosenPairs of(routing);
  const float* const gradient = dweights.data<float>();
  const bool has_losses = losses.balance != 0 || losses.z != 0;
  const Loads loads(of, spec.experts);
  const auto tokens = static_cast<float>(std::max<std::int64_t>(1, loads.tokens));
  const float balance = losses.balance * static_cast<float>(spec.experts) / tokens;
  const bool wants_softmax = spec.rule == RoutingRule::kSoftmax || has_losses;
  visit_real(dlogits.dtype(), [&]<class T>(T) {
    auto* const out = dlogits.data<T>();
    for_tokens(logits, [&](std::int64_t token, const float* row, float* scratch) {
      float *const p = scratch, *const sums = scratch + spec.experts;
      const float log_sum = wants_softmax ? softmax(p, row, spec.experts) : 0;
      std::fill_n(sums, spec.experts, 0.0f);
      const std::int64_t at = token * of.chosen;
      add_gradient_of_weights(sums, row, p, of.experts + at, of.weights + at, gradient + at, spec);
      if (has_losses && of.counts(token)) {
        const auto load_of = [&](std::int64_t e) {
          return static_cast<float>(loads.pairs[static_cast<std::size_t>(e)]) / tokens;
        };
        float mean = 0;
        for (std::int64_t e = 0; e < spec.experts; ++e) mean += p[e] * load_of(e);
        for (std::int64_t e = 0; e < spec.experts; ++e)
          sums[e] += p[e] * (balance * (load_of(e) - mean) + 2 * losses.z / tokens * log_sum);
      }
      for (std::int64_t e = 0; e < spec.experts; ++e)
        store(out + token * spec.experts + e, sums[e]);
    });
  });
}

/// Adds tokens in order, after the threads have computed the softmax of each.
void routing_statistics(const Tensor& sums, const Tensor& logits, const Routing& routing,
                        const Stream& stream) {
  const std::int64_t tokens = logits.size(0), experts = logits.size(1), columns = experts + 2;
  const Tensor of_tokens = empty_workspace(tokens * columns, DType::kF32, stream);
  if (simulated(stream)) return;
  const ChosenPairs of(routing);
  float* const numbers = of_tokens.data<float>();
  for_tokens(logits, [&](std::int64_t token, const float* row, float*) {
    float* const p = numbers + token * columns;
    if (!of.counts(token)) return static_cast<void>(std::fill_n(p, columns, 0.0f));
    const float log_sum = softmax(p, row, experts);
    float entropy = 0;
    for (std::int64_t e = 0; e < experts; ++e)
      entropy += p[e] > 0 ? p[e] * (log_sum - row[e]) : 0.0f;
    p[experts] = entropy;
    p[experts + 1] = log_sum * log_sum;
  });
  std::vector<double> all(static_cast<std::size_t>(columns));
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t i = 0; i < columns; ++i)
      all[static_cast<std::size_t>(i)] += static_cast<double>(numbers[token * columns + i]);
  double* const to = sums.data<double>();
  const Loads loads(of, experts);
  const auto counted = static_cast<double>(loads.tokens);
  double balance = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto pairs = static_cast<double>(loads.pairs[static_cast<std::size_t>(e)]);
    const double p = all[static_cast<std::size_t>(e)];
    to[e] += pairs;
    to[experts + e] += p;
    balance += pairs * p;
  }
  to[2 * experts] += counted;
  to[2 * experts + 1] += all[static_cast<std::size_t>(experts)];
  to[2 * experts + 2] += all[static_cast<std::size_t>(experts + 1)];
  to[2 * experts + 3] += balance * static_cast<double>(experts) / std::max(1.0, counted);
}

void move_selection_bias(const Tensor& bias, const Tensor& counts, float rate, const Stream&) {
  const std::int64_t experts = bias.elements(), columns = counts.size(1);
  const double* const given = counts.data<double>();
  std::vector<double> loads(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < counts.size(0); ++i)
    for (std::int64_t e = 0; e < experts; ++e)
      loads[static_cast<std::size_t>(e)] += given[i * columns + e];
  const double mean =
      std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    const double missing = mean - loads[static_cast<std::size_t>(e)];
    bias.data<float>()[e] += missing > 0 ? rate : missing < 0 ? -rate : 0;
  }
}

void routing_flips(const Tensor& sums, const Routing& routing, const Routing& before,
                   const Stream&) {
  const ChosenPairs now(routing);
  const std::int32_t* const then = before.experts.data<std::int32_t>();
  std::int64_t flips = 0, pairs = 0;
  for (std::int64_t pair = 0; pair < now.tokens * now.chosen; ++pair) {
    const std::int64_t token = pair / now.chosen;
    if (!now.counts(token)) continue;
    const std::int32_t *const begin = then + token * now.chosen, *const end = begin + now.chosen;
    flips += std::find(begin, end, now.experts[pair]) == end ? 1 : 0;
    ++pairs;
  }
  sums.data<double>()[0] += static_cast<double>(flips);
  sums.data<double>()[1] += static_cast<double>(pairs);
}

void gather_tokens(const Tensor& rows, const Tensor& x, const Routing& routing, const Stream&) {
  const ChosenPairs of(routing);
  const std::int64_t chosen = of.chosen;
  const std::size_t bytes =
      rows.bytes() / static_cast<std::size_t>(std::max<std::int64_t>(rows.size(0), 1));
  char* const to = static_cast<char*>(rows.raw());
  const char* const from = static_cast<const char*>(x.raw());
  for_pairs(of, rows.size(1), [=](std::int64_t row, std::int64_t pair) {
    std::copy_n(from + static_cast<std::size_t>(pair / chosen) * bytes, bytes,
                to + static_cast<std::size_t>(row) * bytes);
  });
}

void combine_rows(const Tensor& y, const Tensor& rows, const Tensor& weights,
                  const Tensor& residual, const Routing& routing, const Stream&) {
  const ChosenPairs of(routing);
  const std::int64_t columns = y.size(1);
  const float* const factors = optional_data<float>(weights);
  visit_real(y.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T* const in = rows.data<T>();
    const T* const start = optional_data<T>(residual);
    parallel_rows(of.tokens, columns * of.chosen, [=](std::int64_t begin, std::int64_t end) {
      std::vector<float> sum(static_cast<std::size_t>(columns));
      float* const total = sum.data();
      for (std::int64_t token = begin; token < end; ++token) {
        for (std::int64_t i = 0; i < columns; ++i)
          total[i] = start != nullptr ? load(start + token * columns + i) : 0.0f;
        for (std::int64_t j = 0; j < of.chosen; ++j) {
          const std::int64_t pair = token * of.chosen + j;
          const T* const row = in + of.places[pair] * columns;
          const float factor = factors != nullptr ? factors[pair] : 1.0f;
#pragma omp simd
          for (std::int64_t i = 0; i < columns; ++i) total[i] += factor * load(row + i);
        }
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) store(out + token * columns + i, total[i]);
      }
    });
  });
}

void weigh_rows(const Tensor& dweights, const Tensor& more, const Tensor& rows, const Tensor& drows,
                const Routing& routing, const Stream&) {
  const ChosenPairs of(routing);
  const std::int64_t columns = rows.size(1);
  float* const sums = dweights.data<float>();
  const float* const added = optional_data<float>(more);
  visit_real(rows.dtype(), [&]<class T>(T) {
    T *const values = rows.data<T>(), *const gradients = drows.data<T>();
    for_pairs(of, columns, [=](std::int64_t row, std::int64_t pair) {
      T *const value = values + row * columns, *const gradient = gradients + row * columns;
      const float weight = of.weights[pair];
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < columns; ++i) {
        const float x = load(value + i), dx = load(gradient + i);
        sum += x * dx;
        store(value + i, weight * x);
        store(gradient + i, weight * dx);
      }
      sums[pair] = added != nullptr ? sum + added[row] : sum;
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
