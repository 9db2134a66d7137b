#include <limits>

#include "hybrid_trainer/kernels/indexing.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/radix_sort.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Elements of `count` adjacent columns of each row, numbered row by row.
template <class T>
struct ColumnsOf {
  T* first;
  std::int64_t stride, count;
  __device__ T* at(std::int64_t i) const { return first + i / count * stride + i % count; }
};

template <class T>
ColumnsOf<T> columns_of(const Columns& columns, std::int64_t count) {
  return {columns.rows.data<T>() + columns.first, columns.rows.size(1), count};
}

template <class T>
bool packs_fit_columns(const ColumnsOf<T>& columns) {
  return columns.count % kPackSize<T> == 0 && packs_fit<T>(columns.stride, columns.first);
}

template <class T>
struct CopyColumns {
  ColumnsOf<T> to, from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load_pack(values, from.at(i));
    store_pack(to.at(i), values);
  }
};

template <class T, class Function>
struct MapColumns {
  ColumnsOf<T> to, a, b;
  Function function;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float left[N], right[N];
    load_pack(left, a.at(i));
    load_pack(right, b.at(i));
    for (int k = 0; k < N; ++k) left[k] = function(left[k], right[k]);
    store_pack(to.at(i), left);
  }
};

struct Product {
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct Opened {
  __device__ float operator()(float x, float gate) const { return x * sigmoid(gate); }
};

struct CopyWords {
  ColumnsOf<std::int32_t> to, from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    *to.at(i) = *from.at(i);
  }
};

template <class T>
struct SigmoidGateGradient {
  T* dx;
  ColumnsOf<T> dgate;
  const T* dy;
  const T* x;
  ColumnsOf<T> gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float slopes[N], values[N], gates[N];
    load_pack(slopes, dy + i);
    load_pack(values, x + i);
    load_pack(gates, gate.at(i));
    for (int k = 0; k < N; ++k) {
      const float share = sigmoid(gates[k]);
      gates[k] = slopes[k] * values[k] * share * (1.0f - share);
      slopes[k] *= share;
    }
    store_pack(dgate.at(i), gates);
    store_pack(dx + i, slopes);
  }
};

template <class Function>
void map_columns(const char* name, const Function& function, const Columns& to, const Columns& a,
                 const Columns& b, std::int64_t count, const Stream& stream) {
  visit_real(to.rows.dtype(), [&]<class T>(T) {
    const MapColumns<T, Function> body{columns_of<T>(to, count), columns_of<T>(a, count),
                                       columns_of<T>(b, count), function};
    for_packs_if<kPackSize<T>>(
        packs_fit_columns(body.to) && packs_fit_columns(body.a) && packs_fit_columns(body.b),
        stream, name, to.rows.size(0) * count, body);
  });
}

}  // namespace

void copy_columns(const Columns& to, const Columns& from, std::int64_t count,
                  const Stream& stream) {
  const std::int64_t elements = to.rows.size(0) * count;
  if (to.rows.dtype() == DType::kI32) {
    const CopyWords body{columns_of<std::int32_t>(to, count),
                         columns_of<std::int32_t>(from, count)};
    return for_packs<1>(stream, "copy_columns", elements, body);
  }
  visit_real(to.rows.dtype(), [&]<class T>(T) {
    const CopyColumns<T> body{columns_of<T>(to, count), columns_of<T>(from, count)};
    for_packs_if<kPackSize<T>>(packs_fit_columns(body.to) && packs_fit_columns(body.from), stream,
                               "copy_columns", elements, body);
  });
}

void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream) {
  map_columns("add_columns", Sum{}, to, to, from, count, stream);
}

void multiply_columns(const Columns& to, const Columns& a, const Columns& b, std::int64_t count,
                      const Stream& stream) {
  map_columns("multiply_columns", Product{}, to, a, b, count, stream);
}

void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream) {
  map_columns("sigmoid_gate_forward", Opened{}, {y, 0}, {x, 0}, gate, x.size(1), stream);
}

void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    const SigmoidGateGradient<T> body{dx.data<T>(), columns_of<T>(dgate, x.size(1)), dy.data<T>(),
                                      x.data<T>(), columns_of<T>(gate, x.size(1))};
    for_packs_if<kPackSize<T>>(packs_fit_columns(body.gate) && packs_fit_columns(body.dgate),
                               stream, "sigmoid_gate_backward", x.elements(), body, body.dx,
                               body.dy, body.x);
  });
}

namespace {

constexpr int kRowsPerBlock = 8;
constexpr int kSegmentRows = 64;  // sorted rows that one block sums
constexpr int kRowsAtOnce = 8;    // rows read before they are added

// ---- Forward: one warp per row.

template <class T>
struct Tables {
  const T* tokens;
  const T* positions;  // position rows from the first position on, or nullptr
  std::int64_t columns;
  std::int32_t vocabulary;
};

template <class T, int N>
__global__ void embedding_forward_kernel(T* y, const std::int32_t* tokens, std::int64_t count,
                                         std::int64_t length, Tables<T> tables) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= count) return;
  const std::int32_t token = tokens[row];
  const bool known = token >= 0 && token < tables.vocabulary;
  const T* const of_token = tables.tokens + (known ? token : 0) * tables.columns;
  for (std::int64_t i = lane * N; i < tables.columns; i += kWarp * N) {
    float sum[N];
    float position[N] = {};
    load_pack(sum, of_token + i);
    if (tables.positions != nullptr)
      load_pack(position, tables.positions + row % length * tables.columns + i);
    for (int j = 0; j < N; ++j)
      sum[j] = known ? sum[j] + position[j] : std::numeric_limits<float>::quiet_NaN();
    store_pack(y + row * tables.columns + i, sum);
  }
}

// ---- Gradient of the token table. Rows of dy are sorted by token and divided into segments, whose
// length does not depend on tokens. A token's rows within one segment are summed into the table. If
// they cross a segment boundary, partial sums go to extra rows, which are added later in order.

struct SegmentRows {
  const std::int32_t* tokens;     // sorted
  const std::int32_t* positions;  // rows in dy
  std::int64_t count;
  std::int32_t vocabulary;  // marks a token that is not in the table
};

/// to[i] = or += from[i], with 16-byte accesses if N allows.
template <int N>
__device__ void put(float* to, const float (&from)[N], bool accumulate) {
  constexpr int kStep = N < 4 ? N : 4;
  for (int first = 0; first < N; first += kStep) {
    float values[kStep] = {};
    if (accumulate) load_pack(values, to + first);
    for (int i = 0; i < kStep; ++i) values[i] += from[first + i];
    store_pack(to + first, values);
  }
}

struct TokenTable {
  float* rows;
  std::int64_t columns;
  bool accumulates;

  __device__ float* at(std::int32_t token) const { return rows + token * columns; }
  /// Adds to elements of the table, or overwrites them if `accumulates` is false.
  template <int N>
  __device__ void give(float* to, const float (&sum)[N]) const {
    put(to, sum, accumulates);
  }
};

/// Sums each token's rows in a segment into the table, or into `parts` if they cross a segment
/// boundary. Row 2·segment of `parts` is for the token continued from the previous segment, and row
/// 2·segment + 1 is for the token that continues in the next segment. Grid: segments, columns /
/// (threads · N).
template <class T, int N>
__global__ void sum_segments_kernel(TokenTable table, float* parts, SegmentRows rows, const T* dy) {
  __shared__ std::int32_t tokens[kSegmentRows];
  __shared__ std::int32_t positions[kSegmentRows];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSegmentRows;
  const std::int64_t left = rows.count - begin;
  const int count = left < kSegmentRows ? static_cast<int>(left) : kSegmentRows;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    tokens[i] = rows.tokens[begin + i];
    positions[i] = rows.positions[begin + i];
  }
  __syncthreads();
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= table.columns) return;
  bool comes_in = begin > 0 && rows.tokens[begin - 1] == tokens[0];
  const bool continues_past = count < left && rows.tokens[begin + count] == tokens[count - 1];
  float* const part = parts + 2 * static_cast<std::int64_t>(blockIdx.x) * table.columns + column;
  float sum[N] = {};
  for (int first = 0; first < count; first += kRowsAtOnce) {
    Pack<T, N> read[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int row = first + i < count ? first + i : count - 1;
      read[i] = *reinterpret_cast<const Pack<T, N>*>(dy + positions[row] * table.columns + column);
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int row = first + i;
      if (row >= count) break;
      for (int j = 0; j < N; ++j) sum[j] += load(&read[i].values[j]);
      const std::int32_t token = tokens[row];
      const bool last = row + 1 == count;
      if (!last && tokens[row + 1] == token) continue;
      if (comes_in) {
        put(part, sum, false);
      } else if (last && continues_past) {
        put(part + table.columns, sum, false);
      } else if (token != rows.vocabulary) {
        table.give(table.at(token) + column, sum);
      }
      comes_in = false;
      for (int j = 0; j < N; ++j) sum[j] = 0;
    }
  }
}

/// Adds the parts of each token whose rows cross a segment boundary. The block of the segment in
/// which the rows begin adds them. Grid: segments, columns / (32·N).
template <int N>
__global__ void join_segments_kernel(TokenTable table, const float* parts, SegmentRows rows) {
  __shared__ float of_warp[kColumnSumWarps][kWarp * N];
  const std::int64_t segment = blockIdx.x;
  const std::int64_t begin = segment * kSegmentRows;
  const std::int64_t end = begin + kSegmentRows;
  if (end >= rows.count) return;
  const std::int32_t token = rows.tokens[end];
  const bool crosses = rows.tokens[end - 1] == token;
  const bool begun_before = begin > 0 && rows.tokens[begin - 1] == token;
  if (!crosses || begun_before || token == rows.vocabulary) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWarp + lane) * N;
  const bool within = column < table.columns;
  float sum[N] = {};
  const auto add = [&](std::int64_t line) {
    if (!within) return;
    float values[N];
    load_pack(values, parts + line * table.columns + column);
    for (int i = 0; i < N; ++i) sum[i] += values[i];
  };
  if (warp == 0) add(2 * segment + 1);
  for (std::int64_t next = segment + 1 + warp;
       next * kSegmentRows < rows.count && rows.tokens[next * kSegmentRows] == token;
       next += kColumnSumWarps) {
    add(2 * next);
  }
  for (int i = 0; i < N; ++i) of_warp[warp][lane * N + i] = sum[i];
  __syncthreads();
  if (warp != 0 || !within) return;
  for (int other = 1; other < kColumnSumWarps; ++other)
    for (int i = 0; i < N; ++i) sum[i] += of_warp[other][lane * N + i];
  table.give(table.at(token) + column, sum);
}

template <class T>
void sum_segments(const TokenTable& table, const SegmentRows& rows, const T* dy,
                  const Stream& stream) {
  constexpr int kPack = kPackSize<T>;
  const std::int64_t segments = (rows.count + kSegmentRows - 1) / kSegmentRows;
  const Tensor parts = empty_workspace(2 * segments * table.columns, DType::kF32, stream);
  auto* const lines = parts.data<float>();
  const bool packed = packs_fit<T>(table.columns, dy, table.rows, lines);
  const std::int64_t packs = packed ? table.columns / kPack : table.columns;
  const std::int64_t threads = packs < 256 ? (packs + kWarp - 1) / kWarp * kWarp : 256;
  launch(stream, "sum_segments", packed ? sum_segments_kernel<T, kPack> : sum_segments_kernel<T, 1>,
         Grid{.x = segments, .y = (packs + threads - 1) / threads, .threads = threads}, table,
         lines, rows, dy);
  const bool quads = packs_fit<float>(table.columns, table.rows, lines);
  const std::int64_t tile = kWarp * (quads ? 4 : 1);
  launch(stream, "join_segments", quads ? join_segments_kernel<4> : join_segments_kernel<1>,
         Grid{.x = segments,
              .y = (table.columns + tile - 1) / tile,
              .threads = kColumnSumWarps * kWarp},
         table, lines, rows);
}

// ---- Columns: one thread per selected element.

struct GatherColumns {
  float* columns;
  const float* x;
  const std::int32_t* indices;
  std::int64_t rows, width;
  template <int N>
  __device__ void at(std::int64_t i) const {
    columns[i] = x[i % rows * width + indices[i / rows]];
  }
};

template <class T>
struct ScatterColumns {
  T* x;
  const float* columns;
  const std::int32_t* indices;
  std::int64_t rows, width;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float value[1] = {columns[i]};
    store_pack(x + i % rows * width + indices[i / rows], value);
  }
};

}  // namespace

void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream) {
  if (y.elements() == 0) return;
  const std::int64_t columns = token_table.size(1);
  visit_real(y.dtype(), [&]<class T>(T) {
    constexpr int kPack = kPackSize<T>;
    const Tables<T> tables{
        token_table.data<T>(),
        position_table ? position_table.data<T>() + first_position * columns : nullptr, columns,
        static_cast<std::int32_t>(token_table.size(0))};
    const bool packed = packs_fit<T>(columns, y.raw(), tables.tokens, tables.positions);
    Grid grid = grid_for(tokens.elements(), kRowsPerBlock);
    grid.threads = kRowsPerBlock * kWarp;
    launch(stream, "embedding_forward",
           packed ? embedding_forward_kernel<T, kPack> : embedding_forward_kernel<T, 1>, grid,
           y.data<T>(), tokens.data<std::int32_t>(), tokens.elements(), tokens.size(1), tables);
  });
}

void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream) {
  const std::int64_t length = tokens.size(1);
  const std::int64_t columns = dtoken_table.size(1);
  const auto vocabulary = static_cast<std::int32_t>(dtoken_table.size(0));
  if (token_mode == GradientMode::kOverwrite) fill_zero(dtoken_table, stream);
  const std::int64_t summed = dy.elements() == 0 ? 0 : length;  // rows of the positions
  if (dposition_table && position_mode == GradientMode::kOverwrite &&
      dposition_table.size(0) > summed) {
    fill_zero(dposition_table.rows(summed, dposition_table.size(0)), stream);
  }
  if (summed == 0) return;
  require(tokens.elements() < std::numeric_limits<std::int32_t>::max(),
          "embedding_backward: at most 2^31 - 2 tokens");
  const SortedTokens sorted =
      sort_tokens(tokens.data<std::int32_t>(), tokens.elements(), vocabulary, stream);
  const TokenTable table{dtoken_table.data<float>(), columns,
                         token_mode == GradientMode::kAccumulate};
  visit_real(dy.dtype(), [&]<class T>(T) {
    sum_segments<T>(table, {sorted.tokens, sorted.positions, tokens.elements(), vocabulary},
                    dy.data<T>(), stream);
    if (!dposition_table) return;
    column_sums<T>(dposition_table.data<float>(), dy.data<T>(), tokens.size(0), length * columns,
                   position_mode == GradientMode::kAccumulate, stream);
  });
}

void gather_columns(const Tensor& columns, const Tensor& x, const Tensor& indices,
                    const Stream& stream) {
  for_packs<1>(stream, "gather_columns", columns.elements(),
               GatherColumns{columns.data<float>(), x.data<float>(), indices.data<std::int32_t>(),
                             x.size(0), x.size(1)});
}

void scatter_columns(const Tensor& x, const Tensor& columns, const Tensor& indices,
                     const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    for_packs<1>(stream, "scatter_columns", columns.elements(),
                 ScatterColumns<T>{x.data<T>(), columns.data<float>(), indices.data<std::int32_t>(),
                                   x.size(0), x.size(1)});
  });
}

}  // namespace hybrid_trainer::kernels::cuda
