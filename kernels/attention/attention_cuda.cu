#include <algorithm>

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/attention/attention.cuh"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Element i is pair i % half in head i / half % heads of row i / (heads·half). Pair j is channels
/// step·j and step·j + gap.
template <class T>
struct Rotate {
  T* rows;
  const float* table;             // from the first position on
  const std::int32_t* positions;  // of the rows, or null
  std::int64_t length, stride, heads, size, half, step, gap;
  float sign;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t place = i % half, row = i / (heads * half);
    T* const first = rows + row * stride + i / half % heads * size + step * place;
    const std::int64_t position = positions ? positions[row] : row % length;
    const float* const cosines = table + position * 2 * half + place;
    float u[N], v[N], c[N], s[N];
    load_pack(u, first);
    load_pack(v, first + gap);
    load_pack(c, cosines);
    load_pack(s, cosines + half);
    for (int j = 0; j < N; ++j) {
      const float rotated = u[j] * c[j] - v[j] * sign * s[j];
      v[j] = v[j] * c[j] + u[j] * sign * s[j];
      u[j] = rotated;
    }
    store_pack(first, u);
    store_pack(first + gap, v);
  }
};

}  // namespace

void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream) {
  const std::int64_t half = table.size(1) / 2;
  visit_real(x.dtype(), [&]<class T>(T) {
    const Rotate<T> body{x.data<T>(),
                         table.data<float>() + (positions ? 0 : first_position) * 2 * half,
                         optional_data<std::int32_t>(positions),
                         x.size(1),
                         x.size(2),
                         heads.count,
                         heads.size_or(2 * half),
                         half,
                         heads.pairs_are_adjacent ? 2 : 1,
                         heads.pairs_are_adjacent ? 1 : half,
                         rotation == Rotation::kForward ? 1.0f : -1.0f};
    const std::int64_t pairs = x.size(0) * x.size(1) * heads.count * half;
    const bool fits = body.step == 1 && half % kPackSize<T> == 0 && body.size % kPackSize<T> == 0 &&
                      packs_fit<T>(x.size(2), body.rows, body.table);
    for_packs_if<kPackSize<T>>(fits, stream, "rotate", pairs, body);
  });
}

namespace {

constexpr std::int64_t kPadding = 128;  // a multiple of every kernel's block of queries

/// `lanes` adjacent threads, a power of two up to 32, process a query of a head.
template <class T, int kPack>
__global__ void query_terms_kernel(QueryTerms terms, const T* dy, const T* y,
                                   const float* log_sum_exp, AttentionSizes sizes,
                                   unsigned int lanes) {
  const auto heads = static_cast<unsigned int>(sizes.heads);
  const auto head_size = static_cast<unsigned int>(sizes.head_size);
  const unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned int head = thread / lanes % heads, query = thread / lanes / heads;
  const bool exists = query < sizes.length;
  for (std::int64_t item = blockIdx.y * sizes.heads + head; item - head < sizes.items;
       item += gridDim.y * sizes.heads) {
    float sum = 0;
    if (exists) {
      const std::int64_t row = sizes.y_at(item) + query * sizes.channels;
      for (unsigned int i = thread % lanes * kPack; i < head_size; i += lanes * kPack) {
        float a[kPack], b[kPack];
        load_pack(a, dy + row + i);
        load_pack(b, y + row + i);
        for (int j = 0; j < kPack; ++j) sum += a[j] * b[j];
      }
    }
    sum = reduce_warp(sum, Sum{}, static_cast<int>(lanes));
    if (thread % lanes != 0 || query >= terms.padded) continue;
    const QueryTerms mine = terms.of(item);
    const float exponent = exists ? log_sum_exp[item * sizes.length + query] * kLog2E : INFINITY;
    mine.exponents[query] = exponent == -INFINITY ? INFINITY : exponent;  // attends to no key
    mine.corrections[query] = sum;
    if (mine.first_keys == nullptr) continue;
    mine.first_keys[query] = static_cast<std::int32_t>(sizes.first_key(item, query));
  }
}

template <class... Tensors>
bool fits_tensor_cores(const AttentionSizes& sizes, const Tensor& qkv, const Tensors&... tensors) {
  constexpr int kMaxTile = 64;  // masking skips tiles of this many rows and columns
  const std::int64_t head = sizes.head_size;
  if (sizes.pattern.is_on() && sizes.pattern.block % kMaxTile != 0) return false;
  return !sizes.bidirectional && qkv.dtype() == DType::kBF16 &&
         (head == 64 || head == 128 || head == 256) &&
         packs_fit<BFloat16>(sizes.head_size, qkv.raw(), tensors.raw()...);
}

}  // namespace

void check_head_size(const char* kernel, std::int64_t head_size) {
  constexpr std::int64_t kMax = 512;
  if (head_size <= kMax) return;
  throw Error(ExitCode::kConfig,
              concat(kernel, ": head_size is ", head_size, ", want at most ", kMax,
                     " on CUDA; use more heads, or --device cpu, which supports any size"));
}

QueryTermsSpace::QueryTermsSpace(const AttentionSizes& sizes, bool has_bias, const Stream& stream) {
  const std::int64_t padded = sizes.blocks(kPadding) * kPadding, size = sizes.items * padded;
  const std::int64_t arrays = sizes.plain() && !has_bias ? 2 : 3;
  workspace_ = empty_workspace(arrays * size, DType::kF32, stream);
  auto* const begin = workspace_.data<float>();
  terms_ = {begin, begin + size, nullptr, padded};
  if (arrays == 3) terms_.first_keys = reinterpret_cast<std::int32_t*>(begin + 2 * size);
}

QueryTerms QueryTermsSpace::compute(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                                    const AttentionSizes& sizes, const Stream& stream) const {
  visit_real(dy.dtype(), [&]<class T>(T) {
    const auto start = [&](auto* kernel, std::int64_t pack) {
      std::int64_t lanes = 1;
      while (lanes < kWarp && lanes * pack < sizes.head_size) lanes *= 2;
      Grid grid = grid_for(terms_.padded * sizes.heads * lanes);
      grid.y = std::min<std::int64_t>(sizes.items / sizes.heads, 65535);
      launch(stream, "attention_query_terms", kernel, grid, terms_, dy.data<T>(), y.data<T>(),
             log_sum_exp.data<float>(), sizes, static_cast<unsigned int>(lanes));
    };
    if (packs_fit<T>(sizes.head_size, dy.raw(), y.raw())) {
      start(query_terms_kernel<T, kPackSize<T>>, kPackSize<T>);
    } else {
      start(query_terms_kernel<T, 1>, 1);
    }
  });
  return terms_;
}

void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const AttentionSizes sizes(qkv, positions, spec);
  check_head_size("attention_forward", sizes.head_size);
  if (!spec.bias && fits_tensor_cores(sizes, qkv, y)) {
    tensor_core_attention_forward(y, log_sum_exp, qkv, sizes, stream);
  } else {
    general_attention_forward(y, log_sum_exp, {qkv, qkv}, OperandSizes(sizes, spec), stream);
  }
}

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, const Tensor& positions,
                        AttentionSpec spec, const Stream& stream) {
  const AttentionSizes sizes(qkv, positions, spec);
  check_head_size("attention_backward", sizes.head_size);
  const QueryTermsSpace space(sizes, spec.bias.defined(), stream);
  const QueryTerms terms = space.compute(dy, y, log_sum_exp, sizes, stream);
  if (spec.bias || !fits_tensor_cores(sizes, qkv, dqkv, dy)) {
    general_attention_backward({dqkv, dqkv}, dy, terms, {qkv, qkv}, OperandSizes(sizes, spec),
                               stream);
  } else if (const std::int64_t blocks = joint_attention_blocks(sizes, stream); blocks > 0) {
    joint_attention_backward(dqkv, dy, terms, qkv, blocks, sizes, stream);
  } else {
    tensor_core_attention_backward(dqkv, dy, terms, qkv, sizes, stream);
  }
}

void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream) {
  const OperandSizes sizes(q, kv, lengths, spec);
  check_head_size("cross_attention_forward", sizes.head_size);
  general_attention_forward(y, log_sum_exp, {q, kv}, sizes, stream);
}

void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream) {
  const OperandSizes sizes(q, kv, lengths, spec);
  check_head_size("cross_attention_backward", sizes.head_size);
  const QueryTermsSpace space(sizes, false, stream);
  const QueryTerms terms = space.compute(dy, y, log_sum_exp, sizes, stream);
  general_attention_backward({dq, dkv}, dy, terms, {q, kv}, sizes, stream);
}

namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <class T>
struct SinkTensors {
  const T *dy, *y;
  const float *log_sum_exp, *sinks;
  std::int64_t rows, length, heads, head_size;  // `rows` counts all sequences
};

/// sums[head, part] = Σ e^(sink − log_sum_exp)·⟨dy, y⟩ over some rows, one block for each sum.
template <class T>
__global__ void sinks_kernel(float* sums, SinkTensors<T> tensors) {
  const auto [dy, y, log_sum_exp, sinks, rows, length, heads, size] = tensors;
  const std::int64_t head = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const float sink = sinks[head];
  float sum = 0;
  for (std::int64_t row = rows * part / parts + warp; row < rows * (part + 1) / parts;
       row += kWarps) {
    const std::int64_t at = (row * heads + head) * size;
    float product = 0;
    for (std::int64_t i = lane; i < size; i += kWarp)
      product += load(dy + at + i) * load(y + at + i);
    const std::int64_t query = (row / length * heads + head) * length + row % length;
    sum += expf(sink - log_sum_exp[query]) * product;
  }
  sum = reduce_block(sum, Sum{}, 0.0f);
  if (threadIdx.x == 0) sums[head * parts + part] = sum;
}

__global__ void combine_sinks_kernel(float* dsinks, const float* sums, std::int64_t heads,
                                     std::int64_t parts, bool adds) {
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (head >= heads) return;
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += sums[head * parts + part];
  dsinks[head] = (adds ? dsinks[head] : 0.0f) - sum;
}

}  // namespace

void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream& stream) {
  constexpr std::int64_t kRowsOfPart = 32 * kWarps, kMaxParts = 64;
  const std::int64_t heads = sinks.size(0), rows = y.size(0) * y.size(1);
  const std::int64_t parts =
      std::clamp<std::int64_t>((rows + kRowsOfPart - 1) / kRowsOfPart, 1, kMaxParts);
  const Tensor sums = empty_workspace(heads * parts, DType::kF32, stream);
  visit_real(y.dtype(), [&]<class T>(T) {
    const Grid grid{.x = heads, .y = parts, .threads = kThreads};
    const SinkTensors<T> tensors{.dy = dy.data<T>(),
                                 .y = y.data<T>(),
                                 .log_sum_exp = log_sum_exp.data<float>(),
                                 .sinks = sinks.data<float>(),
                                 .rows = rows,
                                 .length = y.size(1),
                                 .heads = heads,
                                 .head_size = y.size(2) / heads};
    launch(stream, "attention_sinks_backward", sinks_kernel<T>, grid, sums.data<float>(), tensors);
  });
  launch(stream, "attention_sinks_combine", combine_sinks_kernel, grid_for(heads),
         dsinks.data<float>(), sums.data<float>(), heads, parts, mode == GradientMode::kAccumulate);
}

namespace {

constexpr unsigned int kBiasThreads = 256;

template <class T>
struct BiasTensors {
  const T *dy, *qkv;
  QueryTerms terms;
  OperandSizes sizes;
};

/// Returns the gradient of a score. Lanes share the sum over the channels of the head.
template <class T>
__device__ float score_gradient(const BiasTensors<T>& tensors, std::int64_t item, int query,
                                int key, unsigned int lane) {
  const OperandSizes& sizes = tensors.sizes;
  const int head = sizes.head_of(item);
  const T* const q = tensors.qkv + sizes.queries_at(item) + query * sizes.stride;
  const T* const k = tensors.qkv + sizes.keys_at(item) + key * sizes.stride;
  const T* const dy = tensors.dy + sizes.y_at(item) + query * sizes.channels;
  float score = 0, dweight = 0;
  for (std::int64_t i = lane; i < sizes.head_size; i += kWarp) {
    score += load(q + i) * load(k + i);
    dweight += load(dy + i) * load(k + sizes.key_channels + i);
  }
  score = reduce_warp(score, Sum{});
  dweight = reduce_warp(dweight, Sum{});
  const bool is_hidden =
      sizes.pattern.is_on() &&
      !sizes.pattern.attends(head, query / sizes.pattern.block, key / sizes.pattern.block);
  const QueryTerms terms = tensors.terms.of(item);
  if (is_hidden || !sizes.attends(item, query, terms.first_keys[query], key)) return 0;
  float scaled = score * sizes.scale + sizes.bias_of(item)[key - query], slope = 1;
  if (sizes.cap > 0) {
    const float tangent = tanhf(scaled / sizes.cap);
    scaled = sizes.cap * tangent;
    slope = 1.0f - tangent * tangent;
  }
  const float weight = exp2f(scaled * kLog2E - terms.exponents[query]);
  return weight * (dweight - terms.corrections[query]) * slope;
}

/// One warp per head and distance adds the queries of all sequences.
template <class T>
__global__ void bias_kernel(float* dbias, BiasTensors<T> tensors, bool adds) {
  const OperandSizes& sizes = tensors.sizes;
  const unsigned int warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  const unsigned int lane = threadIdx.x % kWarp;
  if (warp >= sizes.heads * sizes.distances) return;
  const int head = static_cast<int>(warp / sizes.distances);
  const int length = static_cast<int>(sizes.length);
  const int distance =
      static_cast<int>(warp % sizes.distances) - static_cast<int>(sizes.distances / 2);
  const int first = distance < 0 ? -distance : 0, end = distance > 0 ? length - distance : length;
  float sum = 0;
  for (std::int64_t item = head; item < sizes.items; item += sizes.heads) {
    for (int query = first; query < end; ++query)
      sum += score_gradient(tensors, item, query, query + distance, lane);
  }
  if (lane == 0) dbias[warp] = (adds ? dbias[warp] : 0.0f) + sum;
}

}  // namespace

void attention_bias_backward(const Tensor& dbias, GradientMode mode, const Tensor& dy,
                             const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                             const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const OperandSizes sizes(AttentionSizes(qkv, positions, spec), spec);
  const QueryTermsSpace space(sizes, true, stream);
  const QueryTerms terms = space.compute(dy, y, log_sum_exp, sizes, stream);
  const std::int64_t warps = sizes.heads * sizes.distances, of_block = kBiasThreads / kWarp;
  const Grid grid{.x = (warps + of_block - 1) / of_block, .threads = kBiasThreads};
  visit_real(qkv.dtype(), [&]<class T>(T) {
    const BiasTensors<T> tensors{dy.data<T>(), qkv.data<T>(), terms, sizes};
    launch(stream, "attention_bias_backward", bias_kernel<T>, grid, dbias.data<float>(), tensors,
           mode == GradientMode::kAccumulate);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
