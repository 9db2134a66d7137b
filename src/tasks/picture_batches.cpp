#include "src/tasks/picture_batches.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/warning.h"

namespace hybrid_trainer {
namespace {

constexpr std::uint64_t kPictureKey = 0x706963747572;  // "pictur"
constexpr std::uint64_t kMirrorKey = 0x6D6972726F72;   // "mirror"

Batch empty_picture_batch(std::int64_t size, const PictureProcessor& processor,
                          const Stream& stream) {
  return Batch({{"pixels", Tensor::empty({size, processor.height(), processor.width(), kColors},
                                         DType::kF32, MemoryKind::kData, stream)},
                {"label", Tensor::empty({size}, DType::kI32, MemoryKind::kData, stream)}});
}

void write_picture(const Batch& batch, std::int64_t at, const PictureRow& row,
                   const PictureProcessor& processor, bool mirrors) {
  const std::span<float> to(batch.at("pixels").data<float>() + at * processor.values(),
                            static_cast<std::size_t>(processor.values()));
  processor.write(row.picture, to, mirrors);
  batch.at("label").data<std::int32_t>()[at] = row.target;
}

/// The next row whose picture can be read stands in for one that cannot.
void write_readable(const Batch& batch, std::int64_t at, const std::vector<PictureRow>& rows,
                    std::size_t first, const PictureProcessor& processor, bool mirrors) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PictureRow& row = rows[(first + i) % rows.size()];
    if (row.is_damaged) continue;
    try {
      return write_picture(batch, at, row, processor, mirrors);
    } catch (const DataError& error) {
      warn("skipped a picture", error.what());
    } catch (const MissingInput& error) {
      warn("skipped a picture", error.what());
    }
  }
  throw DataError("no picture can be read any longer");
}

}  // namespace

Batch PictureBatches::empty_batch(const Stream& stream) const {
  return empty_picture_batch(settings_.batch_size, processor_, stream);
}

Batch PictureBatches::read(std::int64_t index, const Batch& memory) const {
  const auto count = static_cast<std::uint64_t>(rows_.size());
  for (std::int64_t at = 0; at < memory.size(); ++at) {
    const auto example = static_cast<std::uint64_t>(index * settings_.batch_size + at);
    const std::uint64_t epoch = example / count;
    const std::uint64_t row =
        settings_.shuffle
            ? random_permuted({settings_.seed, epoch, kPictureKey}, example % count, count)
            : example % count;
    const bool mirrors =
        settings_.mirrors && random_word({settings_.seed, epoch, kMirrorKey}, row) % 2 == 1;
    write_readable(memory, at, rows_, row, processor_, mirrors);
  }
  return memory;
}

EvaluationPictures::EvaluationPictures(std::vector<PictureRow> rows,
                                       const PictureProcessor& processor, std::int64_t batch_size,
                                       const Stream& stream)
    : rows_(std::move(rows)),
      processor_(processor),
      memory_(empty_picture_batch(std::min(batch_size, std::ssize(rows_)), processor, stream)) {}

std::int64_t EvaluationPictures::batches() const {
  return (std::ssize(rows_) + memory_.size() - 1) / memory_.size();
}

Batch EvaluationPictures::batch(std::int64_t index) {
  require(index >= 0 && index < batches(), "an evaluation has no batch of this number");
  const std::int64_t first = index * memory_.size();
  const Batch batch = memory_.examples(0, std::min(memory_.size(), std::ssize(rows_) - first));
  for (std::int64_t at = 0; at < batch.size(); ++at)
    write_readable(batch, at, rows_, static_cast<std::size_t>(first + at), processor_, false);
  return batch;
}

}  // namespace hybrid_trainer
