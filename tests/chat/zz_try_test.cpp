#include <gtest/gtest.h>
#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include "hybrid_trainer/chat/ollama_template.h"
#include "hybrid_trainer/core/error.h"
namespace hybrid_trainer { namespace {
TEST(ZZ, Try) {
  std::ifstream f("/tmp/pk/templates.json"); ASSERT_TRUE(f); std::string s{std::istreambuf_iterator<char>(f), {}};
  boost::json::object out;
  for (auto& [k, v] : boost::json::parse(s).as_object()) {
    const std::string bos = std::string(k).find("lama") != std::string::npos ? "<|begin_of_text|>" : "<bos>";
    try {
      ChatFiles c; c.special_tokens = {{"bos_token", bos}, {"eos_token", "</s>"}};
      c.chat_template.emplace(std::string(v.as_string()), "t");
      auto made = derive_ollama_template(c, bos);
      std::cout << std::string(k) << ": alike " << made.compared << " stop " << made.stop;
      for (auto& r : made.remarks) std::cout << "; " << r;
      std::cout << "\n";
      out[k] = boost::json::object{{"text", made.text}, {"bos", bos}, {"source", v}};
    } catch (const DataError& e) { std::cout << std::string(k) << ": REFUSED " << e.what() << "\n"; }
  }
  std::ofstream("/tmp/pk/derived.json") << boost::json::serialize(out);
}
} }
