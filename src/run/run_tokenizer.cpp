#include "src/run/run_tokenizer.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kSampleTokens = 120;

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_data(const std::filesystem::path& data,
                                             std::int64_t vocabulary) {
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(data);
  if (tokenizer->least_table() <= vocabulary) return tokenizer;
  throw DataError(concat("the tokenizer of ", data.string(), " has ", tokenizer->vocabulary_size(),
                         " tokens, want at most model.vocabulary, ", vocabulary,
                         "; make the data anew with hybrid prepare"));
}

bool begins_with_another_tokenizer(const std::optional<std::filesystem::path>& init_from,
                                   const Tokenizer* of_data) {
  if (!init_from || of_data == nullptr) return false;
  try {
    return !load_tokenizer(*init_from)->has_tokens_of(*of_data);
  } catch (const Error&) {
    return false;
  }
}

std::string sample_text(LanguageModel& model, const Tokenizer* tokenizer, const Stream& stream,
                        DType dtype) {
  if (tokenizer == nullptr || model.config().two_way) return "";  // an encoder writes no text
  std::string text;
  GenerationSettings generation{.tokens = kSampleTokens};
  generation.sampling.temperature = 0.8f;
  try {
    if (dtype == DType::kBF16) {
      model.visit_parameters([&](Parameter& weight) { weight.compute_in(dtype, stream); });
    }
    generate_text(
        model, *tokenizer, "", generation, [&](std::string_view piece) { text += piece; }, stream,
        dtype);
  } catch (const OutOfMemory&) {  // of its caches: the run itself is complete
    return "";
  }
  return text;
}

}  // namespace hybrid_trainer
