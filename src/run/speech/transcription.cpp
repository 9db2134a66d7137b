#include "src/run/speech/transcription.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "src/generation/beam_search.h"

namespace hybrid_trainer {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> scores, std::int64_t begin, std::int64_t end) {
  const std::int64_t last = std::min<std::int64_t>(end, std::ssize(scores));
  for (std::int64_t id = std::max<std::int64_t>(begin, 0); id < last; ++id)
    scores[static_cast<std::size_t>(id)] = kNever;
}

/// Returns log Σ e^score.
double log_sum(std::span<const float> scores) {
  const float most = *std::ranges::max_element(scores);
  if (most == kNever) return -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const float score : scores) sum += std::exp(static_cast<double>(score - most));
  return static_cast<double>(most) + std::log(sum);
}

constexpr std::int64_t kFramesPerStep = 2;  // frames per timestamp step

double seconds_of(std::int64_t frames) { return static_cast<double>(frames) / 100; }

class WindowWriter {
 public:
  WindowWriter(LanguageModel& model, const SpeechTokens& tokens,
               const TranscriptionSettings& settings, const Stream& stream)
      : model_(model),
        tokens_(tokens),
        pass_{.training = false, .dtype = settings.dtype},
        stream_(stream),
        search_(
            model,
            {.texts = settings.beams.value_or(tokens.keys.beams), .tokens = model.config().context},
            settings.dtype, stream) {}

  /// Encodes `features` (1, frames, bands) from the host.
  void add_window(const Tensor& features) {
    model_.encode(Batch({{"features", wait_for_device(features, stream_)}}), pass_, stream_);
  }
  std::string language() {
    const std::vector<std::int32_t> start{tokens_.start};
    const std::span<const float> scores = search_.logits(start);
    const auto score = [&](const auto& language) {
      return language.second < std::ssize(scores)
                 ? scores[static_cast<std::size_t>(language.second)]
                 : -std::numeric_limits<float>::infinity();
    };
    return std::ranges::max_element(tokens_.languages, {}, score)->first;
  }
  /// Generates the tokens of the window. Returns them without the final end token.
  std::vector<std::int32_t> write(const std::vector<std::int32_t>& prompt, bool timestamps) {
    const GenerationKeys& keys = tokens_.keys;
    const std::int64_t begun = std::ssize(prompt), context = model_.config().context;
    TokenConstraints rules = keys.rules;
    rules.begun = begun;
    rules.end_tokens = {tokens_.end};
    rules.longest = keys.max_new_tokens > 0 || keys.most == 0
                        ? keys.longest(begun, context)
                        : std::min(keys.most + begun, context);
    const auto rule = [&](std::span<float> scores, std::span<const std::int32_t> text) {
      rules.apply(scores, text);
      if (timestamps) apply_timestamp_rules(scores, text.subspan(prompt.size()), tokens_);
    };
    const BeamSettings search{.longest = rules.longest,
                              .end_tokens = rules.end_tokens,
                              .length_penalty = keys.length_penalty,
                              .end = keys.search_end};
    std::vector<std::int32_t> written = search_.write(prompt, search, rule);
    if (!written.empty() && written.back() == tokens_.end) written.pop_back();
    return written;
  }

 private:
  LanguageModel& model_;
  const SpeechTokens& tokens_;
  Pass pass_;
  const Stream& stream_;
  BeamSearch search_;
};

/// Segments of a window, split at its timestamps.
class WindowSegments {
 public:
  /// `frames` is the number of frames of the clip in the window. If `timestamps` is false, the
  /// window is one segment, and timestamps that the model generates are ignored.
  WindowSegments(const std::vector<std::int32_t>& written, const SpeechTokens& tokens,
                 std::int64_t frames, bool timestamps)
      : written_(written), tokens_(tokens), frames_(frames) {
    if (!timestamps) {
      if (!written.empty()) add(0, written.size(), 0, frames / kFramesPerStep);
      next_ = frames;
      return;
    }
    std::vector<std::size_t> cuts;
    for (std::size_t i = 1; i < written.size(); ++i)
      if (is_time(i - 1) && is_time(i)) cuts.push_back(i);
    const std::size_t count = written.size();
    const bool ends_with_one = count >= 2 && is_time(count - 1) && !is_time(count - 2);
    if (cuts.empty()) {
      add_whole();
      return;
    }
    const std::size_t last_split_point = cuts.back();
    if (ends_with_one) cuts.push_back(count);
    std::size_t begin = 0;
    for (const std::size_t cut : cuts) {
      add(begin, cut, time(begin), time(cut - 1));
      begin = cut;
    }
    // The tokens after the last timestamp pair were cut off by the end of the window.
    next_ = ends_with_one ? frames : time(last_split_point - 1) * kFramesPerStep;
  }

  struct Part {
    std::size_t begin, end;  // token range
    std::int64_t from, to;   // range in timestamp steps
  };
  const std::vector<Part>& parts() const { return parts_; }
  std::int64_t next() const { return next_; }  // offset of the next window from this one, in frames

 private:
  bool is_time(std::size_t i) const { return tokens_.is_time(written_[i]); }
  std::int64_t time(std::size_t i) const { return written_[i] - tokens_.first_time(); }
  void add(std::size_t begin, std::size_t end, std::int64_t from, std::int64_t to) {
    parts_.push_back({begin, end, from, to});
  }
  void add_whole() {
    std::int64_t to = frames_ / kFramesPerStep;
    for (std::size_t i = written_.size(); i-- > 0;) {
      if (!is_time(i)) continue;
      if (time(i) > 0) to = time(i);
      break;
    }
    if (!written_.empty()) add(0, written_.size(), 0, to);
    next_ = frames_;
  }
  const std::vector<std::int32_t>& written_;
  const SpeechTokens& tokens_;
  std::int64_t frames_, next_ = 0;
  std::vector<Part> parts_;
};

/// Returns `frames` frames from `begin` on, padded with zeros after the clip's end.
Tensor window_of(const Tensor& features, std::int64_t begin, std::int64_t frames) {
  const Stream host(MemoryPool::create("host"));
  const std::int64_t bands = features.size(1), there = std::min(frames, features.size(0) - begin);
  const Tensor window = Tensor::zeros({1, frames, bands}, DType::kF32, MemoryKind::kData, host);
  std::memcpy(window.raw(), features.data<float>() + begin * bands,
              static_cast<std::size_t>(there * bands) * sizeof(float));
  return window;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \n"), last = text.find_last_not_of(" \n");
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}

SpeechPrompt prompt_of(const ExampleRow& clip, const SpeechTokens& tokens) {
  SpeechPrompt prompt;
  std::size_t next = 1;
  if (tokens.is_multilingual()) {
    prompt.language = tokens.code_of(clip.tokens.at(next++));
    prompt.translates = clip.tokens.at(next++) == tokens.translate;
  }
  prompt.timestamps = clip.tokens.at(next) != tokens.no_timestamps;
  return prompt;
}

}  // namespace

void apply_timestamp_rules(std::span<float> scores, std::span<const std::int32_t> written,
                           const SpeechTokens& tokens) {
  const std::int64_t first = tokens.first_time();
  const std::int64_t all = std::min<std::int64_t>(std::ssize(scores), tokens.times_end);
  const auto forbid_words = [&](std::int64_t end) {  // added words follow the timestamps
    forbid(scores, 0, end);
    forbid(scores, all, std::ssize(scores));
  };
  const auto is_time = [&](std::size_t back) {
    return tokens.is_time(written[written.size() - back]);
  };
  forbid(scores, tokens.no_timestamps, tokens.no_timestamps + 1);
  const bool last = !written.empty() && is_time(1);
  const bool before = written.size() < 2 || is_time(2);
  if (last && before) forbid(scores, first, all);
  if (last && !before) forbid_words(tokens.end);
  const auto latest = std::ranges::find_if(written.rbegin(), written.rend(),
                                           [&](std::int32_t id) { return tokens.is_time(id); });
  if (latest != written.rend()) forbid(scores, first, *latest + (last && !before ? 0 : 1));
  if (written.empty()) {
    forbid_words(first);
    if (tokens.latest_first_time)
      forbid(scores, first + std::int64_t{*tokens.latest_first_time} + 1, all);
  }
  if (first >= all) return;
  const auto begin = static_cast<std::size_t>(first), end = static_cast<std::size_t>(all);
  const double time = log_sum(scores.subspan(begin, end - begin));
  float text = *std::ranges::max_element(scores.first(begin));
  for (const float score : scores.subspan(end)) text = std::max(text, score);
  if (time > static_cast<double>(text)) forbid_words(first);
}

Transcript transcribe(LanguageModel& model, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                      const EncodedClip& clip, const TranscriptionSettings& settings,
                      const Stream& stream) {
  const std::int64_t frames = 2 * model.config().encoder.context,
                     all = std::min(clip.frames, clip.features.size(0));
  SpeechPrompt prompt = tokens.completed(settings.prompt);
  prompt.timestamps = prompt.timestamps || all > frames;
  WindowWriter writer(model, tokens, settings, stream);
  Transcript transcript;
  for (std::int64_t begin = 0; begin < all;) {
    const std::int64_t here = std::min(frames, all - begin);
    writer.add_window(window_of(clip.features, begin, frames));
    if (tokens.is_multilingual() && prompt.language.empty()) prompt.language = writer.language();
    const auto written = writer.write(tokens.prompt(prompt), prompt.timestamps);
    const WindowSegments segments(written, tokens, here, prompt.timestamps);
    for (const WindowSegments::Part& part : segments.parts()) {
      const std::span<const std::int32_t> ids(written.data() + part.begin, part.end - part.begin);
      const std::string text = tokens.text_of(tokenizer, ids);
      transcript.segments.push_back({seconds_of(begin + part.from * kFramesPerStep),
                                     seconds_of(begin + part.to * kFramesPerStep), trimmed(text)});
      transcript.tokens.insert(transcript.tokens.end(), ids.begin(), ids.end());
    }
    begin += segments.next() > 0 ? segments.next() : here;
  }
  if (tokens.is_multilingual()) transcript.language = prompt.language;
  transcript.text = trimmed(tokens.text_of(tokenizer, transcript.tokens));
  return transcript;
}

std::string reference_transcript(const ExampleRow& clip, const Tokenizer& tokenizer,
                                 const SpeechTokens& tokens) {
  const std::string text = tokens.text_of(tokenizer, clip.tokens);
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::vector<std::string> transcribe_texts(LanguageModel& model, const Tokenizer& tokenizer,
                                          const SpeechTokens& tokens,
                                          const std::vector<ExampleRow>& clips, DType dtype,
                                          const Stream& stream, std::optional<std::int64_t> beams) {
  std::vector<std::string> texts;
  ClipFeatures features(model.config().encoder);
  for (const ExampleRow& clip : clips) {
    const TranscriptionSettings settings{
        .prompt = prompt_of(clip, tokens), .beams = beams, .dtype = dtype};
    texts.push_back(
        transcribe(model, tokenizer, tokens, features.of(*clip.clip), settings, stream).text);
  }
  return texts;
}

WordErrors transcription_errors(LanguageModel& model, const Tokenizer& tokenizer,
                                const SpeechTokens& tokens, const std::vector<ExampleRow>& clips,
                                DType dtype, const Stream& stream) {
  WordErrors errors;
  const auto heard = transcribe_texts(model, tokenizer, tokens, clips, dtype, stream);
  for (std::size_t i = 0; i < clips.size(); ++i)
    errors += word_errors(reference_transcript(clips[i], tokenizer, tokens), heard[i]);
  return errors;
}

}  // namespace hybrid_trainer
