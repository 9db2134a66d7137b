#include <numeric>

#include "hybrid_trainer/nn/text_head.h"
#include "src/trainer/step/gradient_path.h"

namespace hybrid_trainer {

namespace {

std::vector<std::int64_t> all_leaves(std::int64_t count) {
  std::vector<std::int64_t> leaves(static_cast<std::size_t>(count));
  std::iota(leaves.begin(), leaves.end(), 0);
  return leaves;
}

/// Outputs of the texts of equal micro-batches, a row per text slot.
class LeafOutputs {
 public:
  LeafOutputs(std::int64_t leaves, std::int64_t slots, std::int64_t width, MemoryKind kind,
              const Stream& stream)
      : slots_(slots), all_(Tensor::empty({leaves * slots, width}, DType::kF32, kind, stream)) {}
  Tensor of(std::int64_t leaf, std::int64_t count = 1) const {
    return all_.rows(leaf * slots_, (leaf + count) * slots_);
  }
  Tensor flat() const { return all_.view({all_.elements()}); }

 private:
  std::int64_t slots_;
  Tensor all_;
};

}  // namespace

// The gradient of the outputs needs the outputs of all micro-batches, but backward needs the
// activations of only one. Forward therefore runs twice for each micro-batch. Source: Gao et al.
// 2021, "Scaling deep contrastive learning batch size under memory limited setup" (GradCache).
Batch GradientPath::with_output_gradients(const Batch& batch, StepRetry& retry) {
  const TextHead* const head = parts_.pass.comparing_head();
  const std::int64_t count = parts_.micro_batches.of(batch);
  if (head == nullptr || count == 1) return batch;
  const Stream& stream = parts_.stream;
  LeafGradients* const sums = leaves();
  const bool gathers = involves_peers();
  const int rank = sums == nullptr ? 0 : sums->ranks().rank();
  std::vector<std::int64_t> compared,
      elements;  // micro-batches by rank, and sizes of their outputs
  const std::vector<std::int64_t> mine =
      sums == nullptr ? all_leaves(count) : sums->leaves_of_rank(count, rank);
  const std::int64_t slots = batch.at("ends").elements() / count, width = head->outputs();
  std::int64_t own_first = 0;
  for (int other = 0; gathers && other < sums->ranks().size(); ++other) {
    if (other == rank) own_first = std::ssize(compared);
    const std::vector<std::int64_t> theirs = sums->leaves_of_rank(count, other);
    compared.insert(compared.end(), theirs.begin(), theirs.end());
    elements.push_back(std::ssize(theirs) * slots * width);
  }
  if (!gathers) compared = mine;

  const LeafOutputs gathered(std::ssize(compared), slots, width, MemoryKind::kWorkspace, stream);
  const std::int64_t rounds = sums == nullptr ? count : sums->rounds(count);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const bool counts = round < std::ssize(mine);
    const std::int64_t index = counts ? mine[static_cast<std::size_t>(round)] : mine.back();
    if (parts_.parts != nullptr) parts_.parts->begin_forward(stream);
    for (bool is_done = false; !is_done;) {
      try {
        const Tensor found = parts_.pass.enqueue_outputs(
            MemoryRetry::computed_part(parts_.micro_batches.part(batch, index), retry), index);
        if (counts && retry == StepRetry::kNone)
          copy(gathered.of(own_first + round), found, stream);
        is_done = true;
      } catch (const OutOfMemory& error) {
        if (!gathers) throw;
        parts_.retry.reduce_memory(batch, error, retry, parts_.optimizer);
      }
    }
  }
  if (gathers) {
    retry = parts_.retry.wait_for_common_retry(retry);
    if (retry != StepRetry::kNone) return batch;
    sums->ranks().gather_parts(gathered.flat(), elements, stream);
  }

  const LeafOutputs outputs(count, slots, width, MemoryKind::kActivations, stream);
  for (std::int64_t i = 0; i < std::ssize(compared); ++i)
    copy(outputs.of(compared[static_cast<std::size_t>(i)]), gathered.of(i), stream);
  // Without other ranks, this rank's micro-batches are consecutive.
  const std::int64_t first = gathers ? 0 : compared.front(), size = batch.size() / count;
  const std::int64_t last = first + std::ssize(compared);
  const float scale = parts_.pass.loss_scale() * static_cast<float>(last - first);
  const Tensor loss = head->text_loss().compute(outputs.of(first, last - first),
                                                batch.examples(first * size, last * size),
                                                scale / static_cast<float>(count), stream);
  const Tensor losses =
      Tensor::zeros({batch.size()}, DType::kF64, MemoryKind::kActivations, stream);
  for (std::int64_t leaf = first; leaf < last; ++leaf)
    copy(losses.rows(leaf * size, leaf * size + 1), loss, stream);
  std::vector<NamedTensor> tensors = batch.tensors();
  tensors.push_back(
      {"output_gradients", outputs.flat().view({batch.size(), slots * width / size})});
  tensors.push_back({"step_loss", losses});
  Batch with_gradients(std::move(tensors), batch.tokens_per_example());
  with_gradients.set_targets(batch.targets());
  return with_gradients;
}

}  // namespace hybrid_trainer
