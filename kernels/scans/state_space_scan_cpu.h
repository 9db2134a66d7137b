#pragma once

#include <cstring>

#include "hybrid_trainer/kernels/scans.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

// Products of small f32 matrices in the L1 and L2 caches, not packed, of whole tiles.

struct LeftFactor {
  const float* data;
  std::int64_t row_stride, depth_stride;
};

struct RightFactor {
  const float* data;
  std::int64_t stride;
};

/// Sums of kRows rows and two vectors of columns. They stay in registers.
template <int kLanes>
struct SumTile {
  typedef float Floats [[gnu::vector_size(4 * kLanes)]];
  static constexpr int kRows = kLanes == 16 ? 8 : 4;
  static constexpr int kColumns = 2 * kLanes;

  /// Adds the product of rows [row, row + kRows) of `a` and columns [column, column + kColumns) of
  /// `b`, over depths [begin, end).
  void add(const LeftFactor& a, std::int64_t row, const RightFactor& b, std::int64_t column,
           std::int64_t begin, std::int64_t end) {
    const float* const from = a.data + row * a.row_stride;
    const float* const right = b.data + column;
    if (a.row_stride == 1) {
      const std::int64_t stride = a.depth_stride;
      add_products([=](int r, std::int64_t k) { return from[k * stride + r]; }, right, b.stride,
                   begin, end);
    } else {
      const std::int64_t stride = a.row_stride;
      add_products([=](int r, std::int64_t k) { return from[r * stride + k]; }, right, b.stride,
                   begin, end);
    }
  }

  void scale(const float* factors) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] *= factors[r];
      sums[r][1] *= factors[r];
    }
  }

  /// to = scale·to + the sums. Each row of `to` begins `stride` elements after the previous one.
  void add_to(float* to, std::int64_t stride, float scale) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Floats left, right;
      load(left, right, to + r * stride);
      store(to + r * stride, left * scale + sums[r][0], right * scale + sums[r][1]);
    }
  }
  void write(float* to, std::int64_t stride) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) store(to + r * stride, sums[r][0], sums[r][1]);
  }

  // Handles one vector at a time, because the compiler copies longer arrays through memory.
  static void load(Floats& left, Floats& right, const float* from) {
    std::memcpy(&left, from, sizeof left);
    std::memcpy(&right, from + kLanes, sizeof right);
  }
  static void store(float* to, const Floats& left, const Floats& right) {
    std::memcpy(to, &left, sizeof left);
    std::memcpy(to + kLanes, &right, sizeof right);
  }

  Floats sums[kRows][2] = {};

 private:
  template <class Element>
  void add_products(const Element& element, const float* right, std::int64_t stride,
                    std::int64_t begin, std::int64_t end) {
    Floats own[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) own[r][0] = sums[r][0], own[r][1] = sums[r][1];
    for (std::int64_t k = begin; k < end; ++k) {
      Floats first, second;
      load(first, second, right + k * stride);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        own[r][0] += element(r, k) * first;
        own[r][1] += element(r, k) * second;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][0] = own[r][0], sums[r][1] = own[r][1];
  }
};

/// Calls finish(row, column, tile) for each tile of the product a·b over `depth`.
template <int kLanes, class Finish>
inline void for_tiles(std::int64_t rows, std::int64_t columns, const LeftFactor& a,
                      const RightFactor& b, std::int64_t depth, const Finish& finish) {
  for (std::int64_t row = 0; row < rows; row += SumTile<kLanes>::kRows) {
    for (std::int64_t column = 0; column < columns; column += SumTile<kLanes>::kColumns) {
      SumTile<kLanes> tile;
      tile.add(a, row, b, column, 0, depth);
      finish(row, column, tile);
    }
  }
}

/// to (rows, columns) = scale·to + a·b.
template <int kLanes>
inline void add_product(float* to, std::int64_t stride, float scale, std::int64_t rows,
                        std::int64_t columns, const LeftFactor& a, const RightFactor& b,
                        std::int64_t depth) {
  for_tiles<kLanes>(rows, columns, a, b, depth,
                    [=](std::int64_t row, std::int64_t column, const SumTile<kLanes>& tile) {
                      tile.add_to(to + row * stride + column, stride, scale);
                    });
}

template <int kLanes>
struct Lanes {
  static constexpr int kCount = kLanes;
};

/// Calls body(Lanes<floats per vector>, worker, item) for each item; see parallel_items.
template <class Body>
void parallel_items_by_lanes(std::int64_t count, const Body& body) {
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return run_tasks(count, [&](std::int64_t worker, std::int64_t item) {
        run_avx512(body, Lanes<16>(), worker, item);
      });
    case InstructionSet::kAvx2:
      if constexpr (!kSanitized) {
        return run_tasks(count, [&](std::int64_t worker, std::int64_t item) {
          run_avx2(body, Lanes<8>(), worker, item);
        });
      }
      [[fallthrough]];
    case InstructionSet::kBaseline:
      return run_tasks(count, [&](std::int64_t worker, std::int64_t item) {
        run_baseline(body, Lanes<4>(), worker, item);
      });
  }
}

inline constexpr std::int64_t kChunk = 64;         // tokens per chunk
inline constexpr std::int64_t kPanelColumns = 32;  // adjacent columns of a head
inline constexpr std::int64_t kTokenPanel = kChunk * kPanelColumns;
inline constexpr std::int64_t kPairs = kChunk * kChunk;  // pairs of tokens of a chunk

inline std::int64_t rounded_to(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// Returns e^log for log <= 0, or 0 if the result is subnormal.
inline float decay_of(float log) { return log < -87.0f ? 0.0f : exponential(log); }

/// Returns log(1 + e^x) with a relative error of 3e-7: max(x, 0) + 2·artanh(z/(2 + z)) with z =
/// e^−|x|.
inline float softplus(float x) {
  const float z = exponential(-std::fabs(x)), s = z / (2.0f + z), square = s * s;
  float series = 1.0f / 15;
  for (const float term : {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f})
    series = series * square + term;
  return (x > 0 ? x : 0.0f) + 2.0f * s * series;
}

/// Δ of one token, and its derivative with respect to the argument of softplus.
struct Step {
  float size, slope;
};
inline Step step_of(float raw, const StateSpaceSpec& spec) {
  const float whole = softplus(raw), least = spec.least_step, most = spec.most_step;
  return {whole < least  ? least
          : whole > most ? most
                         : whole,
          whole < least || whole > most ? 0.0f : sigmoid(raw)};
}
/// Returns rate·step, but 0 if the step is 0, even if the rate is infinite.
inline float log_decay_of(float rate, float step) { return step == 0 ? 0.0f : rate * step; }

/// Consecutive heads of a group, computed together.
struct HeadBlock {
  std::int64_t sequence, group, first_head, heads;
};

struct ScanSizes {
  ScanSizes(const StateSpaceInput& input, const StateSpaceSpec& of)
      : spec(of),
        batch(input.values.size(0)),
        time(input.values.size(1)),
        chunks((time + kChunk - 1) / kChunk),
        heads_of_group(of.heads / of.groups),
        panels((of.head_size + kPanelColumns - 1) / kPanelColumns),
        depth(rounded_to(of.state_size, kPanelColumns)),
        heads_of_block(
            std::clamp<std::int64_t>(kBlockColumns / (panels * kPanelColumns), 1, heads_of_group)),
        blocks_of_group((heads_of_group + heads_of_block - 1) / heads_of_block) {}
  std::int64_t groups() const { return batch * spec.groups; }
  /// state_elements and key_elements return the padded size of a head's state, which consists of
  /// panels (depth, kPanelColumns), and of a chunk's keys.
  std::int64_t state_elements() const { return panels * depth * kPanelColumns; }
  std::int64_t key_elements() const { return kChunk * depth; }
  HeadBlock block(std::int64_t group, std::int64_t index) const {
    const std::int64_t first = index * heads_of_block, of_sequence = group % spec.groups;
    return {group / spec.groups, of_sequence, of_sequence * heads_of_group + first,
            std::min(heads_of_block, heads_of_group - first)};
  }
  /// Calls visit(place in the panels of the block's states, element) for all elements of the states
  /// of a block's heads in states (B, H, P, N), if these are defined.
  template <class Visit>
  void for_states(const Tensor& states, const HeadBlock& block, const Visit& visit) const {
    if (!states) return;
    float* element = states.data<float>() + (block.sequence * spec.heads + block.first_head) *
                                                spec.head_size * spec.state_size;
    for (std::int64_t head = 0; head < block.heads; ++head) {
      for (std::int64_t p = 0; p < spec.head_size; ++p) {
        const std::int64_t column =
            head * state_elements() + p / kPanelColumns * depth * kPanelColumns + p % kPanelColumns;
        for (std::int64_t n = 0; n < spec.state_size; ++n)
          visit(column + n * kPanelColumns, *element++);
      }
    }
  }
  static constexpr std::int64_t kBlockColumns = 256;  // columns whose states fit in the L2 cache
  StateSpaceSpec spec;
  std::int64_t batch, time, chunks, heads_of_group, panels;
  std::int64_t depth;  // depth of a state: state_size, padded
  std::int64_t heads_of_block, blocks_of_group;
};

/// Decay of one head over the steps of a chunk's tokens.
struct HeadDecay {
  float step[kChunk];        // Δ; 0 beyond the last token
  float slope[kChunk];       // derivative of Δ with respect to the argument of softplus
  float log_decay[kChunk];   // a; −∞ if a document begins
  float from_start[kChunk];  // e^(a_0 + … + a_i)
  float to_end[kChunk];      // e^(a_(j+1) + … + a_63)
  float whole() const { return from_start[kChunk - 1]; }
};

/// l[i, j] = e^(a_(j+1) + … + a_i) for j <= i, then zeros up to a multiple of 16. Exponents are
/// summed separately for each pair, so that large sums stay precise. If `shifted`, l[i, i] is 0.
inline void fill_decay_matrix(float* l, const HeadDecay& decay, bool shifted) {
  float sums[kChunk];
  std::fill_n(sums, kChunk, -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const std::int64_t count = rounded_to(i + 1, 16);
    const float log_decay = decay.log_decay[i];
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) sums[j] += log_decay;
    sums[i] = 0;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) l[i * kChunk + j] = decay_of(sums[j]);
    if (shifted) l[i * kChunk + i] = 0;
  }
}

/// to (columns, rows) = transposed `from` (rows, columns). Both sizes must be multiples of 4.
inline void transpose(float* to, const float* from, std::int64_t rows, std::int64_t columns) {
  typedef float Four [[gnu::vector_size(16)]];
  for (std::int64_t r = 0; r < rows; r += 4) {
    for (std::int64_t c = 0; c < columns; c += 4) {
      Four line[4], column[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&line[i], from + (r + i) * columns + c, sizeof(Four));
      const Four a = __builtin_shufflevector(line[0], line[1], 0, 4, 1, 5),
                 b = __builtin_shufflevector(line[2], line[3], 0, 4, 1, 5),
                 d = __builtin_shufflevector(line[0], line[1], 2, 6, 3, 7),
                 e = __builtin_shufflevector(line[2], line[3], 2, 6, 3, 7);
      column[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
      column[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
      column[2] = __builtin_shufflevector(d, e, 0, 1, 4, 5);
      column[3] = __builtin_shufflevector(d, e, 2, 3, 6, 7);
      for (int i = 0; i < 4; ++i) std::memcpy(to + (c + i) * rows + r, &column[i], sizeof(Four));
    }
  }
}

/// Reads and writes chunks of a scan. Tokens are counted in the order of the scan.
class ChunkReader {
 public:
  ChunkReader(const StateSpaceInput& input, const StateSpaceDecay& decay, const ScanSizes& of)
      : sizes(of), input_(input), decay_(decay) {}

  std::int64_t tokens(std::int64_t chunk) const {
    return std::min(kChunk, sizes.time - chunk * kChunk);
  }
  /// Returns the row of token `i` of a chunk in a (B, T, …) array.
  std::int64_t row(std::int64_t sequence, std::int64_t chunk, std::int64_t i) const {
    const std::int64_t t = chunk * kChunk + i;
    return sequence * sizes.time + (sizes.spec.reversed ? sizes.time - 1 - t : t);
  }

  /// Reads columns [first, first + count) of a chunk as f32 rows of `stride`, padded with zeros.
  void read(float* to, std::int64_t stride, const Tensor& rows, std::int64_t sequence,
            std::int64_t chunk, std::int64_t first, std::int64_t count) const {
    visit_real(rows.dtype(), [&]<class T>(T) {
      const auto* const data = rows.data<T>() + first;
      const std::int64_t width = rows.size(2), valid = tokens(chunk);
      for (std::int64_t i = 0; i < valid; ++i) {
        const auto* const from = data + row(sequence, chunk, i) * width;
        float* const line = to + i * stride;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) line[c] = load(from + c);
        for (std::int64_t c = count; c < stride; ++c) line[c] = 0;
      }
      std::fill_n(to + valid * stride, (kChunk - valid) * stride, 0.0f);
    });
  }
  /// Reads the columns of one panel of a head. `rows` has the columns of all heads (values, or y).
  void read_panel(float* to, const Tensor& rows, const HeadBlock& block, std::int64_t head,
                  std::int64_t panel, std::int64_t chunk) const {
    read(to, kPanelColumns, rows, block.sequence, chunk, first_column(block, head, panel),
         panel_width(panel));
  }
  /// Read B (read_keys) or C (read_queries) of the block's group.
  void read_keys(float* to, const HeadBlock& block, std::int64_t chunk) const {
    read(to, sizes.depth, input_.values, block.sequence, chunk, first_key(block.group),
         sizes.spec.state_size);
  }
  void read_queries(float* to, const HeadBlock& block, std::int64_t chunk) const {
    read(to, sizes.depth, input_.values, block.sequence, chunk, first_query(block.group),
         sizes.spec.state_size);
  }
  std::int64_t first_key(std::int64_t group) const {
    return sizes.spec.values() + group * sizes.spec.state_size;
  }
  std::int64_t first_query(std::int64_t group) const {
    return first_key(sizes.spec.groups + group);
  }
  std::int64_t first_column(const HeadBlock& block, std::int64_t head, std::int64_t panel) const {
    return (block.first_head + head) * sizes.spec.head_size + panel * kPanelColumns;
  }
  std::int64_t panel_width(std::int64_t panel) const {
    return std::min(kPanelColumns, sizes.spec.head_size - panel * kPanelColumns);
  }

  /// Writes `count` columns of a chunk, starting with `first`; see read.
  void write(const Tensor& rows, const float* from, std::int64_t stride, std::int64_t sequence,
             std::int64_t chunk, std::int64_t first, std::int64_t count) const {
    visit_real(rows.dtype(), [&]<class T>(T) {
      auto* const data = rows.data<T>() + first;
      const std::int64_t width = rows.size(2), valid = tokens(chunk);
      for (std::int64_t i = 0; i < valid; ++i) {
        auto* const to = data + row(sequence, chunk, i) * width;
        const float* const line = from + i * stride;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) store(to + c, line[c]);
      }
    });
  }
  void write_panel(const Tensor& rows, const float* from, const HeadBlock& block, std::int64_t head,
                   std::int64_t panel, std::int64_t chunk) const {
    write(rows, from, kPanelColumns, block.sequence, chunk, first_column(block, head, panel),
          panel_width(panel));
  }
  void write_keys(const Tensor& rows, const float* from, const HeadBlock& block,
                  std::int64_t chunk) const {
    write(rows, from, sizes.depth, block.sequence, chunk, first_key(block.group),
          sizes.spec.state_size);
  }
  void write_queries(const Tensor& rows, const float* from, const HeadBlock& block,
                     std::int64_t chunk) const {
    write(rows, from, sizes.depth, block.sequence, chunk, first_query(block.group),
          sizes.spec.state_size);
  }
  void write_steps(const Tensor& steps, const float* from, const HeadBlock& block,
                   std::int64_t head, std::int64_t chunk) const {
    write(steps, from, 1, block.sequence, chunk,
          steps.size(2) - sizes.spec.heads + block.first_head + head, 1);
  }

  const Tensor& values() const { return input_.values; }
  float skip(std::int64_t head) const { return input_.skip ? input_.skip.data<float>()[head] : 0; }
  /// Returns −e^log_rate of a head, or 0 if there are no log rates.
  float rate(std::int64_t head) const {
    return decay_.log_rate ? -std::exp(decay_.log_rate.data<float>()[head]) : 0.0f;
  }

  HeadDecay decay(const HeadBlock& block, std::int64_t head, std::int64_t chunk) const {
    HeadDecay result;
    const std::int64_t valid = tokens(chunk), of_all = block.first_head + head;
    for (std::int64_t i = valid; i < kChunk; ++i)
      result.step[i] = result.slope[i] = result.log_decay[i] = 0;
    if (decay_.log_rate) {
      read_steps(result, block.sequence, of_all, chunk);
    } else {
      for (std::int64_t i = 0; i < valid; ++i)
        result.step[i] = 1, result.slope[i] = result.log_decay[i] = 0;
    }
    for (std::int64_t i = 0; i < valid; ++i)
      if (begins(block.sequence, chunk, i))
        result.log_decay[i] = -std::numeric_limits<float>::infinity();
    sum_decay(result);
    return result;
  }

  const ScanSizes& sizes;

 private:
  void read_steps(HeadDecay& decay, std::int64_t sequence, std::int64_t head,
                  std::int64_t chunk) const {
    const std::int64_t valid = tokens(chunk), width = input_.steps.size(2);
    const float bias = decay_.step_bias.data<float>()[head], per_step = rate(head);
    float raw[kChunk];
    visit_real(input_.steps.dtype(), [&]<class T>(T) {
      const auto* const data = input_.steps.data<T>() + width - sizes.spec.heads + head;
      for (std::int64_t i = 0; i < valid; ++i)
        raw[i] = load(data + row(sequence, chunk, i) * width) + bias;
    });
#pragma omp simd
    for (std::int64_t i = 0; i < valid; ++i) {
      const Step step = step_of(raw[i], sizes.spec);
      decay.step[i] = step.size;
      decay.slope[i] = step.slope;
      decay.log_decay[i] = log_decay_of(per_step, step.size);
    }
  }
  static void sum_decay(HeadDecay& decay) {
    float sum = 0;
    for (std::int64_t i = 0; i < kChunk; ++i) decay.from_start[i] = sum += decay.log_decay[i];
    sum = 0;
    for (std::int64_t i = kChunk - 1; i >= 0; --i) {
      decay.to_end[i] = sum;
      sum += decay.log_decay[i];
    }
#pragma omp simd
    for (std::int64_t i = 0; i < kChunk; ++i) {
      decay.from_start[i] = decay_of(decay.from_start[i]);
      decay.to_end[i] = decay_of(decay.to_end[i]);
    }
  }
  /// Returns whether the token is the first of its document in the order of the scan.
  bool begins(std::int64_t sequence, std::int64_t chunk, std::int64_t i) const {
    if (!input_.positions) return false;
    const auto* const places = input_.positions.data<std::int32_t>() + sequence * sizes.time;
    const std::int64_t t = row(0, chunk, i);
    if (!sizes.spec.reversed) return places[t] == 0;
    return t + 1 < sizes.time && places[t + 1] == 0;
  }

  const StateSpaceInput& input_;
  const StateSpaceDecay& decay_;
};

/// state (depth, kPanelColumns) = e^c of the whole chunk · state + Bᵀ·(Δ ∘ e^(c_63 − c) ∘ values).
/// Overwrites `values`.
template <int kLanes>
inline void advance_state(float* state, float* values, const float* keys, const HeadDecay& decay,
                          std::int64_t depth) {
  for (std::int64_t j = 0; j < kChunk; ++j) {
    const float factor = decay.step[j] * decay.to_end[j];
#pragma omp simd
    for (std::int64_t c = 0; c < kPanelColumns; ++c) values[j * kPanelColumns + c] *= factor;
  }
  add_product<kLanes>(state, kPanelColumns, decay.whole(), depth, kPanelColumns, {keys, 1, depth},
                      {values, kPanelColumns}, kChunk);
}

/// Reads the states (P, N) of a block's heads as transposed panels (depth, kPanelColumns); zeros if
/// `states` is undefined.
inline void read_states(float* to, const Tensor& states, const HeadBlock& block,
                        const ScanSizes& sizes) {
  std::fill_n(to, block.heads * sizes.state_elements(), 0.0f);
  sizes.for_states(states, block, [=](std::int64_t element, float& state) { to[element] = state; });
}
inline void write_states(const Tensor& states, const float* from, const HeadBlock& block,
                         const ScanSizes& sizes) {
  sizes.for_states(states, block,
                   [=](std::int64_t element, float& state) { state = from[element]; });
}

/// C·Bᵀ of each group's chunks, (groups, chunks, kChunk, kChunk), computed once for all its heads.
class ChunkScores {
 public:
  ChunkScores(const ScanSizes& sizes, const Stream& stream)
      : chunks_(sizes.chunks),
        scores_(empty_workspace(sizes.groups() * sizes.chunks * kPairs, DType::kF32, stream)),
        scratch_(empty_workspace(threads() * 3 * sizes.key_elements(), DType::kF32, stream)) {}

  void compute(const ChunkReader& reader) const {
    const std::int64_t depth = reader.sizes.depth, size = reader.sizes.key_elements();
    parallel_items_by_lanes(reader.sizes.groups() * chunks_, [=, &reader, this](auto lanes,
                                                                                std::int64_t worker,
                                                                                std::int64_t item) {
      float* const keys = scratch_.data<float>() + worker * 3 * size;
      const std::int64_t group = item / chunks_, chunk = item % chunks_;
      const HeadBlock block = reader.sizes.block(group, 0);
      reader.read_keys(keys, block, chunk);
      reader.read_queries(keys + size, block, chunk);
      transpose(keys + 2 * size, keys, kChunk, depth);
      float* const scores = of(group, chunk);
      for_tiles<lanes.kCount>(kChunk, kChunk, {keys + size, depth, 1}, {keys + 2 * size, kChunk},
                              depth, [=](auto row, auto column, const auto& tile) {
                                tile.write(scores + row * kChunk + column, kChunk);
                              });
    });
  }
  float* of(std::int64_t group, std::int64_t chunk) const {
    return scores_.data<float>() + (group * chunks_ + chunk) * kPairs;
  }

 private:
  std::int64_t chunks_;
  Tensor scores_, scratch_;
};

}  // namespace hybrid_trainer::kernels::cpu
