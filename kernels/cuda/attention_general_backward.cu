#include "kernels/cuda/attention_general.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

// One kernel for both halves. A block owns rows of one side and iterates over the tiles of the
// other: it owns keys and values and sums dkey and dvalue over the queries, or it owns queries and
// dy and sums dquery over the keys. Keys see the queries of all heads that share them. Either way
//   scores = own[0] · passing[0]ᵀ, dweights = own[1] · passing[1]ᵀ,
//   gradient of own[0] = dscores · passing[0], of values: weights · passing[1].
enum class Owns { kKeys, kQueries };

template <int kHead>
constexpr int kBackwardRows = kHead == 64    ? 4
                              : kHead == 128 ? 2
                                             : 1;

template <int kHead>
constexpr std::size_t kBackwardShared =
    sizeof(float) * kSide* kBackwardRows<kHead>*(4 * kPitch<kHead> +
                                                 kPitch<kSide * kBackwardRows<kHead>>);

/// AttentionSizes::sees, from the terms.
template <Sight kSight>
__device__ bool sees(int query, int key, const QueryTerms& terms, const OperandSizes& sizes) {
  if (kSight == Sight::kPlain) return key <= query;
  if (kSight == Sight::kAcross) return true;
  if (key <= query) return key >= terms.first_keys[query];
  return sizes.two_way && key < sizes.length && terms.first_keys[key] <= query;
}

/// Scores become weights, dweights become dscores / scale; both 0 for keys that the query does not see.
/// Across sequences such keys are rows of zeros, to which any finite weight adds nothing.
template <Owns kOwns, Sight kSight, int kR>
__device__ void differentiate(float (&scores)[kR][kR], float (&dweights)[kR][kR],
                              const QueryTerms& terms, int first_own, int first_passing,
                              unsigned int hidden, std::int64_t item, const OperandSizes& sizes) {
  constexpr bool kPlain = kSight == Sight::kPlain;
  const float scale = sizes.scale * kLog2E;
#pragma unroll
  for (int i = 0; i < kR; ++i) {
#pragma unroll
    for (int j = 0; j < kR; ++j) {
      const int own = first_own + thread_v() * kR + i;
      const int passing = first_passing + thread_u() + kSide * j;
      const int query = kOwns == Owns::kKeys ? passing : own;
      const int key = kOwns == Owns::kKeys ? own : passing;
      const bool visible =
          sees<kSight>(query, key, terms, sizes) && (hidden >> (kR * i + j)) % 2 == 0;
      if (kSight == Sight::kBiased && visible && query < sizes.length)
        scores[i][j] += sizes.bias_of(item)[key - query] / sizes.scale;
      float slope = 1;
      if (!kPlain && sizes.cap > 0) {
        const float tangent = tanhf(scores[i][j] * sizes.scale / sizes.cap);
        scores[i][j] = sizes.cap / sizes.scale * tangent;
        slope = 1.0f - tangent * tangent;
      }
      float weight = visible ? exp2f(scores[i][j] * scale - terms.exponents[query]) : 0.0f;
      if (kSight == Sight::kAcross) weight = weight > 1 ? 1 : weight;
      scores[i][j] = weight;
      dweights[i][j] = weight * (dweights[i][j] - terms.corrections[query]);
      if constexpr (!kPlain) dweights[i][j] *= slope;
    }
  }
}

template <Owns kOwns, class T, int kHead, Sight kSight>
__global__ void __launch_bounds__(kGeneralThreads, kSight == Sight::kBiased ? 1 : 2)
    general_backward_kernel(T* gradients, const T* dy, QueryTerms all_terms, const T* from_queries,
                            const T* from_keys, OperandSizes sizes, unsigned int blocks,
                            bool units) {
  constexpr bool kMasked = is_masked(kSight), kAcross = kSight == Sight::kAcross;
  constexpr int kR = kBackwardRows<kHead>, kRows = kSide * kR;
  constexpr bool kKeys = kOwns == Owns::kKeys;
  float* const own = dynamic_shared<float>();
  float* const passing = own + 2 * kRows * kPitch<kHead>;
  float* const weights = passing + 2 * kRows * kPitch<kHead>;
  constexpr int kNext = kRows * kPitch<kHead>;

  // Where the thread itself writes weights, because registers are scarce.
  auto* const own_hidden =
      reinterpret_cast<unsigned int*>(weights + thread_v() * kR * kPitch<kRows> + thread_u());

  const int members = kKeys ? static_cast<int>(sizes.group) : 1;  // heads of queries
  const std::int64_t item = blockIdx.x / blocks * members;
  const unsigned int turn = blockIdx.x % blocks;  // those with most work first
  const int first_own = static_cast<int>(kKeys ? turn : blocks - 1 - turn) * kRows;
  const HeadRows<const T> queries[2] = {{from_queries + sizes.queries_at(item), sizes.stride},
                                        {dy + sizes.y_at(item), sizes.channels}};
  const HeadRows<const T> key = key_rows<kSight>(from_keys, item, sizes);
  const HeadRows<const T> keys[2] = {key, {key.begin + sizes.key_channels, key.stride}};
  const std::int64_t own_count = kAcross && kKeys ? sizes.count_of_keys(item) : sizes.length;
  const std::int64_t passing_count = kAcross && !kKeys ? sizes.count_of_keys(item) : sizes.length;

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    load_tile<kRows, kHead>(own + i * kNext, kKeys ? keys[i] : queries[i], first_own, own_count,
                            sizes, units);
  }
  float sums[kR][kHead / kSide] = {}, dvalue[kR][kHead / kSide] = {};
  const bool two_way = kMasked && sizes.two_way;  // which makes both sides alike
  const int first_seen =
      !kMasked || (kKeys && !two_way) ? 0 : all_terms.of(item).first_keys[first_own];
  const int begin = kKeys && !two_way && !kAcross ? first_own : first_seen / kRows * kRows,
            last = kAcross || kKeys || two_way ? static_cast<int>(passing_count) - 1 : first_own;
  for (int member = 0; member < members; ++member) {
    const QueryTerms terms = all_terms.of(item + member);
    for (int first = begin; first <= last; first += kRows) {
      if (kMasked && (kKeys || two_way) && terms.first_keys[first] >= first_own + kRows) break;
      if (kMasked && sizes.hides_tile<kRows>(item + member, kKeys ? first : first_own,
                                             kKeys ? first_own : first))
        continue;
      __syncthreads();  // the last round's tiles have been read
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        HeadRows<const T> rows = kKeys ? queries[i] : keys[i];
        rows.begin += member * sizes.head_size;
        load_tile<kRows, kHead>(passing + i * kNext, rows, first, passing_count, sizes, units);
      }
      if (kMasked) *own_hidden = hidden_pairs<kKeys, kR>(item + member, first_own, first, sizes);
      __syncthreads();
      float scores[kR][kR], dweights[kR][kR];
      multiply_rows<kR, kHead>(scores, own, passing, sizes);
      multiply_rows<kR, kHead>(dweights, own + kNext, passing + kNext, sizes);
      differentiate<kOwns, kSight>(scores, dweights, terms, first_own, first,
                                   kMasked ? *own_hidden : 0, item + member, sizes);
      if constexpr (kKeys) {
        store_weights(weights, scores);
        __syncthreads();
        add_weighted<kR, kHead>(dvalue, weights, passing + kNext);
        __syncthreads();
      }
      store_weights(weights, dweights);
      __syncthreads();
      add_weighted<kR, kHead>(sums, weights, passing);
    }
  }

  const std::int64_t rows = kAcross && kKeys ? sizes.key_length : sizes.length;
  const HeadRows<T> dsums = kKeys ? key_rows<kSight>(gradients, item, sizes)
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
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    visit_kernel(sizes, [&](auto width, auto sight) {
      constexpr int kHead = decltype(width)::value;
      constexpr int kRows = kSide * kBackwardRows<kHead>;
      const auto start = [&](const char* name, auto* kernel, const Tensor& to, std::int64_t blocks,
                             std::int64_t items) {
        const Grid grid{.x = static_cast<unsigned int>(blocks * items),
                        .threads = kGeneralThreads,
                        .shared_bytes = kBackwardShared<kHead>};
        launch(stream, name, kernel, grid, to.data<T>(), dy.data<T>(), terms,
               from.queries.data<T>(), from.keys.data<T>(), sizes,
               static_cast<unsigned int>(blocks), units);
      };
      start("attention_backward_keys", general_backward_kernel<Owns::kKeys, T, kHead, sight>,
            gradients.keys, sizes.key_blocks(kRows), sizes.items / sizes.group);
      start("attention_backward_queries", general_backward_kernel<Owns::kQueries, T, kHead, sight>,
            gradients.queries, sizes.blocks(kRows), sizes.items);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cuda
