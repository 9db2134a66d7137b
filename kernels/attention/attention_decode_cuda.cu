#include "hybrid_trainer/kernels/attention.h"
#include "kernels/attention/attention.cuh"
#include "kernels/backend/reduce.cuh"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// Keys per block: a constant, so that a row's bits do not depend on other sizes.
constexpr std::int64_t kPartKeys = 128;

/// Packs per thread if the lanes of a warp share a head of kHead channels.
template <int kHead, int kPack>
constexpr int kPacksOf = kHead / (kWarp * kPack);

struct KeyRange {
  std::int64_t first, last;
};

/// How a block's threads divide one part of a head's keys. `lanes` adjacent threads share a key;
/// each has kPacks packs of kPack elements. The block processes kThreads / lanes keys at a time.
struct DecodeSizes {
  std::int64_t window;    // keys that a query attends to; 0: all up to its own
  std::int64_t heads;     // query heads
  std::int64_t group;     // queries that share keys and values
  std::int64_t channels;  // channels of a row of the caches
  std::int64_t row_size;  // elements of a row of queries
  std::int64_t together;  // consecutive texts that share a row of the caches
  std::int64_t cache_rows;
  std::int64_t parts;  // parts of all keys that fit in the caches
  int head_size;
  int lanes;
  float scale;
  float cap;               // in units of log2; 0: none
  std::int64_t distances;  // number of distances in a head's bias
  BlockPattern pattern;
  int groups() const { return kThreads / lanes; }
  /// Returns the first key that the query at `position` attends to.
  __device__ std::int64_t first_key(std::int64_t position) const {
    return window > 0 && window <= position ? position - window + 1 : 0;
  }
  /// Returns the keys of a part that the query at `position` attends to; none if last < first.
  __device__ KeyRange keys_of(std::int64_t part, std::int64_t position) const {
    const std::int64_t begin = part * kPartKeys, end = begin + kPartKeys;
    const std::int64_t seen = first_key(position);
    return {seen > begin ? seen : begin, position < end ? position : end - 1};
  }
  /// Returns whether the query at `position` attends to one of the keys [first, last].
  __device__ bool attends(int head, std::int64_t position, std::int64_t first,
                          std::int64_t last) const {
    if (!pattern.is_on()) return true;
    const auto block_of = [&](std::int64_t at) { return static_cast<int>(at) / pattern.block; };
    return pattern.next_visible(head, block_of(position), block_of(first)) <= block_of(last);
  }
};

/// Layout of sums: all highest scores, all totals, then rows of head_size outputs.
struct SumsOf {
  __device__ SumsOf(float* begin, std::int64_t count, int head_size_)
      : highest(begin), totals(begin + count), outputs(begin + 2 * count), head_size(head_size_) {}
  __device__ float* output(std::int64_t i) const { return outputs + i * head_size; }
  float *highest, *totals, *outputs;
  int head_size;
};

/// Self-attention also writes the new key and value to the caches.
enum class Decodes { kSelf, kAcross };

template <class T>
struct DecodeTensors {
  T* y;
  T* key_cache;
  T* value_cache;
  const T* qkv;
  const float* sinks;                     // by query head, or null
  const float* bias;                      // by head and distance, or null
  const std::int32_t *texts, *positions;  // by row; cross-attention: key counts by source, or null
  float* sums;                            // by part, head and row
  /// Returns the last key that row n attends to; -1 if none.
  template <Decodes kDecodes>
  __device__ std::int64_t position_of(std::int64_t n, const DecodeSizes& sizes) const {
    if (kDecodes == Decodes::kSelf) return positions[n];
    return positions == nullptr ? sizes.cache_rows - 1 : positions[texts[n] / sizes.together] - 1;
  }
  __device__ float sink_of(std::int64_t head) const {
    return sinks == nullptr ? -INFINITY : sinks[head] * kLog2E;
  }
  /// Returns the bias of a key at `distance` from a query, in units of log2.
  __device__ float bias_of(std::int64_t head, std::int64_t distance,
                           const DecodeSizes& sizes) const {
    if (bias == nullptr) return 0;
    return bias[head * sizes.distances + sizes.distances / 2 + distance] * kLog2E;
  }
  __device__ SumsOf sums_of(std::int64_t item, const DecodeSizes& sizes) const {
    return {sums + item * sizes.parts * (2 + sizes.head_size), sizes.parts, sizes.head_size};
  }
};

/// Sums of a group of lanes over the group's keys. `highest` is in units of log2.
template <int kElements>
struct DecodeSums {
  float highest = -INFINITY;
  float total = 0;
  float output[kElements] = {};
};

/// Reads kPacks packs, one every `stride` elements. Elements from `end` on become zeros.
template <int kPack, int kPacks, class T>
__device__ void load_packs(float (&to)[kPack * kPacks], const T* from, int stride, int end) {
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    float pack[kPack] = {};
    if (i * stride < end) load_pack(pack, from + i * stride);
    for (int j = 0; j < kPack; ++j) to[i * kPack + j] = pack[j];
  }
}

template <int kPack, int kPacks, class T>
__device__ void store_packs(T* to, const float (&from)[kPack * kPacks], int stride, int end) {
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    float pack[kPack];
    for (int j = 0; j < kPack; ++j) pack[j] = from[i * kPack + j];
    if (i * stride < end) store_pack(to + i * stride, pack);
  }
}

/// Adds one key. `bias`, in units of log2, is added to its score. `visible` must be the same for
/// all lanes of the group. All lanes of the warp must call it.
template <int kElements>
__device__ void add_key(DecodeSums<kElements>& sums, const float (&query)[kElements],
                        const float (&key)[kElements], const float (&value)[kElements],
                        bool visible, int lanes, float cap, float bias) {
  float score = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) score += query[i] * key[i];
  score = reduce_warp(score, Sum{}, lanes);
  if (!visible) return;
  score += bias;
  if (cap > 0) score = cap * tanhf(score / cap);
  const float highest = fmaxf(sums.highest, score);
  const float factor = exp2f(sums.highest - highest), weight = exp2f(score - highest);
  sums.highest = highest;
  sums.total = sums.total * factor + weight;
#pragma unroll
  for (int i = 0; i < kElements; ++i) sums.output[i] = sums.output[i] * factor + weight * value[i];
}

/// Returns an output element from a query's sums and sink. 0 if the sink is far above `highest`.
__device__ inline float end_decode(float output, float total, float highest, float sink) {
  return output / (total + exp2f(sink - highest));
}

/// Combines the groups' sums. Writes them to y if `part` is negative, otherwise to the part's sums.
template <class T>
__device__ void combine_groups(T* y, SumsOf of_parts, std::int64_t part, SumsOf of_groups,
                               int groups, float sink) {
  float best = -INFINITY;
  for (int group = 0; group < groups; ++group) best = fmaxf(best, of_groups.highest[group]);
  for (int i = static_cast<int>(threadIdx.x); i < of_groups.head_size; i += kThreads) {
    float total = 0, output = 0;
    for (int group = 0; group < groups; ++group) {
      const float factor = exp2f(of_groups.highest[group] - best);
      total += of_groups.totals[group] * factor;
      output += of_groups.output(group)[i] * factor;
    }
    if (part < 0) {
      store(y + i, end_decode(output, total, best, sink));
      continue;
    }
    of_parts.output(part)[i] = output;
    if (i == 0) of_parts.highest[part] = best, of_parts.totals[part] = total;
  }
}

/// One block for each part of the keys of each head of each row. A block without keys in range
/// writes nothing; one with only masked keys writes -∞ as its highest score.
template <Decodes kDecodes, class T, int kPack, int kPacks>
__global__ void decode_kernel(DecodeTensors<T> tensors, DecodeSizes sizes) {
  constexpr bool kSelf = kDecodes == Decodes::kSelf;
  constexpr int kElements = kPack * kPacks;
  const std::int64_t n = blockIdx.x / sizes.heads;
  const std::int64_t head = blockIdx.x % sizes.heads, head_at = head * sizes.head_size;
  const std::int64_t key_at = head / sizes.group * sizes.head_size;
  const std::int64_t query_channels = sizes.heads * sizes.head_size;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / sizes.lanes, groups = kThreads / sizes.lanes;
  const int column = thread % sizes.lanes * kPack, stride = sizes.lanes * kPack;
  const int end = sizes.head_size - column;
  const std::int64_t position = tensors.template position_of<kDecodes>(n, sizes);
  const std::int64_t part = blockIdx.y;
  const KeyRange keys = sizes.keys_of(part, position);
  if (!kSelf && position < 0 && part == 0)
    for (int i = thread; i < sizes.head_size; i += kThreads)
      store(tensors.y + n * query_channels + head_at + i, 0.0f);
  if (keys.first > keys.last) return;
  if (kSelf && !sizes.attends(static_cast<int>(head), position, keys.first, keys.last)) {
    if (thread == 0) tensors.sums_of(blockIdx.x, sizes).highest[part] = -INFINITY;
    return;
  }
  const T* const now = tensors.qkv + n * sizes.row_size + column;
  const T* const new_key = now + query_channels + key_at;
  const std::int64_t text = kSelf ? tensors.texts[n] : tensors.texts[n] / sizes.together;
  const std::int64_t cache_at = text * sizes.cache_rows * sizes.channels + key_at + column;

  float query[kElements];
  load_packs<kPack, kPacks>(query, now + head_at, stride, end);
  for (float& element : query) element *= sizes.scale * kLog2E;
  DecodeSums<kElements> sums;
  for (std::int64_t first = keys.first; first <= keys.last; first += groups) {
    const std::int64_t at = first + group;
    const bool visible =
        at <= keys.last && (!kSelf || sizes.attends(static_cast<int>(head), position, at, at));
    const bool is_new = kSelf && at == position;
    const std::int64_t row = cache_at + at * sizes.channels;
    float key[kElements], value[kElements];
    load_packs<kPack, kPacks>(key, is_new ? new_key : tensors.key_cache + row, stride,
                              visible ? end : 0);
    load_packs<kPack, kPacks>(value, is_new ? new_key + sizes.channels : tensors.value_cache + row,
                              stride, visible ? end : 0);
    if (is_new && head % sizes.group == 0) {
      store_packs<kPack, kPacks>(tensors.key_cache + row, key, stride, end);
      store_packs<kPack, kPacks>(tensors.value_cache + row, value, stride, end);
    }
    const float bias = kSelf && visible ? tensors.bias_of(head, at - position, sizes) : 0.0f;
    add_key(sums, query, key, value, visible, sizes.lanes, sizes.cap, bias);
  }

  const SumsOf of_groups(dynamic_shared<float>(), groups, sizes.head_size);
  if (thread % sizes.lanes == 0) {
    of_groups.highest[group] = sums.highest;
    of_groups.totals[group] = sums.total;
  }
  store_packs<kPack, kPacks>(of_groups.output(group) + column, sums.output, stride, end);
  __syncthreads();
  combine_groups(tensors.y + n * query_channels + head_at, tensors.sums_of(blockIdx.x, sizes),
                 sizes.parts > 1 ? part : -1, of_groups, groups, tensors.sink_of(head));
}

/// Computes y from all parts of a head of a row; one block for each kThreads columns of each head of
/// each row. Adjacent threads take columns; if there are enough threads, several share the parts of
/// a column.
template <Decodes kDecodes, class T>
__global__ void combine_parts_kernel(DecodeTensors<T> tensors, DecodeSizes sizes) {
  __shared__ float totals[kThreads], outputs[kThreads];
  const int thread = static_cast<int>(threadIdx.x),
            first_column = kThreads * static_cast<int>(blockIdx.y);
  const int left = sizes.head_size - first_column, size = left < kThreads ? left : kThreads;
  const int column = thread % size, share = thread / size, shares = kThreads / size;
  const std::int64_t position =
      tensors.template position_of<kDecodes>(blockIdx.x / sizes.heads, sizes);
  if (position < 0) return;  // y is 0
  const std::int64_t first = sizes.first_key(position) / kPartKeys, last = position / kPartKeys;
  const SumsOf of_parts = tensors.sums_of(blockIdx.x, sizes);
  float best = -INFINITY;
  for (std::int64_t part = first + thread; part <= last; part += kThreads)
    best = fmaxf(best, of_parts.highest[part]);
  best = reduce_block(best, Max{}, -INFINITY);
  float total = 0, output = 0;
  if (share < shares) {
#pragma unroll 4
    for (std::int64_t part = first + share; part <= last; part += shares) {
      if (of_parts.highest[part] == -INFINITY) continue;
      const float factor = exp2f(of_parts.highest[part] - best);
      total += of_parts.totals[part] * factor;
      output += of_parts.output(part)[first_column + column] * factor;
    }
  }
  totals[thread] = total;
  outputs[thread] = output;
  __syncthreads();
  if (share > 0) return;
  for (int other = 1; other < shares; ++other) {
    total += totals[other * size + column];
    output += outputs[other * size + column];
  }
  store(tensors.y + static_cast<std::int64_t>(blockIdx.x) * sizes.head_size + first_column + column,
        end_decode(output, total, best, tensors.sink_of(blockIdx.x % sizes.heads)));
}

/// Launches the kernels for `rows` rows; sets the remaining fields of `sizes` and `tensors`.
template <Decodes kDecodes, class T>
void launch_decode(DecodeTensors<T> tensors, DecodeSizes sizes, std::int64_t rows,
                   const Stream& stream) {
  const std::int64_t items = rows * sizes.heads, head_size = sizes.head_size;
  sizes.parts = (sizes.cache_rows + kPartKeys - 1) / kPartKeys;
  const Tensor sums = empty_workspace(items * sizes.parts * (2 + head_size), DType::kF32, stream);
  tensors.sums = sums.data<float>();
  Grid grid{.x = items, .y = sizes.parts, .threads = kThreads};
  const auto start = [&](auto* kernel, std::int64_t pack) {
    while (sizes.lanes < kWarp && sizes.lanes * pack < head_size) sizes.lanes *= 2;
    const auto floats = static_cast<std::size_t>(sizes.groups() * (2 + head_size));
    grid.shared_bytes = sizeof(float) * floats;
    launch(stream, "attention_decode", kernel, grid, tensors, sizes);
  };
  const auto start_width = [&](auto width) {
    constexpr int kHead = decltype(width)::value, kPack = kPackSize<T>;
    if (packs_fit<T>(head_size, tensors.qkv, tensors.key_cache, tensors.value_cache)) {
      start(decode_kernel<kDecodes, T, kPack, kPacksOf<kHead, kPack>>, kPack);
    } else {
      start(decode_kernel<kDecodes, T, 1, kPacksOf<kHead, 1>>, 1);
    }
  };
  if (head_size <= 256) {
    start_width(std::integral_constant<int, 256>{});
  } else {
    start_width(std::integral_constant<int, 512>{});
  }
  if (sizes.parts == 1) return;
  launch(stream, "attention_decode_parts", combine_parts_kernel<kDecodes, T>,
         Grid{.x = grid.x,
              .y = static_cast<unsigned int>((head_size + kThreads - 1) / kThreads),
              .threads = kThreads},
         tensors, sizes);
}

DecodeSizes decode_sizes(const Tensor& keys, const Tensor& queries, std::int64_t head_size,
                         const AttentionSpec& spec) {
  return {.window = spec.window,
          .heads = spec.queries,
          .group = spec.group(),
          .channels = keys.size(2),
          .row_size = queries.size(1),
          .together = 1,
          .cache_rows = keys.size(1),
          .parts = 1,
          .head_size = static_cast<int>(head_size),
          .lanes = 1,
          .scale = score_scale(spec, head_size),
          .cap = spec.cap * kLog2E,
          .distances = spec.bias ? spec.bias.size(1) : 0,
          .pattern = spec.pattern};
}

}  // namespace

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, const Tensor& texts, const Tensor& positions,
                      AttentionSpec spec, const Stream& stream) {
  const std::int64_t head_size = key_cache.size(2) / spec.keys;
  check_head_size("attention_decode", head_size);
  const DecodeSizes sizes = decode_sizes(key_cache, qkv, head_size, spec);
  visit_real(y.dtype(), [&]<class T>(T) {
    const DecodeTensors<T> tensors{.y = y.data<T>(),
                                   .key_cache = key_cache.data<T>(),
                                   .value_cache = value_cache.data<T>(),
                                   .qkv = qkv.data<T>(),
                                   .sinks = optional_data<float>(spec.sinks),
                                   .bias = optional_data<float>(spec.bias),
                                   .texts = texts.data<std::int32_t>(),
                                   .positions = positions.data<std::int32_t>(),
                                   .sums = nullptr};
    launch_decode<Decodes::kSelf>(tensors, sizes, y.size(0), stream);
  });
}

void cross_attention_decode(const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& texts,
                            std::int64_t texts_per_source, const Tensor& lengths,
                            AttentionSpec spec, const Stream& stream) {
  const std::int64_t head_size = q.size(1) / spec.queries;
  check_head_size("cross_attention_decode", head_size);
  DecodeSizes sizes = decode_sizes(kv, q, head_size, spec);
  sizes.together = texts_per_source;
  visit_real(y.dtype(), [&]<class T>(T) {
    const DecodeTensors<T> tensors{.y = y.data<T>(),
                                   .key_cache = kv.data<T>(),
                                   .value_cache = kv.data<T>() + spec.keys * head_size,
                                   .qkv = q.data<T>(),
                                   .sinks = nullptr,
                                   .bias = nullptr,
                                   .texts = texts.data<std::int32_t>(),
                                   .positions = optional_data<std::int32_t>(lengths),
                                   .sums = nullptr};
    launch_decode<Decodes::kAcross>(tensors, sizes, y.size(0), stream);
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
