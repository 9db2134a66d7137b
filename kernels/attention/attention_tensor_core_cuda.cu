#include "kernels/attention/attention_tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Tile sizes: the largest numbers of queries and keys that fit in registers without spills.
template <int kHead>
struct ForwardPlan {
  static constexpr int kRowTiles = kHead == 256 ? 1 : 2;  // of 16 queries each, per warp
  static constexpr int kWarpQueries = 16 * kRowTiles;
  static constexpr int kQueries = kWarps * kWarpQueries;  // per block
  static constexpr int kKeys = kHead == 64 ? 64 : 32;     // per tile
  // Shared memory: the tiles, then the first key of each query.
  static constexpr int kFirstSeen = kHead * (kQueries + 2 * kKeys);
  static constexpr std::size_t kPlainShared = sizeof(BFloat16) * kFirstSeen;
  static constexpr std::size_t kShared = kPlainShared + sizeof(int) * kQueries;
};

/// Running softmax of the warp's queries. Element [m][h] belongs to query 16 m + 8 h + lane / 4, so
/// four lanes share a query.
template <int kRowTiles>
struct Softmax {
  float highest[kRowTiles][2];  // scores before scaling
  float total[kRowTiles][2];    // over the lane's own keys
};

/// Masks keys after the query; query 0 of the warp is `ahead` positions after key 0 of the tile.
template <int kRowTiles, int kColumnTiles>
__device__ void mask(Sums<kRowTiles, kColumnTiles>& scores, int ahead) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = ahead + 16 * m + i / 2 * 8 + lane / 4;
        const int key = 8 * n + lane % 4 * 2 + i % 2;
        if (key > query) scores[m][n][i] = -INFINITY;
      }
    }
  }
}

/// Caps scores, and masks keys before each query's first key, `first_visible`, in shared memory.
template <int kRowTiles, int kColumnTiles>
__device__ void cap_and_mask(Sums<kRowTiles, kColumnTiles>& scores, const AttentionSizes& sizes,
                             const int* first_visible, int first_key) {
  const float ratio = sizes.scale / sizes.cap, inverse = sizes.cap / sizes.scale;
  const int lane = hidden(lane_of_warp());
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const int seen[2] = {first_visible[16 * m + lane / 4], first_visible[16 * m + 8 + lane / 4]};
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + 8 * n + lane % 4 * 2 + i % 2;
        float& score = scores[m][n][i];
        if (sizes.cap > 0) score = fast_tanh(score * ratio) * inverse;
        if (key < seen[i / 2]) score = -INFINITY;
      }
    }
  }
}

/// Replaces scores by weights 2^((score − highest)·scale), and rescales previous sums.
template <int kHead, bool kPlain, int kRowTiles, int kColumnTiles>
__device__ void weigh(Sums<kRowTiles, kColumnTiles>& scores, Softmax<kRowTiles>& softmax,
                      Sums<kRowTiles, kHead / 8>& output, float scale) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = softmax.highest[m][h];
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
        highest = fmaxf(highest, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
      highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, 2));
      const float shift = !kPlain && highest == -INFINITY ? 0.0f : highest;
      const float factor = fast_exp2((softmax.highest[m][h] - shift) * scale);
      const float exponent = shift * scale;
      softmax.highest[m][h] = highest;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          scores[m][n][i] = fast_exp2(scores[m][n][i] * scale - exponent);
          total += scores[m][n][i];
        }
      }
      softmax.total[m][h] = softmax.total[m][h] * factor + total;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        output[m][n][2 * h] *= factor;
        output[m][n][2 * h + 1] *= factor;
      }
    }
  }
}

/// Keys and values have one buffer each, loaded while the other is used.
template <int kHead, bool kPlain>
__global__ void __launch_bounds__(kCoreThreads, 2)
    forward_kernel(BFloat16* y, float* log_sum_exp, const BFloat16* qkv, AttentionSizes sizes,
                   unsigned int blocks) {
  using P = ForwardPlan<kHead>;
  constexpr int kTile = P::kKeys, kRowTiles = P::kRowTiles, kQueries = P::kQueries;
  const Tile<kHead> query_tile{0};
  const Tile<kHead> key_tile{kQueries * kHead};
  const Tile<kHead> value_tile{key_tile.begin + kTile * kHead};
  const std::int64_t item = blockIdx.x / blocks;
  const std::int64_t first_query =
      static_cast<std::int64_t>(blocks - 1 - blockIdx.x % blocks) * kQueries;  // long ones first
  const HeadRows<const BFloat16> queries{qkv + sizes.queries_at(item), sizes.stride};
  const HeadRows<const BFloat16> keys{qkv + sizes.keys_at(item), sizes.stride};
  const HeadRows<const BFloat16> values{keys.begin + sizes.key_channels, sizes.stride};
  const int row = warp_of_block() * P::kWarpQueries;

  const int block_end = static_cast<int>(
      first_query + kQueries < sizes.length ? first_query + kQueries : sizes.length);
  // Returns the next tile from `key` on with an attended key. Pattern blocks are whole tiles.
  const auto next_tile = [&](int key) {
    if (kPlain || key >= block_end) return key;
    const int head = sizes.head_of(blockIdx.x / blocks);
    return sizes.next_key(head, static_cast<int>(first_query), kQueries, key, block_end);
  };
  const int begin =
      next_tile(kPlain ? 0 : static_cast<int>(sizes.first_key(item, first_query)) / kTile * kTile);
  copy_rows_async<kQueries>(query_tile, queries, first_query, sizes.length);
  copy_rows_async<kTile>(key_tile, keys, begin, sizes.length);
  commit_copies();
  LeftRows<kRowTiles, kHead, kHead == 64 ? 4 : 0> query(query_tile, row);
  int* const first_visible = reinterpret_cast<int*>(dynamic_shared<BFloat16>() + P::kFirstSeen);
  if (const int i = static_cast<int>(threadIdx.x); !kPlain && i < kQueries)
    first_visible[i] = static_cast<int>(sizes.first_key(item, first_query + i));
  Softmax<kRowTiles> softmax;
  for (int m = 0; m < kRowTiles; ++m) {
    for (int h = 0; h < 2; ++h) {
      softmax.highest[m][h] = -INFINITY;
      softmax.total[m][h] = 0;
    }
  }
  Sums<kRowTiles, kHead / 8> output;
  set_zero<kRowTiles, kHead / 8>(output);
  wait_for_copies<0>();
  __syncthreads();
  query.keep();

  const float scale = sizes.scale * kLog2E;
  for (int first_key = begin, next = 0; first_key < block_end; first_key = next) {
    const int ahead = static_cast<int>(first_query) + row - first_key;
    bool visible = ahead + P::kWarpQueries - 1 >= 0;
    if constexpr (!kPlain)
      visible &= sizes.attends_tile(blockIdx.x / blocks, ahead + first_key, first_key);
    next = next_tile(first_key + kTile);
    wait_for_copies<0>();
    __syncthreads();  // keys have arrived, the last values have been read
    copy_rows_async<kTile>(value_tile, values, first_key, sizes.length);
    commit_copies();
    Sums<kRowTiles, kTile / 8> scores;
    if (visible) multiply_rows<kRowTiles, kTile / 8>(scores, query, key_tile, 0);
    wait_for_copies<0>();
    __syncthreads();  // values have arrived, keys have been read
    if (next < block_end) copy_rows_async<kTile>(key_tile, keys, next, sizes.length);
    commit_copies();
    if (!visible) continue;
    if constexpr (!kPlain)
      cap_and_mask<kRowTiles, kTile / 8>(scores, sizes, first_visible + row, first_key);
    if (ahead < kTile - 1) mask<kRowTiles, kTile / 8>(scores, ahead);
    weigh<kHead, kPlain, kRowTiles, kTile / 8>(scores, softmax, output, scale);
    add_weighted<kRowTiles, kTile / 8, kHead>(output, scores, value_tile, 0);
  }

  const float sink = sizes.sink_of(blockIdx.x / blocks);
  float factors[kRowTiles][2];
  for (int m = 0; m < kRowTiles; ++m) {
    for (int h = 0; h < 2; ++h) {
      float total = softmax.total[m][h];
      total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
      const SoftmaxResult end(softmax.highest[m][h] * sizes.scale, total, sink);
      factors[m][h] = end.factor;
      const std::int64_t at = first_query + hidden(row) + 16 * m + 8 * h + lane_of_warp() / 4;
      if (log_sum_exp != nullptr && lane_of_warp() % 4 == 0 && at < sizes.length)
        log_sum_exp[item * sizes.length + at] = end.log_sum_exp;
    }
  }
  store_rows<kRowTiles, kHead>(HeadRows<BFloat16>{y + sizes.y_at(item), sizes.channels}, output,
                               factors, query_tile, hidden(row), first_query, sizes.length);
}

}  // namespace

void tensor_core_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                                   const AttentionSizes& sizes, const Stream& stream) {
  const auto start = [&](auto width) {
    using P = ForwardPlan<decltype(width)::value>;
    const std::int64_t blocks = sizes.blocks(P::kQueries);
    const Grid grid{.x = blocks * sizes.items,
                    .threads = kCoreThreads,
                    .shared_bytes = sizes.plain() ? P::kPlainShared : P::kShared};
    launch(stream, "attention_forward_tensor_core",
           sizes.plain() ? forward_kernel<width, true> : forward_kernel<width, false>, grid,
           y.data<BFloat16>(), optional_data<float>(log_sum_exp), qkv.data<BFloat16>(), sizes,
           static_cast<unsigned int>(blocks));
  };
  if (sizes.head_size == 64) start(std::integral_constant<int, 64>{});
  if (sizes.head_size == 128) start(std::integral_constant<int, 128>{});
  if (sizes.head_size == 256) start(std::integral_constant<int, 256>{});
}

namespace {

// One kernel computes both halves of the gradients, as in attention_general_cuda.cu. Streamed tiles
// are double-buffered. For heads of 256, keys and values take a pass each, with 8 products instead
// of 7, because registers hold only one gradient's sums.

/// Use of a thread's registers.
template <Owns kOwns, int kHead>
struct BackwardPlan {
  static constexpr bool kKeys = owns_keys(kOwns);
  static constexpr int kRowTiles = kHead == 64 ? 2 : 1;  // of 16 rows each, per warp
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;
  // kPart is the number of streamed rows whose scores are in registers at a time. kKept0 and kKept1
  // are the numbers of steps of own[0] and own[1] that are kept in registers.
  static constexpr int kStreamed = kHead == 256 ? 16 : 64;  // rows of a tile
  static constexpr int kPart = kHead == 128 ? 32 : 16;
  static constexpr int kKept0 = kHead == 64    ? (kKeys ? 2 : 4)
                                : kHead == 256 ? (kOwns == Owns::kValues ? 12 : 4)
                                               : 0;
  static constexpr int kKept1 = kHead == 64 ? (kKeys ? 2 : 4) : 0;
  static constexpr std::size_t kShared =
      sizeof(BFloat16) * kHead * (2 * kRows + 4 * kStreamed) + sizeof(float) * 6 * kStreamed;
};

template <Owns kOwns, int kHead, bool kPlain>
__global__ void __launch_bounds__(kCoreThreads, 2)
    backward_kernel(BFloat16* dqkv, const BFloat16* dy, QueryTerms terms, const BFloat16* qkv,
                    AttentionSizes sizes, unsigned int blocks) {
  using P = BackwardPlan<kOwns, kHead>;
  constexpr bool kKeys = P::kKeys, kBoth = kOwns == Owns::kKeysAndValues;
  constexpr bool kScores = kOwns != Owns::kValues;  // whether their gradients are needed
  constexpr int kStreamed = P::kStreamed, kRowTiles = P::kRowTiles;
  constexpr int kColumnTiles = P::kPart / 8;
  const Tile<kHead> own[2] = {{0}, {P::kRows * kHead}};
  constexpr int kStreamedBegin = 2 * P::kRows * kHead;
  const auto streamed = [&](int buffer, int which) {
    return Tile<kHead>{kStreamedBegin + (2 * buffer + which) * kStreamed * kHead};
  };
  const auto streamed_terms = [&](int buffer) {
    const int begin = kStreamedBegin + 4 * kStreamed * kHead;
    return StreamedTerms<kStreamed>{reinterpret_cast<float*>(dynamic_shared<BFloat16>() + begin) +
                                    buffer * 3 * kStreamed};
  };

  const int members = kKeys ? static_cast<int>(sizes.group) : 1;  // heads of queries
  const std::int64_t item = blockIdx.x / blocks * members;
  const unsigned int turn = blockIdx.x % blocks;  // blocks with the most work first
  const int first_own = static_cast<int>(kKeys ? turn : blocks - 1 - turn) * P::kRows;
  const int row = warp_of_block() * P::kWarpRows;
  const HeadRows<const BFloat16> queries[2] = {{qkv + sizes.queries_at(item), sizes.stride},
                                               {dy + sizes.y_at(item), sizes.channels}};
  const BFloat16* const key = qkv + sizes.keys_at(item);
  const HeadRows<const BFloat16> keys[2] = {{key, sizes.stride},
                                            {key + sizes.key_channels, sizes.stride}};
  terms = terms.of(item);
  const auto copy_streamed = [&](int buffer, int first, int member) {
    for (int i = 0; i < 2; ++i) {
      HeadRows<const BFloat16> rows = kKeys ? queries[i] : keys[i];
      rows.begin += member * kHead;
      copy_rows_async<kStreamed>(streamed(buffer, i), rows, first, sizes.length);
    }
    if constexpr (kKeys)
      streamed_terms(buffer).template copy_async<kPlain>(terms.of(member), first);
    commit_copies();
  };

  int first_streamed = kKeys ? first_own : 0;
  const int length = static_cast<int>(sizes.length);
  int end = kKeys || length < first_own + P::kRows ? length : first_own + P::kRows;
  if constexpr (!kPlain && kKeys) {
    end = end_of_attending<kStreamed>(terms, first_own, first_own + P::kRows, length);
  } else if constexpr (!kPlain) {
    first_streamed = terms.first_keys[first_own] / kStreamed * kStreamed;
  }
  // Returns the pattern's next streamed tile from `first` on. Pattern blocks are whole tiles.
  const auto next_tile = [&](int first, int member) {
    if (kPlain || first >= end) return first;
    const int head = sizes.head_of(item + member);
    if constexpr (kKeys) return next_attending<P::kRows>(sizes, head, first_own, first, end);
    return sizes.next_key(head, first_own, P::kRows, first, end);
  };
  if constexpr (!kKeys) first_streamed = next_tile(first_streamed, 0);
  copy_rows_async<P::kRows>(own[0], kKeys ? keys[0] : queries[0], first_own, sizes.length);
  if constexpr (kScores)
    copy_rows_async<P::kRows>(own[1], kKeys ? keys[1] : queries[1], first_own, sizes.length);
  copy_streamed(0, first_streamed, 0);
  OwnTerms<kRowTiles> own_terms;
  int first_visible = 0, last_seen = 0;
  if constexpr (!kKeys) {
    own_terms.template keep<kPlain>(terms, first_own + row);
    first_visible = kPlain ? 0 : terms.first_keys[first_own + row];
    last_seen = kPlain ? 0 : terms.first_keys[first_own + row + P::kWarpRows - 1];
  }
  LeftRows<kRowTiles, kHead, P::kKept0> left(own[0], row);
  LeftRows<kRowTiles, kHead, P::kKept1> dleft(own[1], row);
  Sums<kRowTiles, kHead / 8> sums, dvalue;
  set_zero<kRowTiles, kHead / 8>(sums);
  if constexpr (kBoth) set_zero<kRowTiles, kHead / 8>(dvalue);
  if constexpr (P::kKept0 > 0) {
    wait_for_copies<0>();
    __syncthreads();
    left.keep();
    dleft.keep();
  }

  int buffer = 0, next, next_member;
  for (int first = first_streamed, member = 0; member < members;
       buffer ^= 1, first = next, member = next_member) {
    wait_for_copies<0>();
    __syncthreads();  // this tile has arrived, the other buffer has been read
    next = next_tile(first + kStreamed, member);
    next_member = next < end ? member : member + 1;
    if (next >= end) next = kKeys ? first_own : first_streamed;  // then the keys' own queries
    if (next_member < members) copy_streamed(buffer ^ 1, next, next_member);
    if constexpr (!kPlain) {
      const int query = kKeys ? first : first_own + row, key = kKeys ? first_own + row : first;
      if (!sizes.attends_tile(static_cast<unsigned int>(item) + member, query, key)) continue;
    }
#pragma unroll 1
    for (int part = 0; part < kStreamed; part += P::kPart) {
      const int distance = first + part - first_own - row;
      const int ahead = kKeys ? distance : -distance;
      if (ahead + (kKeys ? P::kPart : P::kWarpRows) - 1 < 0) continue;
      const Place place{part, kKeys ? first_own + row : first + part, ahead};
      constexpr int kPartKeys = kKeys ? P::kWarpRows : P::kPart;
      bool masked = ahead < kPartKeys - 1;
      if constexpr (!kPlain) {
        if constexpr (kKeys) {
          first_visible = *streamed_terms(buffer).first_keys(part);
          last_seen = *streamed_terms(buffer).first_keys(part + P::kPart - 1);
        }
        if (first_visible >= place.key + kPartKeys) continue;
        masked |= last_seen > place.key;
      }
      Sums<kRowTiles, kColumnTiles> scores, dweights;
      multiply_rows<kRowTiles, kColumnTiles>(scores, left, streamed(buffer, 0), part);
      if constexpr (kScores) {
        multiply_rows<kRowTiles, kColumnTiles>(dweights, dleft, streamed(buffer, 1), part);
      } else {
        set_zero<kRowTiles, kColumnTiles>(dweights);
      }
      differentiate<kOwns, kPlain, kRowTiles, kColumnTiles>(
          scores, dweights, own_terms, streamed_terms(buffer), masked, place, sizes);
      if constexpr (kBoth)
        add_weighted<kRowTiles, kColumnTiles, kHead>(dvalue, scores, streamed(buffer, 1), part);
      add_weighted<kRowTiles, kColumnTiles, kHead>(sums, kScores ? dweights : scores,
                                                   streamed(buffer, kScores ? 0 : 1), part);
    }
  }

  float ones[kRowTiles][2], scales[kRowTiles][2];
  for (int m = 0; m < kRowTiles; ++m) {
    for (int h = 0; h < 2; ++h) {
      ones[m][h] = 1;
      scales[m][h] = kScores ? sizes.scale : 1.0f;
    }
  }
  HeadRows<BFloat16> to{dqkv + (kKeys ? sizes.keys_at(item) : sizes.queries_at(item)),
                        sizes.stride};
  if constexpr (!kScores) to.begin += sizes.key_channels;
  store_rows<kRowTiles, kHead>(to, sums, scales, own[0], hidden(row), first_own, sizes.length);
  if constexpr (kBoth) {
    to.begin += sizes.key_channels;
    store_rows<kRowTiles, kHead>(to, dvalue, ones, own[1], hidden(row), first_own, sizes.length);
  }
}

}  // namespace

void tensor_core_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                                    const Tensor& qkv, const AttentionSizes& sizes,
                                    const Stream& stream) {
  const auto start = [&](const char* name, auto owns, auto width, auto plain) {
    using P = BackwardPlan<decltype(owns)::value, decltype(width)::value>;
    const std::int64_t blocks = sizes.blocks(P::kRows);
    const std::int64_t items = P::kKeys ? sizes.items / sizes.group : sizes.items;
    const Grid grid{.x = blocks * items, .threads = kCoreThreads, .shared_bytes = P::kShared};
    launch(stream, name, backward_kernel<owns, width, plain>, grid, dqkv.data<BFloat16>(),
           dy.data<BFloat16>(), terms, qkv.data<BFloat16>(), sizes,
           static_cast<unsigned int>(blocks));
  };
  const auto start_all = [&](auto width, auto plain) {
    const auto keys = [&](auto owns) {
      start("attention_backward_keys_tensor_core", owns, width, plain);
    };
    if constexpr (width < 256) {
      keys(std::integral_constant<Owns, Owns::kKeysAndValues>{});
    } else {
      keys(std::integral_constant<Owns, Owns::kKeys>{});
      keys(std::integral_constant<Owns, Owns::kValues>{});
    }
    start("attention_backward_queries_tensor_core", std::integral_constant<Owns, Owns::kQueries>{},
          width, plain);
  };
  const auto start_width = [&](auto width) {
    if (sizes.plain()) return start_all(width, std::true_type{});
    start_all(width, std::false_type{});
  };
  if (sizes.head_size == 64) start_width(std::integral_constant<int, 64>{});
  if (sizes.head_size == 128) start_width(std::integral_constant<int, 128>{});
  if (sizes.head_size == 256) start_width(std::integral_constant<int, 256>{});
}

}  // namespace hybrid_trainer::kernels::cuda
