#include "kernels/cuda/attention_tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

// One kernel for both halves, as in attention_general_backward.cu: a block owns keys and values and
// iterates over queries and dy, or the other way round. The passing tiles are double-buffered: the
// next ones are loaded while the current ones are used.
enum class Owns { kKeys, kQueries };

constexpr int kPassing = 64;  // rows of a passing tile

/// How a thread's registers are used.
template <Owns kOwns, int kHead>
struct Plan {
  static constexpr bool kKeys = kOwns == Owns::kKeys;
  static constexpr int kRowTiles = kHead == 64 ? 2 : 1;  // of 16 rows each, for a warp
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;
  // Passing rows whose scores are in registers at a time, and steps of own[0] and own[1] kept
  // there.
  static constexpr int kPart = kHead == 64 ? 16 : 32;
  static constexpr int kKept0 = kHead == 64 ? (kKeys ? 2 : 4) : 0;
  static constexpr int kKept1 = kHead == 64 ? (kKeys ? 2 : 4) : 0;
  static constexpr std::size_t kShared =
      sizeof(BFloat16) * kHead * (2 * kRows + 4 * kPassing) + sizeof(float) * 6 * kPassing;
};

/// A thread's query terms where its warp owns queries.
template <int kRowTiles>
struct OwnTerms {
  /// `row`: row 0 of the warp.
  template <bool kPlain>
  __device__ void keep(const QueryTerms& all, int row) {
    for (int m = 0; m < kRowTiles; ++m) {
      for (int h = 0; h < 2; ++h) {
        const int at = row + 16 * m + 8 * h + lane_of_warp() / 4;
        exponents[m][h] = all.exponents[at];
        corrections[m][h] = all.corrections[at];
        first_keys[m][h] = kPlain ? 0 : all.first_keys[at];
      }
    }
  }
  float exponents[kRowTiles][2];
  float corrections[kRowTiles][2];
  int first_keys[kRowTiles][2];
};

/// Query terms of a passing tile in shared memory: kPassing of each, one array after the other.
struct PassingTerms {
  /// Starts to copy those of queries [first, first + kPassing).
  template <bool kPlain>
  __device__ void copy_async(const QueryTerms& all, int first) const {
    constexpr int kCopies = kPassing / 4;  // of 16 bytes, of an array
    const int array = static_cast<int>(threadIdx.x) / kCopies;
    const int i = static_cast<int>(threadIdx.x) % kCopies * 4;
    if (array >= (kPlain ? 2 : 3)) return;
    const void* const from[] = {all.exponents + first + i, all.corrections + first + i,
                                all.first_keys + first + i};
    cuda::copy_async(shared_address(begin + array * kPassing + i), from[array], true);
  }
  __device__ const float* exponents(int at) const { return begin + at; }
  __device__ const float* corrections(int at) const { return begin + kPassing + at; }
  __device__ const int* first_keys(int at) const {
    return reinterpret_cast<const int*>(begin + 2 * kPassing + at);
  }
  float* begin;
};

/// Where a part of the product is: the first passing row in its tile, key 0 of the part, and by how
/// many positions query 0 is ahead of key 0.
struct Place {
  int passing, key, ahead;
};

/// Scores become weights, dweights become dscores / scale. Where `masked`, both become 0 for keys
/// that a query does not see.
template <Owns kOwns, bool kPlain, int kRowTiles, int kColumnTiles>
__device__ void differentiate(Sums<kRowTiles, kColumnTiles>& scores,
                              Sums<kRowTiles, kColumnTiles>& dweights,
                              const OwnTerms<kRowTiles>& own, const PassingTerms& passing,
                              bool masked, const Place& place, const AttentionSizes& sizes) {
  constexpr bool kKeys = kOwns == Owns::kKeys;
  const int lane = lane_of_warp();
  const float scale = sizes.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    float exponents[2], corrections[2];
    Pack<int, 2> first_keys;
    if constexpr (kKeys) {
      const int at = place.passing + 8 * n + lane % 4 * 2;
      load_pack(exponents, passing.exponents(at));
      load_pack(corrections, passing.corrections(at));
      if (!kPlain) first_keys = *reinterpret_cast<const Pack<int, 2>*>(passing.first_keys(at));
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float exponent = kKeys ? exponents[i % 2] : own.exponents[m][i / 2];
        const float correction = kKeys ? corrections[i % 2] : own.corrections[m][i / 2];
        const int row = 16 * m + i / 2 * 8 + lane / 4, column = 8 * n + lane % 4 * 2 + i % 2;
        const int key = kKeys ? row : column, query = kKeys ? column : row;
        bool hidden = key > place.ahead + query;
        float slope = 1;
        if constexpr (!kPlain) {
          hidden |= place.key + key < (kKeys ? first_keys.values[i % 2] : own.first_keys[m][i / 2]);
          if (sizes.cap > 0) {
            const float tangent = tanhf(scores[m][n][i] * (sizes.scale / sizes.cap));
            scores[m][n][i] = tangent * (sizes.cap / sizes.scale);
            slope = 1.0f - tangent * tangent;
          }
        }
        float weight = fast_exp2(scores[m][n][i] * scale - exponent);
        if (masked && hidden) weight = 0;
        scores[m][n][i] = weight;
        dweights[m][n][i] = weight * (dweights[m][n][i] - correction);
        if constexpr (!kPlain) dweights[m][n][i] *= slope;
      }
    }
  }
}

template <Owns kOwns, int kHead, bool kPlain>
__global__ void __launch_bounds__(kCoreThreads, 2)
    backward_kernel(BFloat16* dqkv, const BFloat16* dy, QueryTerms terms, const BFloat16* qkv,
                    AttentionSizes sizes, unsigned int blocks) {
  using P = Plan<kOwns, kHead>;
  constexpr bool kKeys = P::kKeys;
  constexpr int kRowTiles = P::kRowTiles, kColumnTiles = P::kPart / 8;
  const Tile<kHead> own[2] = {{0}, {P::kRows * kHead}};
  constexpr int kPassingBegin = 2 * P::kRows * kHead;
  const auto passing = [&](int buffer, int which) {
    return Tile<kHead>{kPassingBegin + (2 * buffer + which) * kPassing * kHead};
  };
  const auto passing_terms = [&](int buffer) {
    const int begin = kPassingBegin + 4 * kPassing * kHead;
    return PassingTerms{reinterpret_cast<float*>(dynamic_shared<BFloat16>() + begin) +
                        buffer * 3 * kPassing};
  };

  const int members = kKeys ? static_cast<int>(sizes.group) : 1;  // heads of queries
  const std::int64_t item = blockIdx.x / blocks * members;
  const unsigned int turn = blockIdx.x % blocks;  // those with most work first
  const int first_own = static_cast<int>(kKeys ? turn : blocks - 1 - turn) * P::kRows;
  const int row = warp_of_block() * P::kWarpRows;
  const HeadRows<const BFloat16> queries[2] = {{qkv + sizes.queries_at(item), sizes.stride},
                                               {dy + sizes.y_at(item), sizes.channels}};
  const BFloat16* const key = qkv + sizes.keys_at(item);
  const HeadRows<const BFloat16> keys[2] = {{key, sizes.stride},
                                            {key + sizes.key_channels, sizes.stride}};
  terms = terms.of(item);
  const auto copy_passing = [&](int buffer, int first, int member) {
    for (int i = 0; i < 2; ++i) {
      HeadRows<const BFloat16> rows = kKeys ? queries[i] : keys[i];
      rows.begin += member * kHead;
      copy_rows_async<kPassing>(passing(buffer, i), rows, first, sizes.length);
    }
    if constexpr (kKeys) {
      passing_terms(buffer).template copy_async<kPlain>(terms.of(member), first);
    }
    commit_copies();
  };

  int first_passing = kKeys ? first_own : 0;
  const int length = static_cast<int>(sizes.length);
  int end = kKeys || length < first_own + P::kRows ? length : first_own + P::kRows;
  if constexpr (!kPlain && kKeys) {
    int seeing = first_own + kPassing;  // the owned keys are seen by queries up to here
    while (seeing < end && terms.first_keys[seeing] < first_own + P::kRows) seeing += kPassing;
    end = seeing < end ? seeing : end;
  } else if constexpr (!kPlain) {
    first_passing = terms.first_keys[first_own] / kPassing * kPassing;
  }
  copy_rows_async<P::kRows>(own[0], kKeys ? keys[0] : queries[0], first_own, sizes.length);
  copy_rows_async<P::kRows>(own[1], kKeys ? keys[1] : queries[1], first_own, sizes.length);
  copy_passing(0, first_passing, 0);
  OwnTerms<kRowTiles> own_terms;
  // The first keys that the first and the last query of a part see.
  int first_seen = 0, last_seen = 0;
  if constexpr (!kKeys) {
    own_terms.template keep<kPlain>(terms, first_own + row);
    first_seen = kPlain ? 0 : terms.first_keys[first_own + row];
    last_seen = kPlain ? 0 : terms.first_keys[first_own + row + P::kWarpRows - 1];
  }
  LeftRows<kRowTiles, kHead, P::kKept0> left(own[0], row);
  LeftRows<kRowTiles, kHead, P::kKept1> dleft(own[1], row);
  Sums<kRowTiles, kHead / 8> sums, dvalue;
  set_zero<kRowTiles, kHead / 8>(sums);
  if constexpr (kKeys) set_zero<kRowTiles, kHead / 8>(dvalue);
  if constexpr (P::kKept0 > 0) {
    wait_for_copies<0>();
    __syncthreads();
    left.keep();
    dleft.keep();
  }

  int buffer = 0;
  for (int first = first_passing, member = 0; member < members; buffer ^= 1) {
    wait_for_copies<0>();
    __syncthreads();  // this tile has arrived, the other buffer has been read
    const bool last = first + kPassing >= end;  // of this head's
    const int next = last ? first_passing : first + kPassing, next_member = member + (last ? 1 : 0);
    if (next_member < members) copy_passing(buffer ^ 1, next, next_member);
#pragma unroll 1
    for (int part = 0; part < kPassing; part += P::kPart) {
      const int distance = first + part - first_own - row;
      const int ahead = kKeys ? distance : -distance;
      if (ahead + (kKeys ? P::kPart : P::kWarpRows) - 1 < 0) continue;
      const Place place{part, kKeys ? first_own + row : first + part, ahead};
      constexpr int kPartKeys = kKeys ? P::kWarpRows : P::kPart;
      bool masked = ahead < kPartKeys - 1;
      if constexpr (!kPlain) {
        if constexpr (kKeys) {
          first_seen = *passing_terms(buffer).first_keys(part);
          last_seen = *passing_terms(buffer).first_keys(part + P::kPart - 1);
        }
        if (first_seen >= place.key + kPartKeys) continue;
        masked |= last_seen > place.key;
      }
      Sums<kRowTiles, kColumnTiles> scores, dweights;
      multiply_rows<kRowTiles, kColumnTiles>(scores, left, passing(buffer, 0), part);
      multiply_rows<kRowTiles, kColumnTiles>(dweights, dleft, passing(buffer, 1), part);
      differentiate<kOwns, kPlain, kRowTiles, kColumnTiles>(
          scores, dweights, own_terms, passing_terms(buffer), masked, place, sizes);
      if constexpr (kKeys) {
        add_weighted<kRowTiles, kColumnTiles, kHead>(dvalue, scores, passing(buffer, 1), part);
      }
      add_weighted<kRowTiles, kColumnTiles, kHead>(sums, dweights, passing(buffer, 0), part);
    }
    first = next;
    member = next_member;
  }

  float ones[kRowTiles][2], scales[kRowTiles][2];
  for (int m = 0; m < kRowTiles; ++m) {
    for (int h = 0; h < 2; ++h) {
      ones[m][h] = 1;
      scales[m][h] = sizes.scale;
    }
  }
  BFloat16* const to = dqkv + (kKeys ? sizes.keys_at(item) : sizes.queries_at(item));
  const std::int64_t stride = sizes.stride;
  store_rows<kRowTiles, kHead>(HeadRows<BFloat16>{to, stride}, sums, scales, own[0], row, first_own,
                               sizes.length);
  if constexpr (kKeys) {
    store_rows<kRowTiles, kHead>(HeadRows<BFloat16>{to + sizes.key_channels, stride}, dvalue, ones,
                                 own[1], row, first_own, sizes.length);
  }
}

}  // namespace

void tensor_core_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                                    const Tensor& qkv, const AttentionSizes& sizes,
                                    const Stream& stream) {
  const auto start = [&](const char* name, auto* kernel, int rows, std::size_t shared_bytes,
                         std::int64_t items) {
    const std::int64_t blocks = sizes.blocks(rows);
    const Grid grid{.x = static_cast<unsigned int>(blocks * items),
                    .threads = kCoreThreads,
                    .shared_bytes = shared_bytes};
    launch(stream, name, kernel, grid, dqkv.data<BFloat16>(), dy.data<BFloat16>(), terms,
           qkv.data<BFloat16>(), sizes, static_cast<unsigned int>(blocks));
  };
  const auto start_both = [&](auto width, auto plain) {
    constexpr int kHead = decltype(width)::value;
    using Keys = Plan<Owns::kKeys, kHead>;
    using Queries = Plan<Owns::kQueries, kHead>;
    start("attention_backward_keys_tensor_core", backward_kernel<Owns::kKeys, kHead, plain>,
          Keys::kRows, Keys::kShared, sizes.items / sizes.group);
    start("attention_backward_queries_tensor_core", backward_kernel<Owns::kQueries, kHead, plain>,
          Queries::kRows, Queries::kShared, sizes.items);
  };
  const auto start_width = [&](auto width) {
    if (sizes.plain()) return start_both(width, std::true_type{});
    start_both(width, std::false_type{});
  };
  if (sizes.head_size == 64) start_width(std::integral_constant<int, 64>{});
  if (sizes.head_size == 128) start_width(std::integral_constant<int, 128>{});
}

}  // namespace hybrid_trainer::kernels::cuda
