#include "src/tools/generate/writing.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>
#include <span>

#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

struct Prompts {
  std::vector<std::string> lines;
  std::vector<std::vector<std::int32_t>> tokens;  // tokens that the model sees
  std::vector<std::int64_t> left_out;
};

/// Reads and checks all prompts before any output, and warns about truncated prompts.
Prompts read_prompts(const PromptFile& file, const WritingModel& model) {
  const Tokenizer& tokenizer = *model.run.tokenizer;
  const std::int64_t vocabulary = model.run.model().config().vocabulary;
  const ContextWindow window(model.context(), file.generation.pinned);
  check_text(vocabulary, tokenizer, {});
  Prompts prompts{prompt_lines(file.path), {}, {}};
  std::string first_cut;
  for (const std::string& line : prompts.lines) {
    const std::string where = concat(file.path, ", line ", prompts.tokens.size() + 1, ": ");
    try {
      auto tokens = prompt_tokens(tokenizer, line, file.control);
      check_text(vocabulary, tokenizer, tokens);
      FittedPrompt fitted =
          fit_prompt(std::move(tokens), window, file.generation.tokens, file.generation.overflow);
      if (fitted.left_out > 0 && first_cut.empty())
        first_cut = where + truncated_prompt_warning(fitted, window);
      prompts.left_out.push_back(fitted.left_out);
      prompts.tokens.push_back(std::move(fitted.tokens));
    } catch (const DataError& error) {
      throw DataError(where + error.what());
    }
  }
  const auto whole = std::ranges::count(prompts.left_out, 0);
  const std::int64_t more = std::ssize(prompts.lines) - whole - 1;
  if (!first_cut.empty())
    std::cerr << "warning: " << first_cut
              << (more > 0 ? concat("; ", more, " more prompts are also truncated") : "") << "\n";
  return prompts;
}

void print_written(const Prompts& prompts, std::size_t i, const GeneratedText& written) {
  const boost::json::object line{
      {"line", static_cast<std::int64_t>(i) + 1},
      {"prompt", prompts.lines[i]},
      {"text", written.text},
      {"tokens", written.tokens},
      {"prompt_tokens", std::ssize(prompts.tokens[i]) + prompts.left_out[i]},
      {"prompt_tokens_left_out", prompts.left_out[i]},
      {"forgotten_tokens", written.dropped_tokens}};
  print_now(json_line(line) + "\n");
}

/// Continues the prompts one by one. Reuses the cache of a prefix shared with the previous prompt.
void continue_one_by_one(const PromptFile& file, const WritingModel& model, DraftModel* draft,
                         const Prompts& prompts, const Stream& stream) {
  CachedDecoder decoder(model.run.model(), model.dtype, stream);
  GenerationSettings settings = file.generation;
  for (std::size_t i = 0; i < prompts.lines.size(); ++i, ++settings.sampling.seed) {
    GeneratedText written;
    const GenerationResult result =
        continue_text(decoder, draft, *model.run.tokenizer, prompts.tokens[i], settings,
                      [&](std::string_view piece) { written.text += piece; });
    written.tokens = result.tokens;
    written.dropped_tokens = result.dropped_tokens;
    print_written(prompts, i, written);
  }
}

/// Suggests --batch 1 if most tokens are a common prefix that is longer than the generated text.
void report_common_prefix(const Prompts& prompts, std::int64_t made) {
  std::span<const std::int32_t> common = prompts.tokens.front();
  std::int64_t all = 0;
  for (const auto& tokens : prompts.tokens) {
    const auto alike = std::ranges::mismatch(common, tokens).in1 - common.begin();
    common = common.first(static_cast<std::size_t>(alike));
    all += std::ssize(tokens);
  }
  const std::int64_t count = std::ssize(prompts.tokens), alike = std::ssize(common);
  if (count == 1 || 2 * alike * count <= all || alike <= made) return;
  std::cerr << "all prompts begin with the same " << alike
            << " tokens; with --batch 1, they are computed only once, which may be faster\n";
}

void continue_in_batch(const PromptFile& file, const WritingModel& model, const Prompts& prompts,
                       const Stream& stream) {
  report_common_prefix(prompts, file.generation.tokens);
  const FittingRows rows{.model = model.run.model(),
                         .most = file.batch,
                         .dtype = model.dtype,
                         .stream = stream,
                         .fewer = [&](std::int64_t count) {
                           std::cerr << "memory suffices for " << count
                                     << " texts in parallel, which is less than --batch "
                                     << file.batch << "\n";
                         }};
  continue_texts(
      rows, *model.run.tokenizer, prompts.tokens, file.generation,
      [&](std::size_t i, const GeneratedText& written) { print_written(prompts, i, written); });
}

}  // namespace

std::vector<std::string> prompt_lines(const std::string& file) {
  std::vector<std::string> lines;
  const std::string text = read_text(file, kMaxPromptBytes);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (valid_utf8_bytes(line, 0) != line.size())
      throw DataError(concat(file, ", line ", lines.size() + 1,
                             ": not valid UTF-8; convert a file written on Windows with: iconv -f ",
                             "WINDOWS-1252 -t UTF-8 ", shell_path(file), " > ",
                             shell_path(file + ".utf8")));
    lines.emplace_back(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
  }
  if (lines.empty()) throw DataError(concat(file, ": contains no prompts; want one per line"));
  return lines;
}

void print_now(std::string_view piece) {
  std::cout << piece << std::flush;
  if (!std::cout) throw IoError("cannot write to standard output");
}

void continue_prompts(const PromptFile& file, const WritingModel& model, DraftModel* draft,
                      const Stream& stream) {
  const Prompts prompts = read_prompts(file, model);
  if (file.batch > 1) {
    continue_in_batch(file, model, prompts, stream);
  } else {
    continue_one_by_one(file, model, draft, prompts, stream);
  }
}

}  // namespace hybrid_trainer
