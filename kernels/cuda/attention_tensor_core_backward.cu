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
  static constexpr int kKept0 = kHead == 64 ? 4 : 0;
  static constexpr int kKept1 = kHead == 64 ? (kKeys ? 2 : 4) : 0;
  static constexpr std::size_t kShared =
      sizeof(BFloat16) * kHead * (2 * kRows + 4 * kPassing) + sizeof(float) * 4 * kPassing;
};

/// Exponents and corrections of the queries of one part of the product.
template <Owns kOwns, int kRowTiles>
struct Terms {
  /// Owned queries: read once. `at`: of row 0 of the warp.
  __device__ void keep(const float* all_exponents, const float* all_corrections, std::int64_t at) {
    if constexpr (kOwns == Owns::kQueries) {
      for (int m = 0; m < kRowTiles; ++m) {
        for (int h = 0; h < 2; ++h) {
          const std::int64_t row = at + 16 * m + 8 * h + lane_of_warp() / 4;
          exponents[m][h] = all_exponents[row];
          corrections[m][h] = all_corrections[row];
        }
      }
    }
  }
  float exponents[kRowTiles][2];
  float corrections[kRowTiles][2];
};

/// Where a part of the product is: its item, and its owned and passing row 0.
struct Place {
  std::int64_t item;
  int own, passing;
};

/// Scores become weights, dweights become dscores / scale, both 0 for keys after the query where
/// `masked`, and for those that are hidden otherwise. Query 0 is `ahead` positions after key 0. passing_terms: exponents of the passing
/// queries, and kPassing further on their corrections.
template <Owns kOwns, bool kPlain, int kRowTiles, int kColumnTiles>
__device__ void differentiate(Sums<kRowTiles, kColumnTiles>& scores,
                              Sums<kRowTiles, kColumnTiles>& dweights,
                              const Terms<kOwns, kRowTiles>& terms, const float* passing_terms,
                              int ahead, bool masked, const Place& place,
                              const AttentionSizes& sizes) {
  const int lane = lane_of_warp();
  const float scale = sizes.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    float exponents[2], corrections[2];
    if constexpr (kOwns == Owns::kKeys) {
      load_pack(exponents, passing_terms + 8 * n + lane % 4 * 2);
      load_pack(corrections, passing_terms + kPassing + 8 * n + lane % 4 * 2);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        constexpr bool kKeys = kOwns == Owns::kKeys;
        const float exponent = kKeys ? exponents[i % 2] : terms.exponents[m][i / 2];
        const float correction = kKeys ? corrections[i % 2] : terms.corrections[m][i / 2];
        const int row = 16 * m + i / 2 * 8 + lane / 4, column = 8 * n + lane % 4 * 2 + i % 2;
        const bool hidden = kKeys ? row > ahead + column : column > ahead + row;
        float slope = 1;
        if (!kPlain && sizes.cap > 0) {
          const float tangent = tanhf(scores[m][n][i] * (sizes.scale / sizes.cap));
          scores[m][n][i] = tangent * (sizes.cap / sizes.scale);
          slope = 1.0f - tangent * tangent;
        }
        float weight = fast_exp2(scores[m][n][i] * scale - exponent);
        if (masked && hidden) weight = 0;
        if constexpr (!kPlain) {
          const int own = place.own + row, passing = place.passing + column;
          if ((kKeys ? own : passing) < sizes.first_key(place.item, kKeys ? passing : own))
            weight = 0;
        }
        scores[m][n][i] = weight;
        dweights[m][n][i] = weight * (dweights[m][n][i] - correction);
        if constexpr (!kPlain) dweights[m][n][i] *= slope;
      }
    }
  }
}

/// Starts to copy kPassing floats each of exponents and corrections, 16-byte aligned.
__device__ void copy_terms_async(float* to, const float* exponents, const float* corrections) {
  constexpr int kCopies = kPassing / 4;
  const int i = static_cast<int>(threadIdx.x);
  if (i >= 2 * kCopies) return;
  const float* const from = i < kCopies ? exponents + 4 * i : corrections + 4 * (i - kCopies);
  copy_async(shared_address(to + 4 * i), from, true);
}

template <Owns kOwns, int kHead, bool kPlain>
__global__ void __launch_bounds__(kCoreThreads, 2)
    backward_kernel(BFloat16* dqkv, const BFloat16* dy, const float* exponents,
                    const float* corrections, const BFloat16* qkv, AttentionSizes sizes,
                    std::int64_t padded, unsigned int blocks) {
  using P = Plan<kOwns, kHead>;
  constexpr bool kKeys = P::kKeys;
  constexpr int kRowTiles = P::kRowTiles, kColumnTiles = P::kPart / 8;
  const Tile<kHead> own[2] = {{0}, {P::kRows * kHead}};
  constexpr int kPassingBegin = 2 * P::kRows * kHead;
  const auto passing = [&](int buffer, int which) {
    return Tile<kHead>{kPassingBegin + (2 * buffer + which) * kPassing * kHead};
  };
  float* const shared_terms =
      reinterpret_cast<float*>(dynamic_shared<BFloat16>() + kPassingBegin + 4 * kPassing * kHead);

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
  exponents += item * padded;
  corrections += item * padded;
  const auto copy_passing = [&](int buffer, int first, int member) {
    for (int i = 0; i < 2; ++i) {
      HeadRows<const BFloat16> rows = kKeys ? queries[i] : keys[i];
      rows.begin += member * kHead;
      copy_rows_async<kPassing>(passing(buffer, i), rows, first, sizes.length);
    }
    if constexpr (kKeys) {
      const std::int64_t at = member * padded + first;
      copy_terms_async(shared_terms + buffer * 2 * kPassing, exponents + at, corrections + at);
    }
    commit_copies();
  };

  int first_passing = kKeys ? first_own : 0;
  const int length = static_cast<int>(sizes.length);
  int end = kKeys || length < first_own + P::kRows ? length : first_own + P::kRows;
  if constexpr (!kPlain && kKeys) {
    int seeing = first_own + kPassing;  // the owned keys are seen by queries up to here
    while (seeing < end && sizes.first_key(item, seeing) < first_own + P::kRows) seeing += kPassing;
    end = seeing < end ? seeing : end;
  } else if constexpr (!kPlain) {
    first_passing = static_cast<int>(sizes.first_key(item, first_own)) / kPassing * kPassing;
  }
  copy_rows_async<P::kRows>(own[0], kKeys ? keys[0] : queries[0], first_own, sizes.length);
  copy_rows_async<P::kRows>(own[1], kKeys ? keys[1] : queries[1], first_own, sizes.length);
  copy_passing(0, first_passing, 0);
  Terms<kOwns, kRowTiles> terms;
  terms.keep(exponents, corrections, first_own + row);
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
      Sums<kRowTiles, kColumnTiles> scores, dweights;
      multiply_rows<kRowTiles, kColumnTiles>(scores, left, passing(buffer, 0), part);
      multiply_rows<kRowTiles, kColumnTiles>(dweights, dleft, passing(buffer, 1), part);
      differentiate<kOwns, kPlain, kRowTiles, kColumnTiles>(
          scores, dweights, terms, shared_terms + buffer * 2 * kPassing + part, ahead,
          ahead < (kKeys ? P::kWarpRows : P::kPart) - 1, Place{item, first_own + row, first + part},
          sizes);
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
    launch(stream, name, kernel, grid, dqkv.data<BFloat16>(), dy.data<BFloat16>(), terms.exponents,
           terms.corrections, qkv.data<BFloat16>(), sizes, terms.padded,
           static_cast<unsigned int>(blocks));
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
