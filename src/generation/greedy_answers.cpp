#include "hybrid_trainer/generation/greedy_answers.h"

#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {
namespace {

std::vector<std::string> written_answers(const std::vector<std::vector<std::int32_t>>& prompts,
                                         LanguageModel& model, const Tokenizer& tokenizer,
                                         const AnswerSettings& settings, const Stream& stream) {
  GenerationSettings generation{.tokens = settings.most_tokens, .end_tokens = settings.end_tokens};
  generation.sampling.temperature = 0;
  std::vector<std::string> answers;
  CachedDecoder decoder(model, settings.dtype, stream);
  for (const std::vector<std::int32_t>& prompt : prompts) {
    std::string& answer = answers.emplace_back();
    continue_text(decoder, nullptr, tokenizer, prompt, generation,
                  [&](std::string_view piece) { answer += piece; });
  }
  return answers;
}

}  // namespace

std::vector<std::string> texts_written_in(LanguageModel& model, DType dtype, const Stream& stream,
                                          const std::function<std::vector<std::string>()>& write) {
  std::map<Parameter*, DType> before;
  model.visit_parameters(
      [&](Parameter& weight) { before.emplace(&weight, weight.compute_dtype()); });
  const auto compute_as_before = [&] {
    model.round_inputs(false);
    for (const auto& [weight, of_weight] : before) weight->compute_in(of_weight, stream);
  };
  std::vector<std::string> texts;
  try {
    model.round_inputs(true);
    for (const auto& [weight, of_weight] : before) weight->compute_in(dtype, stream);
    texts = write();
  } catch (const OutOfMemory&) {  // training itself needs less, or says so
    texts.clear();
  } catch (...) {
    compute_as_before();
    throw;
  }
  compute_as_before();
  return texts;
}

std::vector<std::string> greedy_answers(const std::vector<std::vector<std::int32_t>>& prompts,
                                        LanguageModel& model, const Tokenizer& tokenizer,
                                        const AnswerSettings& settings, const Stream& stream) {
  return texts_written_in(model, settings.dtype, stream, [&] {
    return written_answers(prompts, model, tokenizer, settings, stream);
  });
}

}  // namespace hybrid_trainer
