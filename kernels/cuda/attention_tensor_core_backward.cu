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

/// Scores become weights, dweights become dscores / scale, both 0 for keys after the query where
/// `masked`. Query 0 is `ahead` positions after key 0. passing_terms: exponents of the passing
/// queries, and kPassing further on their corrections.
template <Owns kOwns, int kRowTiles, int kColumnTiles>
__device__ void differentiate(Sums<kRowTiles, kColumnTiles>& scores,
                              Sums<kRowTiles, kColumnTiles>& dweights,
                              const Terms<kOwns, kRowTiles>& terms, const float* passing_terms,
                              float scale, int ahead, bool masked) {
  const int lane = lane_of_warp();
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
        float weight = fast_exp2(scores[m][n][i] * scale - exponent);
        if (masked && hidden) weight = 0;
        scores[m][n][i] = weight;
        dweights[m][n][i] = weight * (dweights[m][n][i] - correction);
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

template <Owns kOwns, int kHead>
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

  const std::int64_t item = blockIdx.x / blocks;
  const unsigned int turn = blockIdx.x % blocks;  // those with most work first
  const int first_own = static_cast<int>(kKeys ? turn : blocks - 1 - turn) * P::kRows;
  const int row = warp_of_block() * P::kWarpRows;
  const BFloat16* const begin = qkv + sizes.qkv_at(item);
  const HeadRows<const BFloat16> queries[2] = {{begin, 3 * sizes.channels},
                                               {dy + sizes.y_at(item), sizes.channels}};
  const HeadRows<const BFloat16> keys[2] = {{begin + sizes.channels, 3 * sizes.channels},
                                            {begin + 2 * sizes.channels, 3 * sizes.channels}};
  exponents += item * padded;
  corrections += item * padded;
  const auto copy_passing = [&](int buffer, int first) {
    copy_rows_async<kPassing>(passing(buffer, 0), kKeys ? queries[0] : keys[0], first,
                              sizes.length);
    copy_rows_async<kPassing>(passing(buffer, 1), kKeys ? queries[1] : keys[1], first,
                              sizes.length);
    if constexpr (kKeys) {
      copy_terms_async(shared_terms + buffer * 2 * kPassing, exponents + first,
                       corrections + first);
    }
    commit_copies();
  };

  const int first_passing = kKeys ? first_own : 0;
  const int length = static_cast<int>(sizes.length);
  const int end = kKeys || length < first_own + P::kRows ? length : first_own + P::kRows;
  copy_rows_async<P::kRows>(own[0], kKeys ? keys[0] : queries[0], first_own, sizes.length);
  copy_rows_async<P::kRows>(own[1], kKeys ? keys[1] : queries[1], first_own, sizes.length);
  copy_passing(0, first_passing);
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
  for (int first = first_passing; first < end; first += kPassing, buffer ^= 1) {
    wait_for_copies<0>();
    __syncthreads();  // this tile has arrived, the other buffer has been read
    if (first + kPassing < end) copy_passing(buffer ^ 1, first + kPassing);
#pragma unroll 1
    for (int part = 0; part < kPassing; part += P::kPart) {
      const int distance = first + part - first_own - row;
      const int ahead = kKeys ? distance : -distance;
      if (ahead + (kKeys ? P::kPart : P::kWarpRows) - 1 < 0) continue;
      Sums<kRowTiles, kColumnTiles> scores, dweights;
      multiply_rows<kRowTiles, kColumnTiles>(scores, left, passing(buffer, 0), part);
      multiply_rows<kRowTiles, kColumnTiles>(dweights, dleft, passing(buffer, 1), part);
      differentiate<kOwns, kRowTiles, kColumnTiles>(
          scores, dweights, terms, shared_terms + buffer * 2 * kPassing + part,
          sizes.scale * kLog2E, ahead, ahead < (kKeys ? P::kWarpRows : P::kPart) - 1);
      if constexpr (kKeys) {
        add_weighted<kRowTiles, kColumnTiles, kHead>(dvalue, scores, passing(buffer, 1), part);
      }
      add_weighted<kRowTiles, kColumnTiles, kHead>(sums, dweights, passing(buffer, 0), part);
    }
  }

  float ones[kRowTiles][2], scales[kRowTiles][2];
  for (int m = 0; m < kRowTiles; ++m) {
    for (int h = 0; h < 2; ++h) {
      ones[m][h] = 1;
      scales[m][h] = sizes.scale;
    }
  }
  BFloat16* const to = dqkv + sizes.qkv_at(item) + (kKeys ? sizes.channels : 0);
  const std::int64_t stride = 3 * sizes.channels;
  store_rows<kRowTiles, kHead>(HeadRows<BFloat16>{to, stride}, sums, scales, own[0], row, first_own,
                               sizes.length);
  if constexpr (kKeys) {
    store_rows<kRowTiles, kHead>(HeadRows<BFloat16>{to + sizes.channels, stride}, dvalue, ones,
                                 own[1], row, first_own, sizes.length);
  }
}

}  // namespace

void tensor_core_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                                    const Tensor& qkv, const AttentionSizes& sizes,
                                    const Stream& stream) {
  const auto start = [&](const char* name, auto* kernel, int rows, std::size_t shared_bytes) {
    const std::int64_t blocks = sizes.blocks(rows);
    const Grid grid{.x = static_cast<unsigned int>(blocks * sizes.items),
                    .threads = kCoreThreads,
                    .shared_bytes = shared_bytes};
    launch(stream, name, kernel, grid, dqkv.data<BFloat16>(), dy.data<BFloat16>(), terms.exponents,
           terms.corrections, qkv.data<BFloat16>(), sizes, terms.padded,
           static_cast<unsigned int>(blocks));
  };
  const auto start_both = [&](auto width) {
    constexpr int kHead = decltype(width)::value;
    using Keys = Plan<Owns::kKeys, kHead>;
    using Queries = Plan<Owns::kQueries, kHead>;
    start("attention_backward_keys_tensor_core", backward_kernel<Owns::kKeys, kHead>, Keys::kRows,
          Keys::kShared);
    start("attention_backward_queries_tensor_core", backward_kernel<Owns::kQueries, kHead>,
          Queries::kRows, Queries::kShared);
  };
  if (sizes.head_size == 64) start_both(std::integral_constant<int, 64>{});
  if (sizes.head_size == 128) start_both(std::integral_constant<int, 128>{});
}

}  // namespace hybrid_trainer::kernels::cuda
