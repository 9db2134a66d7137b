#include "kernels/scans/state_space_scan_cpu.h"

namespace hybrid_trainer::kernels::cpu {

struct ScanHeadSums {
  double skip = 0, log_rate = 0, step_bias = 0;
};

struct BackwardScanScratch {
  static std::int64_t elements(const ScanSizes& sizes) {
    return (sizes.chunks + 1) * sizes.heads_of_block * sizes.state_elements() +
           4 * sizes.key_elements() + 4 * sizes.panels * kTokenPanel + kTokenPanel + 4 * kPairs;
  }
  BackwardScanScratch(float* base, const ScanSizes& sizes)
      : states(base),
        dstates(states + sizes.chunks * sizes.heads_of_block * sizes.state_elements()),
        keys(dstates + sizes.heads_of_block * sizes.state_elements()),
        queries(keys + sizes.key_elements()),
        keys_across(queries + sizes.key_elements()),
        queries_across(keys_across + sizes.key_elements()),
        values(queries_across + sizes.key_elements()),
        dy(values + sizes.panels * kTokenPanel),
        values_across(dy + sizes.panels * kTokenPanel),
        dy_across(values_across + sizes.panels * kTokenPanel),
        dvalues(dy_across + sizes.panels * kTokenPanel),
        decay(dvalues + kTokenPanel),
        products(decay + kPairs),
        weights(products + kPairs),
        flows(weights + kPairs) {}
  float *states, *dstates;              // states before each chunk; gradient after the chunk
  float *keys, *queries;                // of a chunk: (kChunk, depth)
  float *keys_across, *queries_across;  // (depth, kChunk)
  float *values, *dy;                   // of a head: panels (kChunk, kPanelColumns)
  float *values_across, *dy_across;     // panels (kPanelColumns, kChunk)
  float* dvalues;                       // of a panel
  float *decay, *products;              // L; ⟨dy_i, x_j⟩
  float *weights, *flows;               // L ∘ C·Bᵀ; this times its gradient
};

/// Gradients of the keys and queries of a group, summed over the heads of one task, chunk by chunk.
struct KeyGradients {
  static std::int64_t elements(const ScanSizes& sizes) {
    return sizes.chunks * (2 * sizes.key_elements() + kPairs);
  }
  KeyGradients(float* base, const ScanSizes& sizes, std::int64_t chunk)
      : keys(base + chunk * (2 * sizes.key_elements() + kPairs)),
        queries(keys + sizes.key_elements()),
        scores(queries + sizes.key_elements()) {}
  float *keys, *queries;  // (depth, kChunk), without the terms through the scores
  float* scores;          // gradient of C·Bᵀ
};

/// Gradient terms of a chunk's tokens for one head. A flow is ⟨dy_i, contribution of x_j to y_i⟩.
struct TokenFlows {
  float within[kChunk] = {};  // Σ over later tokens of dy·(contribution of x_j) / Δ_j
  float in[kChunk] = {};      // ⟨dy_i, contribution of the state before the chunk⟩
  float out[kChunk] = {};     // ⟨dstate, contribution of x_j⟩ / Δ_j
  float across[kChunk] = {};  // Σ of flows from before a token to it or later ones
  float whole = 0;            // e^c·⟨dstate, state⟩
};

/// products = dy·valuesᵀ of a head and chunk. Entries beyond the diagonal's tile are undefined.
template <int kLanes>
inline void multiply_pairs(float* products, const BackwardScanScratch& scratch,
                           std::int64_t panels) {
  using Tile = SumTile<kLanes>;
  for (std::int64_t row = 0; row < kChunk; row += Tile::kRows) {
    for (std::int64_t column = 0; column < row + Tile::kRows; column += Tile::kColumns) {
      Tile tile;
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        tile.add({scratch.dy + panel * kTokenPanel, kPanelColumns, 1}, row,
                 {scratch.values_across + panel * kTokenPanel, kChunk}, column, 0, kPanelColumns);
      }
      tile.write(products + row * kChunk + column, kChunk);
    }
  }
}

/// Computes weights and flows from L and dy·valuesᵀ. Adds to dscores and to flows.within.
inline void weigh_products(const BackwardScanScratch& scratch, const float* scores, float* dscores,
                           const HeadDecay& decay, TokenFlows& flows) {
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const std::int64_t count = rounded_to(i + 1, 16), at = i * kChunk;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
      const float l = scratch.decay[at + j], product = l != 0 ? scratch.products[at + j] : 0.0f;
      const float weight = l * scores[at + j], flow = weight * product;
      scratch.weights[at + j] = weight;
      dscores[at + j] += l * product * decay.step[j];
      flows.within[j] += flow;
      scratch.flows[at + j] = flow * decay.step[j];
    }
  }
}

/// across[k] = Σ_{j < k <= i} flows[i, j].
inline void sum_across(TokenFlows& flows, const float* pairs) {
  float later[kChunk] = {};  // Σ_{i >= k} of each column
  for (std::int64_t k = kChunk - 1; k > 0; --k) {
    const std::int64_t count = rounded_to(k, 16);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) later[j] += pairs[k * kChunk + j];
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) sum += j < k ? later[j] : 0.0f;
    flows.across[k] = sum;
  }
}

/// Data for the gradients of keys or queries through a state, which is the gradient of the state
/// after the chunk, or the state before it.
struct StatePassage {
  const float* state;                       // (depth, kPanelColumns)
  const float* panel_across;                // (kPanelColumns, kChunk)
  const float* keys_across;                 // (depth, kChunk)
  const float *key_factors, *flow_factors;  // indexed by token
};

/// dkeys (depth, kChunk) += key_factors ∘ (state·panel_across), and flows += flow_factors ∘ Σ over
/// the depth of (state·panel_across) ∘ keys_across.
template <int kLanes>
inline void add_key_gradient(float* dkeys, float* flows, const StatePassage& passage,
                             std::int64_t depth) {
  using Tile = SumTile<kLanes>;
  typedef typename Tile::Floats Floats;
  for_tiles<kLanes>(
      depth, kChunk, {passage.state, kPanelColumns, 1}, {passage.panel_across, kChunk},
      kPanelColumns, [=](std::int64_t row, std::int64_t column, const Tile& tile) {
        Floats left, right, first, second, sum_left = {}, sum_right = {};
        Tile::load(left, right, passage.key_factors + column);
#pragma GCC unroll 8
        for (int r = 0; r < Tile::kRows; ++r) {
          const std::int64_t at = (row + r) * kChunk + column;
          Tile::load(first, second, passage.keys_across + at);
          sum_left += tile.sums[r][0] * first;
          sum_right += tile.sums[r][1] * second;
          Tile::load(first, second, dkeys + at);
          Tile::store(dkeys + at, first + tile.sums[r][0] * left, second + tile.sums[r][1] * right);
        }
        Tile::load(left, right, passage.flow_factors + column);
        Tile::load(first, second, flows + column);
        Tile::store(flows + column, first + sum_left * left, second + sum_right * right);
      });
}

/// dvalues of a panel = Δ ∘ (weightsᵀ·dy + e^(c_63 − c) ∘ B·dstate) + skip·dy.
template <int kLanes>
inline void fill_dvalues(const BackwardScanScratch& scratch, const float* dy, const float* dstate,
                         const HeadDecay& decay, std::int64_t depth, float skip) {
  using Tile = SumTile<kLanes>;
  for (std::int64_t row = 0; row < kChunk; row += Tile::kRows) {
    for (std::int64_t column = 0; column < kPanelColumns; column += Tile::kColumns) {
      Tile tile;
      tile.add({scratch.keys, depth, 1}, row, {dstate, kPanelColumns}, column, 0, depth);
      tile.scale(decay.to_end + row);
      tile.add({scratch.weights, 1, kChunk}, row, {dy, kPanelColumns}, column, row, kChunk);
      tile.scale(decay.step + row);
      tile.write(scratch.dvalues + row * kPanelColumns + column, kPanelColumns);
    }
  }
  if (skip == 0) return;
#pragma omp simd
  for (std::int64_t i = 0; i < kTokenPanel; ++i) scratch.dvalues[i] += skip * dy[i];
}

/// dstate = e^c of the whole chunk · dstate + Cᵀ·(e^c ∘ dy). Overwrites dy.
template <int kLanes>
inline void step_back_state(float* dstate, float* dy, const float* queries, const HeadDecay& decay,
                            std::int64_t depth) {
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const float factor = decay.from_start[i];
#pragma omp simd
    for (std::int64_t c = 0; c < kPanelColumns; ++c) dy[i * kPanelColumns + c] *= factor;
  }
  add_product<kLanes>(dstate, kPanelColumns, decay.whole(), depth, kPanelColumns,
                      {queries, 1, depth}, {dy, kPanelColumns}, kChunk);
}

/// Returns ⟨x, y⟩ over all rows of panels. Adds parts in double, so that long sums stay precise.
inline double dot_of_panels(const float* x, const float* y, std::int64_t count) {
  constexpr std::int64_t kPart = 8 * kPanelColumns;
  double all = 0;
  for (std::int64_t begin = 0; begin < count; begin += kPart) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < begin + kPart; ++i) sum += x[i] * y[i];
    all += static_cast<double>(sum);
  }
  return all;
}

/// Writes the gradients of a chunk's steps, and adds to the gradients of log_rate and step_bias.
inline void finish_steps(const StateSpaceGradients& gradients, const ChunkReader& reader,
                         const HeadBlock& block, std::int64_t head, std::int64_t chunk,
                         const HeadDecay& decay, const TokenFlows& flows, ScanHeadSums& sums) {
  const std::int64_t of_all = block.first_head + head;
  const float rate = reader.rate(of_all);
  const bool decays = rate != -std::numeric_limits<float>::infinity();
  float dstep[kChunk];
  double before[kChunk], given = flows.whole, taken = 0;
  for (std::int64_t k = 0; k < kChunk; ++k) {
    before[k] = given;
    given += static_cast<double>(decay.step[k]) * static_cast<double>(flows.out[k]);
  }
  for (std::int64_t k = kChunk - 1; k >= 0; --k) {
    taken += static_cast<double>(flows.in[k]);
    const double dlog_decay = static_cast<double>(flows.across[k]) + taken + before[k];
    const double by_rate = decays ? static_cast<double>(rate) * dlog_decay : 0.0;
    sums.log_rate += by_rate * static_cast<double>(decay.step[k]);
    dstep[k] = static_cast<float>(
        (by_rate + static_cast<double>(flows.within[k]) + static_cast<double>(flows.out[k])) *
        static_cast<double>(decay.slope[k]));
  }
  for (std::int64_t k = 0; k < reader.tokens(chunk); ++k)
    sums.step_bias += static_cast<double>(dstep[k]);
  if (gradients.steps) reader.write_steps(gradients.steps, dstep, block, head, chunk);
}

inline void read_head_panels(const BackwardScanScratch& scratch, const Tensor& dy,
                             const ChunkReader& reader, const HeadBlock& block, std::int64_t head,
                             std::int64_t chunk) {
  for (std::int64_t panel = 0; panel < reader.sizes.panels; ++panel) {
    const std::int64_t at = panel * kTokenPanel;
    reader.read_panel(scratch.values + at, reader.values(), block, head, panel, chunk);
    reader.read_panel(scratch.dy + at, dy, block, head, panel, chunk);
    transpose(scratch.values_across + at, scratch.values + at, kChunk, kPanelColumns);
    transpose(scratch.dy_across + at, scratch.dy + at, kChunk, kPanelColumns);
  }
}

/// Computes the gradients of a chunk for one head, from the states before the chunk and the
/// gradient of the state after it.
template <int kLanes>
inline void backward_chunk(const StateSpaceGradients& gradients, const Tensor& dy,
                           const ChunkReader& reader, const HeadBlock& block, std::int64_t head,
                           std::int64_t chunk, const float* scores, const KeyGradients& of_keys,
                           const BackwardScanScratch& scratch, ScanHeadSums& sums) {
  const ScanSizes& sizes = reader.sizes;
  const HeadDecay decay = reader.decay(block, head, chunk);
  const std::int64_t panel_state = sizes.depth * kPanelColumns;
  float* const dstates = scratch.dstates + head * sizes.state_elements();
  const float* const states =
      scratch.states + (chunk * sizes.heads_of_block + head) * sizes.state_elements();
  read_head_panels(scratch, dy, reader, block, head, chunk);
  TokenFlows flows;
  fill_decay_matrix(scratch.decay, decay, sizes.spec.shifted);
  multiply_pairs<kLanes>(scratch.products, scratch, sizes.panels);
  for (std::int64_t i = 0; i < kChunk; ++i)
    sums.skip += static_cast<double>(scratch.products[i * kChunk + i]);
  weigh_products(scratch, scores, of_keys.scores, decay, flows);
  sum_across(flows, scratch.flows);
  float joins[kChunk];
  for (std::int64_t j = 0; j < kChunk; ++j) joins[j] = decay.step[j] * decay.to_end[j];
  for (std::int64_t panel = 0; panel < sizes.panels; ++panel) {
    const std::int64_t at = panel * kTokenPanel;
    float* const dstate = dstates + panel * panel_state;
    const float* const state = states + panel * panel_state;
    fill_dvalues<kLanes>(scratch, scratch.dy + at, dstate, decay, sizes.depth,
                         reader.skip(block.first_head + head));
    if (gradients.values)
      reader.write_panel(gradients.values, scratch.dvalues, block, head, panel, chunk);
    add_key_gradient<kLanes>(
        of_keys.queries, flows.in,
        {state, scratch.dy_across + at, scratch.queries_across, decay.from_start, decay.from_start},
        sizes.depth);
    add_key_gradient<kLanes>(
        of_keys.keys, flows.out,
        {dstate, scratch.values_across + at, scratch.keys_across, joins, decay.to_end},
        sizes.depth);
    flows.whole += static_cast<double>(decay.whole()) * dot_of_panels(dstate, state, panel_state);
    step_back_state<kLanes>(dstate, scratch.dy + at, scratch.queries, decay, sizes.depth);
  }
  finish_steps(gradients, reader, block, head, chunk, decay, flows, sums);
}

namespace {

/// Computes the states before each chunk of a block of heads.
template <int kLanes>
inline void compute_states(const StateSpaceInput& input, const ChunkReader& reader,
                           const HeadBlock& block, const BackwardScanScratch& scratch) {
  const ScanSizes& sizes = reader.sizes;
  const std::int64_t of_head = sizes.state_elements(), panel_state = sizes.depth * kPanelColumns;
  read_states(scratch.states, input.first_state, block, sizes);
  for (std::int64_t chunk = 0; chunk + 1 < sizes.chunks; ++chunk) {
    const float* const before = scratch.states + chunk * sizes.heads_of_block * of_head;
    float* const behind = scratch.states + (chunk + 1) * sizes.heads_of_block * of_head;
    std::copy_n(before, block.heads * of_head, behind);
    reader.read_keys(scratch.keys, block, chunk);
    for (std::int64_t head = 0; head < block.heads; ++head) {
      const HeadDecay decay = reader.decay(block, head, chunk);
      for (std::int64_t panel = 0; panel < sizes.panels; ++panel) {
        reader.read_panel(scratch.values, reader.values(), block, head, panel, chunk);
        advance_state<kLanes>(behind + head * of_head + panel * panel_state, scratch.values,
                              scratch.keys, decay, sizes.depth);
      }
    }
  }
}

struct BackwardScan {
  const StateSpaceGradients& gradients;
  const Tensor &dy, &dlast_state;
  const StateSpaceInput& input;
  const ChunkReader& reader;
  const ChunkScores& scores;
  ScanHeadSums* sums;  // (batch, heads)
};

/// Computes the gradients of a block of heads. Adds the group's key gradients to `of_keys`.
template <int kLanes>
inline void backward_scan_block(const BackwardScan& scan, std::int64_t group,
                                const HeadBlock& block, float* of_keys,
                                const BackwardScanScratch& scratch) {
  const ScanSizes& sizes = scan.reader.sizes;
  ScanHeadSums* const sums = scan.sums + block.sequence * sizes.spec.heads + block.first_head;
  compute_states<kLanes>(scan.input, scan.reader, block, scratch);
  std::fill_n(sums, block.heads, ScanHeadSums{});
  read_states(scratch.dstates, scan.dlast_state, block, sizes);
  for (std::int64_t chunk = sizes.chunks - 1; chunk >= 0; --chunk) {
    scan.reader.read_keys(scratch.keys, block, chunk);
    scan.reader.read_queries(scratch.queries, block, chunk);
    transpose(scratch.keys_across, scratch.keys, kChunk, sizes.depth);
    transpose(scratch.queries_across, scratch.queries, kChunk, sizes.depth);
    for (std::int64_t head = 0; head < block.heads; ++head) {
      backward_chunk<kLanes>(scan.gradients, scan.dy, scan.reader, block, head, chunk,
                             scan.scores.of(group, chunk), KeyGradients(of_keys, sizes, chunk),
                             scratch, sums[head]);
    }
  }
  write_states(scan.gradients.first_state, scratch.dstates, block, sizes);
}

/// Computes dB and dC of a chunk of a group from the sums of `shares` tasks.
template <int kLanes>
inline void finish_keys(const StateSpaceGradients& gradients, const ChunkReader& reader,
                        std::int64_t group, std::int64_t chunk, float* tasks, std::int64_t shares,
                        float* scratch) {
  if (!gradients.values) return;
  const ScanSizes& sizes = reader.sizes;
  const std::int64_t of_keys = sizes.key_elements(), depth = sizes.depth;
  float *const keys = scratch, *const queries = keys + of_keys, *const result = queries + of_keys;
  const KeyGradients sums(tasks, sizes, chunk);
  for (std::int64_t share = 1; share < shares; ++share) {
    const KeyGradients more(tasks + share * KeyGradients::elements(sizes), sizes, chunk);
#pragma omp simd
    for (std::int64_t i = 0; i < 2 * of_keys + kPairs; ++i) sums.keys[i] += more.keys[i];
  }
  const HeadBlock block = sizes.block(group, 0);
  reader.read_keys(keys, block, chunk);
  reader.read_queries(queries, block, chunk);
  transpose(result, sums.keys, depth, kChunk);
  add_product<kLanes>(result, depth, 1, kChunk, depth, {sums.scores, 1, kChunk}, {queries, depth},
                      kChunk);
  reader.write_keys(gradients.values, result, block, chunk);
  transpose(result, sums.queries, depth, kChunk);
  add_product<kLanes>(result, depth, 1, kChunk, depth, {sums.scores, kChunk, 1}, {keys, depth},
                      kChunk);
  reader.write_queries(gradients.values, result, block, chunk);
}

/// Writes the gradients of the heads' parameters, summed over the sequences.
void finish_heads(const StateSpaceGradients& gradients, const ScanHeadSums* sums,
                  const ScanSizes& sizes) {
  const auto finish = [&](const Tensor& target, double ScanHeadSums::*sum) {
    if (!target) return;
    for (std::int64_t head = 0; head < sizes.spec.heads; ++head) {
      float& to = target.data<float>()[head];
      double all = gradients.mode == GradientMode::kAccumulate ? static_cast<double>(to) : 0.0;
      for (std::int64_t sequence = 0; sequence < sizes.batch; ++sequence)
        all += sums[sequence * sizes.spec.heads + head].*sum;
      to = static_cast<float>(all);
    }
  };
  finish(gradients.skip, &ScanHeadSums::skip);
  finish(gradients.log_rate, &ScanHeadSums::log_rate);
  finish(gradients.step_bias, &ScanHeadSums::step_bias);
}

/// Returns the number of tasks per group of a sequence, enough for all threads, with separate sums.
std::int64_t shares_of_group(const ScanSizes& sizes) {
  const std::int64_t wanted = (2 * threads() + sizes.groups() - 1) / sizes.groups();
  return std::clamp<std::int64_t>(wanted, 1, sizes.blocks_of_group);
}

/// Runs the tasks. `keys` has key and query gradients per task, or per worker if `shares` is 1.
void run_backward_scan(const BackwardScan& scan, std::int64_t shares, const Tensor& scratch,
                       std::int64_t of_worker, const Tensor& keys) {
  const ScanSizes& sizes = scan.reader.sizes;
  const std::int64_t of_task = KeyGradients::elements(sizes);
  const auto run = [&](auto lanes, std::int64_t worker, std::int64_t item) {
    const std::int64_t group = item / shares, share = item % shares;
    float* const own = scratch.data<float>() + worker * of_worker;
    float* const of_keys = keys.data<float>() + (shares == 1 ? worker : item) * of_task;
    std::fill_n(of_keys, of_task, 0.0f);
    for (std::int64_t index = sizes.blocks_of_group * share / shares;
         index < sizes.blocks_of_group * (share + 1) / shares; ++index) {
      backward_scan_block<lanes.kCount>(scan, group, sizes.block(group, index), of_keys,
                                        BackwardScanScratch(own, sizes));
    }
    for (std::int64_t chunk = 0; shares == 1 && chunk < sizes.chunks; ++chunk)
      finish_keys<lanes.kCount>(scan.gradients, scan.reader, group, chunk, of_keys, 1, own);
  };
  const auto finish = [&](auto lanes, std::int64_t worker, std::int64_t item) {
    const std::int64_t group = item / sizes.chunks;
    finish_keys<lanes.kCount>(scan.gradients, scan.reader, group, item % sizes.chunks,
                              keys.data<float>() + group * shares * of_task, shares,
                              scratch.data<float>() + worker * of_worker);
  };
  parallel_items_by_lanes(sizes.groups() * shares, run);
  if (shares > 1) parallel_items_by_lanes(sizes.groups() * sizes.chunks, finish);
}

}  // namespace

void state_space_scan_backward(const StateSpaceGradients& gradients, const Tensor& dy,
                               const Tensor& dlast_state, const StateSpaceInput& input,
                               const StateSpaceDecay& decay, const StateSpaceSpec& spec,
                               const Stream& stream) {
  const ScanSizes sizes(input, spec);
  const std::int64_t of_worker = BackwardScanScratch::elements(sizes),
                     shares = shares_of_group(sizes),
                     sets_of_keys = shares == 1 ? threads() : sizes.groups() * shares;
  constexpr std::int64_t kFloats = sizeof(ScanHeadSums) / sizeof(float);
  const ChunkScores scores(sizes, stream);
  const Tensor scratch = empty_workspace(threads() * of_worker, DType::kF32, stream);
  const Tensor keys =
      empty_workspace(sets_of_keys * KeyGradients::elements(sizes), DType::kF32, stream);
  const Tensor sums = empty_workspace(sizes.batch * spec.heads * kFloats, DType::kF32, stream);
  if (simulated(stream)) return;
  const ChunkReader reader(input, decay, sizes);
  scores.compute(reader);
  auto* const head_sums = static_cast<ScanHeadSums*>(sums.raw());
  run_backward_scan({gradients, dy, dlast_state, input, reader, scores, head_sums}, shares, scratch,
                    of_worker, keys);
  finish_heads(gradients, head_sums, sizes);
}

}  // namespace hybrid_trainer::kernels::cpu
