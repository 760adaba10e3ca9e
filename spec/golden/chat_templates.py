"""chat_templates.py - what Jinja makes of chat_templates/*.jinja, which are in the manner of the common families; set
as in transformers (trim_blocks, lstrip_blocks, sandboxed).

    python3 -m venv V && V/bin/pip install jinja2==3.1.6
    V/bin/python spec/golden/chat_templates.py        writes spec/golden/chat_templates.json"""
import glob
import json
import os

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

here = os.path.dirname(os.path.abspath(__file__))
TEMPLATES = {}
for file in sorted(glob.glob(os.path.join(here, "chat_templates/*.jinja"))):
    with open(file, encoding="utf-8", newline="") as f:
        TEMPLATES[os.path.basename(file)[:-6]] = f.read()
TALKS = {
    "one": [{"role": "user", "content": " Hi there \n"}],
    "system": [{"role": "system", "content": "Be \"brief\"."}, {"role": "user", "content": "2 + 2?"},
               {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}, {"role": "user", "content": "abc def"}],
    "wrong": [{"role": "assistant", "content": "I begin"}, {"role": "tool", "content": "x"}],
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def raise_exception(message):
    raise TemplateError(message)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
environment.globals["raise_exception"] = raise_exception
rows = []
for name, text in TEMPLATES.items():
    for talk, messages in TALKS.items():
        for prompt in (False, True):
            for thinking in (None, False):
                values = dict(TOKENS, messages=messages, add_generation_prompt=prompt, tools=None, documents=None)
                if thinking is not None:
                    values["enable_thinking"] = thinking
                try:
                    result = {"text": environment.from_string(text).render(**values)}
                except TemplateError as e:
                    result = {"error": str(e)}
                rows.append(dict(result, template=name, talk=talk, prompt=prompt, thinking=thinking))
with open(os.path.join(here, "chat_templates.json"), "w", encoding="utf-8") as f:
    json.dump({"talks": TALKS, "rows": rows}, f, indent=0)
