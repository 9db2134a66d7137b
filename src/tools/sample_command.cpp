#include <algorithm>
#include <cstdio>
#include <iostream>
#include <span>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/files/json_writer.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/generation/text_batch.h"
#include "hybrid_trainer/hugging_face/token_ids.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/conversation.h"
#include "src/tools/device_option.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMostPromptBytes = std::size_t{64} << 20;
constexpr std::int64_t kTextsAtOnce = 8;

struct SampleOptions {
  std::string folder, prompt, prompts, system, draft, precision = "fp32", device = "auto";
  bool prompted = false, chat = false, average = false;
  std::int64_t seed = 0;
  std::optional<std::int64_t> draft_tokens{}, batch{};
  GenerationSettings generation{};
};

void print_now(std::string_view piece) {
  std::cout << piece << std::flush;
  if (!std::cout) throw IoError("standard output could not be written");
}

void tell(const GenerationResult& result) {
  std::fprintf(stderr, "%ld tokens, %.1f tokens/s after a prompt of %ld in %.2f s",
               static_cast<long>(result.tokens), result.tokens_per_second(),
               static_cast<long>(result.prompt_tokens), result.prompt_seconds);
  if (result.drafted > 0)
    std::fprintf(stderr, ", %ld of %ld drafted tokens taken", static_cast<long>(result.taken),
                 static_cast<long>(result.drafted));
  std::fprintf(stderr, "\n");
}

/// What lines of standard input say, answered one by one.
void converse(Conversation& conversation) {
  const auto ask = [] { std::cerr << "> " << std::flush; };
  std::string said;
  for (ask(); std::getline(std::cin, said); ask()) {
    if (said.ends_with('\r')) said.pop_back();
    if (said.empty()) continue;
    conversation.add("user", said);
    conversation.answer(print_now);
    print_now("\n");
  }
  std::cerr << "\n";
}

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  const std::string text = read_text(file, kMostPromptBytes);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    lines.emplace_back(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
  }
  if (lines.empty()) throw DataError(concat(file, ": holds no prompts, one a line"));
  return lines;
}

/// A model with what it computes in.
struct Opened {
  TrainedRun run;
  DType dtype;
  Opened(const std::string& folder, const SampleOptions& options, const Stream& stream)
      : run(open_model(folder, stream, run_weights(options.average), options.precision)),
        dtype(compute_in(*run.model, options.precision, stream)) {
    if (!run.tokenizer) throw DataError(absent_tokenizer(run.tokenizer_folder));
  }
};

/// Prints the prompt and what follows it.
GenerationResult complete(CachedDecoder& decoder, DraftModel* draft, const Tokenizer& tokenizer,
                          const SampleOptions& options) {
  print_now(options.prompt);
  const auto result =
      continue_text(decoder, draft, tokenizer, prompt_tokens(tokenizer, options.prompt),
                    options.generation, print_now);
  print_now("\n");
  return result;
}

struct Prompts {
  std::vector<std::string> lines;
  std::vector<std::vector<std::int32_t>> tokens;
};

/// Of --prompts, all checked before anything is written.
Prompts read_prompts(const std::string& file, const Opened& opened) {
  const Tokenizer& tokenizer = *opened.run.tokenizer;
  const std::int64_t vocabulary = opened.run.model->config().vocabulary;
  check_text(vocabulary, tokenizer, {});
  Prompts prompts{lines_of(file), {}};
  for (const std::string& line : prompts.lines) {
    try {
      auto tokens = prompt_tokens(tokenizer, line);
      check_text(vocabulary, tokenizer, tokens);
      prompts.tokens.push_back(std::move(tokens));
    } catch (const DataError& error) {
      throw DataError(concat(file, ", line ", prompts.tokens.size() + 1, ": ", error.what()));
    }
  }
  return prompts;
}

void print_written(const Prompts& prompts, std::size_t i, const WrittenText& written) {
  JsonWriter out;
  out.begin_object();
  out.number("line", static_cast<std::int64_t>(i) + 1);
  out.string("prompt", prompts.lines[i]);
  out.string("text", written.text);
  out.number("tokens", written.tokens);
  out.end_object();
  print_now(out.text() + "\n");
}

/// Prints a JSON object for each prompt, in order. What a prompt has in common with the one before
/// is not computed again.
void complete_in_turn(CachedDecoder& decoder, DraftModel* draft, const Tokenizer& tokenizer,
                      const Prompts& prompts, GenerationSettings settings) {
  for (std::size_t i = 0; i < prompts.lines.size(); ++i, ++settings.sampling.seed) {
    WrittenText written;
    written.tokens = continue_text(decoder, draft, tokenizer, prompts.tokens[i], settings,
                                   [&](std::string_view piece) { written.text += piece; })
                         .tokens;
    print_written(prompts, i, written);
  }
}

/// Says where one after the other may be sooner: where most of each prompt, and more than is made
/// behind it, is common to all.
void tell_of_common_beginning(const Prompts& prompts, const Opened& opened, std::int64_t made) {
  std::span<const std::int32_t> common = prompts.tokens.front();
  std::int64_t all = 0, longest = 0;
  for (const auto& tokens : prompts.tokens) {
    const auto alike = std::ranges::mismatch(common, tokens).in1 - common.begin();
    common = common.first(static_cast<std::size_t>(alike));
    all += std::ssize(tokens);
    longest = std::max(longest, std::ssize(tokens));
  }
  const std::int64_t count = std::ssize(prompts.tokens), alike = std::ssize(common);
  if (count == 1 || 2 * alike * count <= all || alike <= made) return;
  if (longest > opened.run.model->config().context) return;  // nothing is kept of such a one
  std::cerr << "all prompts begin with the same " << alike
            << " tokens, which --batch 1 sees once: it may be sooner\n";
}

/// The same, several at a time.
void complete_together(const Opened& opened, const Prompts& prompts, std::int64_t batch,
                       const GenerationSettings& settings, const Stream& stream) {
  tell_of_common_beginning(prompts, opened, settings.tokens);
  const FittingRows rows{.model = *opened.run.model,
                         .most = batch,
                         .dtype = opened.dtype,
                         .stream = stream,
                         .fewer = [&](std::int64_t count) {
                           std::cerr << "memory has room for " << count << " of --batch " << batch
                                     << " texts at once\n";
                         }};
  continue_texts(
      rows, *opened.run.tokenizer, prompts.tokens, settings,
      [&](std::size_t i, const WrittenText& written) { print_written(prompts, i, written); });
}

void add_sampling_options(po::options_description& options, GenerationSettings& settings) {
  auto add = options.add_options();
  add("tokens", po::value(&settings.tokens)->value_name("N"),
      "Most tokens to make, of a conversation in each answer (100).");
  add("temperature", po::value(&settings.sampling.temperature)->value_name("T"),
      "Below 1 is bolder, 0 is greedy (1).");
  add("top-k", po::value(&settings.sampling.top_k)->value_name("K"),
      "Only the K likeliest tokens; 0 is all (0).");
  add("top-p", po::value(&settings.sampling.top_p)->value_name("P"),
      "Only the likeliest tokens that hold this share (1).");
  add("min-p", po::value(&settings.sampling.min_p)->value_name("P"),
      "Only tokens that are at least P times as likely as the likeliest (0).");
  add("repetition-penalty", po::value(&settings.sampling.repetition_penalty)->value_name("R"),
      "Above 1, tokens that the text has are less likely (1).");
  add("stop", po::value(&settings.stop)->composing()->value_name("TEXT"),
      "Ends the text before TEXT; may be given more than once.");
}

CommandSyntax sample_syntax(SampleOptions& options) {
  CommandSyntax syntax{
      .name = "sample",
      .usage = "RUN|HF_DIR (--prompt TEXT | --prompts FILE | --chat) [options]",
      .description =
          "Prints a prompt and its continuation, as it comes, by a run's newest checkpoint or a\n"
          "Hugging Face folder; or a JSON object for each line of a file of prompts; or holds a\n"
          "conversation by the folder's chat template, a line of standard input at a time. The\n"
          "same seed gives the same text. An end-of-text token or a --stop ends it early.",
      .operands = {"RUN|HF_DIR"},
      .may_be_empty = "prompt"};
  auto add = syntax.options.add_options();
  const auto is_given = [&](const std::string&) { options.prompted = true; };
  add("prompt", po::value(&options.prompt)->notifier(is_given)->value_name("TEXT"),
      "How the text begins; may be empty.");
  add("prompts", po::value(&options.prompts)->value_name("FILE"),
      "A prompt on each line; each one's seed is one more than the last one's.");
  const auto batch = [&](std::int64_t count) { options.batch = count; };
  add("batch", po::value<std::int64_t>()->value_name("N")->notifier(batch),
      "With --prompts: texts written at a time (8), sooner where prompts have little in common; on "
      "a processor each is then what it is alone. 1 computes once what a prompt has in common with "
      "the one before.");
  add("chat", po::bool_switch(&options.chat), "Hold a conversation.");
  add("system", po::value(&options.system)->value_name("TEXT"),
      "With --chat: what the system says first.");
  add_sampling_options(syntax.options, options.generation);
  add("draft", po::value(&options.draft)->value_name("RUN|HF_DIR"),
      "A small model of the same tokenizer that drafts tokens: the same text, sooner.");
  const auto draft_tokens = [&](std::int64_t count) { options.draft_tokens = count; };
  add("draft-tokens", po::value<std::int64_t>()->value_name("K")->notifier(draft_tokens),
      "With --draft: tokens drafted at a time, 1 to 64; else as many as are fastest.");
  add_precision_option(syntax.options, options.precision);
  add_device_option(syntax.options, options.device);
  add_average_option(syntax.options, options.average);
  add("seed", po::value(&options.seed)->value_name("S"), "Whole number from 0 on (0).");
  return syntax;
}

void check(const SampleOptions& options) {
  if (options.seed < 0) throw UsageError(concat("seed: got ", options.seed, ", want 0 or more"));
  if (options.prompted + !options.prompts.empty() + options.chat != 1)
    throw UsageError("hybrid sample: want one of --prompt TEXT, --prompts FILE and --chat");
  if (options.draft_tokens && options.draft.empty())
    throw UsageError("hybrid sample: --draft-tokens goes with --draft");
  if (options.draft_tokens && (*options.draft_tokens < 1 || *options.draft_tokens > 64))
    throw UsageError(
        concat("hybrid sample: --draft-tokens: got ", *options.draft_tokens, ", want 1 to 64"));
  if (options.batch && options.prompts.empty())
    throw UsageError("hybrid sample: --batch goes with --prompts");
  if (options.batch && *options.batch < 1)
    throw UsageError(concat("hybrid sample: --batch: got ", *options.batch, ", want 1 or more"));
  if (options.batch.value_or(1) > 1 && !options.draft.empty())
    throw UsageError(
        "hybrid sample: --batch writes several texts at a time, --draft one; want one of them");
  if (!options.system.empty() && !options.chat)
    throw UsageError("hybrid sample: --system goes with --chat");
  check(options.generation);
}

}  // namespace

int sample_command(const std::vector<std::string>& arguments) {
  SampleOptions options;
  const auto operands = parse_command_line(sample_syntax(options), arguments);
  if (!operands) return 0;
  options.generation.sampling.seed = static_cast<std::uint64_t>(options.seed);
  check(options);

  const Stream stream(make_device_pool(device_of_option(options.device)));
  const Opened opened(operands->front(), options, stream);
  std::optional<Opened> small;
  std::optional<DraftModel> draft;
  if (!options.draft.empty()) {
    small.emplace(options.draft, options, stream);
    if (!small->run.tokenizer->has_tokens_of(*opened.run.tokenizer))
      throw DataError(concat(options.draft, ": its tokenizer is not that of ", operands->front(),
                             ", so it cannot draft for it"));
    draft.emplace(*small->run.model, small->dtype, stream, options.draft_tokens);
  }
  DraftModel* const drafts = draft ? &*draft : nullptr;
  const std::filesystem::path& folder = opened.run.tokenizer_folder;
  const Tokenizer& tokenizer = *opened.run.tokenizer;
  options.generation.end_tokens = end_tokens_in(folder, tokenizer);
  for (const std::int32_t id : end_token_ids_in(operands->front()))  // an adapter's own
    options.generation.end_tokens.push_back(id);
  if (options.chat) {
    Conversation conversation(opened.run, folder, options.generation, opened.dtype, drafts, stream);
    if (!options.system.empty()) conversation.add("system", options.system);
    converse(conversation);
    return 0;
  }
  if (options.prompts.empty()) {
    CachedDecoder alone(*opened.run.model, opened.dtype, stream);
    tell(complete(alone, drafts, tokenizer, options));
    return 0;
  }
  const Prompts prompts = read_prompts(options.prompts, opened);
  const std::int64_t batch = drafts != nullptr ? 1 : options.batch.value_or(kTextsAtOnce);
  if (batch > 1) {
    complete_together(opened, prompts, batch, options.generation, stream);
  } else {
    CachedDecoder alone(*opened.run.model, opened.dtype, stream);
    complete_in_turn(alone, drafts, tokenizer, prompts, options.generation);
  }
  return 0;
}

}  // namespace hybrid_trainer
