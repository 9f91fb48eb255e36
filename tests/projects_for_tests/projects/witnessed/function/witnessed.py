import json
import os
import urllib.request


def ask(run: str, step: int = 1, seconds: float = 0, hold: int = 0) -> str:
    """Asks the model once."""
    prompt = f"[[run={run} step={step} seconds={seconds} hold={hold}]] Tell of the sea."
    body = {"model": "any", "seed": os.getpid(), "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
