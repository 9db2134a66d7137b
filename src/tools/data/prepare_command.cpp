#include <unistd.h>
#include <cstdio>

#include "src/core/messages.h"
#include "src/data/text/prepare.h"
#include "src/files/escaped_text.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

/// Progress display: one line that is rewritten on a terminal, otherwise one line per stage.
class ProgressLine {
 public:
  void show(const PrepareProgress& progress) {
    const bool new_stage = stage_ != progress.stage;
    if (!rewrites_ && !new_stage) return;
    if (rewrites_ && new_stage && !stage_.empty()) std::fputc('\n', stderr);
    stage_ = progress.stage;
    if (!rewrites_) {
      std::fprintf(stderr, "%s\n", progress.stage);
    } else if (progress.bytes_total > 0) {
      const double share =
          static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes_total);
      std::fprintf(stderr, "\r%s: %3.0f %% of %s", progress.stage, 100 * share,
                   units::bytes(static_cast<std::size_t>(progress.bytes_total)).c_str());
    } else {
      std::fprintf(stderr, "\r%s", progress.stage);
    }
  }
  ~ProgressLine() {
    if (rewrites_ && !stage_.empty()) std::fputc('\n', stderr);
  }

 private:
  const bool rewrites_ = is_drawing_terminal(STDERR_FILENO);
  std::string stage_;
};

void print(const PrepareResult& result, const std::string& output) {
  const DataInfo& info = result.info;
  const double bytes = static_cast<double>(info.train_bytes + info.validation_bytes);
  std::fprintf(stderr,
               "%s: %ld training and %ld validation tokens, %s tokenizer with %ld tokens, %.2f "
               "bytes per token\n",
               output.c_str(), static_cast<long>(info.train_tokens),
               static_cast<long>(info.validation_tokens), info.tokenizer.c_str(),
               static_cast<long>(info.vocabulary_size),
               bytes / static_cast<double>(info.train_tokens + info.validation_tokens));
  std::fprintf(stderr, "%ld document%s, %s of text; tokenizer %.1f s, encoding %.1f s\n",
               static_cast<long>(info.documents), info.documents == 1 ? "" : "s",
               units::bytes(static_cast<std::size_t>(bytes)).c_str(), result.tokenizer_seconds,
               result.encode_seconds);
  if (result.skipped_binary_files > 0) {
    std::fprintf(stderr, "skipped %ld binary files\n",
                 static_cast<long>(result.skipped_binary_files));
  }
  if (result.repeated_files > 0) {
    std::fprintf(stderr, "skipped %ld files that were given more than once\n",
                 static_cast<long>(result.repeated_files));
  }
  if (result.rows_left_out > 0) {
    std::fprintf(stderr, "skipped %ld rows without text; %s\n",
                 static_cast<long>(result.rows_left_out), result.first_left_out.c_str());
  }
  if (result.missing_merges > 0) {
    std::fprintf(stderr,
                 "the vocabulary has %ld tokens fewer than requested, because no pair of tokens "
                 "occurs twice in the text\n",
                 static_cast<long>(result.missing_merges));
  }
  if (result.dropped_words > 0) {
    std::fprintf(stderr,
                 "rare words were left out of the training of the vocabulary, because the text has "
                 "too many different words\n");
  }
  if (result.divided_bytes > 0) {
    std::fprintf(stderr, "%s of text without a word boundary was encoded in pieces of 16 MiB\n",
                 units::bytes(static_cast<std::size_t>(result.divided_bytes)).c_str());
  }
}

}  // namespace

int prepare_command(const std::vector<std::string>& arguments) {
  PrepareSettings settings;
  std::string output;
  bool control_tokens = false;
  CommandSyntax syntax{
      .name = "prepare",
      .usage = "INPUT... --output DATA [--tokenizer bpe|wordpiece|bytes|characters|PATH] [options]",
      .description =
          "Creates a data folder with a tokenizer and token shards for training and validation.\n"
          "The inputs are text files, .jsonl, .json, .csv and .parquet files, folders that\n"
          "contain such files, and - for standard input.",
      .operands = {"INPUT..."}};
  auto add = syntax.options.add_options();
  add("output", po::value(&output)->required()->value_name("DATA"), "Folder to create.");
  add("column", optional_value(settings.column, "NAME"),
      "Text column of files with rows (default: text); each row is a document. Without this "
      "option, a .json or .csv file that has no such column is read as plain text.");
  add("tokenizer",
      po::value(&settings.tokenizer)->value_name("bpe|wordpiece|bytes|characters|PATH"),
      "Tokenizer: bpe, trained on the text (default), wordpiece, BERT's tokenizer of lower-case "
      "text, trained on the text, bytes, characters, or the folder or file of an existing "
      "tokenizer.");
  add("vocab-size", po::value(&settings.vocabulary_size)->value_name("N"),
      "Vocabulary size of a trained tokenizer (default: 4096).");
  add("control-tokens", po::bool_switch(&control_tokens),
      "Encode text that spells a special token, such as <|endoftext|>, as this token; without it, "
      "such text stays plain text.");
  add("validation", po::value(&settings.validation)->value_name("SHARE"),
      "Share of the text held back for validation (default: 0.1).");
  add("replace", po::bool_switch(&settings.replace), "Replace an existing data folder.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;

  settings.inputs.assign(operands->begin(), operands->end());
  std::optional<StandardInput> input;
  for (std::filesystem::path& given : settings.inputs)
    if (given == StandardInput::kOption && !input) given = input.emplace().path();
  settings.output = output;
  if (control_tokens) settings.control_text = ControlText::kAsTokens;
  PrepareResult result;
  {
    ProgressLine line;
    result = prepare_data(settings, [&](const PrepareProgress& progress) { line.show(progress); });
  }
  print(result, output);
  return 0;
}

}  // namespace hybrid_trainer
