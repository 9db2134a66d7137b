#include "hybrid_trainer/kernels/routing.h"

#include <bit>

#include "kernels/cuda/radix_sort.cuh"
#include "kernels/cuda/token_logits.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kTokens = 4;  // of a block, a warp for each

// Scores as whole numbers of the same order. NaN comes before all other scores, and before it what is
// taken.
constexpr std::uint32_t kTaken = 0, kNaN = 1;

__device__ std::uint32_t key_of(float score) {
  if (score != score) return kNaN;
  const auto bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0f : score);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
/// Of a key above kNaN.
__device__ float score_of(std::uint32_t key) {
  return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

/// The place of the largest key, the first of equal ones. All lanes of the warp call it.
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

/// The key of the sum of a group's two best scores.
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

/// What chooses the experts of tokens.
struct Choice {
  std::int32_t* experts;  // (N, k), as are weights
  float* weights;
  TokenLogits logits;
  const float* bias;  // or null
  RoutingRule rule;
  float scale;
  bool normalized;
  std::int64_t tokens;
  int chosen, groups, chosen_groups;

  __device__ float score(std::int64_t token, int e) const {
    const float logit = logits.at(token, e);
    return (rule == RoutingRule::kSigmoid ? exact_sigmoid(logit) : logit) +
           (bias != nullptr ? bias[e] : 0.0f);
  }
  __device__ int keys_of_token() const { return logits.experts() + groups; }
};

/// Leaves no score to experts of groups that are not chosen. Where all that is left is NaN, group 0 is
/// chosen.
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
  for (int e = lane_of_token(); e < experts; e += kWarp) {
    if (of_groups[e / size] != kTaken) keys[e] = kNaN;
  }
  __syncwarp();
}

/// Weights of the experts that a token has.
__device__ void weigh_chosen(const Choice& choice, std::int64_t token) {
  const std::int32_t* const experts = choice.experts + token * choice.chosen;
  float* const weights = choice.weights + token * choice.chosen;
  const auto logit = [&](int j) { return choice.logits.at(token, experts[j]); };
  if (choice.rule == RoutingRule::kSigmoid) {
    float sum = 0;
    for (int j = lane_of_token(); j < choice.chosen; j += kWarp) sum += exact_sigmoid(logit(j));
    const float all = reduce_warp(sum, Sum{});
    const float factor = choice.normalized ? choice.scale / (all + 1e-20f) : choice.scale;
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

/// Row r's pair is positions[r]. An expert's offset is the first row of it or of a later one.
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

/// One block. Counts are whole numbers, so that their sums have one value in any order.
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

/// One block, whose threads take pairs in turn; sums of whole numbers have one value in any order.
__global__ void routing_flips_kernel(double* sums, const std::int32_t* now,
                                     const std::int32_t* then, const std::int32_t* is_token,
                                     std::int64_t pairs, int chosen) {
  float flips = 0, counted = 0;
  for (std::int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    if (is_token != nullptr && is_token[pair / chosen] == 0) continue;
    const std::int32_t* const of_token = then + pair / chosen * chosen;
    bool is_there = false;
    for (int j = 0; j < chosen; ++j) is_there = is_there || of_token[j] == now[pair];
    flips += is_there ? 0.0f : 1.0f;
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
                      .bias = selection_bias ? selection_bias.data<float>() : nullptr,
                      .rule = spec.rule,
                      .scale = spec.scale,
                      .normalized = spec.normalized,
                      .tokens = tokens,
                      .chosen = static_cast<int>(spec.chosen),
                      .groups = static_cast<int>(spec.groups),
                      .chosen_groups = static_cast<int>(spec.chosen_groups)};
  launch(stream, "choose_experts", choose_experts_kernel,
         Grid{.x = static_cast<unsigned int>((tokens + kTokens - 1) / kTokens),
              .threads = kTokens * kWarp,
              .shared_bytes = kTokens * sizeof(std::uint32_t) *
                              static_cast<std::size_t>(spec.experts + spec.groups)},
         choice);
  // The last expert stands for what is out of bounds, which nothing is: so 256 experts are one digit.
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
         routing.is_token ? routing.is_token.data<std::int32_t>() : nullptr,
         routing.experts.elements(), static_cast<int>(routing.experts.size(1)));
}

}  // namespace hybrid_trainer::kernels::cuda
