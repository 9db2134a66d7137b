#include "kernels/cpu/state_space_chunk_backward.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// The states before each chunk of a block of heads.
template <int kLanes>
inline void compute_states(const StateSpaceInput& input, const ChunkReader& reader,
                           const HeadBlock& block, const BackwardScanScratch& scratch) {
  const ScanSizes& sizes = reader.sizes;
  const std::int64_t of_head = sizes.state_elements(), panel_state = sizes.depth * kPanelColumns;
  for (std::int64_t head = 0; head < block.heads; ++head)
    read_state(scratch.states + head * of_head,
               sizes.state_of(input.first_state, block.sequence, block.first_head + head), sizes);
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

/// What backward reads and writes, beside the gradients of the keys.
struct BackwardScan {
  const StateSpaceGradients& gradients;
  const Tensor &dy, &dlast_state;
  const StateSpaceInput& input;
  const ChunkReader& reader;
  const ChunkScores& scores;
  ScanHeadSums* sums;  // (batch, heads)
};

/// One block of heads of a sequence; adds to the gradients of the group's keys at `of_keys`.
template <int kLanes>
inline void backward_scan_block(const BackwardScan& scan, std::int64_t group,
                                const HeadBlock& block, float* of_keys,
                                const BackwardScanScratch& scratch) {
  const ScanSizes& sizes = scan.reader.sizes;
  ScanHeadSums* const sums = scan.sums + block.sequence * sizes.spec.heads + block.first_head;
  compute_states<kLanes>(scan.input, scan.reader, block, scratch);
  for (std::int64_t head = 0; head < block.heads; ++head) {
    sums[head] = {};
    read_state(scratch.dstates + head * sizes.state_elements(),
               sizes.state_of(scan.dlast_state, block.sequence, block.first_head + head), sizes);
  }
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
  for (std::int64_t head = 0; scan.gradients.first_state && head < block.heads; ++head) {
    write_state(sizes.state_of(scan.gradients.first_state, block.sequence, block.first_head + head),
                scratch.dstates + head * sizes.state_elements(), sizes);
  }
}

/// dB and dC of a chunk of a group from what `shares` tasks added up.
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

/// Adds up the heads' sums over the sequences.
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

/// Tasks of one group of a sequence, each with sums of its own: as many as keep all threads busy.
std::int64_t shares_of_group(const ScanSizes& sizes) {
  const std::int64_t wanted = (2 * threads() + sizes.groups() - 1) / sizes.groups();
  return std::clamp<std::int64_t>(wanted, 1, sizes.blocks_of_group);
}

/// Runs the tasks. `keys`: of each task; of each worker where a group is one task.
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
