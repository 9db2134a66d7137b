// Routing from logits (tokens, E), its gradients and statistics, with one warp per token.

#include <algorithm>
#include <bit>

#include "hybrid_trainer/kernels/experts.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/radix_sort.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Logits in f32 or bf16. One kernel reads both, since logits are few compared to the routed rows.
class TokenLogits {
 public:
  explicit TokenLogits(const Tensor& logits)
      : f32_(logits.dtype() == DType::kF32 ? logits.data<float>() : nullptr),
        bf16_(logits.dtype() == DType::kBF16 ? logits.data<BFloat16>() : nullptr),
        experts_(static_cast<int>(logits.size(1))) {}
  __device__ int experts() const { return experts_; }
  __device__ float at(std::int64_t token, int expert) const {
    const std::int64_t i = token * experts_ + expert;
    return f32_ != nullptr ? f32_[i] : load(bf16_ + i);
  }
  __device__ void set(std::int64_t token, int expert, float value) const {
    const std::int64_t i = token * experts_ + expert;
    if (f32_ != nullptr) return store(f32_ + i, value);
    store(bf16_ + i, value);
  }

 private:
  float* f32_;
  BFloat16* bf16_;
  int experts_;
};

__device__ inline int lane_of_token() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_of_token() { return static_cast<int>(threadIdx.x) / kWarp; }

/// Returns the warp's part of dynamic shared memory, `elements` per warp.
template <class T>
__device__ T* memory_of_warp(int elements) {
  return dynamic_shared<T>() + warp_of_token() * elements;
}

struct TokenSoftmax {
  float most, sum;
  __device__ float of(float logit) const { return expf(logit - most) / sum; }
  __device__ float log_sum() const { return most + logf(sum); }
};

/// Computes the softmax of logit(0), ..., logit(count - 1). All lanes of the warp must call it.
template <class Logit>
__device__ TokenSoftmax softmax_by_warp(int count, const Logit& logit) {
  float most = -INFINITY;
  for (int i = lane_of_token(); i < count; i += kWarp) most = Max{}(most, logit(i));
  most = reduce_warp(most, Max{});
  float sum = 0;
  for (int i = lane_of_token(); i < count; i += kWarp) sum += expf(logit(i) - most);
  return {most, reduce_warp(sum, Sum{})};
}
__device__ inline TokenSoftmax softmax_of_token(const TokenLogits& logits, std::int64_t token) {
  return softmax_by_warp(logits.experts(), [&](int e) { return logits.at(token, e); });
}

/// Returns the sigmoid, more accurate than in elements.cuh (1e-6), since weights are divided by
/// sums of sigmoids.
__device__ inline float exact_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

constexpr int kTokens = 4;  // per block, one warp each

// Scores are mapped to integers in the same order. NaN is less than all other scores, and taken
// scores are less than NaN.
constexpr std::uint32_t kTaken = 0, kNaN = 1;

__device__ std::uint32_t key_of(float score) {
  if (score != score) return kNaN;
  const auto bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0f : score);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ float score_of(std::uint32_t key) {
  return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

/// Returns the index of the first of the largest keys. All lanes of the warp must call it.
__device__ int best_of(const std::uint32_t* keys, int count) {
  std::uint32_t most = 0;
  int at = count;
  for (int i = lane_of_token(); i < count; i += kWarp) {
    const std::uint32_t key = keys[i];
    if (key > most || at == count) {
      most = key;
      at = i;
    }
  }
  const bool is_best = __reduce_max_sync(kAllLanes, most) == most;
  return static_cast<int>(
      ~__reduce_max_sync(kAllLanes, is_best ? ~static_cast<std::uint32_t>(at) : 0u));
}

__device__ std::uint32_t key_of_group(const std::uint32_t* keys, int size) {
  std::uint32_t first = 0, second = 0;
  for (int e = 0; e < size; ++e) {
    const std::uint32_t key = keys[e];
    second = key > first ? first : key > second ? key : second;
    first = key > first ? key : first;
  }
  const float best = first > kNaN ? score_of(first) : -INFINITY;
  return key_of(size == 1 ? best : best + (second > kNaN ? score_of(second) : -INFINITY));
}

struct Choice {
  std::int32_t* experts;  // (N, k), like weights
  float* weights;
  TokenLogits logits;
  const float* bias;  // or null
  RoutingRule rule;
  float scale;
  bool normalized;
  float epsilon;
  std::int64_t tokens;
  int chosen, groups, chosen_groups;

  __device__ float score(std::int64_t token, int e) const {
    const float logit = logits.at(token, e);
    return (rule == RoutingRule::kSigmoid ? exact_sigmoid(logit) : logit) +
           (bias != nullptr ? bias[e] : 0.0f);
  }
  __device__ int keys_of_token() const { return logits.experts() + groups; }
};

/// Sets the keys of groups that are not selected to kNaN. If all groups are NaN, selects group 0.
__device__ void leave_groups(const Choice& choice, std::uint32_t* keys, std::uint32_t* of_groups) {
  const int experts = choice.logits.experts(), size = experts / choice.groups;
  for (int g = lane_of_token(); g < choice.groups; g += kWarp)
    of_groups[g] = key_of_group(keys + g * size, size);
  __syncwarp();
  for (int i = 0; i < choice.chosen_groups; ++i) {
    const int best = best_of(of_groups, choice.groups);
    if (lane_of_token() == 0) of_groups[of_groups[best] > kNaN ? best : 0] = kTaken;
    __syncwarp();
  }
  for (int e = lane_of_token(); e < experts; e += kWarp)
    if (of_groups[e / size] != kTaken) keys[e] = kNaN;
  __syncwarp();
}

__device__ void weigh_chosen(const Choice& choice, std::int64_t token) {
  const std::int32_t* const experts = choice.experts + token * choice.chosen;
  float* const weights = choice.weights + token * choice.chosen;
  const auto logit = [&](int j) { return choice.logits.at(token, experts[j]); };
  if (choice.rule == RoutingRule::kSigmoid) {
    float sum = 0;
    for (int j = lane_of_token(); j < choice.chosen; j += kWarp) sum += exact_sigmoid(logit(j));
    const float all = reduce_warp(sum, Sum{});
    const float factor = choice.normalized ? choice.scale / (all + choice.epsilon) : choice.scale;
    for (int j = lane_of_token(); j < choice.chosen; j += kWarp)
      weights[j] = exact_sigmoid(logit(j)) * factor;
    return;
  }
  const TokenSoftmax softmax = choice.rule == RoutingRule::kSoftmax
                                   ? softmax_of_token(choice.logits, token)
                                   : softmax_by_warp(choice.chosen, logit);
  for (int j = lane_of_token(); j < choice.chosen; j += kWarp)
    weights[j] = softmax.of(logit(j)) * choice.scale;
}

__global__ void choose_experts_kernel(const Choice choice) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kTokens + warp_of_token();
  if (token >= choice.tokens) return;
  const int experts = choice.logits.experts();
  std::uint32_t* const keys = memory_of_warp<std::uint32_t>(choice.keys_of_token());
  for (int e = lane_of_token(); e < experts; e += kWarp) keys[e] = key_of(choice.score(token, e));
  __syncwarp();
  if (choice.chosen_groups < choice.groups) leave_groups(choice, keys, keys + experts);
  for (int j = 0; j < choice.chosen; ++j) {
    const int best = best_of(keys, experts);
    if (lane_of_token() == 0) {
      choice.experts[token * choice.chosen + j] = best;
      keys[best] = kTaken;
    }
    __syncwarp();
  }
  weigh_chosen(choice, token);
}

/// Inverts the sorting: pairs[r] = positions[r] is the pair of row r. The offset of an expert is
/// its first row; if it has none, the first row of the next expert that has one.
__global__ void place_pairs_kernel(std::int32_t* places, std::int32_t* pairs, std::int32_t* offsets,
                                   const std::int32_t* sorted, const std::int32_t* positions,
                                   std::int64_t count, int experts) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const auto row = static_cast<std::int32_t>(i);
  const std::int32_t pair = positions[i], expert = sorted[i];
  pairs[i] = pair;
  places[pair] = row;
  for (int e = i == 0 ? 0 : sorted[i - 1] + 1; e <= expert; ++e) offsets[e] = row;
  if (i + 1 < count) return;
  for (int e = expert + 1; e <= experts; ++e) offsets[e] = row + 1;
}

/// One block. Counts are integers, so that their sums do not depend on the order.
__global__ void move_selection_bias_kernel(float* bias, const double* counts, float rate,
                                           std::int64_t rows, std::int64_t columns,
                                           std::int64_t experts) {
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < rows * experts; i += blockDim.x)
    mine += counts[i / experts * columns + i % experts];
  const double mean = reduce_block(mine, Sum{}, 0.0) / static_cast<double>(experts);
  for (std::int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    double load = 0;
    for (std::int64_t i = 0; i < rows; ++i) load += counts[i * columns + e];
    bias[e] += load < mean ? rate : load > mean ? -rate : 0.0f;
  }
}

/// Uses one block, whose threads take turns at pairs. Sums of integers do not depend on the order.
__global__ void routing_flips_kernel(double* sums, const std::int32_t* now,
                                     const std::int32_t* then, const std::int32_t* is_token,
                                     std::int64_t pairs, int chosen) {
  float flips = 0, counted = 0;
  for (std::int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    if (is_token != nullptr && is_token[pair / chosen] == 0) continue;
    const std::int32_t* const of_token = then + pair / chosen * chosen;
    bool is_present = false;
    for (int j = 0; j < chosen; ++j) is_present = is_present || of_token[j] == now[pair];
    flips += is_present ? 0.0f : 1.0f;
    counted += 1.0f;
  }
  const double all_flips = reduce_block(static_cast<double>(flips), Sum{}, 0.0);
  const double all_counted = reduce_block(static_cast<double>(counted), Sum{}, 0.0);
  if (threadIdx.x != 0) return;
  sums[0] += all_flips;
  sums[1] += all_counted;
}

}  // namespace

void route(const Routing& routing, const Tensor& logits, const Tensor& selection_bias,
           const RoutingSpec& spec, const Stream& stream) {
  const std::int64_t tokens = logits.size(0), count = routing.pairs.elements();
  if (count == 0) return fill_zero(routing.offsets, stream);
  auto* const experts = routing.experts.data<std::int32_t>();
  const Choice choice{.experts = experts,
                      .weights = routing.weights.data<float>(),
                      .logits = TokenLogits(logits),
                      .bias = optional_data<float>(selection_bias),
                      .rule = spec.rule,
                      .scale = spec.scale,
                      .normalized = spec.normalized,
                      .epsilon = spec.epsilon,
                      .tokens = tokens,
                      .chosen = static_cast<int>(spec.chosen),
                      .groups = static_cast<int>(spec.groups),
                      .chosen_groups = static_cast<int>(spec.chosen_groups)};
  launch(stream, "choose_experts", choose_experts_kernel,
         Grid{.x = (tokens + kTokens - 1) / kTokens,
              .threads = kTokens * kWarp,
              .shared_bytes = kTokens * sizeof(std::uint32_t) *
                              static_cast<std::size_t>(spec.experts + spec.groups)},
         choice);
  // Experts are always valid. Passing E − 1 as the vocabulary, so that an invalid one would count
  // as the last, makes 256 experts fit in one digit.
  const SortedTokens sorted =
      sort_tokens(experts, count, static_cast<std::int32_t>(spec.experts - 1), stream);
  launch(stream, "place_pairs", place_pairs_kernel, grid_for(count),
         routing.places.data<std::int32_t>(), routing.pairs.data<std::int32_t>(),
         routing.offsets.data<std::int32_t>(), sorted.tokens, sorted.positions, count,
         static_cast<int>(spec.experts));
}

void move_selection_bias(const Tensor& bias, const Tensor& counts, float rate,
                         const Stream& stream) {
  launch(stream, "move_selection_bias", move_selection_bias_kernel, Grid{.threads = 1024},
         bias.data<float>(), counts.data<double>(), rate, counts.size(0), counts.size(1),
         bias.elements());
}

void routing_flips(const Tensor& sums, const Routing& routing, const Routing& before,
                   const Stream& stream) {
  launch(stream, "routing_flips", routing_flips_kernel, Grid{.threads = 1024}, sums.data<double>(),
         routing.experts.data<std::int32_t>(), before.experts.data<std::int32_t>(),
         optional_data<std::int32_t>(routing.is_token), routing.experts.elements(),
         static_cast<int>(routing.experts.size(1)));
}

namespace {

constexpr int kGradientTokens = 4;  // per block, one warp each

/// Numbers of pairs per expert, and of tokens, without padding.
struct Loads {
  const std::int32_t* offsets;
  const std::int32_t* is_token;  // may be null, like `counts`
  const std::int32_t* counts;    // (E + 1): pairs of each expert, then tokens
  int experts;
  std::int64_t all;

  __device__ bool has(std::int64_t token) const {
    return is_token == nullptr || is_token[token] != 0;
  }
  __device__ std::int32_t pairs(int e) const {
    return counts != nullptr ? counts[e] : offsets[e + 1] - offsets[e];
  }
  __device__ std::int64_t tokens() const { return counts != nullptr ? counts[experts] : all; }
  __device__ float some_tokens() const {
    const std::int64_t count = tokens();
    return static_cast<float>(count > 1 ? count : 1);
  }
};

/// One block per expert counts the expert's pairs; one more block counts the tokens.
__global__ void count_pairs_kernel(std::int32_t* counts, const Loads loads,
                                   const std::int32_t* pairs, int chosen) {
  const auto group = static_cast<int>(blockIdx.x);
  const bool counts_tokens = group == loads.experts;
  const std::int64_t begin = counts_tokens ? 0 : loads.offsets[group];
  const std::int64_t end = counts_tokens ? loads.all : loads.offsets[group + 1];
  std::int32_t mine = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    mine += loads.has(counts_tokens ? i : pairs[i] / chosen) ? 1 : 0;
  const double all = reduce_block(static_cast<double>(mine), Sum{}, 0.0);
  if (threadIdx.x == 0) counts[group] = static_cast<std::int32_t>(all);
}

/// Returns the loads. `counts` owns the memory that the result points to.
Loads loads_of(const Routing& routing, Tensor& counts, const Stream& stream) {
  const auto experts = static_cast<int>(routing.offsets.elements() - 1);
  Loads loads{.offsets = routing.offsets.data<std::int32_t>(),
              .is_token = nullptr,
              .counts = nullptr,
              .experts = experts,
              .all = routing.experts.size(0)};
  if (!routing.is_token) return loads;
  loads.is_token = routing.is_token.data<std::int32_t>();
  counts = empty_workspace(experts + 1, DType::kI32, stream);
  launch(stream, "count_pairs", count_pairs_kernel, Grid{.x = experts + 1, .threads = 256},
         counts.data<std::int32_t>(), loads, routing.pairs.data<std::int32_t>(),
         static_cast<int>(routing.experts.size(1)));
  loads.counts = counts.data<std::int32_t>();
  return loads;
}

struct RoutingGradient {
  TokenLogits dlogits, logits;
  const std::int32_t* experts;  // (N, k), like weights and dweights
  const float *weights, *dweights;
  Loads loads;
  RoutingRule rule;
  std::int64_t tokens;
  int chosen;
  float scale, epsilon, balance, z;  // factors of weights and losses
  bool has_losses, needs_softmax;
  bool is_free;  // sigmoid weights that are not divided by their sum
};

/// Sets to[e] to the gradient of a token's logit e through its weight if e is selected, otherwise
/// to 0. Returns Σ weights · dweights / scale, or 0 if `is_free`.
__device__ float gradient_by_weights(float* to, const RoutingGradient& of, std::int64_t token) {
  const std::int64_t at = token * of.chosen;
  float sum = 0, projection = 0;
  for (int e = lane_of_token(); e < of.logits.experts(); e += kWarp) to[e] = 0;
  for (int j = lane_of_token(); j < of.chosen; j += kWarp) {
    projection += of.weights[at + j] * of.dweights[at + j];
    if (of.rule == RoutingRule::kSigmoid)
      sum += exact_sigmoid(of.logits.at(token, of.experts[at + j]));
  }
  projection = of.is_free ? 0.0f : reduce_warp(projection, Sum{}) / of.scale;
  sum = of.is_free ? 1.0f : reduce_warp(sum, Sum{}) + of.epsilon;
  __syncwarp();
  for (int j = lane_of_token(); j < of.chosen; j += kWarp) {
    const int e = of.experts[at + j];
    const float dweight = of.dweights[at + j];
    if (of.rule == RoutingRule::kSigmoid) {
      const float share = exact_sigmoid(of.logits.at(token, e));
      to[e] = share * (1 - share) * of.scale / sum * (dweight - projection);
    } else {
      const float of_softmax = of.rule == RoutingRule::kSoftmaxOfChosen ? projection : 0.0f;
      to[e] = of.weights[at + j] * (dweight - of_softmax);
    }
  }
  __syncwarp();
  return projection;
}

__global__ void routing_gradient_kernel(const RoutingGradient of) {
  const std::int64_t token =
      static_cast<std::int64_t>(blockIdx.x) * kGradientTokens + warp_of_token();
  if (token >= of.tokens) return;
  const int experts = of.logits.experts();
  const TokenSoftmax softmax =
      of.needs_softmax ? softmax_of_token(of.logits, token) : TokenSoftmax{0, 1};
  float* const sums = memory_of_warp<float>(experts);
  const float projection = gradient_by_weights(sums, of, token);
  const bool has_losses = of.has_losses && of.loads.has(token);
  const float tokens = of.loads.some_tokens();
  const auto load_of = [&](int e) { return static_cast<float>(of.loads.pairs(e)) / tokens; };
  float mean = 0;
  for (int e = lane_of_token(); e < experts && has_losses; e += kWarp)
    mean += softmax.of(of.logits.at(token, e)) * load_of(e);
  mean = reduce_warp(mean, Sum{});
  const float by_softmax = of.rule == RoutingRule::kSoftmax ? of.scale * projection : 0.0f;
  const float by_log_sum = has_losses ? 2 * (of.z / tokens) * softmax.log_sum() : 0.0f;
  const float balance = of.balance * static_cast<float>(experts) / tokens;
  for (int e = lane_of_token(); e < experts; e += kWarp) {
    float sum = sums[e];
    if (of.needs_softmax) {
      const float p = softmax.of(of.logits.at(token, e));
      const float by_balance = has_losses ? balance * (load_of(e) - mean) : 0.0f;
      sum += p * (by_balance + by_log_sum - by_softmax);
    }
    of.dlogits.set(token, e, sum);
  }
}

// ---- Statistics: sums over chunks of tokens, then over the chunks, in f64 and in order.

constexpr int kChunkWarps = 8;             // per block; they take turns at a chunk's tokens
constexpr std::int64_t kChunks = 128;      // maximum number of chunks
constexpr std::int64_t kChunkTokens = 64;  // minimum, except for the last chunk

/// Computes row `chunk` of sums: probabilities per expert, entropies and (log Σ exp(l))².
__global__ void sum_chunks_kernel(double* sums, const TokenLogits logits, const Loads loads,
                                  std::int64_t chunk_tokens) {
  const int experts = logits.experts(), columns = experts + 2;
  double* const of_warp = memory_of_warp<double>(columns);
  for (int i = lane_of_token(); i < columns; i += kWarp) of_warp[i] = 0;
  __syncwarp();
  const std::int64_t begin = blockIdx.x * chunk_tokens;
  const std::int64_t end = begin + chunk_tokens < loads.all ? begin + chunk_tokens : loads.all;
  for (std::int64_t token = begin + warp_of_token(); token < end; token += kChunkWarps) {
    if (!loads.has(token)) continue;
    const TokenSoftmax softmax = softmax_of_token(logits, token);
    const float log_sum = softmax.log_sum();
    float entropy = 0;
    for (int e = lane_of_token(); e < experts; e += kWarp) {
      const float logit = logits.at(token, e), p = softmax.of(logit);
      of_warp[e] += static_cast<double>(p);
      entropy += p > 0 ? p * (log_sum - logit) : 0.0f;
    }
    entropy = reduce_warp(entropy, Sum{});
    if (lane_of_token() != 0) continue;
    of_warp[experts] += static_cast<double>(entropy);
    of_warp[experts + 1] += static_cast<double>(log_sum * log_sum);
  }
  __syncthreads();
  const double* const all = dynamic_shared<double>();
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += kChunkWarps * kWarp) {
    double sum = 0;
    for (int warp = 0; warp < kChunkWarps; ++warp) sum += all[warp * columns + i];
    sums[static_cast<std::int64_t>(blockIdx.x) * columns + i] = sum;
  }
}

__global__ void add_statistics_kernel(double* to, const double* chunks, std::int64_t count,
                                      const Loads loads) {
  const int experts = loads.experts, columns = experts + 2;
  double balance = 0;
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += static_cast<int>(blockDim.x)) {
    double sum = 0;
#pragma unroll 8
    for (std::int64_t chunk = 0; chunk < count; ++chunk) sum += chunks[chunk * columns + i];
    if (i < experts) {
      const auto pairs = static_cast<double>(loads.pairs(i));
      to[i] += pairs;
      balance += pairs * sum;
    }
    to[experts + (i < experts ? i : i + 1)] += sum;
  }
  balance = reduce_block(balance, Sum{}, 0.0);
  if (threadIdx.x != 0) return;
  const auto all = static_cast<double>(loads.tokens());
  to[2 * experts] += all;
  to[2 * experts + 3] += balance * experts / (all > 1 ? all : 1.0);
}

}  // namespace

void route_backward(const Tensor& dlogits, const Tensor& logits, const Routing& routing,
                    const Tensor& dweights, const RoutingSpec& spec, const RoutingLosses& losses,
                    const Stream& stream) {
  const std::int64_t tokens = logits.size(0);
  const bool has_losses = losses.balance != 0 || losses.z != 0;
  Tensor counts;
  const RoutingGradient gradient{.dlogits = TokenLogits(dlogits),
                                 .logits = TokenLogits(logits),
                                 .experts = routing.experts.data<std::int32_t>(),
                                 .weights = routing.weights.data<float>(),
                                 .dweights = dweights.data<float>(),
                                 .loads = loads_of(routing, counts, stream),
                                 .rule = spec.rule,
                                 .tokens = tokens,
                                 .chosen = static_cast<int>(spec.chosen),
                                 .scale = spec.scale,
                                 .epsilon = spec.epsilon,
                                 .balance = losses.balance,
                                 .z = losses.z,
                                 .has_losses = has_losses,
                                 .needs_softmax = has_losses || spec.rule == RoutingRule::kSoftmax,
                                 .is_free = spec.rule == RoutingRule::kSigmoid && !spec.normalized};
  launch(stream, "routing_gradient", routing_gradient_kernel,
         Grid{.x = (tokens + kGradientTokens - 1) / kGradientTokens,
              .threads = kGradientTokens * kWarp,
              .shared_bytes =
                  kGradientTokens * sizeof(float) * static_cast<std::size_t>(spec.experts)},
         gradient);
}

void routing_statistics(const Tensor& sums, const Tensor& logits, const Routing& routing,
                        const Stream& stream) {
  const std::int64_t tokens = logits.size(0), experts = logits.size(1), columns = experts + 2;
  const std::int64_t chunk_tokens = std::max(kChunkTokens, (tokens + kChunks - 1) / kChunks);
  const std::int64_t chunks = (tokens + chunk_tokens - 1) / chunk_tokens;
  const Tensor of_chunks = empty_workspace(chunks * columns, DType::kF64, stream);
  Tensor counts;
  const Loads loads = loads_of(routing, counts, stream);
  launch(stream, "sum_routing_chunks", sum_chunks_kernel,
         Grid{.x = chunks,
              .threads = kChunkWarps * kWarp,
              .shared_bytes = kChunkWarps * sizeof(double) * static_cast<std::size_t>(columns)},
         of_chunks.data<double>(), TokenLogits(logits), loads, chunk_tokens);
  launch(stream, "add_routing_statistics", add_statistics_kernel, Grid{.threads = 1024},
         sums.data<double>(), of_chunks.data<double>(), chunks, loads);
}

}  // namespace hybrid_trainer::kernels::cuda
