#include "hybrid_trainer/generation/source_writer.h"

#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/generation/host_tensors.h"

namespace hybrid_trainer {

SourceWriter::SourceWriter(LanguageModel& model, const SourceWriting& writing, DType dtype,
                           const Stream& stream)
    : model_(model),
      writing_(writing),
      pass_{.training = false, .dtype = dtype},
      stream_(stream),
      search_(model, {.texts = writing.beams, .tokens = writing.search.longest}, dtype, stream) {}

std::vector<std::int32_t> SourceWriter::write(std::span<const std::int32_t> source) {
  require(!source.empty(), "source writer: want a source of at least one token");
  const std::int64_t length = std::ssize(source);
  std::vector<std::int32_t> positions(source.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(length)};
  model_.encode(Batch({{"source_tokens", device_tokens(source, {1, length}, stream_)},
                       {"source_positions", device_tokens(positions, {1, length}, stream_)},
                       {"source_lengths", device_tokens(lengths, {1}, stream_)}}),
                pass_, stream_);
  const std::vector<std::int32_t> start{writing_.start};
  return search_.write(start, writing_.search,
                       [&](std::span<float> scores, std::span<const std::int32_t> text) {
                         writing_.rules.apply(scores, text);
                       });
}

}  // namespace hybrid_trainer
