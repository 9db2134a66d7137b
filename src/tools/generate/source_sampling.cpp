#include "src/tools/generate/writing.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/data/examples/held_out_prompts.h"
#include "src/data/examples/row_tokens.h"
#include "src/files/json.h"
#include "src/run/language_data.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kMaxBeams = 64;

Seq2SeqSettings writing_of(const WritingModel& model, const SourceSampling& requested) {
  const ModelConfig& config = model.run.model().config();
  const GenerationKeys keys = generation_keys_of(model.run);
  keys.require_honored();
  if (keys.draws.value_or(false))
    throw DataError(concat(
        keys.file.string(),
        ": do_sample: got true, want false: sampling is not supported for models with an encoder"));
  Seq2SeqSettings writing = seq2seq_settings_of(config, keys);
  writing.rules.words = model.run.tokenizer->vocabulary_size();
  if (requested.beams) writing.beams = *requested.beams;
  if (requested.tokens) writing.set_longest(std::min(*requested.tokens + 1, config.context));
  return writing;
}

EnclosedText source_of(const WritingModel& model, const SourceSampling& requested,
                       const std::string& text) {
  const ModelConfig& config = model.run.model().config();
  const std::int64_t longest = config.encoder.context;
  EnclosedText source = enclosed_text(text, *model.run.tokenizer, requested.control, longest);
  for (const std::int32_t id : source.tokens)
    if (id >= config.vocabulary)
      throw DataError(concat("the source contains the token ", model.run.tokenizer->token_bytes(id),
                             ", but the model has only tokens below ", config.vocabulary));
  if (source.left_out == 0) return source;
  const std::string told = concat("the source has ", longest + source.left_out, " tokens and the ",
                                  "encoder's context is ", longest);
  if (requested.overflow == ContextOverflow::kError)
    throw DataError(told + "; shorten it, or give --context-overflow truncate");
  std::cerr << "warning: " << told << ": its last " << source.left_out << " tokens are dropped\n";
  return source;
}

}  // namespace

void check_beams(const std::string& command, std::int64_t beams) {
  if (beams < 1 || beams > kMaxBeams)
    throw UsageError(
        concat("hybrid ", command, ": --beam: got ", beams, ", want 1 to ", kMaxBeams));
}

void write_of_sources(const WritingModel& model, const SourceSampling& requested,
                      const Stream& stream) {
  std::vector<EnclosedText> sources;
  for (const std::string& text : requested.sources) {
    sources.push_back(source_of(model, requested, text));
    if (sources.back().tokens.empty())
      throw DataError("the source has no tokens; want at least one");
  }
  Seq2SeqGenerator writer(model.run.model(), writing_of(model, requested), model.dtype, stream);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::vector<std::int32_t> written = writer.write(sources[i].tokens);
    const std::string text = readable_text(*model.run.tokenizer, written);
    if (!requested.json) {
      print_now(text + "\n");
      continue;
    }
    boost::json::array ids(written.begin(), written.end());
    boost::json::object line{{"prompt", requested.sources[i]},
                             {"text", text},
                             {"tokens", std::ssize(written)},
                             {"token_ids", std::move(ids)},
                             {"prompt_tokens", std::ssize(sources[i].tokens) + sources[i].left_out},
                             {"prompt_tokens_left_out", sources[i].left_out}};
    if (requested.sources.size() > 1) line["line"] = i + 1;
    print_now(json_line(line) + "\n");
  }
}

void continue_by_beams(const WritingModel& model, const SourceSampling& requested,
                       const GenerationSettings& settings, const GenerationKeys& keys,
                       const Stream& stream) {
  const Tokenizer& tokenizer = *model.run.tokenizer;
  const std::int64_t context = model.context(), vocabulary = model.run.model().config().vocabulary;
  const ContextWindow window(context, settings.pinned);
  for (const std::string& text : requested.sources) {
    std::vector<std::int32_t> tokens = prompt_tokens(tokenizer, text, requested.control);
    check_text(vocabulary, tokenizer, tokens);
    const FittedPrompt prompt =
        fit_prompt(std::move(tokens), window, *requested.tokens, settings.overflow);
    if (prompt.left_out > 0)
      std::cerr << "warning: " << truncated_prompt_warning(prompt, window) << std::endl;
    const std::int64_t begun = std::ssize(prompt.tokens);
    TokenConstraints rules = settings.rules;
    rules.begun = begun;
    rules.end_tokens = settings.end_tokens;
    rules.repetition_penalty = settings.sampling.repetition_penalty;
    const std::int64_t allowed = rules.longest > 0 ? std::min(rules.longest, context) : context;
    rules.longest = std::min(allowed, begun + std::min(*requested.tokens, context));
    const BeamSettings search{.longest = rules.longest,
                              .end_tokens = settings.end_tokens,
                              .length_penalty = keys.length_penalty,
                              .end = keys.search_end};
    BeamSearch beams(model.run.model(),
                     {.texts = requested.beams.value_or(1), .tokens = search.longest}, model.dtype,
                     stream);
    std::vector<std::int32_t> written =
        beams.write(prompt.tokens, search,
                    [&](std::span<float> scores, std::span<const std::int32_t> written_so_far) {
                      rules.apply(scores, written_so_far);
                    });
    const std::int64_t count = std::ssize(written);
    if (!written.empty() && std::ranges::count(search.end_tokens, written.back()) > 0)
      written.pop_back();
    Utf8Assembler whole;
    const std::string made = whole.add(tokenizer.decode(written)) + whole.rest();
    if (requested.json) {
      print_now(json_line(boost::json::object{{"prompt", text},
                                              {"text", made},
                                              {"tokens", count},
                                              {"prompt_tokens", std::ssize(prompt.tokens)}}) +
                "\n");
    } else {
      print_now(text + made + "\n");
    }
  }
}

}  // namespace hybrid_trainer
