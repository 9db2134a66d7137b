#include "hybrid_trainer/generation/greedy_answers.h"

#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {
namespace {

/// Computes in `dtype` until it is destroyed.
class ComputesIn {
 public:
  ComputesIn(LanguageModel& model, DType dtype, const Stream& stream)
      : model_(model), stream_(stream) {
    model.visit_parameters([&](Parameter& weight) {
      before_[&weight] = weight.compute_dtype();
      weight.compute_in(dtype, stream);
    });
  }
  ComputesIn(const ComputesIn&) = delete;
  ComputesIn& operator=(const ComputesIn&) = delete;
  ~ComputesIn() {
    model_.visit_parameters(
        [&](Parameter& weight) { weight.compute_in(before_.at(&weight), stream_); });
  }

 private:
  LanguageModel& model_;
  const Stream& stream_;
  std::map<const Parameter*, DType> before_;
};

}  // namespace

std::vector<std::string> greedy_answers(const std::vector<std::vector<std::int32_t>>& prompts,
                                        LanguageModel& model, const Tokenizer& tokenizer,
                                        const AnswerSettings& settings, const Stream& stream) {
  GenerationSettings generation{.tokens = settings.most_tokens, .end_tokens = settings.end_tokens};
  generation.sampling.temperature = 0;
  std::vector<std::string> answers;
  try {
    const ComputesIn meanwhile(model, settings.dtype, stream);
    CachedDecoder decoder(model, settings.dtype, stream);
    for (const std::vector<std::int32_t>& prompt : prompts) {
      std::string& answer = answers.emplace_back();
      continue_text(decoder, nullptr, tokenizer, prompt, generation,
                    [&](std::string_view piece) { answer += piece; });
    }
  } catch (const OutOfMemory&) {  // training itself needs less, or says so
    return {};
  }
  return answers;
}

}  // namespace hybrid_trainer
