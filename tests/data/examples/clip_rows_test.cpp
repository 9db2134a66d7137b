#include "src/data/examples/clip_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/audio/sound.h"
#include "tests/support/test_files.h"
#include "tests/support/wav_writer.h"

namespace hybrid_trainer {
namespace {

struct ClipRows : ReadRows {
  std::vector<ClipRow> rows{};
};

ClipRows read_clips(const std::filesystem::path& path, const ColumnNames& columns = {},
                    double longest_seconds = 30) {
  ClipRows clips;
  read_clip_rows({path, columns}, longest_seconds, clips,
                 [&](const ClipRow& clip) { clips.rows.push_back(clip); });
  return clips;
}

class ClipRowsTest : public ::testing::Test {
 protected:
  ClipRowsTest() {
    std::filesystem::create_directories(folder_ / "clips");
    write_wav(folder_ / "clips/a.wav", {std::vector<float>(8000), 16000});
    write_wav(folder_ / "clips/long.wav", {std::vector<float>(31 * 1000), 1000});
    send_warnings_to(&warnings_);
  }
  ~ClipRowsTest() override { send_warnings_to(&std::cerr); }

  ClipRows read(const std::string& name, const std::string& content,
                const ColumnNames& columns = {}, double longest_seconds = 30) {
    return read_clips(folder_.write(name, content), columns, longest_seconds);
  }
  /// The reason why the file's only row is rejected.
  std::string reason(const std::string& row) {
    const ClipRows clips = read("one.jsonl", row + "\n");
    EXPECT_TRUE(clips.rows.empty());
    return clips.refused.size() == 1 ? clips.refused.front().reason : "";
  }

  TemporaryFolder folder_;
  std::ostringstream warnings_;
};

TEST_F(ClipRowsTest, ReadsJsonLinesJsonAndCsv) {
  const std::vector<std::pair<const char*, const char*>> files{
      {"a.jsonl", "{\"audio\":\"clips/a.wav\",\"text\":\"stop now\",\"language\":\"en\"}\n"},
      {"a.json", "[{\"audio\":\"clips/a.wav\",\"text\":\"stop now\",\"language\":\"en\"}]"},
      {"a.csv", "audio,text,language\nclips/a.wav,stop now,en\n"},
      {"b.jsonl",
       "{\"audio\":{\"path\":\"clips/a.wav\",\"bytes\":null},\"text\":\"stop now\","
       "\"language\":\"en\"}\n"}};
  for (const auto& [name, content] : files) {
    const ClipRows clips = read(name, content);
    ASSERT_EQ(clips.rows.size(), 1u) << name;
    const ClipRow& clip = clips.rows.front();
    EXPECT_EQ(clip.sound.path, folder_ / "clips/a.wav");
    EXPECT_EQ(clip.text, "stop now");
    EXPECT_EQ(clip.language, "en");
    EXPECT_EQ(clip.line, 1);
  }
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(ClipRowsTest, ReadsParquetWithPathsOrAudioBytes) {
  const std::filesystem::path golden(HT_TEST_DATA_DIR);
  std::filesystem::copy_file(golden / "clip_path.parquet", folder_ / "a.parquet");
  const ClipRows clips = read_clips(folder_ / "a.parquet");
  ASSERT_EQ(clips.rows.size(), 1u);
  EXPECT_EQ(clips.rows[0].sound.path, folder_ / "clips/a.wav");
  EXPECT_EQ(clips.place(0, clips.rows[0].line, false), "row 1");
  std::filesystem::copy_file(golden / "clip_bytes.parquet", folder_ / "b.parquet");
  const ClipRows held = read_clips(folder_ / "b.parquet");
  ASSERT_EQ(held.rows.size(), 1u);
  const Sound sound = read_wav(held.rows[0].sound);
  EXPECT_EQ(sound.samples.size(), 800u);
  EXPECT_NEAR(sound.samples[8], 3000 * std::sin(8.0 / 5) / 32768, 1e-4);
  expect_words(held.rows[0].sound.name, {"clips/a.wav in row 1 of ", "b.parquet"});
}

TEST_F(ClipRowsTest, AcceptsRenamedColumnsAndAbsolutePaths) {
  const std::string path = (folder_ / "clips/a.wav").string();
  const ClipRows clips =
      read("a.jsonl", "{\"audio_filepath\":\"" + path + "\",\"sentence\":\"go\"}\n",
           ColumnNames("audio=audio_filepath,text=sentence"));
  ASSERT_EQ(clips.rows.size(), 1u);
  EXPECT_EQ(clips.rows[0].sound.path, path);
  EXPECT_EQ(clips.rows[0].language, "");
}

TEST_F(ClipRowsTest, RejectsInvalidRowsByLine) {
  const ClipRows clips = read("a.jsonl",
                              "{\"audio\":\"clips/a.wav\",\"text\":\"go\"}\n\n"
                              "{\"audio\":\"clips/b.wav\",\"text\":\"go\"}\nno JSON\n");
  EXPECT_EQ(clips.rows.size(), 1u);
  ASSERT_EQ(clips.refused.size(), 2u);
  EXPECT_EQ(clips.place(0, clips.refused[0].line, false), "line 3");
  expect_words(clips.refused[0].reason, {"clips/b.wav"});
  EXPECT_EQ(clips.refused[1].line, 4);
}

TEST_F(ClipRowsTest, ReportsReasonForRejectedRow) {
  folder_.write("clips/a.mp3", "ID3 and so on");
  expect_words(reason(R"({"audio":"clips/a.mp3","text":"go"})"), {"a.mp3", "MP3", "ffmpeg"});
  expect_words(reason(R"({"audio":"clips/long.wav","text":"go"})"),
               {"long.wav", "31 s", "30 s", "cut it"});
  expect_words(reason(R"({"audio":"clips/a.wav","text":" "})"), {"\"text\" is empty"});
  expect_words(reason(R"({"audio":"clips/a.wav","text":5})"), {"\"text\" is not a string"});
  expect_words(reason(R"({"audio":"clips/a.wav"})"), {"no \"text\"", "want {\"audio\""});
  expect_words(reason(R"({"text":"go"})"), {"no \"audio\"", "want {\"audio\""});
  expect_words(reason(R"({"audio":"","text":"go"})"), {"\"audio\" is not the path"});
  expect_words(reason(R"({"audio":{"bytes":"AAAA","path":"a.wav"},"text":"go"})"),
               {"contains the sound as text"});
  expect_words(reason(R"({"audio":{},"text":"go"})"), {"no \"path\""});
  expect_words(reason(R"({"audio":"clips/a.wav","text":"go","language":5})"), {"\"language\""});
  EXPECT_EQ(
      read("a.jsonl", "{\"audio\":\"clips/long.wav\",\"text\":\"go\"}\n", {}, 1000).rows.size(),
      1u);
}

TEST_F(ClipRowsTest, WarnsOnceAboutUnreadKeys) {
  const std::string row = "{\"audio\":\"clips/a.wav\",\"text\":\"go\",\"speaker\":1,\"age\":2}\n";
  EXPECT_EQ(read("a.jsonl", row + row).rows.size(), 2u);
  const std::string told = warnings_.str();
  expect_words(told, {"a.jsonl", "no effect", "\"age\", \"speaker\""});
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

TEST_F(ClipRowsTest, RejectsFileWithoutValidRows) {
  EXPECT_THROW(read("a.jsonl", "\n"), DataError);
  std::string rows;
  for (int i = 0; i < 1200; ++i) rows += "{\"text\":\"go\"}\n";
  expect_words(message_of<DataError>([&] { read("a.jsonl", rows); }),
               {"a.jsonl", "first 1000 lines", "line 1", "no \"audio\""});
  EXPECT_THROW(read_clips(folder_ / "none.jsonl"), MissingInput);
}

}  // namespace
}  // namespace hybrid_trainer
