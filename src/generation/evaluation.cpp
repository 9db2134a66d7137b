#include "src/generation/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/text_head.h"

namespace hybrid_trainer {

namespace {

/// Returns the head of a model whose loss compares the texts of a batch, else null.
const TextHead* comparing_head(LossModel& model) {
  const TextHead* const head = model.text_head();
  return head != nullptr && head->text_loss().compares_examples() ? head : nullptr;
}

/// Returns the loss of a batch from the outputs of all its texts, which `parts` passes compute.
Tensor compared_loss(LossModel& model, const TextHead& head, const Batch& batch, const Pass& pass,
                     std::int64_t parts, const Stream& stream) {
  const std::int64_t count = batch.size(), size = (count + parts - 1) / parts;
  const std::int64_t slots = batch.at("ends").size(1);
  const Tensor outputs =
      Tensor::empty({count * slots, head.outputs()}, DType::kF32, MemoryKind::kWorkspace, stream);
  for (std::int64_t part = 0; part < parts; ++part) {
    // Ranks make equally many passes, although the last batch may have fewer sequences.
    const std::int64_t begin = std::min(part * size, count - 1);
    const std::int64_t end = std::min(begin + size, count);
    copy(outputs.rows(begin * slots, end * slots),
         dynamic_cast<LanguageModel&>(model).text_outputs(batch.examples(begin, end), pass, stream),
         stream);
  }
  return head.text_loss().compute(outputs, batch, 0, stream);
}

/// Returns the sum of a batch's losses. Doubles `parts` if memory is short and `may_split` is true.
double wait_for_summed_loss(LossModel& model, const Batch& batch, const Pass& pass,
                            std::int64_t& parts, bool may_split, const Stream& stream) {
  const TextHead* const head = comparing_head(model);
  for (;;) {
    try {
      if (head != nullptr) {
        const Tensor loss = compared_loss(model, *head, batch, pass, parts, stream);
        return kernels::wait_for_value(loss, stream) * batch.loss_divisor();
      }
      double sum = 0;
      const std::int64_t size = batch.size() / parts;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Batch examples = batch.examples(part * size, (part + 1) * size);
        ForwardOnlyTape tape(pass);
        const Tensor loss = model.forward(examples, 1.0f, tape, stream);
        sum += kernels::wait_for_value(loss, stream) * examples.loss_divisor();
      }
      return sum;
    } catch (const OutOfMemory&) {
      if (!may_split || parts >= batch.size()) throw;
      if (head == nullptr && batch.size() % (2 * parts) != 0) throw;
      if (PreferenceLoss* const preference = model.preference()) preference->clear(stream);
      parts *= 2;
      stream.synchronize();
      stream.pool()->trim();
    }
  }
}

struct BatchLoss {
  double sum = 0, tokens = 0;
  PreferenceLoss::Measures preference{};
};

/// Merges the results of all ranks in the order of the batches.
std::vector<BatchLoss> in_order(const std::vector<BatchLoss>& own, std::int64_t batches,
                                const EvaluationShare& share) {
  if (share.count == 1) return own;
  const std::vector<std::string> all = share.gather(
      std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(BatchLoss)));
  for (std::size_t index = 0; index < all.size(); ++index) {
    const auto rest = batches - static_cast<std::int64_t>(index) + share.count - 1;
    require(all[index].size() == static_cast<std::size_t>(rest / share.count) * sizeof(BatchLoss),
            "ranks that share an evaluation must have the same batches");
  }
  std::vector<BatchLoss> losses(static_cast<std::size_t>(batches));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto count = static_cast<std::size_t>(share.count);
    std::memcpy(&losses[i], all.at(i % count).data() + i / count * sizeof(BatchLoss),
                sizeof(BatchLoss));
  }
  return losses;
}

}  // namespace

EvaluationResult evaluate(LossModel& model, const OrderedBatches& batches, DType dtype,
                          const Stream& stream, const EvaluationShare& share,
                          std::int64_t segment_length, std::int64_t parts) {
  const std::int64_t count = batches.batches();
  const bool compares = comparing_head(model) != nullptr;
  std::vector<BatchLoss> own;
  BatchUpload upload;
  for (std::int64_t round = 0; round * share.count < count; ++round) {
    const std::int64_t mine = round * share.count + share.index;
    if (mine >= count && !share.in_step) break;
    const Batch batch = upload.to_device(batches.batch(std::min(mine, count - 1)), stream);
    // The last batch may be smaller.
    if (!compares && batch.size() % parts != 0) parts = batch.size();
    const Pass pass{.training = false,
                    .dtype = dtype,
                    .segment = model.segment_for(segment_length, batch.tokens_per_example())};
    PreferenceLoss* const preference = batch.find("halves") ? model.preference() : nullptr;
    if (preference != nullptr) preference->clear(stream);
    BatchLoss loss{wait_for_summed_loss(model, batch, pass, parts, !share.in_step, stream),
                   batch.loss_divisor()};
    if (preference != nullptr) loss.preference = preference->take(stream);
    if (mine < count) own.push_back(loss);
  }
  EvaluationResult result;
  double sum = 0, tokens = 0;
  PreferenceLoss::Measures preference;
  for (const BatchLoss& one : in_order(own, count, share)) {
    sum += one.sum;
    tokens += one.tokens;
    preference += one.preference;
  }
  if (preference.pairs > 0)
    result.preference = {preference.reward_chosen / preference.pairs,
                         preference.reward_rejected / preference.pairs,
                         preference.right / preference.pairs};
  result.tokens = std::llround(tokens);
  result.loss = sum / tokens;
  result.perplexity = std::exp(result.loss);
  if (!std::isfinite(result.loss))
    throw Diverged(concat("the loss over the validation split is ", result.loss,
                          ": the model's weights are damaged, or its training diverged"));
  return result;
}

/// Returns the log-probability of a token after the text of this row of the decoder's last pass.
double ContinuationScores::log_probability(std::int64_t row, std::int32_t token) const {
  const std::span<const float> logits = decoder_.logits(row);
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double value =
      static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum);
  if (!std::isfinite(value))
    throw Diverged(
        "a logit is not finite: the model's weights are damaged, or its training diverged");
  return value;
}

/// Uses the logits after the prompt for the first token of each continuation. Does not process the
/// last tokens, because nothing follows them.
std::vector<double> ContinuationScores::log_likelihoods(
    std::span<const std::int32_t> prompt,
    std::span<const std::vector<std::int32_t>> continuations) {
  std::vector<double> sums;
  decoder_.see(prompt);
  for (const std::vector<std::int32_t>& tokens : continuations) {
    require(!tokens.empty() && std::ssize(prompt) + std::ssize(tokens) <= decoder_.context(),
            "log_likelihoods: want at least one token, and at most the context");
    sums.push_back(log_probability(0, tokens.front()));
  }
  for (std::size_t i = 0; i < continuations.size(); ++i) {
    const std::vector<std::int32_t>& tokens = continuations[i];
    if (tokens.size() == 1) continue;
    std::vector<std::int32_t> text(prompt.begin(), prompt.end());
    text.insert(text.end(), tokens.begin(), tokens.end() - 1);
    decoder_.see(text, {.drafted = std::ssize(tokens) - 2});
    for (std::size_t at = 1; at < tokens.size(); ++at)
      sums[i] += log_probability(static_cast<std::int64_t>(at) - 1, tokens[at]);
  }
  return sums;
}

}  // namespace hybrid_trainer
