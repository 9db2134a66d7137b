#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/kernels/attention.h"
#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// How a block's threads share a head's keys: `lanes` neighbours process a key together, kPacks
/// packs of kPack elements each, and the block processes kThreads / lanes keys at a time.
struct DecodeSizes {
  std::int64_t window;    // keys that a query sees; 0: all before it
  std::int64_t heads;     // of queries
  std::int64_t group;     // queries that share keys and values
  std::int64_t channels;  // of the caches
  std::int64_t cache_rows;
  int head_size;
  int lanes;
  float scale;
  float cap;  // in units of log2; 0: none
  int groups() const { return kThreads / lanes; }
};

template <class T>
struct DecodeTensors {
  T* y;
  T* key_cache;
  T* value_cache;
  const T* qkv;
  const std::int32_t *texts, *positions;  // of each row of qkv
};

/// What one group of lanes has accumulated over its keys; `highest` is in units of log2.
template <int kElements>
struct DecodeSums {
  float highest = -INFINITY;
  float total = 0;
  float output[kElements] = {};
};

/// Reads kPacks packs, `apart` elements apart; zeros beyond `end`.
template <int kPack, int kPacks, class T>
__device__ void load_packs(float (&to)[kPack * kPacks], const T* from, int apart, int end) {
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    float pack[kPack] = {};
    if (i * apart < end) load_pack(pack, from + i * apart);
    for (int j = 0; j < kPack; ++j) to[i * kPack + j] = pack[j];
  }
}

template <int kPack, int kPacks, class T>
__device__ void store_packs(T* to, const float (&from)[kPack * kPacks], int apart, int end) {
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    float pack[kPack];
    for (int j = 0; j < kPack; ++j) pack[j] = from[i * kPack + j];
    if (i * apart < end) store_pack(to + i * apart, pack);
  }
}

/// Adds one key. `visible` is the same for all lanes of the group; the whole warp must call it.
template <int kElements>
__device__ void add_key(DecodeSums<kElements>& sums, const float (&query)[kElements],
                        const float (&key)[kElements], const float (&value)[kElements],
                        bool visible, int lanes, float cap) {
  float score = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) score += query[i] * key[i];
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    score += __shfl_xor_sync(kAllLanes, score, distance);
  }
  if (!visible) return;
  if (cap > 0) score = cap * tanhf(score / cap);
  const float highest = fmaxf(sums.highest, score);
  const float factor = exp2f(sums.highest - highest), weight = exp2f(score - highest);
  sums.highest = highest;
  sums.total = sums.total * factor + weight;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    sums.output[i] = sums.output[i] * factor + weight * value[i];
  }
}

/// Writes y from all groups' sums in shared memory: `groups` highest scores, as many totals, then
/// rows of head_size outputs.
template <class T>
__device__ void combine_groups(T* y, const float* highest, int groups, int head_size) {
  const float* const totals = highest + groups;
  const float* const outputs = totals + groups;
  float best = -INFINITY;
  for (int group = 0; group < groups; ++group) best = fmaxf(best, highest[group]);
  for (int i = static_cast<int>(threadIdx.x); i < head_size; i += kThreads) {
    float total = 0, output = 0;
    for (int group = 0; group < groups; ++group) {
      const float factor = exp2f(highest[group] - best);
      total += totals[group] * factor;
      output += outputs[group * head_size + i] * factor;
    }
    store(y + i, output / total);
  }
}

/// One block for each head of each row; one pass over keys and values.
template <class T, int kPack, int kPacks>
__global__ void decode_kernel(DecodeTensors<T> tensors, DecodeSizes sizes) {
  constexpr int kElements = kPack * kPacks;
  const std::int64_t n = blockIdx.x / sizes.heads;
  const std::int64_t head = blockIdx.x % sizes.heads, head_at = head * sizes.head_size;
  const std::int64_t key_at = head / sizes.group * sizes.head_size;
  const std::int64_t query_channels = sizes.heads * sizes.head_size;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / sizes.lanes, groups = kThreads / sizes.lanes;
  const int column = thread % sizes.lanes * kPack, apart = sizes.lanes * kPack;
  const int end = sizes.head_size - column;
  const std::int64_t position = tensors.positions[n];
  const std::int64_t hidden = sizes.window > 0 ? position - sizes.window + 1 : 0;
  const T* const now = tensors.qkv + n * (query_channels + 2 * sizes.channels) + column;
  const T* const new_key = now + query_channels + key_at;
  const std::int64_t cache_at =
      tensors.texts[n] * sizes.cache_rows * sizes.channels + key_at + column;

  float query[kElements];
  load_packs<kPack, kPacks>(query, now + head_at, apart, end);
  for (float& element : query) element *= sizes.scale * kLog2E;
  DecodeSums<kElements> sums;
  for (std::int64_t first = hidden > 0 ? hidden : 0; first <= position; first += groups) {
    const std::int64_t at = first + group;
    const bool visible = at <= position, is_new = at == position;
    const std::int64_t row = cache_at + at * sizes.channels;
    float key[kElements], value[kElements];
    load_packs<kPack, kPacks>(key, is_new ? new_key : tensors.key_cache + row, apart,
                              visible ? end : 0);
    load_packs<kPack, kPacks>(value, is_new ? new_key + sizes.channels : tensors.value_cache + row,
                              apart, visible ? end : 0);
    if (is_new && head % sizes.group == 0) {
      store_packs<kPack, kPacks>(tensors.key_cache + row, key, apart, end);
      store_packs<kPack, kPacks>(tensors.value_cache + row, value, apart, end);
    }
    add_key(sums, query, key, value, visible, sizes.lanes, sizes.cap);
  }

  float* const highest = dynamic_shared<float>();
  if (thread % sizes.lanes == 0) {
    highest[group] = sums.highest;
    highest[groups + group] = sums.total;
  }
  float* const outputs = highest + 2 * groups + group * sizes.head_size + column;
  for (int i = 0; i < kPacks; ++i) {
    for (int j = 0; j < kPack && i * apart < end; ++j) {
      outputs[i * apart + j] = sums.output[i * kPack + j];
    }
  }
  __syncthreads();
  combine_groups(tensors.y + n * query_channels + head_at, highest, groups, sizes.head_size);
}

}  // namespace

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, const Tensor& texts, const Tensor& positions,
                      AttentionSpec spec, const Stream& stream) {
  const std::int64_t channels = key_cache.size(2), head_size = channels / spec.keys;
  check_head_size("attention_decode", head_size);
  DecodeSizes sizes{.window = spec.window,
                    .heads = spec.queries,
                    .group = spec.group(),
                    .channels = channels,
                    .cache_rows = key_cache.size(1),
                    .head_size = static_cast<int>(head_size),
                    .lanes = 1,
                    .scale = score_scale(spec, head_size),
                    .cap = spec.cap * kLog2E};
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const auto start = [&](auto* kernel, std::int64_t pack) {
      while (sizes.lanes < kWarp && sizes.lanes * pack < head_size) sizes.lanes *= 2;
      const auto floats = static_cast<std::size_t>(sizes.groups() * (2 + head_size));
      const Grid grid{.x = static_cast<unsigned int>(y.size(0) * spec.queries),
                      .threads = kThreads,
                      .shared_bytes = sizeof(float) * floats};
      launch(
          stream, "attention_decode", kernel, grid,
          DecodeTensors<T>{y.data<T>(), key_cache.data<T>(), value_cache.data<T>(), qkv.data<T>(),
                           texts.data<std::int32_t>(), positions.data<std::int32_t>()},
          sizes);
    };
    if (packs_fit<T>(head_size, qkv.raw(), key_cache.raw(), value_cache.raw())) {
      start(decode_kernel<T, kPackSize<T>, 2>, kPackSize<T>);
    } else {
      start(decode_kernel<T, 1, 8>, 1);
    }
  });
}

void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream) {
  if (simulated(stream)) return;
  const auto rows = static_cast<std::size_t>(qkv.size(1));
  const std::size_t row_bytes = static_cast<std::size_t>(key_cache.size(2)) * size_of(qkv.dtype());
  const std::size_t stride = static_cast<std::size_t>(qkv.size(2)) * size_of(qkv.dtype());
  const std::size_t cache_bytes = static_cast<std::size_t>(key_cache.size(1)) * row_bytes;
  for (std::size_t b = 0; b < static_cast<std::size_t>(qkv.size(0)); ++b) {
    const char* const from =
        static_cast<const char*>(qkv.raw()) + (b * rows + 1) * stride - 2 * row_bytes;
    const auto copy = [&](const Tensor& cache, std::size_t part) {
      cuda_runtime().copy_rows(static_cast<char*>(cache.raw()) + b * cache_bytes, row_bytes,
                               from + part * row_bytes, stride, row_bytes, rows, stream.native());
    };
    copy(key_cache, 0);
    copy(value_cache, 1);
  }
}

}  // namespace hybrid_trainer::kernels::cuda
