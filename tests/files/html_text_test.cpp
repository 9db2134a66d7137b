#include "src/files/escaped_text.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(HtmlText, EscapesMarkupAndInvalidUtf8) {
  EXPECT_EQ(html_escaped("<img src=x onerror='a(\"b\")'>&"),
            "&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;");
  EXPECT_EQ(html_escaped("bad\xFF\xFE caf\xC3\xA9"), "bad\xEF\xBF\xBD\xEF\xBF\xBD caf\xC3\xA9");
}

TEST(HtmlText, FilledPartsAreNotExpandedAgain) {
  EXPECT_EQ(filled_page("<{{a}}> {{b}} {{a}}", {{"a", "{{b}}"}, {"b", "B"}}), "<{{b}}> B {{b}}");
}

TEST(HtmlText, PolicyAllowsOnlyGivenScript) {
  // Computed by: printf 'alert(1)' | openssl dgst -sha256 -binary | base64
  EXPECT_NE(content_policy("alert(1)")
                .find("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=';"),
            std::string::npos)
      << content_policy("alert(1)");
  EXPECT_NE(content_policy("").find("script-src 'none';"), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
