#include <unistd.h>
#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/generate/writing.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kTextsAtOnce = 8;

struct SampleOptions {
  std::string folder, prompt, prompts, system, draft, control_tokens;
  bool prompted = false, chat = false, json = false;
  ModelOptions open;
  std::int64_t seed = 0;
  std::optional<std::int64_t> draft_tokens{}, batch{}, tokens{}, beams{}, top_k{};
  std::optional<double> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  GenerationSettings generation{};

  bool draws() const { return temperature || top_k || top_p || min_p; }
};

void print_statistics(const GenerationResult& result) {
  std::cerr << result.tokens << " tokens";
  if (const auto rate = result.tokens_per_second())
    std::cerr << ", " << units::fixed(*rate, 1) << " tokens/s";
  std::cerr << "; prompt: " << result.prompt_tokens << " tokens in "
            << units::fixed(result.prompt_seconds, 2) << " s";
  if (result.drafted > 0)
    std::cerr << "; " << result.taken << " of " << result.drafted << " drafted tokens accepted";
  std::cerr << "\n";
}

void print_json(const SampleOptions& options, const std::string& text,
                const GenerationResult& result, std::int64_t left_out) {
  const boost::json::object line{{"prompt", options.prompt},
                                 {"text", text},
                                 {"tokens", result.tokens},
                                 {"prompt_tokens", result.prompt_tokens + left_out},
                                 {"prompt_tokens_left_out", left_out},
                                 {"forgotten_tokens", result.dropped_tokens},
                                 {"prompt_seconds", result.prompt_seconds},
                                 {"tokens_per_second", json_or_null(result.tokens_per_second())}};
  print_now(json_line(line) + "\n");
}

void converse(Conversation& conversation) {
  const auto ask = [] { std::cerr << "> " << std::flush; };
  std::string said;
  for (ask(); std::getline(std::cin, said); ask()) {
    if (said.starts_with(kByteOrderMark)) said.erase(0, kByteOrderMark.size());
    if (said.ends_with('\r')) said.pop_back();
    if (said.empty()) continue;
    conversation.add("user", said);
    conversation.answer(print_now);
    print_now("\n");
  }
  std::cerr << "\n";
}

ControlText control_of(const SampleOptions& options, const TrainedRun& run) {
  return control_text_of(options.control_tokens.empty() ? run.config.data.control_tokens
                                                        : options.control_tokens);
}

void warn_of_empty_text(const TrainedRun& run, const std::string& folder) {
  std::cerr << "note: the model generated the end-of-text token immediately";
  if (run.tokenizer_folder.chat().chat_template)
    std::cerr << "; since it has a chat template, try a chat: hybrid chat " << folder;
  std::cerr << "\n";
}

void complete(const WritingModel& model, DraftModel* draft, const SampleOptions& options,
              const Stream& stream) {
  const Tokenizer& tokenizer = *model.run.tokenizer;
  const GenerationSettings& settings = options.generation;
  const ContextWindow window(model.context(), settings.pinned);
  FittedPrompt prompt =
      fit_prompt(prompt_tokens(tokenizer, options.prompt, control_of(options, model.run)), window,
                 settings.tokens, settings.overflow);
  if (prompt.left_out > 0)
    std::cerr << "warning: " << truncated_prompt_warning(prompt, window) << std::endl;
  std::string text;
  CachedDecoder decoder(model.run.model(), model.dtype, stream);
  if (!options.json) print_now(options.prompt);
  const GenerationResult result = continue_text(decoder, draft, tokenizer, std::move(prompt.tokens),
                                                settings, [&](std::string_view piece) {
                                                  if (options.json)
                                                    text += piece;
                                                  else
                                                    print_now(piece);
                                                });
  if (options.json) {
    print_json(options, text, result, prompt.left_out);
  } else {
    print_now("\n");
  }
  if (result.dropped_tokens > 0)
    std::cerr << "warning: " << dropped_tokens_warning(result.dropped_tokens, window) << "\n";
  if (!options.json || isatty(STDERR_FILENO) != 0) print_statistics(result);
  if (result.tokens == 0 && settings.tokens > 0) warn_of_empty_text(model.run, options.folder);
}

void add_sampling_options(po::options_description& options, SampleOptions& requested) {
  auto add = options.add_options();
  add("tokens", optional_value(requested.tokens, "N"),
      "Maximum number of tokens to generate, in a chat per answer. Default, as for the other "
      "sampling options: the value in generation_config.json; else 100.");
  add("beam", optional_value(requested.beams, "N"),
      "Use beam search with N beams instead of sampling. For a model with an encoder, the default "
      "is 1 (greedy decoding) unless its folder sets another number.");
  add("temperature", optional_value(requested.temperature, "T"),
      "Sampling temperature (default: 1); lower values favor likely tokens, 0 is greedy.");
  add("top-k", optional_value(requested.top_k, "K"),
      "Sample from the K most likely tokens; 0 uses all (default: 0).");
  add("top-p", optional_value(requested.top_p, "P"),
      "Sample from the most likely tokens whose total probability reaches P (default: 1).");
  add("min-p", optional_value(requested.min_p, "P"),
      "Sample from tokens with at least P times the probability of the most likely token (default: "
      "0).");
  add("repetition-penalty", optional_value(requested.repetition_penalty, "R"),
      "Values above 1 make tokens that are already in the text less likely (default: 1).");
  add("stop", po::value(&requested.generation.stop)->composing()->value_name("TEXT"),
      "Stop before TEXT; may be given more than once.");
}

void add_prompt_options(po::options_description& options, SampleOptions& requested) {
  auto add = options.add_options();
  const auto is_given = [&requested](const std::string&) { requested.prompted = true; };
  add("prompt", po::value(&requested.prompt)->notifier(is_given)->value_name("TEXT"),
      "Start of the text; may be empty.");
  add("prompts", po::value(&requested.prompts)->value_name("FILE"),
      "File with one prompt per line; the seed increases by one for each prompt.");
  add("batch", optional_value(requested.batch, "N"),
      "With --prompts: number of texts generated in parallel (default: 8), which is faster for "
      "prompts that have little in common. On a CPU, each text is the same as when it is generated "
      "separately. 1 computes the common beginning of consecutive prompts only once.");
  add("chat", po::bool_switch(&requested.chat), "Start a chat.");
}

CommandSyntax sample_syntax(SampleOptions& options) {
  if (options.chat)
    return {.name = "chat",
            .usage = "RUN|HF_DIR [--system TEXT] [options]",
            .description =
                "Starts a chat with a run's newest checkpoint or a Hugging Face model. Uses the\n"
                "model's chat template and reads one message per line from standard input. Same\n"
                "as `hybrid sample --chat`.",
            .operands = {"RUN|HF_DIR"}};
  return {.name = "sample",
          .usage = "RUN|HF_DIR (--prompt TEXT | --prompts FILE | --chat) [options]",
          .description =
              "Generates text with a run's newest checkpoint or a Hugging Face model. --prompt\n"
              "streams the prompt and its continuation; --prompts prints one JSON object per\n"
              "line of the file; --chat uses the model's chat template and reads one message per\n"
              "line from standard input. The same seed gives the same text. An end-of-text token\n"
              "or a --stop text ends it early.",
          .operands = {"RUN|HF_DIR"},
          .may_be_empty = "prompt"};
}

CommandSyntax syntax_of(SampleOptions& options) {
  CommandSyntax syntax = sample_syntax(options);
  auto add = syntax.options.add_options();
  if (!options.chat) add_prompt_options(syntax.options, options);
  add("system", po::value(&options.system)->value_name("TEXT"), "With --chat: system message.");
  add_sampling_options(syntax.options, options);
  add("draft", model_value(options.draft, "RUN|HF_DIR"),
      "Small draft model with the same tokenizer for speculative decoding: same text, faster.");
  add("draft-tokens", optional_value(options.draft_tokens, "K"),
      "With --draft: tokens per draft, 1 to 64 (default: the fastest number).");
  add_overflow_option(syntax.options, options.generation.overflow);
  add_control_tokens_option(syntax.options, options.control_tokens);
  add_model_options(syntax.options, options.open);
  add("seed", po::value(&options.seed)->value_name("S"),
      "Random seed, a whole number of at least 0 (default: 0).");
  add("json", po::bool_switch(&options.json),
      "With --prompt: print one JSON object (--prompts always prints one per line).");
  return syntax;
}

void check_no_sampling_options(const SampleOptions& options, const std::string& why) {
  const double temperature = options.temperature.value_or(1);
  const char* const other = temperature != 1 && temperature != 0          ? "temperature"
                            : options.top_k.value_or(0) != 0              ? "top-k"
                            : options.top_p.value_or(1) != 1              ? "top-p"
                            : options.min_p.value_or(0) != 0              ? "min-p"
                            : options.repetition_penalty.value_or(1) != 1 ? "repetition-penalty"
                            : !options.generation.stop.empty()            ? "stop"
                            : !options.draft.empty()                      ? "draft"
                            : options.chat                                ? "chat"
                                                                          : nullptr;
  if (other != nullptr) throw UsageError(concat("hybrid sample: ", why, "; leave out --", other));
}

void check(const SampleOptions& options) {
  if (options.seed < 0) throw UsageError(concat("seed: got ", options.seed, ", want 0 or more"));
  if (options.prompted + !options.prompts.empty() + options.chat != 1)
    throw UsageError("hybrid sample: want one of --prompt TEXT, --prompts FILE and --chat");
  if (options.draft_tokens && options.draft.empty())
    throw UsageError("hybrid sample: --draft-tokens requires --draft");
  if (options.draft_tokens && (*options.draft_tokens < 1 || *options.draft_tokens > 64))
    throw UsageError(
        concat("hybrid sample: --draft-tokens: got ", *options.draft_tokens, ", want 1 to 64"));
  if (options.batch && options.prompts.empty())
    throw UsageError("hybrid sample: --batch requires --prompts");
  if (options.batch && *options.batch < 1)
    throw UsageError(concat("hybrid sample: --batch: got ", *options.batch, ", want 1 or more"));
  if (options.batch.value_or(1) > 1 && !options.draft.empty())
    throw UsageError(
        "hybrid sample: --draft generates only one text at a time and cannot be combined with "
        "--batch; give one of the two");
  if (!options.system.empty() && !options.chat)
    throw UsageError("hybrid sample: --system requires --chat");
  if (options.json && options.chat)
    throw UsageError("hybrid sample: --json requires --prompt or --prompts");
  if (!options.control_tokens.empty()) control_text_of(options.control_tokens);
  if (options.beams) check_beams("sample", *options.beams);
  check(options.generation);
  if (options.beams.value_or(1) > 1)
    check_no_sampling_options(options,
                              "--beam searches for the most likely text and does not sample");
}

void take_options(SampleOptions& options) {
  GenerationSettings& settings = options.generation;
  const auto take = [](auto& to, const auto& given) {
    if (given) to = *given;
  };
  take(settings.tokens, options.tokens);
  take(settings.sampling.temperature, options.temperature);
  take(settings.sampling.top_k, options.top_k);
  take(settings.sampling.top_p, options.top_p);
  take(settings.sampling.min_p, options.min_p);
  take(settings.sampling.repetition_penalty, options.repetition_penalty);
}

/// Returns the non-default settings that no option set, as text: "temperature 0.6, top-p 0.9".
std::string unusual(const SamplingSettings& settings, const SampleOptions& options) {
  const SamplingSettings usual;
  std::vector<std::string> texts;
  const auto add = [&](const char* name, const auto& option, auto value, auto default_value) {
    if (!option && value != default_value) texts.push_back(concat(name, " ", value));
  };
  add("temperature", options.temperature, settings.temperature, usual.temperature);
  add("top-k", options.top_k, settings.top_k, usual.top_k);
  add("top-p", options.top_p, settings.top_p, usual.top_p);
  add("min-p", options.min_p, settings.min_p, usual.min_p);
  add("repetition-penalty", options.repetition_penalty, settings.repetition_penalty,
      usual.repetition_penalty);
  return join(texts);
}

/// Applies the folder's settings that no option overrides, and prints the sampling settings.
void take_keys(const GenerationKeys& keys, const Tokenizer& tokenizer, SampleOptions& options) {
  keys.require_honored();
  GenerationSettings& settings = options.generation;
  settings.rules = keys.rules;
  settings.rules.longest = options.tokens ? 0 : keys.most;
  settings.rules.words = tokenizer.vocabulary_size();
  if (keys.max_new_tokens > 0) settings.tokens = keys.max_new_tokens, settings.rules.longest = 0;
  settings.sampling.repetition_penalty = std::exchange(settings.rules.repetition_penalty, 1);
  const bool may_draw = options.draws() || !options.draft.empty() || options.chat;
  if (keys.draws.value_or(false) && keys.beams > 1 && !options.beams)
    throw DataError(concat(keys.file.string(), ": num_beams: got ", keys.beams,
                           " together with do_sample; choose with --beam N or --beam 1"));
  if (keys.beams > 1 && !may_draw && !options.beams) options.beams = keys.beams;
  SamplingSettings& sampling = settings.sampling;
  if (keys.draws.value_or(false)) {
    sampling.temperature = keys.temperature.value_or(1);
    sampling.top_k = keys.top_k.value_or(0);
    sampling.top_p = keys.top_p.value_or(1);
    sampling.min_p = keys.min_p.value_or(0);
  } else if (keys.draws && !options.draws()) {
    sampling.temperature = 0;
  }
  const std::string text = keys.file.empty() ? "" : unusual(sampling, options);
  if (!text.empty() && options.beams.value_or(1) == 1)
    std::cerr << keys.file.filename().string() << " sets these defaults: " << text << "\n";
  take_options(options);
  check(settings);
}

void search(const WritingModel& model, const SampleOptions& options, const GenerationKeys& keys,
            const Stream& stream) {
  SourceSampling requested{.sources = {options.prompt},
                           .beams = options.beams,
                           .tokens = options.tokens,
                           .control = control_of(options, model.run),
                           .overflow = options.generation.overflow,
                           .json = options.json || !options.prompts.empty()};
  if (!options.prompts.empty()) requested.sources = prompt_lines(options.prompts);
  if (model.run.model().reads_sources()) return write_of_sources(model, requested, stream);
  requested.tokens = options.generation.tokens;
  continue_by_beams(model, requested, options.generation, keys, stream);
}

int write(SampleOptions options, const std::vector<std::string>& arguments) {
  const auto operands = parse_command_line(syntax_of(options), arguments);
  if (!operands) return 0;
  options.folder = operands->front();
  options.generation.sampling.seed = static_cast<std::uint64_t>(options.seed);
  take_options(options);
  check(options);

  const ModelOptions& open = options.open;
  const Stream stream(make_device_pool(device_of_option(open.device)));
  const WritingModel model(operands->front(), open.precision, open.weights, stream, open.home);
  const EncoderConfig& encoder = model.run.model().config().encoder;
  if (model.run.model().reads_sources() && !encoder.reads_tokens())
    throw DataError(concat(operands->front(), " transcribes audio; use hybrid transcribe ",
                           shell_path(operands->front()), " CLIP.wav"));
  model.run.model().round_inputs(true);
  if (encoder.reads_tokens()) {
    check_no_sampling_options(
        options, operands->front() + " has an encoder and generates the most likely text");
    search(model, options, {}, stream);
    return 0;
  }
  const GenerationKeys keys = generation_keys_of(model.run);
  take_keys(keys, *model.run.tokenizer, options);
  std::optional<WritingModel> small;
  std::optional<DraftModel> draft;
  if (!options.draft.empty()) {
    small.emplace(options.draft, open.precision, open.weights.kind, stream);
    if (!small->run.tokenizer->has_same_tokens(*model.run.tokenizer))
      throw DataError(concat(options.draft, ": its tokenizer differs from the tokenizer of ",
                             operands->front(), "; want a draft model with the same tokenizer"));
    small->run.model().round_inputs(true);
    draft.emplace(small->run.model(), small->dtype, stream, options.draft_tokens);
  }
  DraftModel* const drafts = draft ? &*draft : nullptr;
  const ModelFolder& folder = model.run.tokenizer_folder;
  std::vector<std::int32_t>& ends = options.generation.end_tokens;
  ends = end_tokens_in(folder, *model.run.tokenizer);
  ends.insert(ends.end(), model.run.end_tokens.begin(), model.run.end_tokens.end());
  options.generation.pinned = std::ssize(model.run.tokenizer->template_start());
  if (options.beams.value_or(1) > 1) {
    search(model, options, keys, stream);
    return 0;
  }
  if (options.chat) {
    Conversation conversation(model.run, folder, options.generation, model.dtype, drafts, stream);
    if (!options.system.empty()) conversation.add_system(options.system);
    converse(conversation);
    return 0;
  }
  if (options.prompts.empty()) {
    complete(model, drafts, options, stream);
  } else {
    continue_prompts({.path = options.prompts,
                      .control = control_of(options, model.run),
                      .generation = options.generation,
                      .batch = drafts != nullptr ? 1 : options.batch.value_or(kTextsAtOnce)},
                     model, drafts, stream);
  }
  return 0;
}

}  // namespace

int sample_command(const std::vector<std::string>& arguments) {
  return write(SampleOptions(), arguments);
}

int chat_command(const std::vector<std::string>& arguments) {
  SampleOptions options;
  options.chat = true;
  return write(std::move(options), arguments);
}

}  // namespace hybrid_trainer
