#!/usr/bin/env python3
"""Writes chat_golden.json next to this script; README.md describes its content.

jinja2 renders every case with the settings of transformers (utils/chat_template_utils.py). The templates are in
chat_templates.py.
"""

import datetime
import json
import pathlib
from contextlib import contextmanager

import jinja2
from chat_templates import TEMPLATES
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1_700_000_000


class Generation(Extension):
    """The `generation` block: records which part of the text it generated."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        self.written, self.spans = None, None
        environment.extend(noting=self.noting)

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        begin = len("".join(self.written).encode())
        self.spans.append([begin, begin + len(text.encode())])
        return text

    @contextmanager
    def noting(self, written, spans):
        self.written, self.spans = written, spans
        yield


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals.update(
    raise_exception=raise_exception,
    strftime_now=lambda form: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form),
)


def rendered(source, variables):
    """Renders a template with jinja2, or returns that it is rejected."""
    written, spans = [], []
    try:
        with ENVIRONMENT.noting(written, spans):
            for part in ENVIRONMENT.from_string(source).generate(**variables):
                written.append(part)
    except Exception as error:
        return {"refused": type(error).__name__}
    return {"text": "".join(written), "generated": spans}


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Łódź \"N\"", "days": 3, "exact": True,
        "deep": {"b": [1, 2.5, None], "A": {}}}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says <b>what</b> comes & goes\n",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Łódź", "新宿"]}}, "required": []}}}


def said(*contents, system=None):
    """A conversation that alternates between user and assistant."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    for i, content in enumerate(contents):
        messages.append({"role": "assistant" if i % 2 else "user", "content": content})
    return messages


CHATS = [
    said("Hi"),
    said("Hi", "Hello!", system="Be brief."),
    said("  A \n", "\n B\t", "C{{ x }}", "{% d %}", system=" s "),
    said("Zażółć 日本語 🙂", "<think>\nlong\n</think>\n\nshort", "again", "<think>x</think>y"),
    said("a", "b", "c", "<think>only here", "d"),
    said([{"type": "text", "text": " part "}, {"type": "image"}, {"type": "text", "text": "two"}], "ok"),
    said("weather?")
    + [{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "sun"},
       {"role": "assistant", "content": "It is sunny.", "reasoning_content": "sun, then"}],
    said("two?")
    + [{"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, {"name": "f", "arguments": "{\"a\": 1}", "function": None}]},
       {"role": "tool", "content": "1"}, {"role": "tool", "content": {"k": [1, "é"]}}],
    [{"role": "assistant", "content": "first"}, {"role": "hidden", "content": 3}],
    said("", "", system=""),
    [],
]

EXPRESSIONS = """\
1 + 2 * 3 - 4 // 3 % 2 / 4
-7 // 2, -7 % 3, 7 % -3, -7.5 // 2, 7.5 % -2
'x' * 3, 2 * 'ab', [0] * 2, 'x' * -1
1 == 1.0, true == 1, '1' == 1, [1, (2,)] == [1, (2,)], [1] == (1,), {} == {}, none == none
1 < 2 < 3, 3 > 2 >= 2, 'a' < 'b' != 'c', [1, 2] < [1, 3], not 1 < 2
'a' in 'abc', 'x' not in 'abc', 1 in [1, 2], 'k' in d, 'z' in d, 3 not in (1, 2)
'b' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x'] ~ {'a': none} ~ missing
[1, 'a\\'b', "q\\"", 'é\\n\\x01\\u2028', none, 1e16, 1e-5, 0.1, 123456789012345.0, (1,), ()]
'abcdef'[1:4], 'abcdef'[::-1], 'abcdef'[-2], 'äöü'[1], [1, 2, 3, 4][::2], [1, 2, 3][5:], (1, 2, 3)[:-1], [1, 2, 3][-9:2]
d.k, d['k'], d.none, d.get('k'), d.get('z', 7), d.get('z'), d['missing'] is defined, d.items() | list, d.keys() | list
d.items is defined, d.values() | list, d | length, d | list, d | dictsort, d | items | list
' \\t a b \\u00a0'.strip(), 'xxaxx'.lstrip('x'), 'xxaxx'.rstrip('x'), 'xyaxy'.strip('yx'), ' a '|trim, 'xax'|trim('x')
'a,b,,c'.split(','), ' a  b '.split(), 'a,b,c'.split(',', 1), 'abc'.split('abc'), ' a b  c '.split(none, 1)
'abc'.replace('b', 'xx'), 'aaa' | replace('a', 'b', 2), 'ab'.replace('', '-'), 'abc'.find('c'), 'äbc'.find('c'), 'abc'.find('x')
'aBc' | upper, 'aBc'.lower(), 'aBC dEF' | capitalize, 'pre-x'.removeprefix('pre-'), 'x.y'.removesuffix('.y'), '-'.join(['a', 'b'])
'abc'.startswith('ab'), 'abc'.startswith(('x', 'a')), 'abc'.endswith('bc'), 'abc'.endswith(('x',))
[1, 2, 3] | first, [1, 2, 3] | last, [] | first is defined, 'äbc' | first, [1, 2] | join, ['a', 1, none] | join(', ')
range(3) | list, range(1, 4) | list, range(5, 0, -2) | list, [1, 2] + [3], 'a' 'b'
[{'n': 1}, {'n': 2}, {}] | map(attribute='n') | list | length, ['a', 'b'] | map('upper') | join, [3, 1] | map('string') | list
[1, 0, 2, ''] | select | list, [1, 0, 2] | reject('equalto', 1) | list, ['a', 1] | select('string') | list
[{'t': 'a', 'v': 1}, {'t': 'b', 'v': 2}] | selectattr('t', 'equalto', 'b') | map(attribute='v') | list
[{'t': 'a'}, {}] | rejectattr('t') | list, [{'t': 'a'}, {}] | selectattr('t', 'defined') | list
missing | default('d'), '' | default('d'), '' | default('d', true), none | default('d', boolean=true), missing is defined, missing == absent
missing | length, missing | list, missing | string, 'x' in missing, (1 if false), (1 if false) is undefined
1 is integer, true is integer, 1.0 is float, 1 is number, true is number, true is boolean, 1 is true, true is true, false is false
'a' is string, d is mapping, [] is mapping, [] is sequence, d is sequence, 'a' is iterable, 1 is iterable, 1 is not none, 2 is in [1, 2]
1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is gt 1, 2 is ge 2, 2 is le 1, d is not mapping or d.k is string and true
d | tojson, [1, 1.5, true, none, 'é"\\\\/<&>\\u0001\\x7f'] | tojson, [] | tojson(indent=2), {'a': [], 'b': {}, 'c': [1, {'d': 2}]} | tojson(indent=2)
{'b': 1, 'a': 'é🙂'} | tojson(sort_keys=true), 'é🙂\\x7f' | tojson(ensure_ascii=true), [1, {'x': 2}] | tojson(indent='\\t'), (1, 2) | tojson
true and 'a' or 'b', none or 0 or 'z', not none, (1, 2) | length, 'a' if d.k == 'v' else 'b' if true else 'c'
0.5e3, 1e3, 12.25, 100000000000000000000.0, -0.0, 1.0 | string, 3.0 | tojson, 2 / 3
'tab\\tx', "q'q", 'q"q', '\\x41\\u00e9\\101\\q', 'a\\\\n'
d.k.missing, d.k.upper is defined, d[0], [1]['x'], [1].x is defined, 'abc'.x is defined
d.missing.deeper
missing.x
missing + 1
1 + 'a'
'a' < 1
1 // 0
[1, 2] | tojson | length, ('<' ~ ({'a': '<'} | tojson | safe) ~ '>'), '<' | safe
none.x is defined, none | length
none | trim, 5 | string + 'a', 'a' | list, true + 1
namespace(a=1).a, namespace(a=1).b is defined, dict(a=1, b='c'), -5 | string, - 5 + 2, +3
"""

VARIABLES = {"d": {"k": "v", "none": None, "list": [1, "b"]}, "bos_token": "<s>", "eos_token": "</s>"}

LAYOUTS = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n\n",
    "a  {%- if true -%}  b  {%- endif -%}  c\n",
    "  {%+ if true %}x{% endif +%}\n y",
    "{# one #}\n  {# two -#}\n\n a {#- three\n -#} b {# four +#}\nc",
    "x{{ 1 }}\n{{ 2 -}}\n  y {{- 3 }}\n",
    "a\r\nb{% set x = 'q\r\nr' %}\r\n{{ x }}\r\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ '}}' }}{{ \"%}\" }}",
    "{%- for i in [1, 2, 3] -%}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}{% endif %},{%- endfor -%}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }}{{ loop.revindex }}{{ loop.first }}{% else %}none{% endfor %}{% for a in [] %}x{% else %}none{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}",
    "{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% set n.y = i %}{% endfor %}{{ n.x }}{{ n.y }}",
    "{% set a, b = 1, 'two' %}{% set c = a, b %}{{ c }}{{ b }}{% set d = [a] %}{{ d }}",
    "{% set x | trim | upper %}  ab {{ 1 }}  {% endset %}[{{ x }}]",
    "{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{{ outer }}{% endmacro %}{% set outer = 'o' %}{{ m(1) }}|{{ m(1, c=5) }}|{{ m() }}|{{ m(b=3, a=4) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% for x in [3, 1] %}{% for y in [x] %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.last }}{% endfor %}{{ x is defined }}",
    "{% generation %}é{% endgeneration %}\n{% for i in [1, 2] %}{% set x = i %}{% generation %}{{ x }}{% set x = 9 %}{% endgeneration %}{{ x }}{% endfor %}",
    "{% if false %}1{% elif none %}2{% elif 'x' %}3{% else %}4{% endif %}{% if 1, 2 %}t{% endif %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}{% for c in 'aé' %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% set d.k = 1 %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a in 5 %}{% endfor %}",
    "{{ 1",
    "{% if true %}",
    "{% endif %}",
    "{{ }}",
    "{{ 'a }}",
    "{{ (1 }}",
    "{# x",
    "\n{{ raise_exception('no: ' ~ d.k) }}",
    "\n\n  \n{%- if true %} x {% endif -%} \n \n",
    "   {{ 1 }}\n \t{% if true %}\n \t{% endif %} z",
]


MORE = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": [TOOL], "enable_thinking": False, "date": "1"},
    {"tools": None},
]


def main():
    cases = []
    for name, source in TEMPLATES.items():
        for chat, messages in enumerate(CHATS):
            for more, variables in enumerate(MORE):
                result = rendered(source, {**VARIABLES, **variables, "messages": messages})
                cases.append({"template": name, "chat": chat, "more": more, **result})
    for source in ["{{ %s }}" % line for line in EXPRESSIONS.splitlines()] + LAYOUTS:
        cases.append({"source": source, **rendered(source, VARIABLES)})
    golden = {"now": NOW, "variables": VARIABLES, "chats": CHATS, "more": MORE, "templates": TEMPLATES, "cases": cases}
    (HERE / "chat_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
