#include "kernels/cuda/attention_general.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// Rows v·kR + i of a tile that a thread owns.
template <int kHead>
constexpr int kForwardRows = kHead <= 128 ? 4 : 2;

template <int kHead>
constexpr std::size_t kForwardShared =
    sizeof(float) * kSide* kForwardRows<kHead>*(2 * kPitch<kHead> +
                                                kPitch<kSide * kForwardRows<kHead>>);

/// Running softmax of the thread's queries, shared by its 16 neighbours in u.
template <int kR>
struct Softmax {
  float highest[kR];  // in units of log2
  float total[kR];    // over the thread's own keys
};

/// Scores become weights 2^(score − highest), 0 for keys that the query does not see; rescales earlier
/// sums.
template <Sight kSight, int kR, int kColumns>
__device__ void weigh(float (&scores)[kR][kR], Softmax<kR>& softmax, float (&output)[kR][kColumns],
                      std::int64_t item, std::int64_t first_query, std::int64_t first_key,
                      const OperandSizes& sizes) {
  constexpr bool kPlain = kSight == Sight::kPlain, kMasked = is_masked(kSight);
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
                            : kMasked ? sizes.sees(item, query, begin, key)
                                      : key < sizes.count_of_keys(item)) &&
                           (hidden >> (kR * i + j)) % 2 == 0;
      if (kSight == Sight::kBiased && visible && query < sizes.length)
        scores[i][j] += sizes.bias_of(item)[key - query] / sizes.scale;
      if (!kPlain && sizes.cap > 0) {
        scores[i][j] = sizes.cap / sizes.scale * tanhf(scores[i][j] * sizes.scale / sizes.cap);
      }
      scores[i][j] = visible ? scores[i][j] * scale : -INFINITY;
      highest = fmaxf(highest, scores[i][j]);
    }
#pragma unroll
    for (int distance = kSide / 2; distance > 0; distance /= 2) {
      highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, distance));
    }
    const float shift = !kPlain && highest == -INFINITY ? 0.0f : highest;  // none seen yet
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

template <class T, int kHead, Sight kSight>
__global__ void __launch_bounds__(kGeneralThreads, is_masked(kSight) ? 1 : 2)
    general_forward_kernel(T* y, float* log_sum_exp, const T* from_queries, const T* from_keys,
                           OperandSizes sizes, unsigned int blocks, bool units) {
  constexpr bool kMasked = is_masked(kSight), kAcross = kSight == Sight::kAcross;
  constexpr int kR = kForwardRows<kHead>, kRows = kSide * kR;
  float* const query = dynamic_shared<float>();
  float* const key_value = query + kRows * kPitch<kHead>;
  float* const weights = key_value + kRows * kPitch<kHead>;
  const std::int64_t item = blockIdx.x / blocks;
  const std::int64_t first_query =
      static_cast<std::int64_t>(blocks - 1 - blockIdx.x % blocks) * kRows;  // long ones first
  const HeadRows<const T> rows{from_queries + sizes.queries_at(item), sizes.stride};
  const HeadRows<const T> keys = key_rows<kSight>(from_keys, item, sizes);
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
  const std::int64_t last = kAcross || (kMasked && sizes.two_way) ? count - 1 : first_query;
  for (std::int64_t first_key = begin; first_key <= last; first_key += kRows) {
    if (kMasked && first_key > first_query &&
        sizes.first_key(item, first_key) >= first_query + kRows)
      break;
    if (kMasked && sizes.hides_tile<kRows>(item, first_query, first_key)) continue;
    __syncthreads();  // the values of the last round have been read
    load_tile<kRows, kHead>(key_value, keys, first_key, count, sizes, units);
    __syncthreads();
    float scores[kR][kR];
    multiply_rows<kR, kHead>(scores, query, key_value, sizes);
    weigh<kSight>(scores, softmax, output, item, first_query, first_key, sizes);
    store_weights(weights, scores);
    __syncthreads();
    load_tile<kRows, kHead>(key_value, values, first_key, count, sizes, units);
    __syncthreads();
    add_weighted<kR, kHead>(output, weights, key_value);
  }

  float factors[kR];
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    float total = softmax.total[i];
#pragma unroll
    for (int distance = kSide / 2; distance > 0; distance /= 2) {
      total += __shfl_xor_sync(0xFFFFFFFFu, total, distance);
    }
    SoftmaxEnd end(softmax.highest[i] * kLn2, total, sizes.sink_of(blockIdx.x / blocks));
    if (kAcross && total == 0) end.log_sum_exp = -INFINITY, end.factor = 0;  // it sees no key
    factors[i] = end.factor;
    const std::int64_t at = first_query + thread_v() * kR + i;
    if (log_sum_exp != nullptr && thread_u() == 0 && at < sizes.length) {
      log_sum_exp[item * sizes.length + at] = end.log_sum_exp;
    }
  }
  store_rows<kR, kHead>(HeadRows<T>{y + sizes.y_at(item), sizes.channels}, output, factors,
                        first_query, sizes.length, sizes, units);
}

}  // namespace

void general_attention_forward(const Tensor& y, const Tensor& log_sum_exp,
                               const AttentionOperands& from, const OperandSizes& sizes,
                               const Stream& stream) {
  const bool units = units_fit(sizes, y.raw(), from.queries.raw(), from.keys.raw());
  float* const sums = log_sum_exp ? log_sum_exp.data<float>() : nullptr;
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    visit_kernel(sizes, [&](auto width, auto sight) {
      constexpr int kHead = decltype(width)::value;
      const std::int64_t blocks = sizes.blocks(kSide * kForwardRows<kHead>);
      const Grid grid{.x = static_cast<unsigned int>(blocks * sizes.items),
                      .threads = kGeneralThreads,
                      .shared_bytes = kForwardShared<kHead>};
      launch(stream, "attention_forward", general_forward_kernel<T, kHead, sight>, grid,
             y.data<T>(), sums, from.queries.data<T>(), from.keys.data<T>(), sizes,
             static_cast<unsigned int>(blocks), units);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cuda
