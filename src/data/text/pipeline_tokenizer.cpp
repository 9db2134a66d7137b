#include "src/data/text/pipeline_tokenizer.h"

namespace hybrid_trainer {

namespace {

std::vector<std::string> bytes_within(const TokenizerPipeline& pipeline) {
  std::vector<std::string> tokens;
  for (const std::string& token : pipeline.spelling)
    tokens.push_back(decoded_within(token, pipeline.decoder));
  return tokens;
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(TokenizerPipeline pipeline,
                                     std::optional<std::int32_t> end_of_text, TokenizerFiles files)
    : Tokenizer(bytes_within(pipeline), end_of_text, std::move(files)),
      pipeline_(std::move(pipeline)) {
  pipeline_.added.finish();
  pipeline_.added_normalized.finish();
}

std::string PipelineTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> parts;
  for (const std::int32_t id : ids) {
    token_bytes(id);  // throws for an unknown id
    const std::string& spelling = pipeline_.spelling[static_cast<std::size_t>(id)];
    if (!spelling.empty()) parts.push_back(spelling);  // else an unused id
  }
  return decoded(std::move(parts), pipeline_.decoder);
}

}  // namespace hybrid_trainer
