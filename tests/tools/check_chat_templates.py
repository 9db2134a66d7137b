#!/usr/bin/env python3
"""Compares chats rendered by `hybrid rows` with transformers, for collections of templates.

python3 tests/tools/check_chat_templates.py build/bin/hybrid trl-*.whl unsloth-*.whl [FILE.jinja ...]

Needs transformers and jinja2. The templates are the .jinja files of a wheel and the texts in
unsloth/chat_templates.py. Each is tested with ten chats. If transformers renders a chat, `hybrid rows` must render
the same text. The targets must be the text that each answer adds to the previous chat, provided that chat is a
prefix of the complete one. Answers whose tool calls are omitted by the template are not targets.
"""

import ast
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from transformers.utils.chat_template_utils import _compile_jinja_template

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "Which city"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}}]
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


CHATS = [
    {"messages": [user("Hello"), assistant("Hi there.")]},
    {"messages": [{"role": "system", "content": "Be brief."}, user("Hello"), assistant("Hi."), user("More?"),
                  assistant("Yes, more."), user("And?"), assistant("That is all.")]},
    {"messages": [user("Rain?"), assistant("I don't know."), user("Look"), assistant("No.")], "tools": TOOLS},
    {"messages": [user("Rain in Rome?"), assistant("", tool_calls=[CALL]),
                  {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "none"},
                  assistant("No rain."), user("Thanks"), assistant("You are welcome.")], "tools": TOOLS},
    {"messages": [user("2+2?"), assistant("4", reasoning_content="Add."), user("3+3?"),
                  assistant("6", reasoning_content="Add again.")]},
    {"messages": [user("2+2?"), assistant("<think>\nAdd.\n</think>\n\n4"), user("3+3?"),
                  assistant("<think>\nAgain.\n</think>\n\n6")]},
    {"messages": [user("Say nothing"), assistant(""), user("Again"), assistant("Fine.")]},
    {"messages": [user("  a\n\n"), assistant("\n  indented\n\tline \n\n"), user("é 日本 \u00a0 <b>&'\""), assistant(" x ")]},
    {"messages": [user([{"type": "text", "text": "2+2?"}]), assistant([{"type": "text", "text": "4."}])]},
    {"messages": [assistant("I begin."), user("Hm"), assistant("Two"), assistant("in a row")]},
]


def templates_of(path):
    if path.suffix == ".jinja":
        yield path.stem, path.read_text()
        return
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".jinja"):
                yield name, wheel.read(name).decode()
            if name == "unsloth/chat_templates.py":
                yield from templates_of_unsloth(wheel.read(name).decode())


def templates_of_unsloth(source):
    """Returns the texts that the module assigns, without running it."""
    names, templates = {}, {}
    scope = {"_ollama_template": lambda name: None, "CHAT_TEMPLATES": templates}
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        target = statement.targets[0]
        evaluated = lambda node: eval(compile(ast.Expression(node), "unsloth", "eval"), dict(scope, **names))
        try:
            if isinstance(target, ast.Name):
                names[target.id] = evaluated(statement.value)
            elif isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == "CHAT_TEMPLATES":
                templates[evaluated(target.slice)] = evaluated(statement.value)
        except Exception:  # templates that need other modules are skipped
            continue
    for text in {entry[0] for entry in templates.values()}:
        yield "unsloth " + next(name for name, entry in templates.items() if entry[0] == text), text


def forms_of(row):
    """Returns the row in each format that `hybrid rows` may pass to a template."""
    for as_parts, none_beside_calls, as_text in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]:
        messages = json.loads(json.dumps(row["messages"]))
        for message in messages:
            content = message["content"]
            if isinstance(content, list):
                content = "".join(part["text"] for part in content)
            if "reasoning_content" in message:
                message["thinking"] = message["reasoning_content"]
            if none_beside_calls and message.get("tool_calls"):
                content = None
            message["content"] = [{"type": "text", "text": content}] if as_parts else content
            for call in message.get("tool_calls", []) if as_text else []:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        yield messages


def targets_by_prefixes(render, messages, whole):
    """Returns for each character whether it is a target, or None if a chat is not a prefix of the next one."""
    targets = [False] * len(whole)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        try:
            before, through = render(messages[:i], True), render(messages[: i + 1], False)
        except Exception:
            return None
        if not (whole.startswith(through) and through.startswith(before)):
            return None
        if message.get("tool_calls") and "get_weather" not in through[len(before):]:
            continue
        targets[len(before):len(through)] = [True] * (len(through) - len(before))
    targets[0] = False
    return targets


def shown_row(hybrid, folder, line):
    command = [hybrid, "rows", "rows.jsonl", "--model", ".", "--length", "100000", "--show", str(line)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        return None, None, result.stderr
    text, targets, inside = [], [], False
    for character in result.stdout[:-1]:
        if character in "⟦⟧":
            inside = character == "⟦"
        else:
            text.append(character)
            targets.append(inside)
    return "".join(text), targets, result.stderr


def problem_of(hybrid, folder, line, row, template, has_blocks):
    compiled = _compile_jinja_template(template)

    def render(messages, prompt):
        return compiled.render(messages=messages, tools=row.get("tools"), documents=None,
                               add_generation_prompt=prompt, **TOKENS)

    rendered = []
    for messages in forms_of(row):
        try:
            rendered.append((messages, render(messages, False)))
        except Exception:
            continue
    text, targets, errors = shown_row(hybrid, folder, line)
    if text is None:
        reasons = [one for one in errors.splitlines() if one.startswith(f"line {line} ")]
        return f"refused: {reasons}" if rendered else None
    for messages, whole in rendered:
        if whole != text:
            continue
        wanted = None if has_blocks else targets_by_prefixes(render, messages, whole)
        return "other targets" if wanted is not None and wanted != targets else None
    return "another text"


def main(hybrid, paths):
    chats = problems = templates = 0
    for path in paths:
        for name, template in templates_of(pathlib.Path(path)):
            templates += 1
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "tokenizer.json").write_text('{"type":"bytes"}')
                (root / "tokenizer_config.json").write_text(json.dumps(TOKENS))
                (root / "chat_template.jinja").write_text(template)
                (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CHATS))
                for line, row in enumerate(CHATS, 1):
                    chats += 1
                    problem = problem_of(hybrid, folder, line, row, template, "endgeneration" in template)
                    if problem is not None:
                        problems += 1
                        print(f"{name}, chat {line}: {problem}")
    print(f"{templates} templates, {chats} chats, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]))
