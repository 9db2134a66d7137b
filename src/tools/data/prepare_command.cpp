#include <unistd.h>
#include <cstdio>
#include <iostream>

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
  const std::int64_t bytes = info.train_bytes + info.validation_bytes,
                     tokens = info.train_tokens + info.validation_tokens;
  const auto size_text = [](std::int64_t size) {
    return units::bytes(static_cast<std::size_t>(size));
  };
  std::cerr << output << ": " << info.train_tokens << " training and " << info.validation_tokens
            << " validation tokens, " << info.tokenizer << " tokenizer with "
            << info.vocabulary_size << " tokens, "
            << units::fixed(static_cast<double>(bytes) / static_cast<double>(tokens), 2)
            << " bytes per token\n"
            << info.documents << (info.documents == 1 ? " document, " : " documents, ")
            << size_text(bytes) << " of text; tokenizer "
            << units::fixed(result.tokenizer_seconds, 1) << " s, encoding "
            << units::fixed(result.encode_seconds, 1) << " s\n";
  if (result.skipped_binary_files > 0)
    std::cerr << "skipped " << result.skipped_binary_files << " binary files\n";
  if (result.repeated_files > 0)
    std::cerr << "skipped " << result.repeated_files << " files that were given more than once\n";
  if (result.rows_left_out > 0)
    std::cerr << "skipped " << result.rows_left_out << " rows without text; "
              << result.first_left_out << "\n";
  if (result.missing_merges > 0)
    std::cerr
        << "the vocabulary has " << result.missing_merges
        << " tokens fewer than requested, because no pair of tokens occurs twice in the text\n";
  if (result.dropped_words > 0)
    std::cerr << "rare words were left out of the training of the vocabulary, because the text has "
                 "too many different words\n";
  if (result.divided_bytes > 0)
    std::cerr << size_text(result.divided_bytes)
              << " of text without a word boundary was encoded in pieces of 16 MiB\n";
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
