// Tiles of a head in f32 in shared memory and their products without tensor cores. A block is 16 x
// 16 threads; thread (v, u) owns rows v·kR to v·kR + kR − 1 of a tile of 16·kR rows. Tiles are
// kHead columns wide; columns beyond the head size are zeros. Each row is padded by 4 elements, so
// that 16-byte reads of neighboring rows use different banks.

#include "kernels/attention/attention.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Keys that a query attends to, and the treatment of its scores. kPlain: all keys before it.
/// kMasked: with masks or caps. kBiased: also with a bias. kAcross: all keys of another sequence.
enum class MaskKind { kPlain, kMasked, kBiased, kAcross };
constexpr bool is_masked(MaskKind mask_kind) {
  return mask_kind == MaskKind::kMasked || mask_kind == MaskKind::kBiased;
}

constexpr int kSide = 16;
constexpr unsigned int kGeneralThreads = kSide * kSide;
constexpr int kUnit = 4;  // elements of one access

template <int kWidth>
constexpr int kPitch = kWidth + kUnit;

__device__ inline int thread_u() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ inline int thread_v() { return static_cast<int>(threadIdx.x) / kSide; }

template <MaskKind kMaskKind, class T>
__device__ HeadRows<T> key_rows(T* rows, std::int64_t item, const OperandSizes& sizes) {
  if (kMaskKind == MaskKind::kAcross) return {rows + sizes.keys_across_at(item), sizes.key_stride};
  return {rows + sizes.keys_at(item), sizes.stride};
}

/// Loads rows [first, first + kRows) of a head into a tile. Rows from `count` on become zeros.
/// `units` is whether the rows can be read four elements at a time.
template <int kRows, int kHead, class T>
__device__ void load_tile(float* tile, HeadRows<T> rows, std::int64_t first, std::int64_t count,
                          const OperandSizes& sizes, bool units) {
  const int head_size = static_cast<int>(sizes.head_size);
  for (int i = static_cast<int>(threadIdx.x) * kUnit; i < kRows * kHead;
       i += static_cast<int>(kGeneralThreads) * kUnit) {
    const int row = i / kHead, column = i % kHead;
    const T* const from = rows.begin + (first + row) * rows.stride + column;
    float values[kUnit] = {};
    if (first + row < count && column < head_size) {
      if (units) {
        load_pack(values, from);
      } else {
        for (int j = 0; j < kUnit; ++j) values[j] = column + j < head_size ? load(from + j) : 0.0f;
      }
    }
    store_pack(tile + row * kPitch<kHead> + column, values);
  }
}

/// Writes the thread's rows of `values` times their factors, in the columns 64 g + 4 u + j.
template <int kR, int kHead, class T>
__device__ void store_rows(HeadRows<T> rows, const float (&values)[kR][kHead / kSide],
                           const float (&factors)[kR], std::int64_t first, std::int64_t count,
                           const OperandSizes& sizes, bool units) {
  const int head_size = static_cast<int>(sizes.head_size);
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    const std::int64_t row = first + thread_v() * kR + i;
    if (row >= count) return;
#pragma unroll
    for (int g = 0; g < kHead / (kSide * kUnit); ++g) {
      const int column = (g * kSide + thread_u()) * kUnit;
      float scaled[kUnit];
      for (int j = 0; j < kUnit; ++j) scaled[j] = values[i][g * kUnit + j] * factors[i];
      T* const to = rows.begin + row * rows.stride + column;
      if (units) {
        if (column < head_size) store_pack(to, scaled);
      } else {
        for (int j = 0; j < kUnit; ++j)
          if (column + j < head_size) store(to + j, scaled[j]);
      }
    }
  }
}

/// sums[i][j] = ⟨row v·kR + i of the left tile, row u + 16 j of the right tile⟩ over the head.
template <int kR, int kHead>
__device__ void multiply_rows(float (&sums)[kR][kR], const float* left, const float* right,
                              const OperandSizes& sizes) {
  left += thread_v() * kR * kPitch<kHead>;
  right += thread_u() * kPitch<kHead>;
  for (auto& row : sums)
    for (float& sum : row) sum = 0;
#pragma unroll 1
  for (int k = 0; k < static_cast<int>(sizes.head_size); k += kUnit) {
    float x[kR][kUnit], z[kR][kUnit];
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      load_pack(x[i], left + i * kPitch<kHead> + k);
      load_pack(z[i], right + i * kSide * kPitch<kHead> + k);
    }
#pragma unroll
    for (int i = 0; i < kR; ++i) {
#pragma unroll
      for (int j = 0; j < kR; ++j) {
#pragma unroll
        for (int l = 0; l < kUnit; ++l) sums[i][j] += x[i][l] * z[j][l];
      }
    }
  }
}

/// Writes the thread's weights to a tile of 16·kR columns: rows v·kR + i, columns u + 16 j.
template <int kR>
__device__ void store_weights(float* tile, const float (&weights)[kR][kR]) {
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    float* const row = tile + (thread_v() * kR + i) * kPitch<kSide * kR>;
#pragma unroll
    for (int j = 0; j < kR; ++j) row[thread_u() + kSide * j] = weights[i][j];
  }
}

/// Sets bit kR·i + j if the pattern masks the pair (row v·kR + i, column u + 16 j). Rows are
/// queries and columns are keys; vice versa if kKeys. Sets none if tiles are within pattern blocks.
template <bool kKeys, int kR>
__device__ unsigned int hidden_pairs(std::int64_t item, std::int64_t first_row,
                                     std::int64_t first_column, const OperandSizes& sizes) {
  const BlockPattern& pattern = sizes.pattern;
  unsigned int pairs = 0;
  if (!pattern.is_on() || pattern.block % (kSide * kR) == 0) return pairs;
  const int head = sizes.head_of(item);
#pragma unroll 1
  for (int pair = 0; pair < kR * kR; ++pair) {
    const int row = static_cast<int>(first_row) + thread_v() * kR + pair / kR;
    const int column = static_cast<int>(first_column) + thread_u() + kSide * (pair % kR);
    const int query = kKeys ? column : row, key = kKeys ? row : column;
    if (!pattern.attends(head, query / pattern.block, key / pattern.block)) pairs |= 1u << pair;
  }
  return pairs;
}

/// sums[i][4 g + j] += ⟨row v·kR + i of the weights, column 64 g + 4 u + j of the right tile⟩.
template <int kR, int kHead>
__device__ void add_weighted(float (&sums)[kR][kHead / kSide], const float* weights,
                             const float* right) {
  weights += thread_v() * kR * kPitch<kSide * kR>;
  right += thread_u() * kUnit;
#pragma unroll 1
  for (int k = 0; k < kSide * kR; k += kUnit) {
    float w[kR][kUnit];
#pragma unroll
    for (int i = 0; i < kR; ++i) load_pack(w[i], weights + i * kPitch<kSide * kR> + k);
#pragma unroll
    for (int l = 0; l < kUnit; ++l) {
#pragma unroll
      for (int g = 0; g < kHead / (kSide * kUnit); ++g) {
        float z[kUnit];
        load_pack(z, right + (k + l) * kPitch<kHead> + g * kSide * kUnit);
#pragma unroll
        for (int i = 0; i < kR; ++i) {
#pragma unroll
          for (int j = 0; j < kUnit; ++j) sums[i][g * kUnit + j] += w[i][l] * z[j];
        }
      }
    }
  }
}

template <MaskKind kMaskKind>
using MaskKindOf = std::integral_constant<MaskKind, kMaskKind>;

/// Calls `function` with the width of a head's tiles and the MaskKind as constants.
template <class Function>
void visit_kernel(const OperandSizes& sizes, Function&& function) {
  const auto of_width = [&](auto width) {
    if (sizes.across) return function(width, MaskKindOf<MaskKind::kAcross>{});
    if (sizes.bias != nullptr) return function(width, MaskKindOf<MaskKind::kBiased>{});
    if (sizes.plain()) return function(width, MaskKindOf<MaskKind::kPlain>{});
    function(width, MaskKindOf<MaskKind::kMasked>{});
  };
  if (sizes.head_size <= 64) return of_width(std::integral_constant<int, 64>{});
  if (sizes.head_size <= 128) return of_width(std::integral_constant<int, 128>{});
  if (sizes.head_size <= 256) return of_width(std::integral_constant<int, 256>{});
  of_width(std::integral_constant<int, 512>{});
}

/// Returns true if the rows of all heads can be read four elements at a time.
template <class... Pointers>
bool units_fit(const OperandSizes& sizes, Pointers... begins) {
  return packs_fit<float>(sizes.head_size, begins...);
}

/// Number of rows of a tile that each thread owns.
template <int kHead>
constexpr int kForwardRows = kHead <= 128   ? 4
                             : kHead <= 256 ? 2
                                            : 1;

template <int kHead>
constexpr std::size_t kForwardShared =
    sizeof(float) * kSide* kForwardRows<kHead>*(2 * kPitch<kHead> +
                                                kPitch<kSide * kForwardRows<kHead>>);

template <int kR>
struct Softmax {
  float highest[kR];  // in units of log2
  float total[kR];    // over the thread's own keys
};

/// Replaces scores by weights 2^(score − highest), 0 for masked keys. Rescales previous sums.
template <MaskKind kMaskKind, int kR, int kColumns>
__device__ void weigh(float (&scores)[kR][kR], Softmax<kR>& softmax, float (&output)[kR][kColumns],
                      std::int64_t item, std::int64_t first_query, std::int64_t first_key,
                      const OperandSizes& sizes) {
  constexpr bool kPlain = kMaskKind == MaskKind::kPlain, kMasked = is_masked(kMaskKind);
  const float scale = sizes.scale * kLog2E;
  const unsigned int hidden =
      kMasked ? hidden_pairs<false, kR>(item, first_query, first_key, sizes) : 0;
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    const std::int64_t query = first_query + thread_v() * kR + i;
    const std::int64_t begin = kMasked ? sizes.first_key(item, query) : 0;
    float highest = softmax.highest[i];
#pragma unroll
    for (int j = 0; j < kR; ++j) {
      const std::int64_t key = first_key + thread_u() + kSide * j;
      const bool visible = (kPlain    ? key <= query
                            : kMasked ? sizes.attends(item, query, begin, key)
                                      : key < sizes.count_of_keys(item)) &&
                           (hidden >> (kR * i + j)) % 2 == 0;
      if (kMaskKind == MaskKind::kBiased && visible && query < sizes.length)
        scores[i][j] += sizes.bias_of(item)[key - query] / sizes.scale;
      if (!kPlain && sizes.cap > 0)
        scores[i][j] = sizes.cap / sizes.scale * tanhf(scores[i][j] * sizes.scale / sizes.cap);
      scores[i][j] = visible ? scores[i][j] * scale : -INFINITY;
      highest = fmaxf(highest, scores[i][j]);
    }
#pragma unroll
    for (int distance = kSide / 2; distance > 0; distance /= 2)
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, distance));
    const float shift = !kPlain && highest == -INFINITY ? 0.0f : highest;  // none so far
    const float factor = exp2f(softmax.highest[i] - shift);
    softmax.highest[i] = highest;
    softmax.total[i] *= factor;
#pragma unroll
    for (int j = 0; j < kR; ++j) {
      scores[i][j] = exp2f(scores[i][j] - shift);
      softmax.total[i] += scores[i][j];
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) output[i][j] *= factor;
  }
}

template <class T, int kHead, MaskKind kMaskKind>
__global__ void __launch_bounds__(kGeneralThreads, is_masked(kMaskKind) ? 1 : 2)
    general_forward_kernel(T* y, float* log_sum_exp, const T* from_queries, const T* from_keys,
                           OperandSizes sizes, unsigned int blocks, bool units) {
  constexpr bool kMasked = is_masked(kMaskKind), kAcross = kMaskKind == MaskKind::kAcross;
  constexpr int kR = kForwardRows<kHead>, kRows = kSide * kR;
  float* const query = dynamic_shared<float>();
  float* const key_value = query + kRows * kPitch<kHead>;
  float* const weights = key_value + kRows * kPitch<kHead>;
  const std::int64_t item = blockIdx.x / blocks;
  const std::int64_t first_query =
      static_cast<std::int64_t>(blocks - 1 - blockIdx.x % blocks) * kRows;  // long ones first
  const HeadRows<const T> rows{from_queries + sizes.queries_at(item), sizes.stride};
  const HeadRows<const T> keys = key_rows<kMaskKind>(from_keys, item, sizes);
  const HeadRows<const T> values{keys.begin + sizes.key_channels, keys.stride};
  const std::int64_t count = kAcross ? sizes.count_of_keys(item) : sizes.length;  // of keys

  load_tile<kRows, kHead>(query, rows, first_query, sizes.length, sizes, units);
  float output[kR][kHead / kSide] = {};
  Softmax<kR> softmax;
  for (int i = 0; i < kR; ++i) {
    softmax.highest[i] = -INFINITY;
    softmax.total[i] = 0;
  }
  const std::int64_t begin = kMasked ? sizes.first_key(item, first_query) / kRows * kRows : 0;
  const std::int64_t last = kAcross || (kMasked && sizes.bidirectional) ? count - 1 : first_query;
  for (std::int64_t first_key = begin; first_key <= last; first_key += kRows) {
    if (kMasked && first_key > first_query &&
        sizes.first_key(item, first_key) >= first_query + kRows)
      break;
    if (kMasked && sizes.masks_tile<kRows>(item, first_query, first_key)) continue;
    __syncthreads();  // the values of the last iteration have been read
    load_tile<kRows, kHead>(key_value, keys, first_key, count, sizes, units);
    __syncthreads();
    float scores[kR][kR];
    multiply_rows<kR, kHead>(scores, query, key_value, sizes);
    weigh<kMaskKind>(scores, softmax, output, item, first_query, first_key, sizes);
    store_weights(weights, scores);
    __syncthreads();
    load_tile<kRows, kHead>(key_value, values, first_key, count, sizes, units);
    __syncthreads();
    add_weighted<kR, kHead>(output, weights, key_value);
  }

  float factors[kR];
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    const float total = reduce_warp(softmax.total[i], Sum{}, kSide);
    SoftmaxResult end(softmax.highest[i] * kLn2, total, sizes.sink_of(blockIdx.x / blocks));
    if (kAcross && total == 0) end.log_sum_exp = -INFINITY, end.factor = 0;  // it attends to no key
    factors[i] = end.factor;
    const std::int64_t at = first_query + thread_v() * kR + i;
    if (log_sum_exp != nullptr && thread_u() == 0 && at < sizes.length)
      log_sum_exp[item * sizes.length + at] = end.log_sum_exp;
  }
  store_rows<kR, kHead>(HeadRows<T>{y + sizes.y_at(item), sizes.channels}, output, factors,
                        first_query, sizes.length, sizes, units);
}

}  // namespace

void general_attention_forward(const Tensor& y, const Tensor& log_sum_exp,
                               const AttentionOperands& from, const OperandSizes& sizes,
                               const Stream& stream) {
  const bool units = units_fit(sizes, y.raw(), from.queries.raw(), from.keys.raw());
  float* const sums = optional_data<float>(log_sum_exp);
  visit_real(y.dtype(), [&]<class T>(T) {
    visit_kernel(sizes, [&](auto width, auto mask_kind) {
      constexpr int kHead = decltype(width)::value;
      const std::int64_t blocks = sizes.blocks(kSide * kForwardRows<kHead>);
      const Grid grid{.x = blocks * sizes.items,
                      .threads = kGeneralThreads,
                      .shared_bytes = kForwardShared<kHead>};
      launch(stream, "attention_forward", general_forward_kernel<T, kHead, mask_kind>, grid,
             y.data<T>(), sums, from.queries.data<T>(), from.keys.data<T>(), sizes,
             static_cast<unsigned int>(blocks), units);
    });
  });
}

namespace {

// One kernel computes both halves of the gradients. A block owns rows of one side and iterates over
// tiles of the other. If it owns keys and values, it sums dkey and dvalue over the queries of all
// heads that share them. If it owns queries and dy, it sums dquery over the keys. In both cases
// the gradient of own[0] is dscores · streamed[0], and dvalue is weights · streamed[1].
enum class Owns { kKeys, kQueries };

template <int kHead>
constexpr int kBackwardRows = kHead == 64    ? 4
                              : kHead == 128 ? 2
                                             : 1;

/// Number of streamed tiles in shared memory. With one tile, a block fits in the 99 KB of small
/// devices, but loads the queries or keys twice.
template <int kHead>
constexpr int kStreamedTiles = kHead <= 256 ? 2 : 1;

template <int kHead>
constexpr std::size_t kBackwardShared =
    sizeof(float) * kSide* kBackwardRows<kHead>*((2 + kStreamedTiles<kHead>)*kPitch<kHead> +
                                                 kPitch<kSide * kBackwardRows<kHead>>);

/// AttentionSizes::attends, computed from the terms.
template <MaskKind kMaskKind>
__device__ bool attends(int query, int key, const QueryTerms& terms, const OperandSizes& sizes) {
  if (kMaskKind == MaskKind::kPlain) return key <= query;
  if (kMaskKind == MaskKind::kAcross) return true;
  if (key <= query) return key >= terms.first_keys[query];
  return sizes.bidirectional && key < sizes.length && terms.first_keys[key] <= query;
}

/// Replaces scores by weights and dweights by dscores / scale; both 0 for masked keys. In
/// cross-attention masked keys are rows of zeros, to which any finite weight adds nothing.
template <Owns kOwns, MaskKind kMaskKind, int kR>
__device__ void differentiate(float (&scores)[kR][kR], float (&dweights)[kR][kR],
                              const QueryTerms& terms, int first_own, int first_streamed,
                              unsigned int hidden, std::int64_t item, const OperandSizes& sizes) {
  constexpr bool kPlain = kMaskKind == MaskKind::kPlain;
  const float scale = sizes.scale * kLog2E;
#pragma unroll
  for (int i = 0; i < kR; ++i) {
#pragma unroll
    for (int j = 0; j < kR; ++j) {
      const int own = first_own + thread_v() * kR + i;
      const int streamed = first_streamed + thread_u() + kSide * j;
      const int query = kOwns == Owns::kKeys ? streamed : own;
      const int key = kOwns == Owns::kKeys ? own : streamed;
      const bool visible =
          attends<kMaskKind>(query, key, terms, sizes) && (hidden >> (kR * i + j)) % 2 == 0;
      if (kMaskKind == MaskKind::kBiased && visible && query < sizes.length)
        scores[i][j] += sizes.bias_of(item)[key - query] / sizes.scale;
      float slope = 1;
      if (!kPlain && sizes.cap > 0) {
        const float tangent = tanhf(scores[i][j] * sizes.scale / sizes.cap);
        scores[i][j] = sizes.cap / sizes.scale * tangent;
        slope = 1.0f - tangent * tangent;
      }
      float weight = visible ? exp2f(scores[i][j] * scale - terms.exponents[query]) : 0.0f;
      if (kMaskKind == MaskKind::kAcross) weight = weight > 1 ? 1 : weight;
      scores[i][j] = weight;
      dweights[i][j] = weight * (dweights[i][j] - terms.corrections[query]);
      if constexpr (!kPlain) dweights[i][j] *= slope;
    }
  }
}

template <Owns kOwns, class T, int kHead, MaskKind kMaskKind>
__global__ void __launch_bounds__(kGeneralThreads,
                                  kMaskKind == MaskKind::kBiased || kHead > 256 ? 1 : 2)
    general_backward_kernel(T* gradients, const T* dy, QueryTerms all_terms, const T* from_queries,
                            const T* from_keys, OperandSizes sizes, unsigned int blocks,
                            bool units) {
  constexpr bool kMasked = is_masked(kMaskKind), kAcross = kMaskKind == MaskKind::kAcross;
  constexpr int kR = kBackwardRows<kHead>, kRows = kSide * kR;
  constexpr bool kKeys = kOwns == Owns::kKeys;
  constexpr int kTiles = kStreamedTiles<kHead>, kNext = kRows * kPitch<kHead>;
  constexpr int kSecond = kTiles == 1 ? 0 : kNext;
  float* const own = dynamic_shared<float>();
  float* const streamed = own + 2 * kNext;
  float* const weights = streamed + kTiles * kNext;

  // Stored in the thread's part of `weights`, because registers are scarce.
  auto* const own_hidden =
      reinterpret_cast<unsigned int*>(weights + thread_v() * kR * kPitch<kRows> + thread_u());

  const int members = kKeys ? static_cast<int>(sizes.group) : 1;  // heads of queries
  const std::int64_t item = blockIdx.x / blocks * members;
  const unsigned int turn = blockIdx.x % blocks;  // blocks with the most work first
  const int first_own = static_cast<int>(kKeys ? turn : blocks - 1 - turn) * kRows;
  const HeadRows<const T> queries[2] = {{from_queries + sizes.queries_at(item), sizes.stride},
                                        {dy + sizes.y_at(item), sizes.channels}};
  const HeadRows<const T> key = key_rows<kMaskKind>(from_keys, item, sizes);
  const HeadRows<const T> keys[2] = {key, {key.begin + sizes.key_channels, key.stride}};
  const std::int64_t own_count = kAcross && kKeys ? sizes.count_of_keys(item) : sizes.length;
  const std::int64_t streamed_count = kAcross && !kKeys ? sizes.count_of_keys(item) : sizes.length;

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    load_tile<kRows, kHead>(own + i * kNext, kKeys ? keys[i] : queries[i], first_own, own_count,
                            sizes, units);
  }
  float sums[kR][kHead / kSide] = {}, dvalue[kR][kHead / kSide] = {};
  const bool bidirectional = kMasked && sizes.bidirectional;  // both sides have the same range
  const int first_visible =
      !kMasked || (kKeys && !bidirectional) ? 0 : all_terms.of(item).first_keys[first_own];
  const int begin = kKeys && !bidirectional && !kAcross ? first_own : first_visible / kRows * kRows,
            last = kAcross || kKeys || bidirectional ? static_cast<int>(streamed_count) - 1
                                                     : first_own;
  for (int member = 0; member < members; ++member) {
    const QueryTerms terms = all_terms.of(item + member);
    for (int first = begin; first <= last; first += kRows) {
      if (kMasked && (kKeys || bidirectional) && terms.first_keys[first] >= first_own + kRows)
        break;
      if (kMasked && sizes.masks_tile<kRows>(item + member, kKeys ? first : first_own,
                                             kKeys ? first_own : first))
        continue;
      __syncthreads();  // the last iteration's tiles have been read
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        HeadRows<const T> rows = kKeys ? queries[i] : keys[i];
        rows.begin += member * sizes.head_size;
        load_tile<kRows, kHead>(streamed + i * kNext, rows, first, streamed_count, sizes, units);
      }
      [[maybe_unused]] const auto load_instead = [&](int i) {
        HeadRows<const T> rows = kKeys ? queries[i] : keys[i];
        rows.begin += member * sizes.head_size;
        load_tile<kRows, kHead>(streamed, rows, first, streamed_count, sizes, units);
      };
      if (kMasked) *own_hidden = hidden_pairs<kKeys, kR>(item + member, first_own, first, sizes);
      __syncthreads();
      float scores[kR][kR], dweights[kR][kR];
      multiply_rows<kR, kHead>(scores, own, streamed, sizes);
      if constexpr (kTiles == 1) {
        __syncthreads();  // the first tile has been read
        load_instead(1);
        __syncthreads();
      }
      multiply_rows<kR, kHead>(dweights, own + kNext, streamed + kSecond, sizes);
      differentiate<kOwns, kMaskKind>(scores, dweights, terms, first_own, first,
                                      kMasked ? *own_hidden : 0, item + member, sizes);
      if constexpr (kKeys) {
        store_weights(weights, scores);
        __syncthreads();
        add_weighted<kR, kHead>(dvalue, weights, streamed + kSecond);
        __syncthreads();
      }
      store_weights(weights, dweights);
      if constexpr (kTiles == 1) {
        if (!kKeys) __syncthreads();  // the second tile has been read
        load_instead(0);
      }
      __syncthreads();
      add_weighted<kR, kHead>(sums, weights, streamed);
    }
  }

  const std::int64_t rows = kAcross && kKeys ? sizes.key_length : sizes.length;
  const HeadRows<T> dsums = kKeys ? key_rows<kMaskKind>(gradients, item, sizes)
                                  : HeadRows<T>{gradients + sizes.queries_at(item), sizes.stride};
  float ones[kR], scales[kR];
  for (int i = 0; i < kR; ++i) {
    const bool is_hidden =
        kAcross && kKeys && first_own + thread_v() * kR + i >= sizes.count_of_keys(item);
    ones[i] = is_hidden ? 0.0f : 1.0f;
    scales[i] = ones[i] * sizes.scale;
  }
  store_rows<kR, kHead>(dsums, sums, scales, first_own, rows, sizes, units);
  if constexpr (kKeys) {
    const HeadRows<T> dvalues{dsums.begin + sizes.key_channels, dsums.stride};
    store_rows<kR, kHead>(dvalues, dvalue, ones, first_own, rows, sizes, units);
  }
}

}  // namespace

void general_attention_backward(const AttentionOperands& gradients, const Tensor& dy,
                                const QueryTerms& terms, const AttentionOperands& from,
                                const OperandSizes& sizes, const Stream& stream) {
  const bool units = units_fit(sizes, gradients.queries.raw(), gradients.keys.raw(), dy.raw(),
                               from.queries.raw(), from.keys.raw());
  visit_real(dy.dtype(), [&]<class T>(T) {
    visit_kernel(sizes, [&](auto width, auto mask_kind) {
      constexpr int kHead = decltype(width)::value;
      constexpr int kRows = kSide * kBackwardRows<kHead>;
      const auto start = [&](const char* name, auto* kernel, const Tensor& to, std::int64_t blocks,
                             std::int64_t items) {
        const Grid grid{.x = blocks * items,
                        .threads = kGeneralThreads,
                        .shared_bytes = kBackwardShared<kHead>};
        launch(stream, name, kernel, grid, to.data<T>(), dy.data<T>(), terms,
               from.queries.data<T>(), from.keys.data<T>(), sizes,
               static_cast<unsigned int>(blocks), units);
      };
      start("attention_backward_keys", general_backward_kernel<Owns::kKeys, T, kHead, mask_kind>,
            gradients.keys, sizes.key_blocks(kRows), sizes.items / sizes.group);
      start("attention_backward_queries",
            general_backward_kernel<Owns::kQueries, T, kHead, mask_kind>, gradients.queries,
            sizes.blocks(kRows), sizes.items);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cuda
