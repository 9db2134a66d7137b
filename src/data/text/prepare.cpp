#include "src/data/text/prepare.h"

#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "src/core/clock.h"
#include "src/core/messages.h"
#include "src/core/threads.h"
#include "src/data/text/bpe_training.h"
#include "src/data/text/character_tokenizer.h"
#include "src/data/text/word_splitter.h"
#include "src/files/foreign_files.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;
using Progress = std::function<void(const PrepareProgress&)>;
constexpr std::int64_t kMinTokens = 2;  // an input and its target
/// Bytes of text in memory at a time, divided into segments for all threads. Equal on all machines,
/// because rare words are dropped after each batch.
constexpr std::int64_t kBatchBytes = 16 << 20;

/// Calls f(segments) for all text, kBatchBytes at a time. Reports progress after each call.
template <class F>
void for_each_batch(const std::vector<TextPiece>& pieces, const SegmentReader::Cut& cut,
                    PrepareProgress report, const Progress& progress, const F& f) {
  SegmentReader reader(pieces, cut);
  while (true) {
    const auto segments = reader.next(kBatchBytes);
    if (segments.empty()) return;
    f(segments);
    for (const auto& segment : segments) {
      report.bytes_done += static_cast<std::int64_t>(segment.text.size());
    }
    if (progress) progress(report);
  }
}

void check_settings(const PrepareSettings& settings) {
  if (!(settings.validation > 0 && settings.validation < 1)) {
    throw UsageError(concat("validation share (--validation) is ", settings.validation,
                            "; want more than 0 and less than 1, such as 0.1"));
  }
  const std::vector<std::string> names{"bpe", "wordpiece", "bytes", "characters"};
  const bool is_name = std::ranges::find(names, settings.tokenizer) != names.end();
  if (!is_name && !fs::exists(settings.tokenizer)) {
    const std::string nearest = nearest_name(settings.tokenizer, names);
    throw UsageError(concat("tokenizer \"", settings.tokenizer,
                            "\" is neither the path of a tokenizer nor one of ", join(names),
                            nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
}

/// Returns the name of an entry that does not belong to a data folder; empty if there is none.
std::string first_unknown_entry(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_shard =
        name.ends_with(".bin") && (name.starts_with("train_") || name.starts_with("val_"));
    const bool is_known =
        name == "data.json" || std::ranges::find(kTokenizerFiles, name) != kTokenizerFiles.end();
    const bool are_templates = entry.is_directory() && name == kTemplateFolder;
    if (!are_templates && (!entry.is_regular_file() || !(is_shard || is_known))) return name;
  }
  return "";
}

/// Throws CannotCreate unless `path`, the resolved output, can be created: it does not exist, is an
/// empty folder or, with `replace`, a data folder with only the files of prepare_data.
void check_output(const fs::path& path, const PrepareSettings& settings) try {
  if (!fs::exists(path)) return;
  if (!fs::is_directory(path)) {
    throw CannotCreate(concat("output ", settings.output.string(),
                              " is a file; give a folder that does not exist"));
  }
  if (fs::is_empty(path)) return;
  const std::string foreign = first_unknown_entry(path);
  const bool is_data = fs::exists(path / "data.json");
  if (is_data && foreign.empty() && settings.replace) return;
  if (is_data && settings.replace) {
    throw CannotCreate(concat("output folder ", settings.output.string(), " contains ", foreign,
                              ", which was not written by `hybrid prepare` and would be removed by "
                              "--replace; remove the folder or choose another one for --output"));
  }
  throw CannotCreate(
      concat("output folder ", settings.output.string(),
             " exists and is not empty; remove it or choose another one for --output"));
} catch (const fs::filesystem_error& error) {
  throw CannotCreate(concat("output \"", settings.output.string(),
                            "\": cannot access it: ", error.code().message()));
}

/// Makes or loads the tokenizer. Training also reads the validation text, so that the tokenizer has
/// all of its characters.
std::unique_ptr<Tokenizer> make_tokenizer(const PrepareSettings& settings, const Corpus& corpus,
                                          const Progress& progress, PrepareResult& result) {
  if (settings.tokenizer == "bytes") return make_byte_tokenizer();
  const PrepareProgress report{"learning the vocabulary", 0, corpus.bytes};
  if (settings.tokenizer == "characters") {
    CharacterSet characters;
    for_each_batch(corpus.documents, last_word_cut, report, progress, [&](const auto& segments) {
      for (const auto& segment : segments) characters.add(segment.text);
    });
    return characters.tokenizer();
  }
  const bool are_pieces = settings.tokenizer == "wordpiece";
  if (!are_pieces && settings.tokenizer != "bpe") return load_tokenizer(settings.tokenizer);
  BpeTrainer trainer(settings.vocabulary_size, BpeTrainer::kWordBytes,
                     are_pieces ? TokenizerKind::kWordPiece : TokenizerKind::kBpe);
  for_each_batch(corpus.documents, last_word_cut, report, progress, [&](const auto& segments) {
    std::vector<std::string_view> texts;
    for (const auto& segment : segments) texts.push_back(segment.text);
    trainer.add(texts);
  });
  BpeTrainingResult trained = trainer.train();
  result.missing_merges = trained.missing_merges;
  result.dropped_words = trained.dropped_words;
  return std::move(trained.tokenizer);
}

/// Encodes splits. Each call of encode writes a split's shards and returns the number of tokens.
class SplitEncoder {
 public:
  SplitEncoder(const Tokenizer& tokenizer, std::vector<std::int32_t> separator, ControlText control)
      : tokenizer_(tokenizer), separator_(std::move(separator)), control_(control) {}

  std::int64_t encode(const std::vector<TextPiece>& pieces, ShardWriter::Settings shards,
                      const PrepareProgress& report, const Progress& progress) {
    ShardWriter writer(std::move(shards));
    const auto cut = [&](std::string_view text, std::size_t first) {
      return tokenizer_.last_split_point(text, first);
    };
    for_each_batch(pieces, cut, report, progress, [&](const std::vector<TextSegment>& segments) {
      std::vector<std::vector<std::int32_t>> encoded(segments.size());
      run_tasks(std::ssize(segments), [&](std::int64_t, std::int64_t i) {
        const auto place = static_cast<std::size_t>(i);
        encoded[place] = encode_segment(segments[place]);
      });
      for (std::size_t i = 0; i < segments.size(); ++i) {
        writer.append(encoded[i]);
        if (segments[i].is_divided)
          divided_bytes_ += static_cast<std::int64_t>(segments[i].text.size());
      }
    });
    writer.finish();
    return writer.tokens();
  }
  std::int64_t divided_bytes() const { return divided_bytes_; }

 private:
  std::vector<std::int32_t> encode_segment(const TextSegment& segment) const {
    std::vector<std::int32_t> ids;
    if (segment.starts_document) ids = separator_;
    try {
      tokenizer_.append_tokens(
          segment.text, ids,
          segment.starts_document ? TextStart::kDocument : TextStart::kContinuation, control_);
    } catch (const DataError& error) {
      throw DataError(concat(segment.place, ": ", error.what()));
    }
    return ids;
  }
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> separator_;  // tokens before each document
  ControlText control_;
  std::int64_t divided_bytes_ = 0;
};

/// Returns the tokens before each document: an end-of-text token and the template's start.
std::vector<std::int32_t> separator_of(const Tokenizer& tokenizer, std::size_t documents) {
  std::vector<std::int32_t> ids;
  if (documents > 1 && tokenizer.end_of_text()) ids.push_back(*tokenizer.end_of_text());
  std::ranges::copy(tokenizer.template_start(), std::back_inserter(ids));
  return ids;
}

std::int64_t total_bytes(const std::vector<TextPiece>& pieces) {
  std::int64_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.bytes();
  return bytes;
}

void check_length(const Corpus& corpus, const DataInfo& info) {
  if (info.train_tokens >= kMinTokens && info.validation_tokens >= kMinTokens) return;
  throw DataError(concat(corpus.name, " is too short: ", corpus.bytes, " bytes give ",
                         info.train_tokens, " tokens for training and ", info.validation_tokens,
                         " for validation; want at least ", kMinTokens, " of each"));
}

}  // namespace

PrepareResult prepare_data(const PrepareSettings& settings, const Progress& progress) {
  check_settings(settings);
  using Existing = OutputFolder::Existing;
  OutputFolder output(settings.output, settings.replace ? Existing::kReplace : Existing::kRefuse);
  check_output(output.path(), settings);
  std::optional<fs::path> made;
  const auto folder = [&] {
    if (!made) made = output.create();
    return *made;
  };
  TableTexts tables({.column = settings.column.value_or("text"),
                     .is_requested = settings.column.has_value(),
                     .place = [&] { return folder() / "rows.txt"; }});
  const Corpus corpus = find_corpus(settings.inputs, &tables);
  tables.finish();
  const CorpusSplit split = split_corpus(corpus, settings.validation);
  PrepareResult result;
  result.skipped_binary_files = corpus.skipped_binary_files;
  result.repeated_files = corpus.repeated_files;
  result.rows_left_out = tables.left_out().rows;
  result.first_left_out = tables.left_out().first;
  const auto start = Clock::now();
  const auto tokenizer = make_tokenizer(settings, corpus, progress, result);
  result.tokenizer_seconds = seconds_since(start);

  folder();
  const auto encode_start = Clock::now();
  SplitEncoder encoder(*tokenizer, separator_of(*tokenizer, corpus.documents.size()),
                       settings.control_text);
  const auto encode = [&](Split part, const std::vector<TextPiece>& pieces, std::int64_t done) {
    return encoder.encode(
        pieces, {folder(), name_of(part), tokenizer->vocabulary_size(), settings.shard_tokens},
        {"encoding", done, corpus.bytes}, progress);
  };
  DataInfo& info = result.info;
  info.tokenizer = name_of(tokenizer->kind());
  info.vocabulary_size = tokenizer->vocabulary_size();
  info.train_bytes = total_bytes(split.train);
  info.validation_bytes = total_bytes(split.validation);
  info.train_tokens = encode(Split::kTrain, split.train, 0);
  info.validation_tokens = encode(Split::kValidation, split.validation, info.train_bytes);
  info.documents = static_cast<std::int64_t>(corpus.documents.size());
  info.validation_fraction = settings.validation;
  result.divided_bytes = encoder.divided_bytes();
  check_length(corpus, info);
  result.encode_seconds = seconds_since(encode_start);
  tables.remove();
  tokenizer->save(folder());
  write_data_info(info, folder());
  check_output(output.path(), settings);  // the output may have been created meanwhile
  output.commit();
  return result;
}

}  // namespace hybrid_trainer
