#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/run/speech/clips.h"
#include "src/run/speech/transcription.h"
#include "src/tools/commands.h"
#include "src/tools/generate/writing.h"
#include "src/tools/open_model.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

struct TranscribeOptions {
  TranscriptionSettings settings;
  std::string precision = "fp32", device = "auto";
  RunWeights weights;
  bool json = false;
};

CommandSyntax transcribe_syntax(TranscribeOptions& options) {
  CommandSyntax syntax{.name = "transcribe",
                       .usage = "RUN|HF_DIR CLIP.wav [options]",
                       .description =
                           "Transcribes a WAV file with a Whisper model: a run's newest\n"
                           "checkpoint or a Hugging Face folder. Clips longer than 30 s are\n"
                           "processed in windows.",
                       .operands = {"RUN|HF_DIR", "CLIP"}};
  auto add = syntax.options.add_options();
  add("language", po::value(&options.settings.prompt.language)->value_name("CODE"),
      "Spoken language, such as en or german. Default: the setting of the model's folder, else the "
      "language that the model detects.");
  add("translate", po::bool_switch(&options.settings.prompt.translates), "Translate to English.");
  add("beam", optional_value(options.settings.beams, "N"),
      "Beam search with N beams. Default: the setting of the model's folder, else 1 (greedy "
      "decoding).");
  add("timestamps", po::bool_switch(&options.settings.prompt.timestamps),
      "Print one line per segment with its times.");
  add_precision_option(syntax.options, options.precision);
  add_device_option(syntax.options, options.device);
  add_run_weights_options(syntax.options, options.weights);
  add("json", po::bool_switch(&options.json), "Print the result as one JSON object.");
  return syntax;
}

void print(const Transcript& transcript, const TranscribeOptions& options) {
  if (options.json) {
    boost::json::array segments;
    for (const SpeechSegment& segment : transcript.segments)
      segments.push_back(boost::json::object{
          {"begin", segment.begin}, {"end", segment.end}, {"text", segment.text}});
    boost::json::object result{{"text", transcript.text}, {"segments", std::move(segments)}};
    if (!transcript.language.empty()) result["language"] = transcript.language;
    std::cout << json_line(result) << "\n";
  } else if (options.settings.prompt.timestamps) {
    for (const SpeechSegment& segment : transcript.segments)
      std::cout << units::fixed(segment.begin, 2) << " - " << units::fixed(segment.end, 2) << "  "
                << segment.text << "\n";
  } else {
    std::cout << transcript.text << "\n";
  }
}

}  // namespace

int transcribe_command(const std::vector<std::string>& arguments) {
  TranscribeOptions options;
  const auto operands = parse_command_line(transcribe_syntax(options), arguments);
  if (!operands) return 0;
  if (options.settings.beams) check_beams("transcribe", *options.settings.beams);
  const Stream stream(make_device_pool(device_of_option(options.device)));
  const WritingModel model(operands->front(), options.precision, options.weights, stream);
  LanguageModel& network = model.run.model("transcription");
  if (max_clip_seconds(network.config()) == 0)
    throw DataError(concat(operands->front(), " is a ", network.config().family,
                           " model, which does not read audio; want a Whisper model"));
  const GenerationKeys keys = generation_keys_of(model.run);
  keys.require_honored();
  const SpeechTokens tokens = read_speech_tokens(*model.run.tokenizer, keys);
  tokens.completed(options.settings.prompt);  // throws before reading the clip
  options.settings.dtype = model.dtype;
  ClipFeatures features(network.config().encoder);
  const EncodedClip heard = features.of(std::filesystem::path(operands->back()));
  print(transcribe(network, *model.run.tokenizer, tokens, heard, options.settings, stream),
        options);
  return 0;
}

}  // namespace hybrid_trainer
