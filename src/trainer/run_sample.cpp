#include "src/trainer/run_sample.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {

std::string sample_text(LanguageModel& model, const Tokenizer* tokenizer, const Stream& stream) {
  constexpr std::int64_t kTokens = 120;
  if (tokenizer == nullptr) return "";
  std::string text;
  GenerationSettings generation{.tokens = kTokens};
  generation.sampling.temperature = 0.8f;
  try {
    generate_text(
        model, *tokenizer, "", generation, [&](std::string_view piece) { text += piece; }, stream);
  } catch (const OutOfMemory&) {  // the run itself is complete
    return "";
  }
  return text;
}

}  // namespace hybrid_trainer
