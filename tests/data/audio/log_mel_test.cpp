#include "src/data/audio/log_mel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kRate = 16000;

/// The noise that tests/golden/make_sound_golden.py generates.
std::vector<float> noise(std::int64_t count) {
  std::uint32_t state = 1;
  std::vector<float> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    samples.push_back(static_cast<float>(0.2 * (static_cast<double>(state >> 8) / 0x1p24 - 0.5)));
  }
  return samples;
}

std::vector<float> tone(double amplitude, double frequency, double phase, std::int64_t seconds) {
  std::vector<float> samples;
  for (std::int64_t i = 0; i < seconds * kRate; ++i)
    samples.push_back(
        static_cast<float>(amplitude * std::sin(phase + 2 * std::numbers::pi * frequency / kRate *
                                                            static_cast<double>(i))));
  return samples;
}

class LogMelTest : public ::testing::Test {
 protected:
  template <class T = float>
  std::vector<T> golden(const std::string& name) const {
    const SafetensorsEntry& entry = file_.entry(name);
    std::vector<T> values(entry.bytes / sizeof(T));
    file_.read_bytes(name, 0, values.data(), entry.bytes);
    return values;
  }
  std::vector<float> speech() const {
    std::vector<float> samples;
    for (const std::int16_t sample : golden<std::int16_t>("speech.samples"))
      samples.push_back(sample / 0x1p15f);
    return samples;
  }

  /// Compares the frames in the golden file, and the mean of all frames.
  void expect_golden(const std::string& name, const std::vector<float>& samples,
                     std::int64_t mels = 80) const {
    const std::string key = concat(name, ".", mels);
    const std::vector<float> found = LogMel(mels).of(samples), wanted = golden(key);
    ASSERT_EQ(std::ssize(found), kWhisperFrames * mels);
    const std::vector<std::int32_t> frames = golden<std::int32_t>("frames");
    ASSERT_EQ(wanted.size(), frames.size() * static_cast<std::size_t>(mels));
    double most = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::int64_t frame = frames[i / static_cast<std::size_t>(mels)];
      const std::size_t place =
          static_cast<std::size_t>(frame * mels) + i % static_cast<std::size_t>(mels);
      most = std::max(most, std::abs(static_cast<double>(found[place]) - wanted[i]));
    }
    EXPECT_LE(most, 2e-6) << key;
    const double mean =
        std::accumulate(found.begin(), found.end(), 0.0) / static_cast<double>(found.size());
    EXPECT_NEAR(mean, golden(key + ".mean")[0], 1e-6) << key;
  }

  SafetensorsFile file_{std::string(HT_TEST_DATA_DIR) + "/log_mel.safetensors"};
};

TEST_F(LogMelTest, MatchesTransformersOnSpeech) {
  expect_golden("speech", speech());
  expect_golden("speech", speech(), 128);
}

TEST_F(LogMelTest, MatchesTransformersOnNoise) {
  expect_golden("noise", noise(30 * kRate));
  expect_golden("noise", noise(30 * kRate), 128);
}

TEST_F(LogMelTest, MatchesTransformersOnTones) {
  expect_golden("sine", tone(0.5, 440, 0, 3));
  expect_golden("tone_of_30_s", tone(0.9, 3000, std::numbers::pi / 2, 30));
}

TEST_F(LogMelTest, MatchesTransformersOnClickAndSilence) {
  std::vector<float> click(kRate);
  expect_golden("silence", click);
  click[8000] = 1;
  expect_golden("click", click);
}

TEST_F(LogMelTest, PadsShortAndTruncatesLongAudio) {
  expect_golden("short", noise(320));
  expect_golden("too_long", noise(31 * kRate));
  for (const float value : LogMel().of({})) ASSERT_EQ(value, -1.5f);
}

TEST_F(LogMelTest, UnpaddedAudioMatchesTransformers) {
  std::vector<float> samples = speech();
  samples.resize(15937);
  const std::vector<float> found = LogMel().of_all(samples), wanted = golden("whole.80");
  ASSERT_EQ(found.size(), 99u * 80);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[found.size() - wanted.size() + i], wanted[i], 2e-6) << i;
  EXPECT_EQ(LogMel().of_all(std::vector<float>(201)).size(), 80u);
  EXPECT_THROW(LogMel().of_all(std::vector<float>(200)), Error);
  EXPECT_THROW(LogMel().of({}, 1), Error);
}

TEST_F(LogMelTest, FiltersMatchTransformers) {
  for (const std::int64_t mels : {80, 128}) {
    const std::vector<double> filters = mel_filters(mels);
    const std::vector<float> wanted = golden(concat("filters.", mels));
    for (std::int64_t m = 0; m < mels; ++m) {
      double sum = 0, moment = 0;
      for (std::int64_t k = 0; k < 201; ++k) {
        const double weight = filters[static_cast<std::size_t>(m * 201 + k)];
        sum += weight;
        moment += static_cast<double>(k) * weight;
      }
      EXPECT_NEAR(sum, wanted[static_cast<std::size_t>(m)], 1e-8) << m;
      EXPECT_NEAR(moment, wanted[static_cast<std::size_t>(mels + m)], 1e-6) << m;
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer
