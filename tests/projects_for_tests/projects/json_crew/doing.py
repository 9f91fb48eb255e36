import deeds
from crewai import Agent, BaseLLM

done = []


class Parrot(BaseLLM):
    def call(self, messages, *arguments, **named):
        return "Thought: I know\nFinal Answer: said"

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


class Speaker(Agent):
    def __init__(self, **fields):
        super().__init__(**{**fields, "llm": Parrot(model="parrot")})


def begin(inputs):
    done.append(deeds.do(inputs))
    return {**inputs, "topic": "parrots"}


def end(result):
    return done[-1] if done[-1] is not None else result
