#include <algorithm>

#include "kernels/attention/attention_tensor_core.cuh"
#include "kernels/backend/launch.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

// Computes five products instead of the seven of the two kernels in attention_tensor_core_cuda.cu.
// A block iterates over the key blocks of one head and, for each, over the query tiles of all heads
// that share the keys. It computes scores and dweights once, and sums dkey and dvalue in registers.
// It adds dscores · keys to the tile's f32 dquery, in a slot of the workspace that only this block
// uses. A thread accesses only its part of a slot, so these sums need neither barriers nor atomics.
// They are added over keys in ascending order and have the same bits as in the other kernels. The
// first key block that contributes to a tile reads nothing; the last one writes bf16 to the result.
// Why 255 registers: the sums of a warp's 32 keys take 128. With 16 keys per warp, a tile of 64
// queries and 128 keys would take 2,944 clocks of shared memory instead of 2,304, for 1,280
// multiply_adds in 2,100 clocks on sm_90 (assuming 2,500 FLOP per clock) or 2,560 on sm_80.
// Therefore two blocks of four warps share a multiprocessor. Per tile, 16 KiB of queries and dy are
// read from L2, and 16 KiB of dquery are read and written.
//
// GPT-2 124M, B = 64, T = 1,024: 3.2 TFLOP per step instead of 4.5. Shared memory takes 6.4 ms on
// an H100 at 1.7 GHz; the two kernels have a bound of 8.0 ms and are estimated at 24, this one at
// 17 to 20 ms. Not measured on a device.

constexpr int kHead = 64, kRowTiles = 2, kStreamed = 64;
constexpr int kPart = 16;  // queries whose scores are in registers at a time
constexpr int kWarpKeys = 16 * kRowTiles, kBlockKeys = kWarps * kWarpKeys;
constexpr int kBlocksPerProcessor = 2;
using JointScores = Sums<kRowTiles, kPart / 8>;
using JointSums = Sums<kRowTiles, kHead / 8>;

// Shared memory, in elements: keys, values, two buffers of queries and of dy, dscores (keys,
// queries), query terms, and the JointWork. 81 KiB, so that two blocks fit into 164 KiB.
constexpr int kValuesBegin = kBlockKeys * kHead;
constexpr int kStreamedBegin = 2 * kBlockKeys * kHead;
constexpr int kGradientsBegin = kStreamedBegin + 4 * kStreamed * kHead;
constexpr int kTermsBegin = kGradientsBegin + kBlockKeys * kStreamed;
constexpr int kWorkBegin = kTermsBegin + 2 * 3 * kStreamed;

/// The warp's share of a tile of dquery: 32 queries and half the head.
class QuerySums {
 public:
  __device__ QuerySums()
      : query_(hidden(warp_of_block() % 2 * 32)),
        chunk_(warp_of_block() / 2 * (kHead / 2 / kChunk)) {}

  /// Copy the sums from and to the thread's part of a tile in a slot, through the L2 cache only.
  __device__ void read(const float* tile) {
    for_packs([&](float(&sums)[4], int at) {
      const float4 pack = __ldcg(reinterpret_cast<const float4*>(tile + at));
      sums[0] = pack.x, sums[1] = pack.y, sums[2] = pack.z, sums[3] = pack.w;
    });
  }
  __device__ void write(float* tile) {
    for_packs([&](float(&sums)[4], int at) {
      __stcg(reinterpret_cast<float4*>(tile + at), float4{sums[0], sums[1], sums[2], sums[3]});
    });
  }
  __device__ void clear() { set_zero<2, 4>(sums_); }

  /// Adds dscores · keys over keys [begin, end) of the block; both are multiples of 16.
  __device__ void add(int begin, int end) {
    const Tile<kHead> keys{0};
    const Tile<kStreamed> dscores{kGradientsBegin};
    const int lane = hidden(lane_of_warp());
#pragma unroll 1
    for (int key = begin; key < end; key += 16) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        load_matrices_transposed(a[m], dscores.address(key + lane / 16 * 8 + lane % 8,
                                                       query_ / 8 + 2 * m + lane / 8 % 2));
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        std::uint32_t b[4];
        load_matrices_transposed(b, keys.address(key + lane % 16, chunk_ + 2 * n + lane / 16));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply_add(sums_[m][2 * n], a[m], b[0], b[1]);
          multiply_add(sums_[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Writes the sums times `scale` to the rows of the tile that begins at `first`.
  __device__ void store(HeadRows<BFloat16> rows, float scale, int first, int length) const {
    const int lane = lane_of_warp();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first + query_ + 16 * m + 8 * h + lane / 4;
        if (row >= length) continue;
        BFloat16* const to = rows.begin + row * rows.stride + chunk_ * kChunk + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
              pack_pair(sums_[m][n][2 * h] * scale, sums_[m][n][2 * h + 1] * scale);
        }
      }
    }
  }

 private:
  template <class Function>
  __device__ void for_packs(Function&& function) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int pack = (4 * m + n) * static_cast<int>(kCoreThreads);
        function(sums_[m][n], (pack + static_cast<int>(threadIdx.x)) * 4);
      }
    }
  }
  int query_, chunk_;
  Sums<2, 4> sums_;
};

/// Writes dscores of the warp's keys and queries [part, part + kPart) to their tile in bf16.
__device__ inline void put_scores(Tile<kStreamed> tile, const JointScores& dscores, int row,
                                  int part) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        BFloat16* const to = tile.at(row + 16 * m + 8 * h + lane / 4, part / 8 + n) + lane % 4 * 2;
        *reinterpret_cast<std::uint32_t*>(to) =
            pack_pair(dscores[m][n][2 * h], dscores[m][n][2 * h + 1]);
      }
    }
  }
}

/// Offsets of a block's key head and its first query head, in shared memory to save registers.
struct JointWork {
  std::int64_t item, queries_at, keys_at, y_at;
};

/// Returns the number of floats in a slot: the gradients of all queries that share a key head.
__host__ __device__ inline std::int64_t slot_floats(const AttentionSizes& sizes) {
  return sizes.group * sizes.blocks(kStreamed) * kStreamed * kHead;
}

struct Joint {
  BFloat16* dqkv;
  const BFloat16* dy;
  QueryTerms terms;
  const BFloat16* qkv;
  float* slots;  // one per block
  AttentionSizes sizes;
};

__device__ inline JointWork& joint_work() {
  return *reinterpret_cast<JointWork*>(dynamic_shared<BFloat16>() + kWorkBegin);
}
__device__ inline Tile<kHead> streamed_tile(int buffer, int which) {
  return {kStreamedBegin + (2 * buffer + which) * kStreamed * kHead};
}
__device__ inline StreamedTerms<kStreamed> streamed_terms() {
  return {reinterpret_cast<float*>(dynamic_shared<BFloat16>() + kTermsBegin)};
}
__device__ inline float* slot_of(const Joint& joint, int member, int first) {
  const std::int64_t row = member * joint.sizes.blocks(kStreamed) * kStreamed + first;
  return joint.slots + blockIdx.x * slot_floats(joint.sizes) + row * kHead;
}

__device__ inline void copy_keys(const Joint& joint, int first) {
  HeadRows<const BFloat16> rows{joint.qkv + joint_work().keys_at, joint.sizes.stride};
  copy_rows_async<kBlockKeys>(Tile<kHead>{0}, rows, first, joint.sizes.length);
  rows.begin += joint.sizes.key_channels;
  copy_rows_async<kBlockKeys>(Tile<kHead>{kValuesBegin}, rows, first, joint.sizes.length);
}
__device__ inline void copy_queries(const Joint& joint, int buffer, int member, int first) {
  const AttentionSizes& sizes = joint.sizes;
  const int head = member * kHead;
  copy_rows_async<kStreamed>(streamed_tile(buffer, 0),
                             {joint.qkv + joint_work().queries_at + head, sizes.stride}, first,
                             sizes.length);
  copy_rows_async<kStreamed>(streamed_tile(buffer, 1),
                             {joint.dy + joint_work().y_at + head, sizes.channels}, first,
                             sizes.length);
}
template <bool kPlain>
__device__ void copy_terms(const Joint& joint, int member, int first) {
  streamed_terms().template copy_async<kPlain>(joint.terms.of(joint_work().item + member), first);
}

/// Sums of the warp's keys, and the warp's rows of keys and values.
template <bool kPlain>
struct OwnKeys {
  __device__ OwnKeys(int first_key, int row_of_block)
      : key(first_key + row_of_block),
        row(row_of_block),
        left({0}, row),
        dleft({kValuesBegin}, row) {
    set_zero<kRowTiles, kHead / 8>(dkey);
    set_zero<kRowTiles, kHead / 8>(dvalue);
  }
  /// Adds the contribution of queries [part, part + kPart) of a tile whose first query is `query`.
  /// Leaves dscores in their tile.
  __device__ void add(int buffer, int part, int query, const AttentionSizes& sizes) {
    const Tile<kHead> queries = streamed_tile(buffer, 0), dys = streamed_tile(buffer, 1);
    const Tile<kStreamed> gradients{kGradientsBegin};
    const StreamedTerms<kStreamed> terms = streamed_terms();
    const Place place{part, key, query - key};
    bool masked = place.ahead<kWarpKeys - 1, seen = place.ahead + kPart> 0;
    if constexpr (!kPlain) {
      masked |= *terms.first_keys(part + kPart - 1) > key;
      seen &= *terms.first_keys(part) < key + kWarpKeys;
    }
    JointScores scores, dscores;
    if (!seen) {
      set_zero<kRowTiles, kPart / 8>(dscores);
      put_scores(gradients, dscores, row, part);
      return;
    }
    multiply_rows<kRowTiles, kPart / 8>(scores, left, queries, part);
    multiply_rows<kRowTiles, kPart / 8>(dscores, dleft, dys, part);
    differentiate<Owns::kKeysAndValues, kPlain, kRowTiles, kPart / 8>(scores, dscores, {}, terms,
                                                                      masked, place, sizes);
    add_weighted<kRowTiles, kPart / 8, kHead>(dvalue, scores, dys, part);
    put_scores(gradients, dscores, row, part);
    add_weighted<kRowTiles, kPart / 8, kHead>(dkey, dscores, queries, part);
  }
  /// Writes the sums to the rows of keys and values, using the tiles of both as buffers.
  __device__ void store(HeadRows<BFloat16> rows, int first_key, const AttentionSizes& sizes) const {
    float ones[kRowTiles][2], scales[kRowTiles][2];
    for (int m = 0; m < kRowTiles; ++m) {
      for (int h = 0; h < 2; ++h) {
        ones[m][h] = 1;
        scales[m][h] = sizes.scale;
      }
    }
    store_rows<kRowTiles, kHead>(rows, dkey, scales, Tile<kHead>{0}, hidden(row), first_key,
                                 sizes.length);
    rows.begin += sizes.key_channels;
    store_rows<kRowTiles, kHead>(rows, dvalue, ones, Tile<kHead>{kValuesBegin}, hidden(row),
                                 first_key, sizes.length);
  }

  int key, row;
  LeftRows<kRowTiles, kHead, kPlain ? 2 : 0> left;
  LeftRows<kRowTiles, kHead, kPlain ? 1 : 0> dleft;
  JointSums dkey, dvalue;
};

/// Processes one block of keys, from `first_key` on.
template <bool kPlain>
__device__ void differentiate_keys(const Joint& joint, int first_key) {
  const AttentionSizes& sizes = joint.sizes;
  const int length = static_cast<int>(sizes.length), members = static_cast<int>(sizes.group);
  copy_keys(joint, first_key);
  copy_queries(joint, 0, 0, first_key);
  copy_terms<kPlain>(joint, 0, first_key);
  commit_copies();
  const int end = kPlain ? length
                         : end_of_attending<kStreamed>(joint.terms.of(joint_work().item), first_key,
                                                       first_key + kBlockKeys, length);
  OwnKeys<kPlain> own(first_key, warp_of_block() * kWarpKeys);
  wait_for_copies<0>();
  __syncthreads();
  own.left.keep();
  own.dleft.keep();

  int buffer = 0;
  for (int first = first_key, member = 0; member < members; buffer ^= 1) {
    wait_for_copies<0>();
    __syncthreads();  // this tile has arrived; the other buffer and dscores have been read
    const bool last = first + kStreamed >= end;  // of this head's
    const int next = last ? first_key : first + kStreamed, next_member = member + (last ? 1 : 0);
    if (next_member < members) copy_queries(joint, buffer ^ 1, next_member, next);
#pragma unroll 1
    for (int part = 0; part < kStreamed; part += kPart) own.add(buffer, part, first + part, sizes);

    // Range of the block's keys that a query of the tile attends to.
    const int behind = first + kStreamed - first_key;
    const int key_end = behind < kBlockKeys ? behind : kBlockKeys;
    const int seen = kPlain ? 0 : *streamed_terms().first_keys(0);
    const int key_begin = seen > first_key ? (seen - first_key) / 16 * 16 : 0;
    QuerySums dquery;
    dquery.clear();
    if (seen < first_key) dquery.read(slot_of(joint, member, first));
    __syncthreads();  // dscores are complete, terms have been read
    if (next_member < members) copy_terms<kPlain>(joint, next_member, next);
    commit_copies();
    dquery.add(key_begin, key_end);
    if (behind <= kBlockKeys) {
      dquery.store({joint.dqkv + joint_work().queries_at + member * kHead, sizes.stride},
                   sizes.scale, first, length);
    } else {
      dquery.write(slot_of(joint, member, first));
    }
    first = next;
    member = next_member;
  }
  __syncthreads();  // keys have been read
  own.store({joint.dqkv + joint_work().keys_at, sizes.stride}, first_key, sizes);
  __syncthreads();  // the tiles have been read
}

template <bool kPlain>
__global__ void __launch_bounds__(kCoreThreads, kBlocksPerProcessor)
    joint_backward_kernel(Joint joint) {
  const AttentionSizes& sizes = joint.sizes;
  const std::int64_t works = sizes.items / sizes.group;
  for (std::int64_t i = blockIdx.x; i < works; i += gridDim.x) {
    const std::int64_t item = i * sizes.group;
    if (threadIdx.x == 0)
      joint_work() = {item, sizes.queries_at(item), sizes.keys_at(item), sizes.y_at(item)};
    __syncthreads();
    for (int first_key = 0; first_key < sizes.length; first_key += kBlockKeys)
      differentiate_keys<kPlain>(joint, first_key);
  }
}

}  // namespace

std::int64_t joint_attention_blocks(const AttentionSizes& sizes, const Stream& stream) {
  if (sizes.head_size != kHead || sizes.pattern.is_on()) return 0;
  const std::int64_t works = sizes.items / sizes.group;
  const std::int64_t most = kBlocksPerProcessor * processors_of(stream);
  const std::int64_t blocks = std::min(works, most), rounds = (works + most - 1) / most;
  constexpr std::int64_t kMaxBytes = 256 << 20;
  const bool fills = 4 * works >= 3 * most * rounds;
  const bool fits = blocks * slot_floats(sizes) * std::int64_t{sizeof(float)} <= kMaxBytes;
  return fills && fits ? blocks : 0;
}

void joint_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                              const Tensor& qkv, std::int64_t blocks, const AttentionSizes& sizes,
                              const Stream& stream) {
  const Tensor slots = empty_workspace(blocks * slot_floats(sizes), DType::kF32, stream);
  const Grid grid{.x = blocks,
                  .threads = kCoreThreads,
                  .shared_bytes = sizeof(BFloat16) * kWorkBegin + sizeof(JointWork)};
  launch(stream, "attention_joint_backward",
         sizes.plain() ? joint_backward_kernel<true> : joint_backward_kernel<false>, grid,
         Joint{dqkv.data<BFloat16>(), dy.data<BFloat16>(), terms, qkv.data<BFloat16>(),
               slots.data<float>(), sizes});
}

}  // namespace hybrid_trainer::kernels::cuda
