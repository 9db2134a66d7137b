#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "src/data/audio/sound.h"
#include "tests/run/run_contracts.h"
#include "tests/support/model_folders.h"
#include "tests/support/wav_writer.h"

namespace hybrid_trainer {

inline constexpr int kToneClips = 24;
inline constexpr std::int64_t kTonePlaces = 13;  // encoder positions: 0.26 s

/// Letters, a space and Whisper's special tokens, with timestamps for kTonePlaces.
inline std::string tone_tokenizer() {
  std::string vocabulary = "\"\u0120\":0", added;
  for (int letter = 0; letter < 26; ++letter)
    vocabulary += concat(",\"", static_cast<char>('a' + letter), "\":", letter + 1);
  std::vector<std::string> special{"<|endoftext|>",   "<|startoftranscript|>", "<|en|>",
                                   "<|de|>",          "<|translate|>",         "<|transcribe|>",
                                   "<|notimestamps|>"};
  for (std::int64_t i = 0; i <= kTonePlaces; ++i)
    special.push_back(
        concat("<|", i * 2 / 100, ".", i * 2 % 100 < 10 ? "0" : "", i * 2 % 100, "|>"));
  int id = 27;
  for (const std::string& token : special)
    added += concat(added.empty() ? "" : ",", R"({"id":)", id++, R"(,"content":")", token,
                    R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                    R"("special":true})");
  return concat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added,
      R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)",
      R"("trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",)",
      R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",)",
      R"("dropout":null,"unk_token":null,"continuing_subword_prefix":null,)",
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{)", vocabulary,
      R"(},"merges":[]}})");
}

/// Runs of a small Whisper model that learns the word for each tone.
class SpeechRuns : public RunContracts {
 protected:
  SpeechRuns() {
    const Stream stream(MemoryPool::create("test"));
    ModelConfig model{.family = "whisper", .layers = 1, .heads = 2, .width = 32, .context = 16};
    model.vocabulary = 48;
    model.encoder = {.layers = 1, .heads = 2, .context = kTonePlaces, .features = 20};
    const auto made = make_model(resolved_model_config(model), 5, stream);
    export_hugging_face(*made, nullptr, scratch_ / "model", stream);
    write_text(scratch_ / "model/tokenizer.json", tone_tokenizer());
    std::string lines;
    for (int i = 0; i < kToneClips; ++i) {
      const auto& [word, hertz] = kWords[static_cast<std::size_t>(i) % 3];
      write_tone(scratch_ / concat(i, ".wav"), hertz, static_cast<std::uint64_t>(i));
      lines += concat(R"({"audio":")", i, R"(.wav","text":")", word, R"(","language":"en"})", "\n");
    }
    write_text(scratch_ / "clips.jsonl", lines);
  }
  static void write_tone(const std::filesystem::path& path, double hertz, std::uint64_t seed) {
    Sound sound;
    for (std::uint64_t i = 0; i < 3600; ++i) {
      const double noise = 0.02 * (to_unit_float(philox({seed, 0, 0}, i)[0]) - 0.5);
      const double angle = 2 * std::numbers::pi * hertz * static_cast<double>(i) / kSpeechRate;
      sound.samples.push_back(static_cast<float>(0.3 * std::sin(angle) + noise));
    }
    write_wav(path, sound);
  }

  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.data.batch_size = 4;
    config.data.layout = "apart";
    config.data.sequence_length = 10;
    config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config,
                               const std::string& run) const override {
    return {.config = config,
            .data = scratch_ / "clips.jsonl",
            .run = scratch_ / run,
            .init_from = scratch_ / "model",
            .command = "test"};
  }

  const std::vector<std::pair<std::string, double>> kWords{
      {"low", 400}, {"mid", 1500}, {"top", 5000}};
};

}  // namespace hybrid_trainer
