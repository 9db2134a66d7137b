#include "hybrid_trainer/speech/clip_batches.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/speech/clip_features.h"

namespace hybrid_trainer {
namespace {

constexpr std::uint64_t kMaskKey = 0x636C697073;  // "clips"

Batch empty_clip_batch(const BatchShape& shape, const EncoderConfig& encoder,
                       const Stream& stream) {
  const Batch batch = empty_row_batch({shape.batch_size, shape.sequence_length}, false, stream);
  std::vector<NamedTensor> tensors = batch.tensors();
  tensors.push_back(
      {"features", Tensor::empty({shape.batch_size, 2 * encoder.context, encoder.features},
                                 DType::kF32, MemoryKind::kData, stream)});
  return Batch(std::move(tensors), shape.sequence_length);
}

/// Throws DataError, with the row and the way out, if its clip cannot be read.
void write_features(ClipFeatures& features, const ExampleRow& row, float* to) {
  const auto refuse = [&](const Error& error) {
    throw DataError(concat("the clip of row ", row.line, " could be read before: ", error.what(),
                           "; put the file back, and go on with --resume"));
  };
  try {
    features.write(*row.clip, to);
  } catch (const DataError& error) {
    refuse(error);
  } catch (const MissingInput& error) {
    refuse(error);
  }
}

/// The features of one example of a batch.
std::span<float> features_of(const Batch& batch, std::int64_t at) {
  const Tensor& all = batch.at("features");
  const std::int64_t count = all.elements() / all.size(0);
  return {all.data<float>() + at * count, static_cast<std::size_t>(count)};
}

}  // namespace

ClipBatches::ClipBatches(std::vector<ExampleRow> rows, const Settings& settings)
    : rows_(std::move(rows), settings.rows), settings_(settings) {
  require(!settings.rows.packs, "clips: each has a sequence of its own");
}

Batch ClipBatches::empty_batch(const Stream& stream) const {
  return empty_clip_batch({settings_.rows.batch_size, settings_.rows.sequence_length},
                          settings_.encoder, stream);
}

Batch ClipBatches::read(std::int64_t index, const Batch& memory) const {
  const Batch batch = rows_.read(index, memory);
  ClipFeatures features(settings_.encoder);
  for (std::int64_t at = 0; at < batch.size(); ++at) {
    const std::vector<std::size_t>& clip = rows_.rows_of(index, at);
    const std::span<float> to = features_of(batch, at);
    if (clip.empty()) {
      std::ranges::fill(to, 0.0f);
      continue;
    }
    const std::size_t row = clip.front();
    write_features(features, rows_.rows()[row], to.data());
    if (!settings_.masks) continue;
    const auto epoch = static_cast<std::uint64_t>(rows_.epoch_of(index, at));
    mask_features(to, features.bands(), settings_.feature_masks,
                  {settings_.rows.seed, epoch, kMaskKey + row});
  }
  return batch;
}

EvaluationClips::EvaluationClips(std::vector<ExampleRow> rows,
                                 const ClipBatches::Settings& settings, const Stream& stream)
    : rows_(std::move(rows), settings.rows),
      encoder_(settings.encoder),
      memory_(empty_clip_batch(
          {std::min(settings.rows.batch_size, rows_.sequences()), settings.rows.sequence_length},
          settings.encoder, stream)) {}

std::int64_t EvaluationClips::batches() const {
  return (rows_.sequences() + memory_.size() - 1) / memory_.size();
}

Batch EvaluationClips::batch(std::int64_t index) {
  require(index >= 0 && index < batches(), "an evaluation has no batch of this number");
  const std::int64_t first = index * memory_.size();
  const Batch batch = rows_.read_in_order(
      first, memory_.examples(0, std::min(memory_.size(), rows_.sequences() - first)));
  ClipFeatures features(encoder_);
  for (std::int64_t at = 0; at < batch.size(); ++at)
    write_features(features, rows_.rows()[rows_.rows_in_order(first + at).front()],
                   features_of(batch, at).data());
  return batch;
}

}  // namespace hybrid_trainer
