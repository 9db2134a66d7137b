"""The chat templates that make_chat_golden.py renders. They are our own, in the styles of several model families."""

TEMPLATES = {
    "angle": """\
{%- if tools %}
    {{- '<|turn|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "Functions, one a line:\\n<functions>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</functions><|over|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|turn|>system\\n' + messages[0]['content'] + '<|over|>\\n' }}
{%- endif %}
{%- set state = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set place = (messages|length - 1) - loop.index0 %}
    {%- if state.searching and message.role == "user" and message.content is string and
           not (message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set state.searching = false %}
        {%- set state.last = place %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|turn|>' + message.role + '\\n' + message.content + '<|over|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content if message.content is string else '' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|turn|>' ~ message.role ~ '\\n' }}
        {%- if loop.index0 > state.last and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls | default([]) %}
            {%- if call.function %}{% set call = call.function %}{% endif %}
            {{- '\\n<call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}
            {{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|over|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}{{- '<|turn|>user' }}{% endif %}
        {{- '\\n<result>\\n' ~ message.content ~ '\\n</result>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|over|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "header": """\
{{- bos_token }}
{% if not date is defined %}
    {% if strftime_now is defined %}{% set date = strftime_now("%d %b %Y") %}{% else %}{% set date = "?" %}{% endif %}
{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\\n\\nToday: " + date + "\\n" }}
{{- system }}{{ "<|end|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n'+ message['content'] | trim + '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time, not " ~ message.tool_calls|length) }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson(indent=2) }}
        {{- "}<|end|>" }}
    {%- else %}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\\n\\n' }}
{%- endif %}""",
    "strict": """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role here') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}
{% endif %}
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{ '<turn>' + role + '\\n' }}
{%- if message['content'] is string -%}
    {{ message['content'] | trim }}
{%- else -%}
    {%- for item in message['content'] -%}
        {%- if item['type'] == 'text' -%}
            {{ item['text'] | trim }}
        {%- elif item['type'] == 'image' -%}
            {{ '<image>' }}
        {%- endif -%}
    {%- endfor -%}
{%- endif -%}
{{ '</turn>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<turn>model\\n' }}{% endif %}
""",
    "instruction": """\
{%- set chat = messages %}
{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}
    {%- set chat = messages[1:] %}
{%- endif %}
{{- bos_token }}
{%- for message in chat %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system is defined %}
            {{- "[ASK] " + system + "\\n\\n" + message["content"] + "[/ASK]" }}
        {%- else %}
            {{- "[ASK] " + message["content"] + "[/ASK]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {%- continue %}
    {%- endif %}
{%- endfor %}""",
    "marked": """\
{% for message in messages %}
<|turn|>{{ message.role }}
{% if message.role == 'assistant' %}
{% generation %}
{{ message.content }}{{ '<|over|>' }}
{% endgeneration %}
{% else %}
{{ message.content }}<|over|>
{% endif %}
{% endfor %}
{{- '<|turn|>assistant\\n' if add_generation_prompt }}""",
    "macros": """\
{%- macro parts(content, images=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if item.type == 'text' or 'text' in item %}
                {{- item.text }}
            {%- elif images %}
                {{- '<image ' ~ loop.index ~ '>' }}
            {%- else %}
                {{- raise_exception('no images here') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('unexpected content') }}
    {%- endif %}
{%- endmacro %}
{%- macro argument(value, depth=0) -%}
    {%- if value is mapping -%}
        { {%- for key, inner in value | dictsort -%}
            {{ key }}: {{ argument(inner, depth=depth + 1) }}{{ ', ' if not loop.last }}
        {%- endfor -%} }
    {%- elif value is boolean -%}
        {{ 'yes' if value else 'no' }}
    {%- else -%}
        {{ value | tojson }}@{{ depth }}
    {%- endif -%}
{%- endmacro %}
{%- for message in messages if message.role != 'hidden' %}
    {%- set content = parts(message.content, message.role == 'user') | trim %}
    {{- '[' ~ loop.index ~ '/' ~ loop.length ~ ' ' ~ message.role | upper ~ '] ' ~ content ~ '\\n' }}
    {%- for call in message.tool_calls or [] %}
        {{- call.function.name }}(
        {%- for name, value in call.function.arguments | items %}
            {{- name ~ '=' ~ argument(value) }}{% if not loop.last %}; {% endif %}
        {%- endfor %})
    {%- endfor %}
{%- else %}
    {{- 'nothing' }}
{%- endfor %}
{% set rest %}
  {{ messages | map(attribute='role') | join('>') }}
{% endset %}
{{- rest | trim }}""",
}
