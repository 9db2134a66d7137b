#include "src/run/speech/clips.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

double max_clip_seconds(const ModelConfig& model) {
  constexpr double kSecondsPerTimestamp = 0.02;
  if (model.encoder.features == 0) return 0;
  return kSecondsPerTimestamp * static_cast<double>(model.encoder.context);
}

EncodedClip ClipFeatures::of(const FilePart& clip) {
  const std::vector<float> samples = reader_.read(clip);
  const bool is_long = std::ssize(samples) > frames_ * kFrameSamples;
  const std::vector<float> features =
      is_long ? log_mel_.of_all(samples) : log_mel_.of(samples, frames_);
  const Stream host(MemoryPool::create("host"));
  const Tensor result = Tensor::empty({std::ssize(features) / bands(), bands()}, DType::kF32,
                                      MemoryKind::kData, host);
  std::ranges::copy(features, result.data<float>());
  return {result, (std::ssize(samples) + kFrameSamples - 1) / kFrameSamples};
}

void ClipFeatures::write(const FilePart& clip, float* to) {
  std::ranges::copy(log_mel_.of(reader_.read(clip), frames_), to);
}

namespace {

/// Languages without spaces between words, as in Whisper's tokenizer.
constexpr const char* kUnspacedLanguages[] = {"zh", "ja", "th", "lo", "my", "yue"};

SpeechPrompt prompt_of(const ClipRow& clip, const SpeechTokens& tokens) {
  SpeechPrompt prompt;
  try {
    prompt = tokens.completed({.language = clip.language});
  } catch (const UsageError& error) {
    throw DataError(error.what());
  }
  if (tokens.is_multilingual() && prompt.language.empty())
    throw DataError(
        "\"language\" is missing, but the model supports several languages; want a code, such as "
        "\"en\"");
  prompt.timestamps = false;
  return prompt;
}

/// Returns the parts of a text that look like timestamps, "<|1.06|>".
std::vector<std::string_view> timestamps_in(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = text.find("<|"); at != text.npos; at = text.find("<|", at + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789.", at + 2);
    if (end != text.npos && end > at + 2 && text.substr(end).starts_with("|>"))
      found.push_back(text.substr(at, end + 2 - at));
  }
  return found;
}

/// Returns whether a text has timestamps. Throws DataError if the model cannot generate them.
bool has_timestamps(std::string_view text, const Tokenizer& tokenizer, const SpeechTokens& tokens) {
  const std::vector<std::string_view> times = timestamps_in(text);
  std::int32_t last = tokens.first_time();
  for (const std::string_view time : times) {
    const std::vector<std::int32_t> ids = tokenizer.encode(time, ControlText::kAsTokens);
    if (ids.size() != 1 || !tokens.is_time(ids.front()))
      throw DataError(concat("the model has no timestamp ", time,
                             "; want multiples of 0.02 s, from <|0.00|> to <|30.00|>"));
    if (ids.front() < last)
      throw DataError(concat("the timestamp ", time, " is less than the previous timestamp"));
    last = ids.front();
  }
  if (times.empty()) return false;
  if (!text.starts_with(times.front()))
    throw DataError(concat("the timestamp ", times.front(),
                           " is not at the beginning of the text; add a timestamp at the "
                           "beginning, or remove all timestamps"));
  return true;
}

/// Returns whether the text begins with Whisper's space, which is part of the token of the first
/// word. The model cannot generate a separate space at the beginning.
bool wants_space(std::string_view text, const std::string& language, const Tokenizer& tokenizer) {
  if (std::ranges::count(kUnspacedLanguages, language) > 0) return false;
  if (static_cast<unsigned char>(text.front()) < 0x80) return true;
  std::vector<std::int32_t> ids;
  tokenizer.append_tokens(concat(" ", text), ids, TextStart::kContinuation);
  return tokenizer.token_bytes(ids.front()) != " ";
}

void append_text(const std::string& given, const SpeechPrompt& prompt, ControlText control,
                 const Tokenizer& tokenizer, const SpeechTokens& tokens,
                 std::vector<std::int32_t>& to) {
  std::string text = given.substr(given.find_first_not_of(" \t\r\n"));
  if (!prompt.timestamps && wants_space(text, prompt.language, tokenizer)) text = " " + text;
  const std::size_t begun = to.size();
  tokenizer.append_tokens(text, to, TextStart::kContinuation, control);
  for (const std::int32_t id : std::span(to).subspan(begun))
    if (id >= tokens.end && id < tokens.first_time())
      throw DataError(concat(
          "\"text\" spells the special token ", tokenizer.token_bytes(id),
          "; the text may contain only spoken words, and the language belongs in \"language\""));
}

constexpr std::uint64_t kMaskKey = 0x636C697073;  // "clips"

/// Writes the features of a row's clip to `to`. Throws DataError, with row and remedy, if it fails.
void write_features(ClipFeatures& features, const ExampleRow& row, float* to) {
  const auto refuse = [&](const Error& error) {
    throw DataError(concat("the clip of row ", row.line, " became unreadable during the run: ",
                           error.what(), "; restore the file and continue with --resume"));
  };
  try {
    features.write(*row.clip, to);
  } catch (const DataError& error) {
    refuse(error);
  } catch (const MissingInput& error) {
    refuse(error);
  }
}

}  // namespace

ExampleRow clip_example(const ClipRow& clip, const ExampleFormat& format,
                        const SpeechTokens& tokens) {
  const Tokenizer& tokenizer = format.tokenizer;
  const std::int64_t longest = format.longest;
  SpeechPrompt prompt = prompt_of(clip, tokens);
  prompt.timestamps =
      has_timestamps(clip.text.substr(clip.text.find_first_not_of(" \t\r\n")), tokenizer, tokens);
  ExampleRow row{.file = clip.file, .line = clip.line, .tokens = tokens.prompt(prompt)};
  append_text(clip.text, prompt, format.control, tokenizer, tokens, row.tokens);
  row.tokens.push_back(tokens.end);
  const std::int64_t count = std::ssize(row.tokens);
  if (count > longest) {
    row.left_out = count - longest;
    row.tokens.resize(static_cast<std::size_t>(longest));
  }
  row.is_target.assign(row.tokens.size(), true);
  row.is_target.front() = false;
  row.end_token = tokens.end;
  row.clip = std::make_shared<const FilePart>(clip.sound);
  return row;
}

ExampleRows read_clip_examples(const std::filesystem::path& path, const ExampleFormat& format,
                               double longest_seconds, const SpeechTokens& tokens) {
  ExampleRows examples;
  read_clip_rows({path, format.columns, format.called, format.split}, longest_seconds, examples,
                 [&](const ClipRow& clip) {
                   examples.rows.push_back(clip_example(clip, format, tokens));
                   examples.shapes.resize(examples.files.size());
                   ++examples.shapes[clip.file][RowShape::kClip];
                 });
  examples.shapes.resize(examples.files.size());
  return examples;
}

ClipExamples::ClipExamples(std::vector<ExampleRow> rows, const PackedRows::Settings& layout,
                           const Settings& settings)
    : rows_(std::move(rows), layout), settings_(settings) {
  require(!layout.packs, "clips: each clip needs a separate sequence");
}

Batch ClipExamples::empty_batch(std::int64_t examples, const Stream& stream) const {
  const Batch batch = rows_.empty_batch(examples, stream);
  std::vector<NamedTensor> tensors = batch.tensors();
  const EncoderConfig& encoder = settings_.encoder;
  tensors.push_back({"features", Tensor::empty({examples, 2 * encoder.context, encoder.features},
                                               DType::kF32, MemoryKind::kData, stream)});
  return Batch(std::move(tensors), batch.tokens_per_example());
}

void ClipExamples::write(std::int64_t number, const ExampleMemory& memory) const {
  rows_.write(number, memory);
  const std::span<float> to = memory.floats("features");
  if (number == kPadding) {
    std::ranges::fill(to, 0.0f);
    return;
  }
  const std::size_t row = rows_.rows_of(number).front();
  ClipFeatures features(settings_.encoder);
  write_features(features, rows_.rows()[row], to.data());
  if (settings_.masks && memory.epoch())
    mask_features(to, features.bands(), settings_.feature_masks,
                  {settings_.seed, *memory.epoch(), kMaskKey + row});
}

std::shared_ptr<const Dataset> dataset_of_rows(std::vector<ExampleRow> rows,
                                               PackedRows::Settings layout,
                                               const HybridTrainerConfig& config) {
  if (rows.empty() || !rows.front().clip)
    return std::make_shared<PackedRows>(std::move(rows), layout);
  layout.packs = false;
  return std::make_shared<ClipExamples>(
      std::move(rows), layout,
      ClipExamples::Settings{.encoder = config.model.encoder,
                             .masks = config.data.mask_frames,
                             .seed = static_cast<std::uint64_t>(config.training.seed)});
}

}  // namespace hybrid_trainer
