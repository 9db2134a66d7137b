#include "src/data/audio/sound.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/support/wav_writer.h"

namespace hybrid_trainer {
namespace {

const std::filesystem::path kWavFolder = std::filesystem::path(HT_TEST_DATA_DIR) / "wav";

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

std::string chunk(const std::string& id, const std::string& content) {
  return id + number(content.size(), 4) + content + (content.size() % 2 == 1 ? "!" : "");
}

std::string format(int code, int channels, std::uint64_t rate, int bits) {
  const int frame = channels * ((bits + 7) / 8);
  return chunk("fmt ", number(static_cast<std::uint64_t>(code), 2) +
                           number(static_cast<std::uint64_t>(channels), 2) + number(rate, 4) +
                           number(rate * static_cast<std::uint64_t>(frame), 4) +
                           number(static_cast<std::uint64_t>(frame), 2) +
                           number(static_cast<std::uint64_t>(bits), 2));
}

std::string riff(const std::string& chunks) {
  return "RIFF" + number(4 + chunks.size(), 4) + "WAVE" + chunks;
}

const std::string kMono16 = format(1, 1, 16000, 16);
const std::string kTwoSamples("\x00\x40\x00\xC0", 4);  // 0.5 and -0.5

class WavFileTest : public ::testing::Test {
 protected:
  std::vector<float> read(const std::string& bytes) {
    return read_wav(folder_.write("a.wav", bytes)).samples;
  }
  std::string refusal(const std::string& bytes) {
    return message_of<DataError>([&] { read(bytes); });
  }
  TemporaryFolder folder_;
};

TEST_F(WavFileTest, ReadsLibsndfileAndFfmpegFiles) {
  const auto expected = boost::json::parse(read_text(kWavFolder / "expected.json")).as_object();
  EXPECT_EQ(expected.size(), 9u);
  for (const auto& [name, wanted] : expected) {
    const std::filesystem::path path = kWavFolder / std::string(name);
    const Sound sound = read_wav(path);
    EXPECT_EQ(sound.rate, wanted.at("rate").as_int64()) << name;
    const auto& samples = wanted.at("samples").as_array();
    ASSERT_EQ(sound.samples.size(), samples.size()) << name;
    for (std::size_t i = 0; i < samples.size(); ++i)
      EXPECT_NEAR(sound.samples[i], samples[i].to_number<double>(), 3e-8) << name << " " << i;
    const WavForm form = read_wav_form(path);
    EXPECT_EQ(form.frames, 50) << name;
    EXPECT_EQ(form.channels, 2) << name;
    EXPECT_DOUBLE_EQ(form.seconds(), 50.0 / 22050) << name;
  }
}

TEST_F(WavFileTest, ReportsUnsupportedFormatByName) {
  const auto told = [](const char* name) {
    return message_of<DataError>([&] { read_wav(kWavFolder / name); });
  };
  expect_words(told("mu_law.wav"), {"mu_law.wav", "compressed (µ-law)", "ffmpeg -i ", "16000"});
  expect_words(told("a_law.wav"), {"(A-law)"});
  expect_words(told("ima_adpcm.wav"), {"(IMA ADPCM)"});
  expect_words(told("ms_adpcm.wav"), {"(Microsoft ADPCM)"});
  expect_words(told("gsm.wav"), {"(GSM 6.10)"});
  expect_words(told("sound.flac"), {"FLAC", "not WAV", "ffmpeg -i ", " sound-16k.wav"});
  expect_words(told("sound.mp3"), {"MP3", "ffmpeg"});
  expect_words(told("sound.ogg"), {"Ogg", "ffmpeg"});
  expect_words(refusal(riff(format(0x1234, 1, 16000, 16))), {"format 0x1234"});
  expect_words(refusal(number(32, 4) + "ftypM4A "), {"M4A"});
  expect_words(refusal("RIFF" + number(100, 4) + "AVI LIST"), {"AVI"});
  expect_words(refusal("version https://git-lfs.github.com/spec/v1\n"), {"Git LFS"});
  expect_words(refusal("audio,text\n"), {"not a WAV file", "RIFF"});
  expect_words(refusal(""), {"not a WAV file"});
  EXPECT_THROW(read_wav(folder_ / "none.wav"), MissingInput);
}

TEST_F(WavFileTest, AcceptsAnyChunkOrderAndSkipsUnknown) {
  const std::vector<float> wanted{0.5f, -0.5f};
  const std::string data = chunk("data", kTwoSamples);
  EXPECT_EQ(read(riff(kMono16 + data)), wanted);
  EXPECT_EQ(
      read(riff(chunk("LIST", "odd") + kMono16 + chunk("junk", "") + data + chunk("id3 ", "x"))),
      wanted);
  EXPECT_EQ(read(riff(data + chunk("bext", "abc") + kMono16)), wanted) << "samples first";
}

TEST_F(WavFileTest, UnknownDataSizeReadsToEndOfFile) {
  const std::vector<float> wanted{0.5f, -0.5f};
  for (const std::uint64_t size : {0xFFFFFFFFull, 0x7FFFF000ull, 0x7FFFFFDBull, 0ull})
    EXPECT_EQ(read("RIFF" + number(size, 4) + "WAVE" + kMono16 + "data" + number(size, 4) +
                   kTwoSamples + "\x01"),
              wanted)
        << size;
  expect_words(refusal(riff(kMono16 + chunk("data", ""))), {"contains no samples"});
  expect_words(refusal("RIFF" + number(0, 4) + "WAVE" + kMono16 + "data" + number(0, 4)),
               {"contains no samples"});
}

TEST_F(WavFileTest, AveragesChannelsAndReadsHighBits) {
  const std::string three = format(1, 3, 8000, 16);
  const std::string frame = number(0x4000, 2) + number(0xC000, 2) + number(0x2000, 2);
  EXPECT_EQ(read(riff(three + chunk("data", frame))), (std::vector<float>{0.25f / 3}));
  EXPECT_EQ(read(riff(format(1, 1, 8000, 12) + chunk("data", number(0x4000, 2)))),
            (std::vector<float>{0.5f}));
}

TEST_F(WavFileTest, RejectsTruncatedFilesAndInvalidHeaders) {
  const std::string whole = riff(kMono16 + chunk("data", kTwoSamples));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THROW(read(whole.substr(0, bytes)), DataError) << bytes;
  expect_words(refusal(whole.substr(0, whole.size() - 1)),
               {"truncated", "4 bytes of samples", "3 follow"});
  expect_words(refusal(whole.substr(0, 10)), {"truncated", "10 bytes"});
  expect_words(refusal(riff(chunk("data", kTwoSamples))), {"no \"fmt \" chunk"});
  expect_words(refusal(riff(kMono16)), {"no \"data\" chunk"});
  const std::string data = chunk("data", kTwoSamples);
  expect_words(refusal(riff(format(1, 1, 0, 16) + data)), {"0 samples per second", "1000"});
  expect_words(refusal(riff(format(1, 1, 4'000'000'000, 16) + data)), {"samples per second"});
  expect_words(refusal(riff(format(1, 0, 16000, 16) + data)), {"0 channels"});
  expect_words(refusal(riff(format(1, 1, 16000, 40) + data)), {"40-bit integers"});
  expect_words(refusal(riff(format(3, 1, 16000, 16) + data)), {"16-bit floats"});
  std::string wrong_frame = riff(kMono16 + data);
  wrong_frame[32] = 3;
  expect_words(refusal(wrong_frame), {"3 bytes; want 2"});
  expect_words(refusal("RIFX" + whole.substr(4)), {"RIFX"});
}

TEST_F(WavFileTest, CorruptedHeaderBytesDoNotOverallocate) {
  const std::string whole = read_text(kWavFolder / "extensible.wav");
  std::uint32_t state = 7;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = whole;
    for (int j = 0; j < 3; ++j) {
      state = state * 1664525 + 1013904223;
      changed[(state >> 8) % 100] = static_cast<char>(state >> 24);
    }
    try {
      EXPECT_LE(read(changed).size(), whole.size());
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(WavFileTest, RejectsNonFiniteSamples) {
  const Sound sound{{0, std::numeric_limits<float>::quiet_NaN()}, 16000};
  write_wav(folder_ / "nan.wav", sound, WavSamples::kFloat32);
  expect_words(message_of<DataError>([&] { read_wav(folder_ / "nan.wav"); }), {"sample 2", "nan"});
}

TEST_F(WavFileTest, ReadsBackFloatAndRoundedInt16Samples) {
  const Sound sound{{0, 0.25f, -1, 0.999969482421875f, 1.5f, 1e-3f}, 44100};
  write_wav(folder_ / "float.wav", sound, WavSamples::kFloat32);
  EXPECT_EQ(read_wav(folder_ / "float.wav").samples, sound.samples);
  EXPECT_EQ(read_wav(folder_ / "float.wav").rate, 44100);
  write_wav(folder_ / "short.wav", sound);
  const std::vector<float> rounded = read_wav(folder_ / "short.wav").samples;
  const std::vector<float> wanted{0,           0.25f, -1, 0.999969482421875f, 0.999969482421875f,
                                  33 / 0x1p15f};
  EXPECT_EQ(rounded, wanted);
  EXPECT_THROW(write_wav(folder_ / "short.wav", sound), Error)
      << "an existing file is not overwritten";
}

}  // namespace
}  // namespace hybrid_trainer
