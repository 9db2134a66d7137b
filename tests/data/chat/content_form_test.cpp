#include "src/data/chat/chat_template.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

bool takes_parts(const std::string& source) {
  ChatFiles chat;
  chat.special_tokens = {{"bos_token", "<s>"}};
  chat.chat_template.emplace(source, "t");
  return requires_content_parts(chat, 0);
}

TEST(ContentForm, UsesPartsIfTextIsNotWritten) {
  const std::string of_parts = "{% for part in m.content %}{{ part.text }}{% endfor %}";
  const std::string loop = "{{ bos_token }}{% for m in messages %}";
  EXPECT_TRUE(takes_parts(loop + of_parts + "{% endfor %}"));
  EXPECT_TRUE(takes_parts(loop + "{% if m.content is string %}{{ raise_exception('a text') }}" +
                          "{% endif %}" + of_parts + "{% endfor %}"));
}

TEST(ContentForm, UsesTextByDefault) {
  EXPECT_FALSE(requires_content_parts(ChatFiles(), 0));
  EXPECT_FALSE(takes_parts("{% for m in messages %}{{ m.content }}{% endfor %}"));
  EXPECT_FALSE(takes_parts("nothing"));
  EXPECT_FALSE(takes_parts("{{ raise_exception('no') }}"));
  EXPECT_FALSE(
      takes_parts("{% for m in messages %}{% if m.content is string %}{{ m.content }}"
                  "{% else %}{{ m.content[0].text }}{% endif %}{% endfor %}"));
}

}  // namespace
}  // namespace hybrid_trainer
