// Gradients of a routing's logits, and its statistics.

#include <algorithm>

#include "hybrid_trainer/kernels/routing.h"
#include "kernels/cuda/token_logits.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kGradientTokens = 4;  // of a block, a warp for each

/// Pairs of each expert and tokens, without padding.
struct Loads {
  const std::int32_t* offsets;
  const std::int32_t* is_token;  // or null, as is `counts`
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

/// A block for each expert, which counts its pairs, and one that counts the tokens.
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

/// `counts`: keeps what the result points to.
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
  launch(stream, "count_pairs", count_pairs_kernel,
         Grid{.x = static_cast<unsigned int>(experts + 1), .threads = 256},
         counts.data<std::int32_t>(), loads, routing.pairs.data<std::int32_t>(),
         static_cast<int>(routing.experts.size(1)));
  loads.counts = counts.data<std::int32_t>();
  return loads;
}

struct RoutingGradient {
  TokenLogits dlogits, logits;
  const std::int32_t* experts;  // (N, k), as are weights and dweights
  const float *weights, *dweights;
  Loads loads;
  RoutingRule rule;
  std::int64_t tokens;
  int chosen;
  float scale, balance, z;  // the factors of the losses
  bool has_losses, needs_softmax;
  bool is_free;  // weights of the sigmoid that are not divided by their sum
};

/// to[e] = what comes to a token's logit e by its weight, if e is chosen, else 0. Returns Σ weights ·
/// dweights / scale.
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
  sum = of.is_free ? 1.0f : reduce_warp(sum, Sum{});
  __syncwarp();
  for (int j = lane_of_token(); j < of.chosen; j += kWarp) {
    const int e = of.experts[at + j];
    const float dweight = of.dweights[at + j];
    if (of.rule == RoutingRule::kSigmoid) {
      const float share = exact_sigmoid(of.logits.at(token, e));
      to[e] = share * (1 - share) * of.scale / (sum + 1e-20f) * (dweight - projection);
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

// ---- Statistics: sums of chunks of tokens, then of the chunks, in f64 and in their order.

constexpr int kChunkWarps = 8;             // of a block; they take a chunk's tokens in turn
constexpr std::int64_t kChunks = 128;      // at most
constexpr std::int64_t kChunkTokens = 64;  // at least, but for the last chunk

/// Row `chunk` of sums: of each expert its probabilities, then entropies and (log Σ exp(l))².
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

/// One block.
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
                                 .balance = losses.balance,
                                 .z = losses.z,
                                 .has_losses = has_losses,
                                 .needs_softmax = has_losses || spec.rule == RoutingRule::kSoftmax,
                                 .is_free = spec.rule == RoutingRule::kSigmoid && !spec.normalized};
  launch(stream, "routing_gradient", routing_gradient_kernel,
         Grid{.x = static_cast<unsigned int>((tokens + kGradientTokens - 1) / kGradientTokens),
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
         Grid{.x = static_cast<unsigned int>(chunks),
              .threads = kChunkWarps * kWarp,
              .shared_bytes = kChunkWarps * sizeof(double) * static_cast<std::size_t>(columns)},
         of_chunks.data<double>(), TokenLogits(logits), loads, chunk_tokens);
  launch(stream, "add_routing_statistics", add_statistics_kernel, Grid{.threads = 1024},
         sums.data<double>(), of_chunks.data<double>(), chunks, loads);
}

}  // namespace hybrid_trainer::kernels::cuda
