#include "src/run/speech/transcription.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"

namespace hybrid_trainer {
namespace {

TEST(TimestampRules, KeepSameTokensAsTransformers) {
  const boost::json::value golden = read_json(HT_TEST_DATA_DIR "/timestamp_golden.json");
  ASSERT_EQ(golden.as_array().size(), 160u);
  for (const boost::json::value& one : golden.as_array()) {
    SpeechTokens tokens{.end = 10, .no_timestamps = 13};
    if (!one.at("latest").is_null())
      tokens.latest_first_time = static_cast<std::int32_t>(one.at("latest").as_int64());
    std::vector<float> scores;
    for (const auto& score : one.at("scores").as_array())
      scores.push_back(score.to_number<float>());
    std::vector<std::int32_t> written;
    for (const auto& id : one.at("written").as_array())
      written.push_back(static_cast<std::int32_t>(id.as_int64()));
    apply_timestamp_rules(scores, written, tokens);
    for (std::size_t id = 0; id < scores.size(); ++id)
      EXPECT_EQ(std::isfinite(scores[id]), one.at("kept").at(id).as_int64() == 1)
          << boost::json::serialize(one) << " token " << id;
  }
}

}  // namespace
}  // namespace hybrid_trainer
