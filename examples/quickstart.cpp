// Trains a tiny GPT-2 on a text file: quickstart [FILE]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"

using namespace hybrid_trainer;

namespace {

constexpr std::int64_t kSteps = 200, kBatch = 8, kSequence = 32;

std::string read_text(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Makes sequences from random positions of the text; each target is the next token.
Batch random_batch(const std::vector<std::int32_t>& text, std::int64_t step, const Stream& stream) {
  const Shape shape{kBatch, kSequence};
  const Tensor tokens = Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream),
               targets = Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream);
  for (std::int64_t row = 0; row < kBatch; ++row) {
    const std::uint64_t places = text.size() - kSequence;
    const auto begin = random_below({1, static_cast<std::uint64_t>(step), 0},
                                    static_cast<std::uint64_t>(row), places);
    const std::int32_t* from = text.data() + begin;
    std::copy(from, from + kSequence, tokens.rows(row, row + 1).data<std::int32_t>());
    std::copy(from + 1, from + kSequence + 1, targets.rows(row, row + 1).data<std::int32_t>());
  }
  return token_batch(tokens, targets);
}

}  // namespace

int main(int count, char** arguments) try {
  const std::string built_in =
      "She sells sea shells by the sea shore. The shells she sells are sea shells, I am sure. ";
  const std::string text = count > 1 ? read_text(arguments[1]) : built_in + built_in;
  if (text.size() <= kSequence)
    throw MissingInput("quickstart: the text has no 33 bytes; give a file with more");
  const auto tokenizer = make_character_tokenizer(text);
  const std::vector<std::int32_t> tokens = tokenizer->encode(text);

  const ModelConfig shape{.layers = 2,
                          .heads = 2,
                          .width = 64,
                          .context = kSequence,
                          .vocabulary = tokenizer->vocabulary_size()};
  const auto config = HybridTrainerConfig::builder()
                          .model_config(shape)
                          .data_config({.batch_size = kBatch, .sequence_length = kSequence})
                          .steps(kSteps)
                          .warmup_steps(40)
                          .full_steps(20)
                          .max_predict_steps(10)
                          .schedule_config({.warmup_steps = 20})
                          .build();
  const Stream stream(MemoryPool::create("device"));
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream);
  double first = 0, last = 0;
  while (trainer.steps_done() < kSteps) {
    last = trainer.step(random_batch(tokens, trainer.steps_done(), stream)).loss;
    if (trainer.steps_done() == 1) first = last;
  }
  std::printf("loss %.3f before, %.3f after %d steps\n", first, last, static_cast<int>(kSteps));
  return last < first ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
