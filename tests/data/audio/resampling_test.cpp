#include "src/data/audio/sound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/support/wav_writer.h"

namespace hybrid_trainer {
namespace {

double angle(double frequency, std::int64_t rate, std::size_t i) {
  return 2 * std::numbers::pi * frequency * static_cast<double>(i) / static_cast<double>(rate);
}

std::vector<float> sine(double frequency, std::int64_t rate, double seconds) {
  std::vector<float> samples(static_cast<std::size_t>(seconds * static_cast<double>(rate)));
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>(std::sin(angle(frequency, rate, i)));
  return samples;
}

/// Largest difference from a sine, excluding both ends, in decibels relative to its amplitude.
double decibels_off(const std::vector<float>& samples, double frequency, std::int64_t rate,
                    double amplitude = 1) {
  double most = 0;
  for (std::size_t i = 1200; i + 1200 < samples.size(); ++i)
    most = std::max(most, std::abs(samples[i] - amplitude * std::sin(angle(frequency, rate, i))));
  return 20 * std::log10(most);
}

TEST(Resampling, PreservesSineBelowNyquist) {
  for (const std::int64_t rate :
       {8000, 11025, 12000, 22050, 24000, 32000, 44100, 48000, 96000, 44101}) {
    const Resampling filter(rate, 16000);
    const double highest = 0.9 * static_cast<double>(std::min<std::int64_t>(rate, 16000)) / 2;
    for (const double frequency : {50.0, 997.0, 0.98 * highest}) {
      const std::vector<float> result = filter.of(sine(frequency, rate, 0.4));
      EXPECT_LT(decibels_off(result, frequency, 16000), -80) << rate << " Hz, " << frequency;
    }
  }
}

TEST(Resampling, SuppressesAliasesAndImages) {
  for (const std::int64_t rate : {22050, 24000, 44100, 48000})
    for (const double frequency : {8050.0, 9000.0, 10900.0}) {
      const std::vector<float> result = Resampling(rate, 16000).of(sine(frequency, rate, 0.4));
      EXPECT_LT(decibels_off(result, 0, 16000, 0), -80) << rate << " Hz, " << frequency;
    }
  // Upsampling must not produce a mirror image of the spectrum.
  const std::vector<float> result = Resampling(8000, 16000).of(sine(3000, 8000, 0.4));
  std::complex<double> image = 0;
  for (std::size_t i = 1200; i + 1200 < result.size(); ++i)
    image += static_cast<double>(result[i]) * std::polar(1.0, -angle(5000, 16000, i));
  EXPECT_LT(std::abs(image) / 2000, 1e-4);
}

TEST(Resampling, SameRateReturnsInputUnchanged) {
  const std::vector<float> samples = sine(440, 16000, 0.1);
  EXPECT_EQ(Resampling(16000, 16000).of(samples), samples);
}

TEST(Resampling, RoundsSampleCountUp) {
  EXPECT_EQ(Resampling(48000, 16000).of(std::vector<float>(10)).size(), 4u);
  EXPECT_EQ(Resampling(44100, 16000).of(std::vector<float>(44100)).size(), 16000u);
  EXPECT_EQ(Resampling(8000, 16000).of(std::vector<float>(1)).size(), 2u);
  EXPECT_TRUE(Resampling(8000, 16000).of({}).empty());
  EXPECT_THROW(Resampling(0, 16000), Error);
}

TEST(Resampling, RejectsRatesThatNeedHugeFilter) {
  expect_words(message_of<DataError>([] { Resampling(767'999, 16'000); }),
               {"767999 Hz", "16000 Hz", "at most 8388608", "-ar 16000"});
}

TEST(Resampling, PreservesConstantSignal) {
  const std::vector<float> result = Resampling(44100, 16000).of(std::vector<float>(4410, 1.0f));
  for (std::size_t i = 600; i < 1000; ++i) EXPECT_NEAR(result[i], 1, 1e-6) << i;
}

TEST(SpeechReader, ResamplesEveryRateTo16Kilohertz) {
  const TemporaryFolder folder;
  SpeechReader reader;
  for (const std::int64_t rate : {16000, 8000, 44100, 8000}) {
    const std::filesystem::path path = folder / concat(rate, ".wav");
    if (!std::filesystem::exists(path))
      write_wav(path, {sine(500, rate, 0.5), rate}, WavSamples::kFloat32);
    const std::vector<float> samples = reader.read(path);
    EXPECT_EQ(samples.size(), 8000u) << rate;
    EXPECT_LT(decibels_off(samples, 500, 16000), -80) << rate;
  }
}

}  // namespace
}  // namespace hybrid_trainer
