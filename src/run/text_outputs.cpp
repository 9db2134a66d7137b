#include "src/run/text_outputs.h"

#include <algorithm>
#include <cmath>

#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/batch_parts.h"

namespace hybrid_trainer {

namespace {

void copy_outputs(std::span<const float> from, std::span<float> to) {
  if (!std::ranges::all_of(from, [](float value) { return std::isfinite(value); }))
    throw Diverged("an output of the model is not finite: its weights are damaged or diverged");
  std::ranges::copy(from, to.begin());
}

}  // namespace

TextOutputs text_outputs(LanguageModel& model, const PackedTexts& texts, std::int64_t batch_size,
                         DType dtype, const Stream& stream) {
  const Stream host(make_host_pool(stream.device()));
  TextOutputs outputs;
  std::int64_t count = 0;
  for (const TextRow& row : texts.rows()) {
    outputs.first.push_back(count);
    count += std::ssize(row.ends);
  }
  const Pass pass{.training = false, .dtype = dtype};
  BatchParts parts(stream);
  BatchUpload upload;
  const Batch memory = texts.empty_batch(std::min(batch_size, texts.size()), host);
  for (std::int64_t begin = 0; begin < texts.size(); begin += memory.size()) {
    const std::int64_t size = std::min(memory.size(), texts.size() - begin);
    const Batch batch = upload.to_device(texts.read(begin, memory.examples(0, size)), stream);
    const std::int64_t slots = batch.at("ends").size(1);
    parts.run(batch, [&](std::int64_t first, const Batch& part) {
      const Tensor found = wait_for_host(model.text_outputs(part, pass, stream), stream);
      const std::int64_t width = found.size(1);
      if (!outputs.values)
        outputs.values = Tensor::empty({count, width}, DType::kF32, MemoryKind::kData, host);
      for (std::int64_t i = 0; i * slots < found.size(0); ++i) {
        const float* from = found.data<float>() + i * slots * width;
        for (const std::size_t row : texts.rows_of(begin + first + i)) {
          const std::int64_t numbers = std::ssize(texts.rows()[row].ends) * width;
          copy_outputs({from, static_cast<std::size_t>(numbers)},
                       {outputs.values.data<float>() + outputs.first[row] * width,
                        static_cast<std::size_t>(numbers)});
          from += numbers;
        }
      }
    });
  }
  return outputs;
}

EmbeddingSteps embedding_steps_of(const TrainedRun& run) {
  if (run.sentence_folder.empty() || !has_sentence_pipeline(run.sentence_folder)) return {};
  const SentencePipeline pipeline = read_sentence_pipeline(run.sentence_folder);
  return {pipeline.normalizes, pipeline.dimensions};
}

std::vector<float> embedding_of(std::span<const float> output, const EmbeddingSteps& steps) {
  std::vector<float> embedding =
      steps.normalizes ? normalized(output) : std::vector<float>(output.begin(), output.end());
  if (steps.dimensions > 0 && steps.dimensions < std::ssize(embedding))
    embedding.resize(static_cast<std::size_t>(steps.dimensions));
  return embedding;
}

std::vector<float> normalized(std::span<const float> vector) {
  constexpr double kSmallestNorm = 1e-12;
  double square = 0;
  for (const float value : vector)
    square += static_cast<double>(value) * static_cast<double>(value);
  const double norm = std::max(kSmallestNorm, std::sqrt(square));
  std::vector<float> unit;
  for (const float value : vector) unit.push_back(static_cast<float>(value / norm));
  return unit;
}

}  // namespace hybrid_trainer
