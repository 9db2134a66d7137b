#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/text_loss.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {

/// Returns two sequences of 40 tokens with 4 and 3 of 5 text slots in use, padded after 28 and 24
/// tokens, with the labels of a loss: 3 classes or 2 numbers per text, or one number per pair.
inline Batch texts_batch(TextLoss::Kind kind, std::int64_t vocabulary, const Stream& stream,
                         bool has_types = false) {
  using Kind = TextLoss::Kind;
  const bool compares = kind >= Kind::kContrastive;
  TextBatchForm form{.sequences = 2,
                     .sequence_length = 40,
                     .has_types = has_types,
                     .has_classes = kind == Kind::kClass};
  if (kind == Kind::kLabels || kind == Kind::kRegression) form.labels = 2;
  if (kind == Kind::kCosent || kind == Kind::kCosine) form.labels = 1;
  Batch batch = empty_text_batch(form, stream);
  const auto integers = [&](const char* name) { return batch.at(name).data<std::int32_t>(); };
  copy(batch.at("tokens"), random_tokens({2, 40}, vocabulary, 3, stream), stream);
  if (has_types) copy(batch.at("types"), random_tokens({2, 40}, 2, 4, stream), stream);
  std::int32_t ends[10] = {5, 12, 21, 28, 0, 9, 18, 24, 0, 0};
  std::int32_t roles[10] = {0, 1, 0, 1, -1, 0, 1, 2, -1, -1};
  if (kind != Kind::kContrastive) roles[7] = -1, ends[7] = 0;  // no further negative
  std::int64_t examples = 0;
  for (std::int64_t i = 0; i < 10; ++i) {
    if (!compares && roles[i] > 0) roles[i] = 0;
    integers("ends")[i] = ends[i];
    integers("roles")[i] = roles[i];
    examples += roles[i] == 0 ? 1 : 0;
    if (form.has_classes)
      integers("classes")[i] = roles[i] == 0 ? static_cast<std::int32_t>(i % 3) : kNoTarget;
    for (std::int64_t j = 0; j < form.labels; ++j) {
      const float label = kind == Kind::kLabels ? static_cast<float>((i + j) % 2)
                                                : 0.3f * static_cast<float>((i + 2 * j) % 4);
      batch.at("labels").data<float>()[i * form.labels + j] = roles[i] == 0 ? label : 0;
    }
  }
  for (std::int64_t b = 0; b < 2; ++b) {
    std::int32_t begin = 0, t = 0;
    for (std::int64_t s = 0; s < 5; ++s) {
      for (; t < ends[5 * b + s]; ++t) {
        integers("positions")[40 * b + t] = t - begin;
        integers("is_token")[40 * b + t] = 1;
      }
      begin = t;
    }
    for (; t < 40; ++t) integers("positions")[40 * b + t] = integers("is_token")[40 * b + t] = 0;
  }
  batch.set_targets(static_cast<double>(examples));
  return batch;
}

/// Returns all kinds of loss; losses of cosines also symmetric and with several dimensions.
inline std::vector<TextLoss> text_losses() {
  using Kind = TextLoss::Kind;
  return {{.kind = Kind::kClass},
          {.kind = Kind::kLabels},
          {.kind = Kind::kRegression},
          {.kind = Kind::kContrastive, .scale = 5},
          {.kind = Kind::kContrastive, .scale = 5, .symmetric = true},
          {.kind = Kind::kContrastive, .scale = 5, .symmetric = true, .dimensions = {8, 3}},
          {.kind = Kind::kCosent, .scale = 5},
          {.kind = Kind::kCosent, .scale = 5, .dimensions = {8, 3}},
          {.kind = Kind::kCosine},
          {.kind = Kind::kCosine, .dimensions = {5}},
          {.kind = Kind::kReward}};
}

/// Returns the outputs that texts_batch's labels need: 0 for the texts' vectors themselves.
inline std::int64_t outputs_for(TextLoss::Kind kind) {
  using Kind = TextLoss::Kind;
  if (kind == Kind::kClass) return 3;
  if (kind == Kind::kReward) return 1;
  return kind == Kind::kLabels || kind == Kind::kRegression ? 2 : 0;
}

inline std::string name_of(const TextLoss& loss) {
  return concat("loss ", static_cast<int>(loss.kind), loss.symmetric ? ", symmetric" : "", ", ",
                loss.dimensions.size(), " dimensions");
}

}  // namespace hybrid_trainer::testing
