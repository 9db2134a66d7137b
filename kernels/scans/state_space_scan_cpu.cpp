#include "kernels/scans/state_space_scan_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

struct ForwardScanScratch {
  static std::int64_t elements(const ScanSizes& sizes) {
    return sizes.heads_of_block * sizes.state_elements() + 2 * sizes.key_elements() +
           2 * kTokenPanel + kPairs;
  }
  ForwardScanScratch(float* base, const ScanSizes& sizes)
      : states(base),
        keys(states + sizes.heads_of_block * sizes.state_elements()),
        queries(keys + sizes.key_elements()),
        values(queries + sizes.key_elements()),
        outputs(values + kTokenPanel),
        weights(outputs + kTokenPanel) {}
  float *states, *keys, *queries;  // of the block's heads; B and C of a chunk
  float *values, *outputs;         // of a panel
  float* weights;                  // L ∘ C·Bᵀ ∘ Δ of a head
};

/// weights[i, j] = L·scores·Δ_j for j <= i.
inline void weigh_pairs(float* weights, const float* scores, const HeadDecay& decay, bool shifted) {
  fill_decay_matrix(weights, decay, shifted);
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const std::int64_t count = rounded_to(i + 1, 16);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      weights[i * kChunk + j] *= scores[i * kChunk + j] * decay.step[j];
  }
}

/// outputs = e^c ∘ C·S + weights·values + skip·values.
template <int kLanes>
inline void scan_panel(const ForwardScanScratch& scratch, const float* state,
                       const HeadDecay& decay, std::int64_t depth, float skip) {
  constexpr std::int64_t kRows = SumTile<kLanes>::kRows;
  for (std::int64_t row = 0; row < kChunk; row += kRows) {
    for (std::int64_t column = 0; column < kPanelColumns; column += SumTile<kLanes>::kColumns) {
      SumTile<kLanes> tile;
      tile.add({scratch.queries, depth, 1}, row, {state, kPanelColumns}, column, 0, depth);
      tile.scale(decay.from_start + row);
      tile.add({scratch.weights, kChunk, 1}, row, {scratch.values, kPanelColumns}, column, 0,
               row + kRows);
      tile.write(scratch.outputs + row * kPanelColumns + column, kPanelColumns);
    }
  }
  if (skip == 0) return;
#pragma omp simd
  for (std::int64_t i = 0; i < kTokenPanel; ++i) scratch.outputs[i] += skip * scratch.values[i];
}

/// Computes one chunk of one head, and advances the head's state.
template <int kLanes>
inline void forward_chunk(const Tensor& y, const ChunkReader& reader, const HeadBlock& block,
                          std::int64_t head, std::int64_t chunk, const float* scores,
                          const ForwardScanScratch& scratch) {
  const ScanSizes& sizes = reader.sizes;
  const HeadDecay decay = reader.decay(block, head, chunk);
  weigh_pairs(scratch.weights, scores, decay, sizes.spec.shifted);
  for (std::int64_t panel = 0; panel < sizes.panels; ++panel) {
    float* const state =
        scratch.states + head * sizes.state_elements() + panel * sizes.depth * kPanelColumns;
    reader.read_panel(scratch.values, reader.values(), block, head, panel, chunk);
    scan_panel<kLanes>(scratch, state, decay, sizes.depth, reader.skip(block.first_head + head));
    reader.write_panel(y, scratch.outputs, block, head, panel, chunk);
    advance_state<kLanes>(state, scratch.values, scratch.keys, decay, sizes.depth);
  }
}

template <int kLanes>
inline void forward_scan_block(const Tensor& y, const Tensor& last_state, const Tensor& first_state,
                               const ChunkReader& reader, const ChunkScores& scores,
                               std::int64_t group, const HeadBlock& block,
                               const ForwardScanScratch& scratch) {
  const ScanSizes& sizes = reader.sizes;
  read_states(scratch.states, first_state, block, sizes);
  for (std::int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
    reader.read_keys(scratch.keys, block, chunk);
    reader.read_queries(scratch.queries, block, chunk);
    for (std::int64_t head = 0; head < block.heads; ++head)
      forward_chunk<kLanes>(y, reader, block, head, chunk, scores.of(group, chunk), scratch);
  }
  write_states(last_state, scratch.states, block, sizes);
}

/// Sizes and factors of one head at one token.
struct StepHead {
  float decay, step, skip;
  std::int64_t head_size, state_size;
};

/// row = decay·row + joins·key. Returns ⟨row, query⟩; if kShifted, without the term joins·key.
template <bool kShifted, class T>
inline float step_row(float* row, float decay, float joins, const T* key, const T* query,
                      std::int64_t size) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t n = 0; n < size; ++n) {
    const float kept = decay * row[n], all = kept + joins * load(key + n);
    sum += (kShifted ? kept : all) * load(query + n);
    row[n] = all;
  }
  return sum;
}

/// state (P, N) = decay·state + step·x·Bᵀ, y = state·C + skip·x.
template <bool kShifted, class T>
inline void step_head(T* y, float* state, const T* x, const T* key, const T* query,
                      const StepHead& head) {
  for (std::int64_t p = 0; p < head.head_size; ++p) {
    const float value = load(x + p);
    const float sum = step_row<kShifted>(state + p * head.state_size, head.decay, head.step * value,
                                         key, query, head.state_size);
    store(y + p, sum + head.skip * value);
  }
}

}  // namespace

void state_space_scan_forward(const Tensor& y, const Tensor& last_state,
                              const StateSpaceInput& input, const StateSpaceDecay& decay,
                              const StateSpaceSpec& spec, const Stream& stream) {
  const ScanSizes sizes(input, spec);
  const std::int64_t of_worker = ForwardScanScratch::elements(sizes);
  const ChunkScores scores(sizes, stream);
  const Tensor scratch = empty_workspace(threads() * of_worker, DType::kF32, stream);
  if (simulated(stream)) return;
  const ChunkReader reader(input, decay, sizes);
  scores.compute(reader);
  parallel_items_by_lanes(
      sizes.groups() * sizes.blocks_of_group,
      [&, of_worker](auto lanes, std::int64_t worker, std::int64_t item) {
        const std::int64_t group = item / sizes.blocks_of_group;
        forward_scan_block<lanes.kCount>(
            y, last_state, input.first_state, reader, scores, group,
            sizes.block(group, item % sizes.blocks_of_group),
            ForwardScanScratch(scratch.data<float>() + worker * of_worker, sizes));
      });
}

void state_space_scan_step(const Tensor& y, const Tensor& state, const Tensor& values,
                           const Tensor& steps, const Tensor& skip, const StateSpaceDecay& decay,
                           const Tensor& texts, const StateSpaceSpec& spec, const Stream&) {
  const float *const rate = optional_data<float>(decay.log_rate),
                     *const bias = optional_data<float>(decay.step_bias),
                     *const skips = optional_data<float>(skip);
  const std::int64_t of_head = spec.head_size * spec.state_size, width = spec.columns();
  const std::int64_t step_width = steps ? steps.size(1) : 0;
  visit_real(values.dtype(), [&]<class T>(T) {
    const T* const in = values.data<T>();
    const T* const raw = steps ? steps.data<T>() + step_width - spec.heads : nullptr;
    T* const out = y.data<T>();
    float* const states = state.data<float>();
    const std::int32_t* const text = texts.data<std::int32_t>();
    for_each_row(values.size(0) * spec.heads, of_head, [=](std::int64_t item) {
      const std::int64_t row = item / spec.heads, h = item % spec.heads;
      const T* const key =
          in + row * width + spec.values() + h / (spec.heads / spec.groups) * spec.state_size;
      StepHead head{1, 1, skips ? skips[h] : 0, spec.head_size, spec.state_size};
      if (raw != nullptr) {
        const Step step = step_of(load(raw + row * step_width + h) + bias[h], spec);
        head.step = step.size;
        head.decay = decay_of(log_decay_of(-std::exp(rate[h]), step.size));
      }
      T* const to = out + row * spec.values() + h * spec.head_size;
      float* const head_state = states + (text[row] * spec.heads + h) * of_head;
      const T *const x = in + row * width + h * spec.head_size, *const query =
                                                                    key +
                                                                    spec.groups * spec.state_size;
      if (spec.shifted) {
        step_head<true>(to, head_state, x, key, query, head);
      } else {
        step_head<false>(to, head_state, x, key, query, head);
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
